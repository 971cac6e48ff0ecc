"""The statements of a row's contexts, and which of them bear on the question: as a judge says, or as vectors do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, ClassVar, Self

import pyarrow as pa

from rag_descriptors.aggregations import HitShareAggregation
from rag_descriptors.base import MISSING_INPUT, NO_CONTEXTS, NO_STATEMENTS, OK, score_contexts
from rag_descriptors.judging import Judging
from rag_descriptors.models.find import import_extra
from rag_descriptors.models.judge import Verdict
from rag_descriptors.models.llm import DEFAULT_MODEL
from rag_descriptors.models.prompts import STATEMENTS, Statement, Template
from rag_descriptors.options import caught, mappings, together, unknown
from rag_descriptors.similarity import SemanticSimilarity

__all__ = ["JudgedStatements", "RowStatements", "SimilarSentences"]

DEFAULT_THRESHOLD = 0.74  # the best of benchmarks/sentences.py
DEFAULT_LANGUAGE = "en"


@dataclass(frozen=True, kw_only=True)
class RowStatements:
    """What a row's contexts state.

    Attributes:
        status: What became of the row.
        answers: The statements, once per repeat, first those that are shown; none where there is no score.
            `Statement.context` is the place of the context in its list, from 0.
        message: Why there is no score.
    """

    status: str
    answers: Sequence[Sequence[Statement]] = ()
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class JudgedStatements(Judging):
    """The statements that a judge lists, in one call for all contexts of a row."""

    usual: ClassVar[Template] = STATEMENTS

    def __call__(
        self, questions: pa.StringArray, contexts: pa.ListArray, responses: pa.StringArray
    ) -> list[RowStatements]:
        """Return the statements of each row; a row without a question or contexts is not judged."""
        rows = [_Row(*cells) for cells in zip(*(c.to_pylist() for c in (questions, contexts, responses)), strict=True)]
        asked = [row for row in rows if row.status == OK]
        judged = iter(self.ask([row.data for row in asked]))
        return [row.read(next(judged)) if row.status == OK else RowStatements(status=row.status) for row in rows]


@dataclass(frozen=True)
class _Row:
    """The cells of one row."""

    question: str | None
    contexts: list[str | None] | None
    response: str | None

    @property
    def places(self) -> list[int]:
        """Where in the list those contexts stand that are not missing."""
        return [place for place, text in enumerate(self.contexts or ()) if text is not None]

    @property
    def status(self) -> str:
        """Whether there is anything to judge."""
        return MISSING_INPUT if self.question is None else OK if self.places else NO_CONTEXTS

    @property
    def data(self) -> dict[str, Any]:
        """What stands in the prompt."""
        texts = [text for text in self.contexts or () if text is not None]
        return {"question": self.question, "response": self.response, "contexts": texts}

    def read(self, judged: Sequence[Verdict]) -> RowStatements:
        """Return what the judge says; nothing if one of the repeats has no answer."""
        failed = [verdict for verdict in judged if verdict.failure is not None]
        if failed:
            return RowStatements(status=str(failed[0].failure), message=failed[0].message)
        answers = [[self._placed(statement) for statement in verdict.value] for verdict in judged]
        answers.sort(key=bool, reverse=True)  # one that states nothing shows nothing
        return RowStatements(status=OK if any(answers) else NO_STATEMENTS, answers=answers)

    def _placed(self, statement: Statement) -> Statement:
        return replace(statement, context=None if statement.context is None else self.places[statement.context - 1])


@dataclass(frozen=True, kw_only=True)
class SimilarSentences:
    """The sentences of the contexts; those that are similar to the question bear on it.

    Attributes:
        threshold: How similar, at least.
        language: Of the rules that split sentences, such as "en".
        similarity: What compares.
    """

    threshold: float = DEFAULT_THRESHOLD
    language: str = DEFAULT_LANGUAGE
    similarity: SemanticSimilarity = field(default_factory=SemanticSimilarity)
    repeats: ClassVar[int] = 1

    def __post_init__(self) -> None:
        together([*self._problems()])

    def _problems(self) -> Iterator[str]:
        yield from caught(lambda: HitShareAggregation(self.threshold))
        if not isinstance(self.language, str) or not self.language:
            yield f"language: {self.language!r} is not allowed. Give a code such as 'en'."

    @classmethod
    def from_params(cls, params: Mapping[str, Any] | None = None, *, model: str = DEFAULT_MODEL) -> Self:
        """Return what these options name; those that are not its own are the similarity's.

        Raises:
            OptionError: Names or values are not allowed.
        """
        together(mappings(method_params=params))
        given, theirs = params or {}, SemanticSimilarity.option_names()
        problems = unknown("method_params", given, ["threshold", "language", *theirs])
        if model != DEFAULT_MODEL:
            problems.append(f"model: {model!r} is a judge's. Give method_params={{'model': …}}.")
        own = {name: value for name, value in given.items() if name in ("threshold", "language")}
        others = {name: value for name, value in given.items() if name in theirs}
        made: list[SemanticSimilarity] = []
        problems += caught(lambda: cls(**own), lambda: made.append(SemanticSimilarity.from_params(others)))
        together(problems)
        return cls(similarity=made[0], **own)

    @property
    def params(self) -> dict[str, Any]:
        """The options that make this."""
        return {"threshold": self.threshold, "language": self.language, **self.similarity.params}

    @property
    def provenance(self) -> dict[str, Any]:
        """All that changes an answer."""
        import_extra("sentencex", "semantic")
        own = {"threshold": self.threshold, "language": self.language, "sentencex": version("sentencex")}
        return {**self.similarity.provenance, **own}

    def bind(self, wrap: Callable[[Any], Any]) -> Self:
        """Return the same with its embedder wrapped."""
        return replace(self, similarity=self.similarity.bind(wrap))

    def __call__(self, questions: pa.StringArray, contexts: pa.ListArray, _: pa.StringArray) -> list[RowStatements]:
        """Return the sentences of each row; responses are not read."""
        split = {text: self._sentences(text) for text in contexts.flatten().drop_null().unique().to_pylist()}
        rows = [_sentences(texts, split) for texts in contexts.to_pylist()]
        lists = pa.array([None if row is None else [text for _, text in row] for row in rows], contexts.type)
        scored = score_contexts(questions, lists, self.similarity, HitShareAggregation(self.threshold))
        cells = zip(rows, scored.scores.to_pylist(), scored.statuses, strict=True)
        return [self._read(row or [], scores or [], status) for row, scores, status in cells]

    def _sentences(self, text: str) -> list[str]:
        found = import_extra("sentencex", "semantic").segment(self.language, text)
        return [sentence.strip() for sentence in found if sentence.strip()]

    def _read(self, row: Sequence[tuple[int, str]], scores: Sequence[float | None], status: str) -> RowStatements:
        if status != OK:
            return RowStatements(status=status)
        pairs = zip(row, scores, strict=True)
        found = [Statement(place, text, bool((score or 0.0) >= self.threshold), None) for (place, text), score in pairs]
        return RowStatements(status=status, answers=[found])


def _sentences(texts: Sequence[str | None] | None, split: Mapping[str, Sequence[str]]) -> list[tuple[int, str]] | None:
    """Return the sentences of a row's contexts, each with the place of its context."""
    if texts is None:
        return None
    return [(place, sentence) for place, text in enumerate(texts) if text is not None for sentence in split[text]]

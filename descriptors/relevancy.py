"""ContextRelevancy: the share of the statements in the contexts that bear on the question."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from math import isfinite
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from rag_descriptors.base import to_batch
from rag_descriptors.conditions import Condition, fields_of, problems_of, results_of
from rag_descriptors.models.llm import DEFAULT_MODEL
from rag_descriptors.models.prompts import Statement
from rag_descriptors.options import caught, column_names, flags, keep_copies, one_of, stable_repr, together
from rag_descriptors.schemas import STATEMENTS, score_field, statements_field, status_field, text_field
from rag_descriptors.statements import JudgedStatements, RowStatements, SimilarSentences
from rag_descriptors.traces.columns import CONTEXTS, TEXT

__all__ = ["ContextRelevancy"]


@dataclass(frozen=True)
class ContextRelevancy:
    """The share of the statements in a row's contexts that bear on the question, times `scale`: Mastra's metric.

    Score = `relevant statements / all statements × scale`. A judge lists the statements of all contexts of a row in one
    call, each with a verdict and a reason; or, without a judge, the sentences are the statements.

    Columns: `{alias}`; `{alias} reason`, made of the verdicts' own reasons, which names the statements that were
    counted; with `output_statements` `{alias} statements`, a list of structs (`context`, the place in the list of
    contexts from 0, `statement`, `verdict`, "yes" or "no", `reason`); with `output_status` `{alias} status`; and one
    nullable boolean column per test. Contexts that state nothing score 0.0, with the status `no_statements`; a row
    without a question or without contexts is null.

    Attributes:
        input: The column of questions.
        contexts: The column of contexts.
        output: The column of responses, which help a judge to understand the question; None leaves them out.
        model: The judge's model, see `LiteLLMJudge`.
        scale: What a share of 1 is called, such as 100.
        method: `"llm"`; or `"semantic_similarity"`: a sentence bears on the question if its similarity, see
            `SemanticSimilarity`, is at least `threshold`. No key is needed.
        method_params: For `"llm"` those of `Limits` and, unless a `judge` is given, of `LiteLLMJudge`; `prompt`, a task
            of your own that holds `{question}` and `{contexts}`; and `repeats` (1): with more, the score is the mean,
            `{alias} spread` the distance of the lowest from the highest, and the statements are those of the first
            answer that has any.
            For `"semantic_similarity"` those of `SemanticSimilarity`; `threshold` (0.74); and `language` ("en"), of the
            rules that split sentences.
        alias: The name of the score column.
        tests: Conditions on the score, see `rag_descriptors.conditions`.
        decimals: How many the score is rounded to, half up as Mastra does; None does not round.
        output_reason: Whether to give the reason.
        output_statements: Whether to give the statements.
        output_status: Whether to say what became of each row.

    Raises:
        OptionError: A name or a value is not allowed.

    Example:
        >>> import pandas as pd
        >>> from rag_descriptors import ContextRelevancy, add_descriptors
        >>> from rag_descriptors.testing import FakeJudge
        >>> traces = pd.DataFrame({"question": ["Who wrote Faust?"], "contexts": [["Goethe wrote Faust. He died."]]})
        >>> said = [
        ...     {"context": 1, "statement": "Goethe wrote Faust", "verdict": "yes", "reason": "names him"},
        ...     {"context": 1, "statement": "He died", "verdict": "no", "reason": "not on Faust"},
        ... ]
        >>> judge = FakeJudge([{"verdicts": said}])
        >>> relevancy = ContextRelevancy("question", "contexts", method_params={"judge": judge}, alias="relevancy")
        >>> scored = traces.pipe(add_descriptors, relevancy)
        >>> scored["relevancy"].item()
        0.5
        >>> print(scored["relevancy reason"].item())
        1 of 2 statements bear on the question. Yes: “Goethe wrote Faust” (names him). No: “He died” (not on Faust).
    """

    input: str
    contexts: str
    output: str | None = None
    model: str = DEFAULT_MODEL
    scale: float = 1.0
    method: str = "llm"
    method_params: Mapping[str, Any] | None = None
    alias: str | None = None
    tests: Sequence[Condition] | None = None
    _: KW_ONLY
    decimals: int | None = None
    output_reason: bool = True
    output_statements: bool = False
    output_status: bool = False
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        keep_copies(self)
        together([*self._problems(), *caught(lambda: self._finder)])

    def _problems(self) -> Iterator[str]:
        named = {"output": self.output} if self.output is not None else {}
        yield from column_names(input=self.input, contexts=self.contexts, alias=self.name, **named)
        yield from flags(self, "output_reason", "output_statements", "output_status")
        yield from problems_of(self.tests)
        if type(self.scale) not in (int, float) or not (self.scale > 0 and isfinite(self.scale)):
            yield f"scale: {self.scale!r} is not allowed. Give a number above 0, such as 1 or 100."
        if self.decimals is not None and (type(self.decimals) is not int or not 0 <= self.decimals <= 15):
            yield f"decimals: {self.decimals!r} is not allowed. Give a whole number from 0 to 15, or None."

    def __repr__(self) -> str:
        return stable_repr(self)

    def __hash__(self) -> int:
        return hash((type(self), self.input, self.contexts, self.name))

    @property
    def name(self) -> str:
        """The name of the score column."""
        return self.alias if self.alias is not None else f"Relevancy of {self.contexts} to {self.input}"

    @property
    def inputs(self) -> pa.Schema:
        """The question and contexts columns, and that of responses if one is named."""
        named = [(self.input, TEXT), (self.contexts, CONTEXTS)]
        return pa.schema([*named, (self.output, TEXT)] if self.output is not None else named)

    @property
    def outputs(self) -> pa.Schema:
        """The score column, and the others that were asked for."""
        fields = [score_field(self.name, 0, max(self.scale, self._rounded(self.scale) or 0))]
        fields += [score_field(f"{self.name} spread", 0, self.scale)] * (self._finder.repeats > 1)
        fields += [text_field(f"{self.name} reason")] * self.output_reason
        fields += [statements_field(f"{self.name} statements")] * self.output_statements
        fields += [status_field(f"{self.name} status")] * self.output_status
        return pa.schema([*fields, *fields_of(self.name, self.tests)])

    @property
    def provenance(self) -> dict[str, Any]:
        """What changes the values of the score column."""
        return {
            "descriptor": type(self).__name__,
            "version": self.version,
            "method": self._finder.provenance,
            "responses": self.output is not None,
            "scale": self.scale,
            "decimals": self.decimals,
        }

    def bind(self, wrap: Callable[[Any], Any]) -> Self:
        """Return this descriptor with its model wrapped."""
        return replace(self, model=DEFAULT_MODEL, method_params=self._finder.bind(wrap).params)

    def compute(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns for `columns`, row for row."""
        responses = pa.nulls(columns.num_rows, TEXT) if self.output is None else columns[self.output]
        finder = self._finder
        rows = finder(columns[self.input], columns[self.contexts], responses)
        found = [_scores(row, self.scale, finder.repeats) for row in rows]
        scores = np.array(found, np.float64).reshape(-1, finder.repeats)
        score = pa.array([self._rounded(min(mean, self.scale)) for mean in scores.mean(axis=1)], pa.float64())
        return to_batch(
            self,
            {
                self.name: score,
                f"{self.name} spread": pa.array(np.ptp(scores, axis=1), from_pandas=True),
                f"{self.name} reason": pa.array([_reason(row) for row in rows], pa.string()),
                f"{self.name} statements": pa.array([_structs(row) for row in rows], STATEMENTS),
                f"{self.name} status": pa.array([row.status for row in rows], pa.string()),
                **results_of(self.name, self.tests, score),
            },
        )

    def _rounded(self, score: float) -> float | None:
        if np.isnan(score):
            return None
        if self.decimals is None:
            return float(score)
        return float(Decimal(repr(float(score))).quantize(Decimal(1).scaleb(-self.decimals), ROUND_HALF_UP))

    @property
    def _finder(self) -> JudgedStatements | SimilarSentences:
        together(one_of("method", self.method, METHODS))
        return METHODS[self.method](self.method_params, model=self.model)


METHODS: dict[str, Callable[..., JudgedStatements | SimilarSentences]] = {
    "llm": JudgedStatements.from_params,
    "semantic_similarity": SimilarSentences.from_params,
}


def _scores(row: RowStatements, scale: float, repeats: int) -> list[float]:
    """Return one score per repeat, nan where the row has none."""
    return [_share(answer, scale) for answer in row.answers] or [np.nan] * repeats


def _share(statements: Sequence[Statement], scale: float) -> float:
    n_relevant = sum(statement.is_relevant for statement in statements)
    return float(Fraction(n_relevant, len(statements)) * Fraction(scale)) if statements else 0.0


def _structs(row: RowStatements) -> list[dict[str, Any]] | None:
    return [_struct(statement) for statement in row.answers[0]] if row.answers else None


def _struct(statement: Statement) -> dict[str, Any]:
    verdict = "yes" if statement.is_relevant else "no"
    return {
        "context": statement.context,
        "statement": statement.text,
        "verdict": verdict,
        "reason": statement.reason,
    }


def _reason(row: RowStatements) -> str | None:
    """Return a sentence of counts, and every statement that was counted under its verdict; or why there is no score."""
    if not row.answers:
        return row.message
    statements = row.answers[0]
    if not statements:
        return "The contexts state nothing."
    told = [f"{sum(one.is_relevant for one in statements)} of {len(statements)} statements bear on the question."]
    for word, verdict in (("Yes", True), ("No", False)):
        named = [_named(statement) for statement in statements if statement.is_relevant is verdict]
        told += [f"{word}: {'; '.join(named)}."] if named else []
    return " ".join(told)


def _named(statement: Statement) -> str:
    parts = [f"“{statement.text}”" if statement.text else "", f"({statement.reason})" if statement.reason else ""]
    return " ".join(part for part in parts if part) or "a statement without words"

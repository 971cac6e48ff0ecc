"""ContextRelevance: how relevant each retrieved context is to the question."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import inf
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from rag_descriptors.aggregations import Aggregation, CustomAggregation, aggregation
from rag_descriptors.base import PairScores, score_contexts, to_array, to_batch
from rag_descriptors.conditions import Condition, fields_of, problems_of, results_of
from rag_descriptors.errors import ScoringError
from rag_descriptors.judging import JudgedRelevance
from rag_descriptors.options import (
    caught,
    column_names,
    flags,
    keep_copies,
    one_of,
    qualified_name,
    stable_repr,
    together,
)
from rag_descriptors.schemas import reasons_field, score_field, scores_field, status_field
from rag_descriptors.similarity import SemanticSimilarity
from rag_descriptors.traces.columns import CONTEXTS, TEXT

__all__ = ["ContextRelevance"]


@dataclass(frozen=True)
class ContextRelevance:
    """How relevant each context is to the question, in [0, 1], and what the contexts of a row come to.

    The signature, the positions and the column names are those of Evidently's descriptor of the same name.

    Columns: `{alias}`, the aggregated score; with `output_scores` `{alias} scores`, one score per context; with
    `output_reasons` `{alias} reasons`, one text or null per context; with `output_status` `{alias} status`; and one
    nullable boolean column per test. A row without a question or without contexts is null, never 0.

    Attributes:
        input: The column of questions.
        contexts: The column of contexts.
        method: `"semantic_similarity"`; `"llm"`: a judge gives each pair a score in [0, 1] and a reason; or a callable
            (questions, contexts) → scores over two equally long lists of texts, one score in [0, 1] (or nan) per pair.
        method_params: For `"semantic_similarity"` the options of `SemanticSimilarity` and, unless an `embedder` is
            given, of `SentenceTransformerEmbedder`. For `"llm"` those of `Limits` and, unless a `judge` is given, of
            `LiteLLMJudge`; `prompt`, a task of your own that holds `{question}` and `{context}`; and `repeats` (1):
            with more, scores are means, and `{alias} spread` is the distance of the row's lowest from its highest.
        aggregation_method: `"mean"` (the default), `"hit"`, `"hit_share"`, `"max"`, `"min"`, or a callable that takes
            the array of one row's scores and returns any number.
        aggregation_method_params: For `"hit"` and `"hit_share"`: `threshold` (0.8).
        output_scores: Whether to give the score of each context.
        alias: The name of the score column.
        tests: Conditions on the score, see `rag_descriptors.conditions`.
        output_reasons: Whether to give a reason for each context: the judge's, or why it gave none;
            `"semantic_similarity"` says which texts were cut.
        output_status: Whether to say what became of each row.
        skip_failed_contexts: Whether a row is aggregated over the contexts that could be scored.

    Raises:
        OptionError: A name or a value is not allowed.

    Example:
        >>> import pandas as pd
        >>> from rag_descriptors import ContextRelevance, add_descriptors
        >>> from rag_descriptors.testing import FakeEmbedder
        >>> traces = pd.DataFrame({"question": ["red apples"], "contexts": [["red apples", "blue sky"]]})
        >>> relevance = ContextRelevance(
        ...     "question",
        ...     "contexts",
        ...     method_params={"embedder": FakeEmbedder()},
        ...     aggregation_method="max",
        ...     alias="best",
        ... )
        >>> traces.pipe(add_descriptors, relevance)["best"].tolist()
        [1.0]
    """

    input: str
    contexts: str
    method: str | Callable[[list[str], list[str]], Sequence[float]] = "semantic_similarity"
    method_params: Mapping[str, Any] | None = None
    aggregation_method: str | Callable[..., Any] | None = None
    aggregation_method_params: Mapping[str, Any] | None = None
    output_scores: bool = False
    alias: str | None = None
    tests: Sequence[Condition] | None = None
    _: KW_ONLY
    output_reasons: bool = False
    output_status: bool = False
    skip_failed_contexts: bool = False
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        keep_copies(self)
        together([*self._problems(), *caught(lambda: self._scorer), *caught(lambda: self._aggregation)])

    def _problems(self) -> Iterator[str]:
        yield from column_names(input=self.input, contexts=self.contexts, alias=self.name)
        yield from flags(self, "output_scores", "output_reasons", "output_status", "skip_failed_contexts")
        yield from problems_of(self.tests)

    def __repr__(self) -> str:
        return stable_repr(self)

    def __hash__(self) -> int:
        return hash((type(self), self.input, self.contexts, self.name))

    @property
    def name(self) -> str:
        """The name of the score column."""
        return self.alias if self.alias is not None else f"Ranking for {self.input} with {self.contexts}"

    @property
    def inputs(self) -> pa.Schema:
        """The question and contexts columns."""
        return pa.schema([(self.input, TEXT), (self.contexts, CONTEXTS)])

    @property
    def outputs(self) -> pa.Schema:
        """The score column, and the others that were asked for."""
        low, how = self._scorer.low, self._aggregation
        bounds = (-inf, inf) if isinstance(how, CustomAggregation) else (low, 1.0)
        fields = [score_field(self.name, *bounds, type=how.type)]
        fields += [score_field(f"{self.name} spread", 0, inf)] * (self._scorer.repeats > 1)
        fields += [scores_field(f"{self.name} scores", low)] * self.output_scores
        fields += [reasons_field(f"{self.name} reasons")] * self.output_reasons
        fields += [status_field(f"{self.name} status")] * self.output_status
        return pa.schema([*fields, *fields_of(self.name, self.tests)])

    @property
    def provenance(self) -> dict[str, Any]:
        """What, beside the model, changes the values of the score column."""
        return {
            "descriptor": type(self).__name__,
            "version": self.version,
            "method": self._scorer.provenance,
            "aggregation": repr(self._aggregation),
            "skip_failed_contexts": self.skip_failed_contexts,
        }

    def bind(self, wrap: Callable[[Any], Any]) -> Self:
        """Return this descriptor with its model, if it has one, wrapped."""
        scorer = self._scorer
        if isinstance(scorer, CallableScorer):
            return self
        return replace(self, method_params=scorer.bind(wrap).params)

    def compute(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns for `columns`, row for row."""
        rows = score_contexts(
            columns[self.input],
            columns[self.contexts],
            self._scorer,
            self._aggregation,
            skip_failed=self.skip_failed_contexts,
        )
        score = to_array(rows.values, self._aggregation.type)
        return to_batch(
            self,
            {
                self.name: score,
                f"{self.name} spread": pa.array(rows.spread, from_pandas=True),
                f"{self.name} scores": rows.scores,
                f"{self.name} reasons": rows.reasons,
                f"{self.name} status": pa.array(rows.statuses, pa.string()),
                **results_of(self.name, self.tests, score),
            },
        )

    @property
    def _scorer(self) -> "SemanticSimilarity | JudgedRelevance | CallableScorer":
        if callable(self.method):
            return CallableScorer(self.method, self.method_params)
        together(one_of("method", self.method, METHODS))
        return METHODS[self.method](self.method_params)

    @property
    def _aggregation(self) -> Aggregation:
        return aggregation(self.aggregation_method, self.aggregation_method_params)


METHODS: dict[str, Callable[[Mapping[str, Any] | None], SemanticSimilarity | JudgedRelevance]] = {
    "semantic_similarity": SemanticSimilarity.from_params,
    "llm": JudgedRelevance.from_params,
}


@dataclass(frozen=True)
class CallableScorer:
    """A scorer around a user's function: (questions, contexts) → scores in [0, 1], nan where it can't say."""

    function: Callable[[list[str], list[str]], Sequence[float]]
    params: Mapping[str, Any] | None = None
    low: ClassVar[float] = 0.0
    repeats: ClassVar[int] = 1

    def __post_init__(self) -> None:
        together([f"method_params: {', '.join(self.params)}: a callable takes none."] if self.params else [])

    @property
    def provenance(self) -> dict[str, Any]:
        """The function's name."""
        return {"name": qualified_name(self.function)}

    def __call__(self, questions: pa.DictionaryArray, contexts: pa.DictionaryArray) -> PairScores:
        """Return what the function says of the pairs.

        Raises:
            ScoringError: The function fails, or its result is not one number in [0, 1] per pair.
        """
        if len(questions) == 0:
            return PairScores(np.empty(0))
        try:
            values = np.array(self.function(questions.to_pylist(), contexts.to_pylist()), np.float64)
        except Exception as error:
            raise ScoringError(f"method {self.function!r} failed on {len(questions)} pairs: {error!r}") from error
        wrong = values[(values < 0) | (values > 1)]
        if values.shape != (len(questions),) or wrong.size:
            found = f"shape {values.shape}" if values.shape != (len(questions),) else f"the score {wrong[0]}"
            raise ScoringError(
                f"method {self.function!r} gave {found} for {len(questions)} pairs. It must return one number in "
                "[0, 1] per pair, nan where it can't say."
            )
        return PairScores(values)

"""What a descriptor is, and the path that all context descriptors share: explode, score, aggregate, regroup."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rag_descriptors.aggregations import Aggregation
from rag_descriptors.longframe import LongFrame, as_bool
from rag_descriptors.schemas import status_field

__all__ = ["Bindable", "Descriptor", "PairScores", "RowScores", "Scorer", "score_contexts"]

OK = "ok"
NO_CONTEXTS = "no_contexts"
MISSING_INPUT = "missing_input"
PARTIAL = "partial"
NOT_SCORED = "not_scored"
NO_STATEMENTS = "no_statements"
MISSING_REFERENCE = "missing_reference"
NO_REFERENCE_ENTITIES = "no_reference_entities"
WITHOUT_FAULT = (OK, NO_CONTEXTS, MISSING_INPUT, NO_STATEMENTS, MISSING_REFERENCE, NO_REFERENCE_ENTITIES)


@runtime_checkable
class Descriptor(Protocol):
    """A function from named columns to named columns, one row in, one row out.

    Write one as a frozen dataclass with these four members; `rag_descriptors.testing.check_descriptor` tests it.
    """

    @property
    def name(self) -> str:
        """The name of the score column, unique within a run."""
        ...

    @property
    def inputs(self) -> pa.Schema:
        """The columns that are read: `TEXT` or `CONTEXTS` fields (nulls for missing), or any other Arrow type."""
        ...

    @property
    def outputs(self) -> pa.Schema:
        """The columns that are promised, for zero rows too. Made of `rag_descriptors.schemas` fields."""
        ...

    def compute(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Return the promised columns for `columns` (the inputs), row for row.

        A further column `{name} status`, though not promised, is counted in the summary of the run.
        """
        ...


@runtime_checkable
class Bindable(Protocol):
    """A descriptor that uses models, and lets a run put its cache and its meters before them."""

    def bind(self, wrap: Callable[[Any], Any]) -> Self:
        """Return this descriptor with each of its models replaced by `wrap(model)`."""
        ...


@dataclass(frozen=True, eq=False)
class PairScores:
    """What a scorer says of (question, context) pairs.

    Attributes:
        values: One score per pair, float64, nan where the pair could not be scored, shape (n_pairs,).
        reasons: One text or null per pair, shape (n_pairs,).
        failures: Why a pair could not be scored, as a status; null where it was, shape (n_pairs,).
        repeats: Where each pair was scored several times, all the scores, shape (n_repeats, n_pairs); `values` are
            their means.
    """

    values: npt.NDArray[np.float64]
    reasons: pa.StringArray | None = None
    failures: pa.StringArray | None = None
    repeats: npt.NDArray[np.float64] | None = None


class Scorer(Protocol):
    """A function from pairs to scores; it knows nothing of rows, names or aggregation."""

    def __call__(self, questions: pa.DictionaryArray, contexts: pa.DictionaryArray) -> PairScores:
        """Return one score per pair. Both arrays have shape (n_pairs,), hold no null, and name each text once."""
        ...


@dataclass(frozen=True, eq=False)
class RowScores:
    """The scores of contexts, back in their rows; every attribute has shape (n_rows,).

    `spread` is how far apart the values are that the repeats come to.
    """

    values: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64]
    scores: pa.ListArray
    reasons: pa.ListArray
    statuses: npt.NDArray[np.object_]


def score_contexts(
    questions: pa.StringArray,
    contexts: pa.ListArray,
    scorer: Scorer,
    aggregation: Aggregation,
    *,
    skip_failed: bool = False,
) -> RowScores:
    """Score each row's contexts against its question; null questions and contexts are sent nowhere.

    Args:
        questions: One text per row, shape (n_rows,).
        contexts: One list of texts per row, shape (n_rows,).
        scorer: Scores the pairs.
        aggregation: Folds the scores of a row.
        skip_failed: Aggregate over the contexts that were scored, where others could not be.
    """
    frame = LongFrame.explode(contexts).distinct()
    asked = as_bool(questions.is_valid())
    is_pair = asked[frame.rows] & as_bool(frame.items.is_valid())
    pairs = frame.select(is_pair)
    scored = scorer(_used(questions.dictionary_encode().take(pa.array(pairs.rows))), _used(pairs.items))
    failed = np.isnan(scored.values)
    is_counted = ~failed if skip_failed else np.ones_like(failed)
    offsets = pairs.select(is_counted).offsets
    values = aggregation(scored.values[is_counted], offsets)
    repeats = () if scored.repeats is None else scored.repeats
    repeated = [aggregation(scores[is_counted], offsets) for scores in repeats]
    spread = np.ptp(repeated, axis=0) if repeated else np.zeros_like(values)
    statuses = _statuses(asked, pairs, failed, scored.failures)
    was_scored = np.isin(statuses, [OK, PARTIAL, NO_CONTEXTS])

    def regroup(per_pair: pa.Array, is_null: npt.NDArray[np.bool_]) -> pa.ListArray:
        return frame.regroup(_spread(per_pair, is_pair), is_null)

    reasons = pa.nulls(len(failed), pa.string()) if scored.reasons is None else scored.reasons
    scores = pa.array(scored.values, mask=failed)
    return RowScores(
        values,
        spread,
        regroup(scores, ~was_scored | frame.is_null),
        regroup(reasons, ~asked | frame.is_null),
        statuses,
    )


def _statuses(
    asked: npt.NDArray[np.bool_], pairs: LongFrame, failed: npt.NDArray[np.bool_], failures: pa.StringArray | None
) -> npt.NDArray[np.object_]:
    n_failed = np.bincount(pairs.rows[failed], minlength=len(asked))
    statuses = np.select(
        [~asked, pairs.lengths == 0, n_failed == 0, n_failed < pairs.lengths],
        [MISSING_INPUT, NO_CONTEXTS, OK, PARTIAL],
        default=NOT_SCORED,
    ).astype(object)
    if failures is not None:
        for row in np.flatnonzero(statuses == NOT_SCORED):
            statuses[row] = failures[pairs.offsets[row]].as_py() or NOT_SCORED
    return statuses


def _used(texts: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the same texts without those in the dictionary that stand nowhere."""
    places, indices = np.unique(texts.indices.to_numpy(), return_inverse=True)
    if len(places) == len(texts.dictionary):
        return texts
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), texts.dictionary.take(pa.array(places)))


def _spread(values: pa.Array, places: npt.NDArray[np.bool_]) -> pa.Array:
    """Put `values` at the true `places`, nulls at the others."""
    return values.take(pa.array(np.cumsum(places) - 1, mask=~places))


def to_array(values: npt.NDArray[np.float64], kind: pa.DataType) -> pa.Array:
    """Return numbers as an Arrow array of a type, nan as null."""
    return pa.array(values, from_pandas=True).cast(kind)


def to_batch(descriptor: Descriptor, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return those of `columns` that the descriptor promises, and its status in any case."""
    schema, status = descriptor.outputs, status_field(f"{descriptor.name} status")
    schema = schema if status.name in schema.names else schema.append(status)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

"""From the scores of a row's contexts to one value per row.

An aggregation is a callable (scores, offsets) → values: `scores`, float64 of shape (n_pairs,), nan where a context
could not be scored; row `i` owns `scores[offsets[i]:offsets[i + 1]]`; the values are float64 of shape (n_rows,), nan
where nothing certain can be said. Contexts that are missing (null, blank) are not among the scores.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rag_descriptors.errors import OptionError, ScoringError, suggest
from rag_descriptors.options import build, qualified_name

__all__ = [
    "Aggregation",
    "CustomAggregation",
    "HitAggregation",
    "HitShareAggregation",
    "MaxAggregation",
    "MeanAggregation",
    "MinAggregation",
    "aggregation",
]

Floats = npt.NDArray[np.float64]
Offsets = npt.NDArray[np.int64]


class Aggregation(Protocol):
    """A function from the scores of pairs to one value per row, and the Arrow type of the column of them."""

    type: ClassVar[pa.DataType]

    def __call__(self, scores: Floats, offsets: Offsets) -> Floats:
        """Return one value per row, nan where nothing certain can be said."""
        ...


@dataclass(frozen=True)
class MeanAggregation:
    """The mean score; null if a context could not be scored."""

    type: ClassVar[pa.DataType] = pa.float64()

    def __call__(self, scores: Floats, offsets: Offsets) -> Floats:
        """Return the mean of each row's scores."""
        return _reduce(np.add, scores, offsets) / np.maximum(np.diff(offsets), 1)


@dataclass(frozen=True)
class MinAggregation:
    """The lowest score; null if a context could not be scored."""

    type: ClassVar[pa.DataType] = pa.float64()

    def __call__(self, scores: Floats, offsets: Offsets) -> Floats:
        """Return the lowest of each row's scores."""
        return _reduce(np.minimum, scores, offsets)


@dataclass(frozen=True)
class MaxAggregation:
    """The highest score; where a context could not be scored, null unless another one reached 1."""

    type: ClassVar[pa.DataType] = pa.float64()

    def __call__(self, scores: Floats, offsets: Offsets) -> Floats:
        """Return the highest of each row's scores."""
        best = _reduce(np.fmax, scores, offsets)
        return np.where(_all_known(scores, offsets) | (best >= 1.0), best, np.nan)


@dataclass(frozen=True)
class HitAggregation:
    """1 if any score is at least `threshold`, else 0; null if a context that could not be scored might have hit."""

    threshold: float = 0.8
    type: ClassVar[pa.DataType] = pa.int64()

    def __post_init__(self) -> None:
        _check_threshold(self.threshold)

    def __call__(self, scores: Floats, offsets: Offsets) -> Floats:
        """Return whether one of each row's scores hits."""
        hits = _reduce(np.fmax, scores, offsets) >= self.threshold
        return np.where(_all_known(scores, offsets) | hits, hits, np.nan)


@dataclass(frozen=True)
class HitShareAggregation:
    """The share of scores that are at least `threshold`; null if a context could not be scored."""

    threshold: float = 0.8
    type: ClassVar[pa.DataType] = pa.float64()

    def __post_init__(self) -> None:
        _check_threshold(self.threshold)

    def __call__(self, scores: Floats, offsets: Offsets) -> Floats:
        """Return the share of each row's scores that hit."""
        hits = np.where(np.isnan(scores), np.nan, scores >= self.threshold)
        return MeanAggregation()(hits, offsets)


@dataclass(frozen=True)
class CustomAggregation:
    """A function of the user's own, called once per row with the array of its scores.

    A row without scores, or with a context that could not be scored, is null without a call.
    """

    function: Callable[[Floats], Any]
    type: ClassVar[pa.DataType] = pa.float64()

    def __repr__(self) -> str:
        return f"CustomAggregation({qualified_name(self.function)})"

    def __call__(self, scores: Floats, offsets: Offsets) -> Floats:
        """Return what the function says of each row's scores."""
        values = np.full(len(offsets) - 1, np.nan)
        for row in np.flatnonzero(_all_known(scores, offsets)):
            values[row] = self._call(scores[offsets[row] : offsets[row + 1]].copy())
        return values

    def _call(self, scores: Floats) -> float:
        try:
            return float(self.function(scores))
        except Exception as error:
            raise ScoringError(
                f"aggregation {self.function!r} failed on the scores {scores.tolist()}: {error!r}. "
                "It must take an array of scores and return one number."
            ) from error


AGGREGATIONS: dict[str, type[Aggregation]] = {
    "mean": MeanAggregation,
    "hit": HitAggregation,
    "hit_share": HitShareAggregation,
    "max": MaxAggregation,
    "min": MinAggregation,
}


def aggregation(method: object = None, params: Mapping[str, Any] | None = None) -> Aggregation:
    """Return the aggregation called `method` (default: mean) with `params`, or wrap a callable.

    Raises:
        OptionError: The name or a parameter is unknown, or a threshold is no number in [-1, 1].
    """
    if isinstance(method, (*AGGREGATIONS.values(), CustomAggregation)) and not params:
        return method  # type: ignore[return-value]
    if callable(method) and not isinstance(method, type) and not params:
        return CustomAggregation(method)
    kind = AGGREGATIONS.get("mean" if method is None else method) if isinstance(method, str | None) else None
    if kind is None:
        raise OptionError(
            f"aggregation_method: {method!r} is unknown.{suggest(method, AGGREGATIONS)} "
            "A callable that takes one row's scores may be given too, without aggregation_method_params."
        )
    return build(kind, params, "aggregation_method_params")


def _reduce(ufunc: np.ufunc, scores: Floats, offsets: Offsets) -> Floats:
    values = np.full(len(offsets) - 1, np.nan)
    filled = np.diff(offsets) > 0
    if filled.any():
        values[filled] = ufunc.reduceat(scores, offsets[:-1][filled])
    return values


def _all_known(scores: Floats, offsets: Offsets) -> npt.NDArray[np.bool_]:
    return ~np.isnan(_reduce(np.add, scores, offsets))


def _check_threshold(threshold: object) -> None:
    is_number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if not (is_number and -1 <= float(threshold) <= 1):  # type: ignore[arg-type]
        raise OptionError(f"threshold: {threshold!r} is not allowed. Give a number in the scores' range, such as 0.8.")

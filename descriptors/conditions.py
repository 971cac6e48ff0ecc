"""Row tests: a condition on a score gives one nullable boolean column, named as Evidently names it.

ContextRelevance(input="question", contexts="contexts", tests=[gte(0.7)])
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_descriptors.errors import OptionError
from rag_descriptors.options import one_of, together
from rag_descriptors.schemas import condition_field

__all__ = [
    "Condition",
    "eq",
    "fields_of",
    "gt",
    "gte",
    "is_in",
    "lt",
    "lte",
    "not_eq",
    "not_in",
    "problems_of",
    "results_of",
]

EXACT = 2**53  # whole numbers that a float holds exactly
Test = Callable[[pa.Array, object], pa.Array]


@dataclass(frozen=True)
class Condition:
    """A test of one value: `kind` is a key of `KINDS`, `value` a number, or a tuple of them."""

    kind: str
    value: object

    def __post_init__(self) -> None:
        together(one_of("kind", self.kind, KINDS))

    def name(self, column: str) -> str:
        """Return the name of the boolean column that holds the results for `column`."""
        return f"{column}{KINDS[self.kind][0]} {self.value}"

    def check(self, values: pa.Array) -> pa.BooleanArray:
        """Return one boolean per value, null where the value is null."""
        return KINDS[self.kind][1](values, self.value)


def eq(value: float) -> Condition:
    """The score equals `value`."""
    return Condition("eq", _number(value))


def not_eq(value: float) -> Condition:
    """The score differs from `value`."""
    return Condition("not_eq", _number(value))


def gt(value: float) -> Condition:
    """The score is greater than `value`."""
    return Condition("gt", _number(value))


def gte(value: float) -> Condition:
    """The score is greater than or equal to `value`."""
    return Condition("gte", _number(value))


def lt(value: float) -> Condition:
    """The score is less than `value`."""
    return Condition("lt", _number(value))


def lte(value: float) -> Condition:
    """The score is less than or equal to `value`."""
    return Condition("lte", _number(value))


def is_in(values: Iterable[float]) -> Condition:
    """The score is one of `values`."""
    return Condition("is_in", _numbers(values))


def not_in(values: Iterable[float]) -> Condition:
    """The score is none of `values`."""
    return Condition("not_in", _numbers(values))


def problems_of(tests: object) -> list[str]:
    """Return what is wrong with a `tests` option: None, or a tuple of conditions."""
    if not isinstance(tests, tuple | None):
        return [f"tests: {tests!r} is no list. Give conditions in one, such as [gte(0.7)]."]
    return [
        f"tests: {test!r} is no condition. Give those of rag_descriptors.conditions, such as gte(0.7)."
        for test in tests or ()
        if not isinstance(test, Condition)
    ]


def fields_of(column: str, tests: Sequence[Condition] | None) -> list[pa.Field]:
    """Return the boolean columns that the tests of a column give."""
    return [condition_field(test.name(column)) for test in tests or ()]


def results_of(column: str, tests: Sequence[Condition] | None, values: pa.Array) -> dict[str, pa.BooleanArray]:
    """Return the results of the tests of a column, by the names of their columns."""
    return {test.name(column): test.check(values) for test in tests or ()}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise OptionError(f"condition: {value!r} is no number. A score is tested against numbers, such as gte(0.7).")
    number: float = value.item() if isinstance(value, np.number) else value
    return number if abs(number) < EXACT else float(number)


def _numbers(values: object) -> tuple[float, ...]:
    if not isinstance(values, Iterable):
        raise OptionError(f"condition: {values!r} is no list. Give the numbers in one, such as is_in([0, 1]).")
    return tuple(map(_number, values))


def _is_in(values: pa.Array, members: object) -> pa.Array:
    found = pc.is_in(values.cast(pa.float64()), pa.array(members, pa.float64()))
    return pc.if_else(values.is_null(), None, found)


KINDS: Mapping[str, tuple[str, Test]] = {
    "eq": (": equals", pc.equal),
    "not_eq": (" not equals", pc.not_equal),
    "gt": (" greater than", pc.greater),
    "gte": (": greater or equal to", pc.greater_equal),
    "lt": (": less than", pc.less),
    "lte": (": less or equal to", pc.less_equal),
    "is_in": (" in list", _is_in),
    "not_in": (" not in list", lambda values, members: pc.invert(_is_in(values, members))),
}

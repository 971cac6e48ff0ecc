import numpy as np
import pyarrow as pa
import pytest

from rag_descriptors.conditions import Condition, eq, gt, gte, is_in, lt, lte, not_eq, not_in
from rag_descriptors.errors import OptionError

SCORES = pa.array([0.5, 0.7, 1.0, None])
NAMES_AND_RESULTS = [
    (eq(0.7), "cr: equals 0.7", [False, True, False, None]),
    (not_eq(0.7), "cr not equals 0.7", [True, False, True, None]),
    (gt(0.7), "cr greater than 0.7", [False, False, True, None]),
    (gte(0.7), "cr: greater or equal to 0.7", [False, True, True, None]),
    (lt(0.7), "cr: less than 0.7", [True, False, False, None]),
    (lte(0.7), "cr: less or equal to 0.7", [True, True, False, None]),
    (is_in([0.5, 1]), "cr in list (0.5, 1)", [True, False, True, None]),
    (not_in([0.5, 1]), "cr not in list (0.5, 1)", [False, True, False, None]),
    (is_in([]), "cr in list ()", [False, False, False, None]),
    (gte(np.float64(0.7)), "cr: greater or equal to 0.7", [False, True, True, None]),
    (lt(np.int64(1)), "cr: less than 1", [True, True, False, None]),
]


@pytest.mark.parametrize(("condition", "name", "results"), NAMES_AND_RESULTS)
def test_name_and_results(condition, name, results):
    assert condition.name("cr") == name
    assert condition.check(SCORES).to_pylist() == results


@pytest.mark.parametrize(("condition", "results"), [(gte(0.7), [False, True, None]), (is_in([1]), [False, True, None])])
def test_hits(condition, results):
    assert condition.check(pa.array([0, 1, None], pa.int64())).to_pylist() == results


@pytest.mark.parametrize(
    "make", [eq, not_eq, gt, gte, lt, lte, lambda value: is_in([value]), lambda value: not_in([value])]
)
@pytest.mark.parametrize("value", ["0.7", None, True, [0.7]])
def test_no_number(make, value):
    with pytest.raises(OptionError, match="is no number"):
        make(value)


@pytest.mark.parametrize("make", [is_in, not_in])
def test_no_list(make):
    with pytest.raises(OptionError, match=r"0.5 is no list. Give the numbers in one"):
        make(0.5)


def test_a_condition_of_no_kind():
    with pytest.raises(OptionError, match="kind: 'foo' is unknown"):
        Condition("foo", 1)


def test_a_number_beyond_whole_floats():
    assert gte(10**30).check(pa.array([0.5])).to_pylist() == [False]

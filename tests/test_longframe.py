import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_descriptors.longframe import LongFrame

TEXTS = pa.list_(pa.string())
LISTS = st.lists(st.none() | st.lists(st.none() | st.text()))
SLICED = pa.array([["cut"], ["a"], None, [], ["b", None]], TEXTS)[1:]
UNDER_NULLS = pa.ListArray.from_arrays(
    pa.array([0, 1, 3]), pa.array(["a", "hidden", "too"]), mask=pa.array([False, True])
)


@pytest.mark.parametrize(
    ("lists", "items", "offsets", "is_null"),
    [
        (pa.array([], TEXTS), [], [0], []),
        (pa.array([None, []], TEXTS), [], [0, 0, 0], [True, False]),
        (pa.array([["a", "b"], None, [None]], TEXTS), ["a", "b", None], [0, 2, 2, 3], [False, True, False]),
        (SLICED, ["a", "b", None], [0, 1, 1, 1, 3], [False, True, False, False]),
        (UNDER_NULLS, ["a"], [0, 1, 1], [False, True]),
    ],
)
def test_explode(lists, items, offsets, is_null):
    frame = LongFrame.explode(lists)
    assert frame.items.to_pylist() == items
    assert frame.offsets.tolist() == offsets
    assert frame.is_null.tolist() == is_null


def test_rows_and_lengths():
    frame = LongFrame.explode(pa.array([["a", "b"], None, [], ["c"]], TEXTS))
    assert frame.lengths.tolist() == [2, 0, 0, 1]
    assert frame.rows.tolist() == [0, 0, 3]


def test_select_keeps_the_rows():
    frame = LongFrame.explode(pa.array([["a", "b"], None, ["c"]], TEXTS)).select(np.array([False, True, False]))
    assert frame.items.to_pylist() == ["b"]
    assert frame.offsets.tolist() == [0, 1, 1, 1]
    assert frame.is_null.tolist() == [False, True, False]


def test_regroup_drops_the_values_of_null_rows():
    frame = LongFrame.explode(pa.array([["a", "b"], ["c"], []], TEXTS))
    regrouped = frame.regroup(pa.array([1.0, None, 3.0]), np.array([True, False, False]))
    assert regrouped.to_pylist() == [None, [3.0], []]


@given(LISTS)
def test_round_trip(lists):
    frame = LongFrame.explode(pa.array(lists, TEXTS))
    assert frame.regroup(frame.items, frame.is_null).to_pylist() == lists


@given(LISTS, st.data())
def test_round_trip_of_slices(lists, data):
    start = data.draw(st.integers(0, len(lists)))
    frame = LongFrame.explode(pa.array(lists, TEXTS)[start:])
    assert frame.regroup(frame.items, frame.is_null).to_pylist() == lists[start:]

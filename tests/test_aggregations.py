import math
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_descriptors import HitAggregation, HitShareAggregation, MeanAggregation
from rag_descriptors.aggregations import CustomAggregation, MaxAggregation, MinAggregation, aggregation
from rag_descriptors.errors import OptionError, ScoringError

nan = math.nan
ROWS = [[], [0.5], [0.25, 0.75], [0.0, nan], [0.8, nan], [1.0, nan], [nan], [1.0, 1.0, 0.0]]
EXPECTED = {
    "mean": [nan, 0.5, 0.5, nan, nan, nan, nan, 2 / 3],
    "min": [nan, 0.5, 0.25, nan, nan, nan, nan, 0.0],
    "max": [nan, 0.5, 0.75, nan, nan, 1.0, nan, 1.0],
    "hit": [nan, 0.0, 0.0, nan, 1.0, 1.0, nan, 1.0],
    "hit_share": [nan, 0.0, 0.0, nan, nan, nan, nan, 2 / 3],
}


def flat(rows):
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    return np.array([score for row in rows for score in row], np.float64), offsets


@pytest.mark.parametrize("method", EXPECTED)
def test_values_row_by_row(method):
    found = aggregation(method)(*flat(ROWS))
    assert found.dtype == np.float64
    assert found.tolist() == pytest.approx(EXPECTED[method], nan_ok=True, abs=0)


@pytest.mark.parametrize("method", EXPECTED)
def test_no_rows_and_rows_without_scores(method):
    assert aggregation(method)(*flat([])).tolist() == []
    assert np.isnan(aggregation(method)(*flat([[], []]))).tolist() == [True, True]


def reference(method, row, threshold):
    known = [score for score in row if not math.isnan(score)]
    hits = [score >= threshold for score in known]
    if not row:
        return nan
    if len(known) < len(row):
        certain = {"hit": any(hits), "max": bool(known) and max(known) >= 1.0}
        return 1.0 if certain.get(method) else nan
    return {
        "mean": sum(row) / len(row),
        "min": min(row),
        "max": max(row),
        "hit": float(any(hits)),
        "hit_share": sum(hits) / len(row),
    }[method]


SCORES = st.just(nan) | st.floats(0, 1).map(lambda score: round(score, 6))


@given(st.sampled_from(sorted(EXPECTED)), st.lists(st.lists(SCORES, max_size=6)), st.sampled_from([0, 0.5, 0.8, 1]))
def test_values_against_plain_python(method, rows, threshold):
    params = {"threshold": threshold} if method.startswith("hit") else None
    found = aggregation(method, params)(*flat(rows)).tolist()
    assert found == pytest.approx([reference(method, row, threshold) for row in rows], nan_ok=True, abs=1e-12)


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        (None, None, MeanAggregation()),
        ("mean", {}, MeanAggregation()),
        ("max", None, MaxAggregation()),
        ("min", None, MinAggregation()),
        ("hit", None, HitAggregation(0.8)),
        ("hit_share", {"threshold": 0}, HitShareAggregation(0)),
        (HitAggregation(0.3), None, HitAggregation(0.3)),
        (max, None, CustomAggregation(max)),
        (CustomAggregation(max), None, CustomAggregation(max)),
    ],
)
def test_choice(method, params, expected):
    assert aggregation(method, params) == expected
    assert pickle.loads(pickle.dumps(aggregation(method, params))) == expected


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("hits", None, "'hits' is unknown. Did you mean 'hit'? Allowed: 'mean', 'hit', 'hit_share', 'max', 'min'."),
        ("", None, "'' is unknown"),
        (0, None, "0 is unknown"),
        (HitAggregation, None, "is unknown"),
        (max, {"threshold": 0.5}, "without aggregation_method_params"),
        ("hit", {"treshold": 0.5}, "'treshold' is unknown. Did you mean 'threshold'?"),
        ("mean", {"threshold": 0.5}, "'threshold' is unknown. Allowed: none."),
        ("hit", ["threshold"], "aggregation_method_params: ['threshold'] is not allowed. Give a dict"),
        ("hit", 0, "aggregation_method_params: 0 is not allowed"),
        ("hit", {"threshold": "0.8"}, "threshold: '0.8' is not allowed. Give a number"),
        ("hit_share", {"threshold": 80}, "threshold: 80 is not allowed"),
    ],
)
def test_wrong_choices(method, params, message):
    with pytest.raises(OptionError) as caught:
        aggregation(method, params)
    assert message in str(caught.value)


def spread(scores):
    return scores.max() - scores.min()


def test_custom_sees_only_rows_that_are_known():
    custom = aggregation(spread)
    assert custom(*flat([[0.25, 1.0], [], [0.5, nan], [0.5]])).tolist() == pytest.approx(
        [0.75, nan, nan, 0.0], nan_ok=True
    )
    assert repr(custom).endswith("spread)")
    assert " at 0x" not in repr(custom)


@pytest.mark.parametrize("function", [lambda scores: 1 / 0, lambda scores: "much", lambda scores: scores])
def test_custom_that_fails(function):
    with pytest.raises(ScoringError, match=r"failed on the scores \[0.25, 0.75\]: .*return one number"):
        aggregation(function)(*flat([[0.25, 0.75]]))


@pytest.mark.parametrize(("method", "kind"), [("mean", pa.float64()), ("hit", pa.int64()), (max, pa.float64())])
def test_type(method, kind):
    assert aggregation(method).type == kind

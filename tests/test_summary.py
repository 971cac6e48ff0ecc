import json

import pyarrow as pa
import pytest

from rag_descriptors import score_frame
from rag_descriptors.summary import Tally, TextCounts, fingerprint

PROVENANCE = {"descriptor": "Given", "version": 1}


def summary(*batches):
    tally = Tally()
    for scores, statuses in batches:
        tally.add(pa.array(scores, pa.float64()), pa.array(statuses, pa.string()))
    return tally.summary(PROVENANCE)


@pytest.mark.parametrize(
    ("batches", "n_total", "n_scored", "coverage", "mean"),
    [
        ([([0.8, None, None], ["ok", "odd", "odd"])], 3, 1, 1 / 3, 0.8),
        ([([None, None], ["odd", "odd"])], 2, 0, 0.0, None),
        ([([0.5], ["ok"]), ([None, 1.0], ["odd", "ok"])], 3, 2, 2 / 3, 0.75),
        ([([], [])], 0, 0, None, None),
        ([], 0, 0, None, None),
    ],
)
def test_a_mean_stands_with_its_coverage(batches, n_total, n_scored, coverage, mean):
    found = summary(*batches)
    assert (found.n_total, found.n_scored, found.coverage, found.mean) == (n_total, n_scored, coverage, mean)


def test_quantiles_and_statuses():
    found = summary(([0.0, 1.0, 0.5], ["ok", "ok", "partial"]), ([0.25, 0.75, None], ["ok", "ok", "odd"]))
    assert found.quantiles == {
        "0.0": 0.0,
        "0.05": 0.05,
        "0.25": 0.25,
        "0.5": 0.5,
        "0.75": 0.75,
        "0.95": pytest.approx(0.95),
        "1.0": 1.0,
    }
    assert found.statuses == {"odd": 1, "ok": 4, "partial": 1}
    assert summary(([None], ["odd"])).quantiles == {}


def test_hits():
    tally = Tally()
    tally.add(pa.array([1, 0, None], pa.int64()), pa.array(["ok", "ok", "odd"]))
    assert tally.summary(PROVENANCE).mean == 0.5


def test_fingerprint():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert len(fingerprint(PROVENANCE)) == 16
    different = [{}, {"a": 1}, {"a": "1"}, {"a": {"b": 1}}, {"a": len}]
    assert len({fingerprint(provenance) for provenance in different}) == len(different)


def test_to_dict_is_strict_json(relevance, table):
    run = score_frame(table(("north?", ["N", "NE"]), ("north?", None), (None, ["N"])), relevance())
    summary = json.loads(json.dumps(run.summary.to_dict(), allow_nan=False))
    assert summary["rows"] == 3
    assert summary["texts"] == {"distinct": 3, "encoded": 3, "cut": 0}
    column = summary["columns"]["cr"]
    assert (column["mean"], column["n_scored"], column["n_total"]) == (0.9, 1, 3)
    assert column["statuses"] == {"missing_input": 1, "no_contexts": 1, "ok": 1}
    assert column["provenance"]["library"] == summary["version"]
    assert column["fingerprint"] == run.summary.columns["cr"].fingerprint
    assert summary["seconds"] > 0


def test_nothing_scored(relevance, table):
    summary = score_frame(table(), relevance()).summary
    assert summary.rows == 0
    assert summary.texts == TextCounts()
    json.dumps(summary.to_dict(), allow_nan=False)

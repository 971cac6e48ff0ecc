"""Cases from the field: each is a fault that people reported in public, as a small input and the right answer."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rag_descriptors import ContextRelevance, add_descriptors, score_frame
from rag_descriptors.errors import CellError, ColumnConflictError, OptionError, TruncationWarning
from rag_descriptors.testing import FakeEmbedder

nan = float("nan")


def cells(frame, column="cr"):
    return [None if item is None or item is pd.NA or np.isnan(item) else item for item in frame[column]]


def same(found, expected):
    return found == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_f01_contexts_as_the_text_of_a_list(relevance, table):
    scored = add_descriptors(table(("north?", '["N", "E"]')), relevance(output_scores=True))
    assert scored["cr"].tolist() == [0.75]
    assert scored["cr scores"].tolist() == [[1.0, 0.5]]


def test_f04_arrays_after_a_parquet_round_trip(relevance, table, tmp_path):
    before = table(("north?", ["N", "E"]), ("north?", []), ("north?", None))
    before.to_parquet(tmp_path / "traces.parquet")
    after = pd.read_parquet(tmp_path / "traces.parquet")
    assert isinstance(after["contexts"][0], np.ndarray)
    for traces in (before, after):
        assert cells(add_descriptors(traces, relevance())) == [0.75, None, None]


def test_f06_documents(relevance, table):
    documents = [{"page_content": "N", "score": 0.1}, {"text": "E"}, SimpleNamespace(text="NE")]
    scored = add_descriptors(table(("north?", documents)), relevance(output_scores=True))
    assert scored["cr scores"].tolist() == [[1.0, 0.5, 0.8]]
    assert scored["cr"].tolist() == [pytest.approx(0.766667, abs=1e-6)]


def test_f06_a_document_without_a_known_key(relevance, table, embedder):
    with pytest.raises(CellError, match="its keys are 'body', 'id'"):
        add_descriptors(table(("north?", [{"body": "N", "id": 1}])), relevance())
    assert embedder.texts == []


def test_f07_null_contexts(relevance, table, embedder):
    traces = table(("north?", None), ("north?", nan), ("east?", ["E"]))
    scored = add_descriptors(traces, relevance(output_scores=True, output_status=True))
    assert cells(scored) == [None, None, 1.0]
    assert scored["cr scores"].tolist() == [None, None, [1.0]]
    assert scored["cr status"].tolist() == ["no_contexts", "no_contexts", "ok"]
    assert embedder.texts == ["east?", "E"]


@pytest.mark.parametrize("method", ["mean", "hit", "hit_share", "max", "min"])
def test_f08_an_empty_list(relevance, table, embedder, method):
    scored = add_descriptors(
        table(("north?", [])), relevance(aggregation_method=method, output_scores=True, output_status=True)
    )
    assert cells(scored) == [None]
    assert scored["cr scores"].tolist() == [[]]
    assert scored["cr status"].tolist() == ["no_contexts"]
    assert embedder.texts == []


def test_f09_blank_contexts(relevance, table, embedder):
    traces = table(("north?", ["", "  ", "N", None]), ("north?", ["", " "]))
    scored = add_descriptors(traces, relevance(output_scores=True, output_status=True))
    assert cells(scored) == [1.0, None]
    assert same(scored["cr scores"][0], [nan, nan, 1.0, nan])
    assert same(scored["cr scores"][1], [nan, nan])
    assert scored["cr status"].tolist() == ["ok", "no_contexts"]
    assert embedder.texts == ["north?", "N"]


def test_f10_separators_inside_contexts(table):
    contexts = ["ps | grep x", "| a | b |\n|---|---|"]
    words, traces = FakeEmbedder(), table(("grep", contexts))
    add_descriptors(traces, ContextRelevance("question", "contexts", method_params={"embedder": words}))
    assert sorted(words.texts) == sorted(["grep", *contexts])
    assert traces["contexts"].tolist() == [contexts]


def test_f12_no_rows(relevance, table):
    outputs = {"output_scores": True, "output_reasons": True, "output_status": True}
    traces = table(("north?", ["N"]))
    for method, dtype in (("mean", "float64"), ("hit", "Int64")):
        scored = add_descriptors(traces.iloc[:0], relevance(aggregation_method=method, **outputs))
        full = add_descriptors(traces, relevance(aggregation_method=method, **outputs))
        assert scored.shape == (0, 6)
        assert scored["cr"].dtype == dtype
        assert scored.dtypes.to_dict() == full.dtypes.to_dict()


@pytest.mark.parametrize("question", [None, nan, pd.NA, "", " \n"])
def test_f15_a_missing_question(relevance, table, embedder, question):
    scored = add_descriptors(table((question, ["N"])), relevance(output_scores=True, output_status=True))
    assert cells(scored) == [None]
    assert scored["cr scores"].tolist() == [None]
    assert scored["cr status"].tolist() == ["missing_input"]
    assert embedder.texts == []


def test_f17_duplicate_index(relevance, table):
    scored = add_descriptors(
        table(("north?", ["N"]), ("north?", ["E", "N"]), index=[0, 0]), relevance(output_scores=True)
    )
    assert scored["cr"].tolist() == [1.0, 0.75]
    assert scored["cr scores"].tolist() == [[1.0], [0.5, 1.0]]
    assert scored.index.tolist() == [0, 0]


INDEXES = {
    "reversed": [1, 0],
    "gaps": [5, 2],
    "text": ["b", "a"],
    "named": pd.Index([1, 0], name="trace"),
    "multi": pd.MultiIndex.from_tuples([("b", 1), ("a", 0)], names=["day", "n"]),
    "ties in time": pd.DatetimeIndex(["2025-01-01", "2025-01-01"], name="at"),
    "nulls": [nan, nan],
    "categories": pd.CategoricalIndex(["b", "a"]),
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES.keys())
def test_f18_any_index(relevance, table, index):
    traces = table(("north?", ["N"]), ("east?", ["E", "NE"]), index=index)
    scored = add_descriptors(traces, relevance(output_scores=True))
    assert scored["cr"].tolist() == [1.0, 0.95]
    assert scored["cr scores"].tolist() == [[1.0], [1.0, 0.9]]
    pd.testing.assert_index_equal(scored.index, traces.index)


def test_f18_scores_follow_a_thousand_shuffled_rows(relevance, table):
    random = np.random.default_rng(18)
    rows = [
        (("north?", "east?")[random.integers(2)], ["N", "NE", "E", "S"][: random.integers(0, 5)]) for _ in range(1000)
    ]
    ordered = table(*rows)
    shuffled = ordered.sample(frac=1, random_state=18)
    descriptor = relevance(output_scores=True, output_status=True)
    pd.testing.assert_frame_equal(
        add_descriptors(shuffled, descriptor).sort_index(), add_descriptors(ordered, descriptor)
    )


def test_f21_a_name_that_is_taken(relevance, table, embedder):
    traces = table(("north?", ["N", "E"])).assign(cr="mine")
    with pytest.raises(ColumnConflictError, match="'cr' of ContextRelevance is in the table already"):
        add_descriptors(traces, relevance(output_scores=True))
    with pytest.raises(ColumnConflictError, match="'cr scores' of ContextRelevance is written by another"):
        add_descriptors(
            traces, [relevance(alias="a cr"), relevance(alias="cr", output_scores=True), relevance(alias="cr scores")]
        )
    assert embedder.texts == []
    scored = add_descriptors(traces, relevance(output_scores=True), on_conflict="overwrite")
    assert list(scored.columns) == ["question", "contexts", "cr", "cr scores"]
    assert scored["cr"].tolist() == [0.75]
    assert traces["cr"].tolist() == ["mine"]


@pytest.mark.parametrize(
    ("method", "threshold", "expected"),
    [
        ("hit_share", 0.5, 1.0),
        ("hit_share", 0.51, 2 / 3),
        ("hit_share", 0.9, 1 / 3),
        ("hit", 0.9, 1),
        ("hit", 1.0, 1),
        ("hit_share", 0, 1.0),
        ("hit", 0, 1),
        ("hit_share", 0.8, 2 / 3),
    ],
)
def test_f32_thresholds(relevance, table, method, threshold, expected):
    descriptor = relevance(aggregation_method=method, aggregation_method_params={"threshold": threshold})
    assert add_descriptors(table(("north?", ["N", "NE", "E"])), descriptor)["cr"].tolist() == [expected]


@pytest.mark.parametrize("threshold", [1.2, -1.1, "0.5", None, True, nan])
@pytest.mark.parametrize("method", ["hit", "hit_share"])
def test_f32_thresholds_that_are_none(relevance, method, threshold):
    with pytest.raises(OptionError, match=r"threshold: .* is not allowed"):
        relevance(aggregation_method=method, aggregation_method_params={"threshold": threshold})


def test_f33_cosine_above_one_and_zero_vectors(relevance, table):
    ones = FakeEmbedder(vectors={"q": (1, 1), "c": (1, 1), "Z": (0, 0)})
    descriptor = relevance(method_params={"embedder": ones}, output_scores=True, output_status=True)
    scored = add_descriptors(table(("q", ["c"]), ("q", ["c", "Z"]), ("q", ["Z"])), descriptor)
    assert cells(scored) == [1.0, None, None]
    assert scored["cr scores"][0] == [1.0]
    assert same(scored["cr scores"][1], [1.0, nan])
    assert scored["cr scores"][2] is None
    assert scored["cr status"].tolist() == ["ok", "partial", "unusable_vector"]


FAILING = {"yes": 1.0, "fails": nan, "no": 0.0}


def judge(questions, contexts):
    return [FAILING[context] for context in contexts]


@pytest.mark.parametrize(
    ("method", "contexts", "expected", "skipping"),
    [
        ("mean", ["yes", "fails", "no"], None, 0.5),
        ("hit_share", ["yes", "fails", "no"], None, 0.5),
        ("min", ["yes", "fails", "no"], None, 0.0),
        ("max", ["yes", "fails", "no"], 1.0, 1.0),
        ("hit", ["yes", "fails", "no"], 1, 1),
        ("hit", ["no", "fails", "no"], None, 0),
        ("max", ["no", "fails", "no"], None, 0.0),
        ("mean", ["fails", "fails"], None, None),
    ],
)
def test_f37_one_context_that_failed(relevance, table, method, contexts, expected, skipping):
    params = {"threshold": 0.5} if method.startswith("hit") else None
    options = {"method": judge, "aggregation_method": method, "aggregation_method_params": params}
    traces = table(("q", contexts))
    scored = add_descriptors(traces, relevance(output_scores=True, output_status=True, **options))
    assert cells(scored) == [expected]
    if "yes" in contexts:
        assert same(scored["cr scores"][0], [1.0, nan, 0.0])
    assert scored["cr status"].tolist() == ["not_scored" if set(contexts) == {"fails"} else "partial"]
    skipped = add_descriptors(traces, relevance(skip_failed_contexts=True, output_status=True, **options))
    assert cells(skipped) == [skipping]
    assert skipped["cr status"].tolist() == scored["cr status"].tolist()


@pytest.mark.parametrize(
    ("contexts", "mean", "n_scored", "coverage"),
    [([["NE"], ["Z"], None], 0.8, 1, 1 / 3), ([None, ["Z"]], None, 0, 0.0)],
)
def test_f38_a_mean_with_its_coverage(relevance, table, contexts, mean, n_scored, coverage):
    summary = score_frame(table(*(("north?", item) for item in contexts)), relevance()).summary
    column = summary.to_dict()["columns"]["cr"]
    assert (column["mean"], column["n_scored"], column["n_total"]) == (mean, n_scored, len(contexts))
    assert column["coverage"] == coverage


FILLER = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
LONG = f"{FILLER} ruby fifteen sixteen seventeen eighteen nineteen"


def test_f61_a_model_that_reads_only_the_beginning(relevance, table):
    traces = table(("ruby", [LONG, "ruby"]), ("ruby", [LONG]))

    def options(long_context):
        return {"embedder": FakeEmbedder(max_tokens=8), "long_context": long_context}

    cut = relevance(method_params=options("truncate"), output_scores=True, output_reasons=True)
    with pytest.warns(TruncationWarning, match="1 of 2 distinct texts") as caught:
        run = score_frame(traces, cut)
    assert len(caught) == 1
    assert (run.summary.texts.cut, run.summary.texts.distinct) == (1, 2)
    assert run.frame["cr reasons"].tolist() == [
        ["the last 12 tokens were not read", None],
        ["the last 12 tokens were not read"],
    ]
    whole = score_frame(traces, relevance(method_params=options("window_max"), output_scores=True))
    assert whole.summary.texts.cut == 0
    found, missed = whole.frame["cr scores"][0][0], run.frame["cr scores"][0][0]
    assert missed < 0.6 < found
    refused = relevance(method_params=options("error"), output_scores=True, output_status=True)
    with pytest.warns(TruncationWarning):
        scored = add_descriptors(traces, refused)
    assert cells(scored) == [None, None]
    assert scored["cr status"].tolist() == ["partial", "context_too_long"]


CHANGES = {
    "weights": {"vectors": {"q": (1, 0), "c": (0.6, 0.8)}},
    "limit": {"vectors": {"q": (1, 0), "c": (0, 1)}, "max_tokens": 5},
    "dimensions": {"vectors": {"q": (1, 0), "c": (0, 1)}, "n_dimensions": 2},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_f62_another_model_is_asked_again(relevance, table, tmp_path, change):
    traces, cache = table(("q", ["c"])), tmp_path / "cache.sqlite"
    first, second = FakeEmbedder(vectors={"q": (1, 0), "c": (0, 1)}), FakeEmbedder(**change)
    add_descriptors(traces, relevance(method_params={"embedder": first}), cache=cache)
    scored = add_descriptors(traces, relevance(method_params={"embedder": second}), cache=cache)
    assert second.texts == ["q", "c"]
    assert scored["cr"].tolist() == [0.8 if change["vectors"]["c"][0] else 0.5]


def test_f62_what_changes_no_vector_asks_for_none(relevance, table, tmp_path, embedder):
    traces, cache = table(("north?", ["N", "E"])), tmp_path / "cache.sqlite"
    add_descriptors(traces, relevance(), cache=cache)
    embedder.texts.clear()
    options = {"aggregation_method": "hit", "aggregation_method_params": {"threshold": 0.5}, "alias": "other"}
    run = score_frame(traces, relevance(method_params={"similarity": "cosine"}, **options), cache=cache)
    assert run.frame["other"].tolist() == [1]
    assert embedder.texts == []
    assert (run.summary.texts.distinct, run.summary.texts.encoded) == (3, 0)


class Flaky(FakeEmbedder):
    """Fails at the first context that it is given."""

    def embed(self, texts, role):
        if role == "document" and "failed" not in self.texts:
            self.texts.append("failed")
            raise ConnectionError("no answer")
        return super().embed(texts, role)


def test_f65_failures_are_not_stored(relevance, table, tmp_path):
    traces, cache = table(("north?", ["N"])), tmp_path / "cache.sqlite"
    flaky = Flaky(vectors={"north?": (1, 0), "N": (1, 0)})
    with pytest.raises(ConnectionError, match="no answer"):
        add_descriptors(traces, relevance(method_params={"embedder": flaky}), cache=cache)
    scored = add_descriptors(traces, relevance(method_params={"embedder": flaky}), cache=cache)
    assert scored["cr"].tolist() == [1.0]
    assert flaky.texts == ["north?", "failed", "N"]


def test_f65_a_vector_that_is_no_number_is_not_stored(relevance, table, tmp_path):
    traces, cache = table(("north?", ["N"])), tmp_path / "cache.sqlite"
    for _ in range(2):
        broken = FakeEmbedder(vectors={"north?": (1, 0), "N": (nan, 0)})
        scored = add_descriptors(traces, relevance(method_params={"embedder": broken}, output_status=True), cache=cache)
        assert scored["cr status"].tolist() == ["unusable_vector"]
        assert "N" in broken.texts

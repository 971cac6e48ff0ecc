import asyncio
import math
import pickle
from contextlib import nullcontext

import pandas as pd
import pyarrow as pa
import pytest

from rag_descriptors import ContextRelevance, add_descriptors, ascore_frame, frame, score_frame
from rag_descriptors.errors import CellError, ColumnConflictError, MissingColumnError, PlanError, ScoringError
from rag_descriptors.frame import ROWS_AT_ONCE
from rag_descriptors.traces.columns import to_column

nan = float("nan")


@pytest.fixture
def traces(table):
    return table(("north?", ["N", "E"]), (None, ["N"]), ("east?", None), ("east?", ["E", " "]))


@pytest.fixture
def full(relevance):
    return relevance(output_scores=True, output_reasons=True, output_status=True)


def test_columns_index_and_dtypes(traces, full):
    scored = add_descriptors(traces, full)
    assert list(scored.columns) == ["question", "contexts", "cr", "cr scores", "cr reasons", "cr status"]
    pd.testing.assert_frame_equal(scored[["question", "contexts"]], traces)
    assert scored["cr"].dtype == "float64"
    assert scored["cr scores"].dtype == object
    assert scored["cr"].tolist() == pytest.approx([0.75, nan, nan, 1.0], nan_ok=True)


def test_raw_lists_are_python_floats(traces, full):
    lists = add_descriptors(traces, full)["cr scores"].tolist()
    assert [type(item) for item in lists] == [list, type(None), type(None), list]
    assert {type(score) for item in lists if item for score in item} == {float}
    assert lists[0] == [1.0, 0.5]
    assert lists[3][0] == 1.0
    assert math.isnan(lists[3][1])


def test_hits_are_nullable_integers(traces, relevance):
    column = add_descriptors(traces, relevance(aggregation_method="hit"))["cr"]
    assert column.dtype == "Int64"
    assert column.tolist() == [1, pd.NA, pd.NA, 1]


def test_the_callers_frame_is_left_alone(traces, full):
    traces.attrs["source"] = "log"
    before, cells = traces.copy(), traces["contexts"].tolist()
    held = [None if cell is None else list(cell) for cell in cells]  # a copy of the frame shares its lists
    scored = add_descriptors(traces, full)
    pd.testing.assert_frame_equal(traces, before)
    assert [None if cell is None else list(cell) for cell in traces["contexts"]] == held
    assert all(now is then for now, then in zip(traces["contexts"], cells, strict=True))
    assert scored.attrs == {"source": "log"}
    assert traces.attrs == {"source": "log"}
    scored.loc[0, "question"] = "other"
    assert traces["question"][0] == "north?"


def test_more_text_than_arrow_holds_is_scored_in_parts(traces, relevance, monkeypatch):
    expected = add_descriptors(traces, relevance())
    sizes = []

    def at_most_two(cells, *more):
        sizes.append(len(cells))
        if len(cells) > 2:
            raise pa.ArrowCapacityError("too much")
        return to_column(cells, *more)

    monkeypatch.setattr(frame, "to_column", at_most_two)
    pd.testing.assert_frame_equal(add_descriptors(traces, relevance()), expected)
    assert sizes == [4, 2, 2, 2, 2]
    monkeypatch.setattr(frame, "to_column", lambda *_: at_most_two([0] * 3))
    with pytest.raises(pa.ArrowCapacityError):
        add_descriptors(traces, relevance())


def test_the_new_frame_is_no_view(traces, relevance):
    scored = add_descriptors(traces, relevance())
    scored["cr"] = 0.0
    scored.loc[0, "cr"] = 1.0
    assert scored["cr"].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_duplicate_column_names(traces, relevance, embedder):
    extra = pd.DataFrame({"extra": range(4)})
    doubled = pd.concat([traces, extra, extra], axis=1)
    assert list(add_descriptors(doubled, relevance()).columns) == ["question", "contexts", "extra", "extra", "cr"]
    embedder.texts.clear()
    with pytest.raises(MissingColumnError, match=r"column 'question' stands there 2 times\. Rename or drop"):
        add_descriptors(pd.concat([traces, traces[["question"]]], axis=1), relevance())
    assert embedder.texts == []


def test_columns_of_other_kinds_are_kept(table, relevance):
    traces = table(("north?", ["N"])).assign(n=1, at=pd.Timestamp("2025-01-01"), o=[{"a": 1}])
    traces[0] = "number as a name"
    scored = add_descriptors(traces, relevance())
    pd.testing.assert_frame_equal(scored[traces.columns], traces)


DTYPES = {
    "object": (object, object),
    "string": ("string", object),
    "string[python]": ("string[python]", object),
    "string[pyarrow]": ("string[pyarrow]", object),
    "category": ("category", object),
    "arrow": (pd.ArrowDtype(pa.string()), pd.ArrowDtype(pa.list_(pa.string()))),
    "large arrow": (pd.ArrowDtype(pa.large_string()), pd.ArrowDtype(pa.large_list(pa.large_string()))),
    "arrow dictionary": (pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string())), object),
}


@pytest.mark.parametrize(("questions", "contexts"), DTYPES.values(), ids=DTYPES.keys())
def test_dtypes(traces, full, questions, contexts):
    typed = traces.astype({"question": questions, "contexts": contexts})
    scored = add_descriptors(typed, full)
    expected = add_descriptors(traces, full)
    new = full.outputs.names
    pd.testing.assert_frame_equal(scored[new], expected[new])
    pd.testing.assert_frame_equal(scored[["question", "contexts"]], typed)


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_contexts_as_text(relevance, dtype):
    cells = pd.Series(['["N", "E"]', None, "[]", "E"], dtype=dtype)
    traces = pd.DataFrame({"question": ["north?"] * 4, "contexts": cells})
    scored = add_descriptors(traces, relevance())
    assert scored["cr"].tolist() == pytest.approx([0.75, nan, nan, 0.5], nan_ok=True)


@pytest.fixture
def inferred_strings():
    with nullcontext() if pd.__version__ >= "3" else pd.option_context("future.infer_string", True):
        yield


@pytest.mark.usefixtures("inferred_strings")
def test_inferred_text_columns(relevance):
    traces = pd.DataFrame({"question": ["north?", None], "contexts": ["N", '["N"]']})
    scored = add_descriptors(traces, relevance(output_status=True))
    assert traces["question"].dtype != object
    assert scored["cr"].tolist() == pytest.approx([1.0, nan], nan_ok=True)
    assert scored["cr status"].dtype == traces["question"].dtype
    assert add_descriptors(traces[:0], relevance(output_status=True))["cr status"].dtype == traces["question"].dtype


def test_structs_in_arrow_lists(relevance):
    documents = pa.array([[{"page_content": "N"}, {"page_content": None}], None, []])
    traces = pd.DataFrame(
        {"question": ["north?"] * 3, "contexts": pd.Series(documents, dtype=pd.ArrowDtype(documents.type))}
    )
    scored = add_descriptors(traces, relevance())
    assert scored["cr"].tolist() == pytest.approx([1.0, nan, nan], nan_ok=True)


def test_chunks_and_slices_of_arrow(relevance):
    table = pa.concat_tables(
        pa.table({"question": ["cut", question], "contexts": [["cut"], contexts]}).slice(1)
        for question, contexts in (("north?", ["N", None]), (None, None), ("east?", ["N"]))
    )
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    assert add_descriptors(frame[::-1], relevance())["cr"].tolist() == pytest.approx([0.5, nan, 1.0], nan_ok=True)


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("question", [1, 2], "row 0 (index 'a'): found int 1 where a text is expected"),
        ("question", [1j, 2j], "found complex 1j"),
        ("question", pd.Categorical([1, 2]), "found int 1"),
        ("question", pd.to_datetime(["2025-01-01", None]), "where a text is expected"),
        ("contexts", [["N"], 7], "row 1 (index 'b'): found int 7 where a context is expected"),
        ("contexts", [0.5, nan], "row 0 (index 'a'): found float 0.5"),
        ("contexts", ["['N' 'E']", "N"], "found the text of a list that can't be read back: ['N' 'E']"),
        ("contexts", [{"N"}, None], "found set {'N'}"),
    ],
)
def test_cells_that_cannot_be_read(relevance, embedder, column, cells, message):
    traces = pd.DataFrame({"question": ["north?"] * 2, "contexts": ["N"] * 2}, index=["a", "b"])
    traces[column] = pd.Series(cells, index=traces.index)
    with pytest.raises(CellError) as caught:
        add_descriptors(traces, relevance())
    assert f"column {column!r} can't be read" in str(caught.value)
    assert message in str(caught.value)
    assert embedder.texts == []


def test_text_that_arrow_refuses(relevance):
    questions = pd.Series(["north?", "\ud800"], dtype=pd.StringDtype("python"))
    traces = pd.DataFrame({"question": questions, "contexts": [["N"], None]})
    assert add_descriptors(traces, relevance())["cr"].tolist() == pytest.approx([1.0, nan], nan_ok=True)


def test_more_rows_than_are_scored_at_once(table, relevance, embedder):
    n = ROWS_AT_ONCE + 2
    traces = table(*[("north?", ["N"]), ("east?", ["N", "NE"])] * (n // 2))
    run = score_frame(traces, relevance(aggregation_method="max"))
    assert run.frame["cr"].tolist() == [1.0, 0.9] * (n // 2)
    assert run.summary.rows == n
    assert sorted(embedder.texts) == ["N", "NE", "east?", "north?"]
    traces.at[n - 1, "contexts"] = 7
    with pytest.raises(CellError, match=rf"row {n - 1} \(index {n - 1}\): found int 7"):
        add_descriptors(traces, relevance())


def test_several_descriptors_share_columns_and_vectors(traces, relevance, embedder):
    scored = add_descriptors(traces, [relevance(), relevance(alias="best", aggregation_method="max")])
    assert list(scored.columns) == ["question", "contexts", "cr", "best"]
    assert scored["best"].tolist() == pytest.approx([1.0, nan, nan, 1.0], nan_ok=True)
    assert sorted(embedder.texts) == ["E", "N", "east?", "north?"]


def test_no_descriptors(traces):
    scored = add_descriptors(traces, [])
    pd.testing.assert_frame_equal(scored, traces)
    assert scored is not traces


def test_all_problems_at_once(traces, relevance, embedder):
    descriptors = [
        ContextRelevance("questoin", "contexts", method_params={"embedder": embedder}, alias="question"),
        relevance(),
        relevance(),
        "nothing",
    ]
    with pytest.raises(PlanError) as caught:
        add_descriptors(traces, descriptors, on_conflict="replace", on_error="ignore")
    assert type(caught.value) is PlanError
    unmade, *others = str(caught.value).splitlines()
    assert unmade.startswith("the descriptor 'nothing' is not installed. Allowed: 'ContextEntityRecall', 'ContextRel")
    assert others == [
        "on_conflict: 'replace' is unknown. Allowed: 'error', 'overwrite'.",
        "on_error: 'ignore' is unknown. Allowed: 'null', 'raise'.",
        "column 'questoin' is missing. Did you mean 'question'? Allowed: 'question', 'contexts'.",
        "column 'question' of ContextRelevance is in the table already. Give another alias, or "
        "on_conflict='overwrite' (--overwrite).",
        "column 'cr' of ContextRelevance is written twice in one run. Give one of the two another alias.",
    ]
    assert embedder.texts == []


def test_missing_columns(traces, relevance):
    with pytest.raises(MissingColumnError, match=r"'question' is missing.*\ncolumn 'contexts' is missing"):
        add_descriptors(traces[[]], relevance())


def test_on_conflict_between_descriptors(traces, relevance):
    with pytest.raises(ColumnConflictError, match="written twice in one run"):
        add_descriptors(traces, [relevance(), relevance()], on_conflict="overwrite")


def test_overwriting_what_is_read(traces, relevance):
    scored = add_descriptors(traces, relevance(alias="question"), on_conflict="overwrite")
    assert list(scored.columns) == ["question", "contexts"]
    assert scored["question"].tolist() == pytest.approx([0.75, nan, nan, 1.0], nan_ok=True)


@pytest.mark.parametrize("table", [[{"question": "q"}], {"question": ["q"]}, None, pd.Series(["q"])])
def test_no_frame(relevance, table):
    with pytest.raises(PlanError, match="where a pandas DataFrame is expected"):
        add_descriptors(table, relevance())


def test_on_error_raise(table, relevance):
    rows = [("north?", ["N"]), (None, ["N"]), ("north?", None)]
    assert add_descriptors(table(*rows), relevance(), on_error="raise")["cr"].notna().sum() == 1
    with pytest.raises(ScoringError, match="'cr': 1 rows failed, the first, row 3, with status 'partial'"):
        add_descriptors(table(*rows, ("north?", ["N", "Z"])), relevance(), on_error="raise")


def test_on_error_raise_counts_rows_through_the_table(table, relevance):
    traces = table(*[("north?", ["N"])] * ROWS_AT_ONCE, ("north?", ["Z"]))
    with pytest.raises(ScoringError, match=f"the first, row {ROWS_AT_ONCE}, with status 'unusable_vector'"):
        add_descriptors(traces, relevance(), on_error="raise")


def test_in_a_running_event_loop(traces, full):
    async def both():
        return score_frame(traces, full), await ascore_frame(traces, full)

    expected = score_frame(traces, full)
    for run in asyncio.run(both()):
        pd.testing.assert_frame_equal(run.frame, expected.frame)
        assert run.summary.columns == expected.summary.columns


def test_many_at_once_in_an_event_loop(traces, relevance):
    async def all_of_them():
        return await asyncio.gather(*(ascore_frame(traces, relevance(alias=str(n))) for n in range(8)))

    for n, run in enumerate(asyncio.run(all_of_them())):
        assert run.frame[str(n)].tolist() == pytest.approx([0.75, nan, nan, 1.0], nan_ok=True)


def test_pipe_and_pickle(traces, full):
    scored = traces.pipe(add_descriptors, full)
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(scored)), scored)


def test_files_are_read_back_plainly(traces, full, tmp_path):
    scored = add_descriptors(traces, full)
    scored.to_parquet(tmp_path / "scored.parquet")
    again = pd.read_parquet(tmp_path / "scored.parquet")
    assert again["cr"].tolist() == pytest.approx([0.75, nan, nan, 1.0], nan_ok=True)
    assert again["cr scores"].isna().tolist() == [False, True, True, False]
    assert again["cr scores"][0].tolist() == [1.0, 0.5]

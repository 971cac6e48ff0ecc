"""Guesses at columns of unknown names, by what they hold."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from rag_descriptors.jobs.guess import guess_columns, how_to_name
from rag_descriptors.traces.readers import open_traces

TEXTS = ["The moon is made of rock.", "It is far away from us."]
TABLE = {
    "id": ["a-1", "a-2"],
    "frage": ["What is the moon made of?", "How far is it?"],
    "titel": [["The moon"], ["Far off"]],
    "funde": [TEXTS, TEXTS[:1]],
    "antwort": ["It is made of rock, as far as anybody can tell.", None],
    "n": [1, 2],
}


@pytest.fixture
def guess(tmp_path):
    """Guess at the columns of a table, as Parquet, as JSON Lines and as CSV."""

    def run(table):
        pa.parquet.write_table(pa.table(table), tmp_path / "t.parquet")
        rows = pa.table(table).to_pylist()
        (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
        texts = {
            name: [cell if isinstance(cell, str) or cell is None else json.dumps(cell) for cell in cells]
            for name, cells in table.items()
        }
        pa.csv.write_csv(pa.table(texts), tmp_path / "t.csv")
        found = [guess_columns(open_traces([str(tmp_path / f"t.{ending}")])) for ending in ("parquet", "jsonl", "csv")]
        assert found[0] == found[1] == found[2]
        return found[0]

    return run


def test_lists_of_long_texts_and_short_questions(guess):
    assert guess(TABLE) == {"question": "frage", "contexts": "funde"}


def test_without_lists_the_longest_texts(guess):
    table = {**TABLE, "funde": [" ".join(TEXTS * 3)] * 2}
    del table["titel"]
    assert guess(table) == {"question": "frage", "contexts": "funde"}


def test_without_question_marks_the_shorter_texts(guess):
    table = {"satz": ["moon rock", "far away"], "funde": TABLE["funde"], "antwort": TABLE["antwort"]}
    assert guess(table) == {"question": "satz", "contexts": "funde"}


def test_documents_of_unknown_keys_are_no_contexts(guess):
    assert guess({"frage": TABLE["frage"], "funde": [[{"chunk": "a b"}]] * 2}) == {"question": "frage"}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            {"user_input": TABLE["frage"], "retrieved_contexts": [["a b"]] * 2, "reference_contexts": [TEXTS] * 2},
            {"question": "user_input", "contexts": "retrieved_contexts"},
        ),
        ({"reference_contexts": [TEXTS] * 2, "q": TABLE["frage"]}, {"question": "q", "contexts": "reference_contexts"}),
        ({"question": TEXTS, "reply": TEXTS}, {"question": "question", "contexts": "reply"}),
        (
            {" Question ": TEXTS, "f": TABLE["frage"], "Retrieved Docs": ["a b?"] * 2},
            {"question": " Question ", "contexts": "Retrieved Docs"},
        ),
        ({"retrievalContext": ["a b?", "c d?"], "SourceNodes": TEXTS}, {"contexts": "retrievalContext"}),
        (
            {"q": TEXTS, "reply": ["So what?", "Do you mean it?"], "funde": [TEXTS] * 2},
            {"question": "q", "contexts": "funde"},
        ),
        ({"modelOutput": ["So what?", "Do you mean it?"], "funde": [TEXTS] * 2}, {"contexts": "funde"}),
        (
            {"expected_answer": ["a b?", "c d?"], "q": TEXTS, "funde": [TEXTS] * 2},
            {"question": "q", "contexts": "funde"},
        ),
        ({"answer": [" ".join(TEXTS)] * 2, "text": TEXTS, "q": TABLE["frage"]}, {"question": "q", "contexts": "text"}),
    ],
    ids=" ".join,
)
def test_names_go_before_content(guess, table, expected):
    assert guess(table) == expected


@pytest.mark.parametrize(
    "table", [{"n": [1, 2], "id": ["a", "b"], "leer": [None, " "]}, {"n": pa.array([], pa.int64())}]
)
def test_where_nothing_looks_like_anything(guess, table):
    assert guess(table) == {}


def test_columns_of_several_kinds(tmp_path):
    (tmp_path / "t.jsonl").write_text(
        '{"f": "a b?", "c": "one text"}\n{"f": "b c?", "c": ["another one", "third text"]}'
    )
    assert guess_columns(open_traces([str(tmp_path / "t.jsonl")])) == {"question": "f", "contexts": "c"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"question": None, "contexts": None}, "--question 'die frage' --contexts funde"),
        ({"question": "q", "contexts": None}, "--contexts funde"),
        ({"question": "q", "contexts": "c"}, None),
    ],
)
def test_what_to_type(tmp_path, found, expected):
    table = {"die frage": TABLE["frage"], "funde": TABLE["funde"]}
    pa.parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    told = "\n".join(how_to_name(open_traces([str(tmp_path / "t.parquet")]), found))
    if expected is None:
        assert told == ""
    else:
        first, _, table_head, *lines = told.splitlines()
        assert first == f"By what the columns hold, it may be: {expected}"
        assert table_head == "[columns]"
        assert lines[-1] == 'contexts = "funde"'
        assert ('question = "die frage"' in lines) == ("--question" in expected)


DATA = Path(__file__).parents[1] / "data" / "presets"
NOTHING = {"question": None, "contexts": None}


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("langfuse_api.json", "langfuse"),  # whose rows stand in `data`
        ("langfuse_blob.csv", "langfuse"),
        ("openinference.json", "openinference"),
        ("mlflow_trace.json", "mlflow"),
        ("phoenix_spans.jsonl", "phoenix"),
    ],
)
def test_an_export_of_spans_needs_its_preset(name, preset):
    told = [*how_to_name(open_traces([str(DATA / name)]), NOTHING)]
    assert told[0] == f"The files look like an export of spans by {preset}: --preset {preset} reads such."
    assert len(told) == 1
    assert [*how_to_name(open_traces([str(DATA / name)], preset), NOTHING)][:1] != told[:1]


def test_rows_of_a_tool_have_columns():
    (told,) = how_to_name(open_traces([str(DATA / "ragas.jsonl")]), {"question": "user_input", "contexts": None})
    assert told.startswith("By what the columns hold, it may be: --contexts retrieved_contexts\n")

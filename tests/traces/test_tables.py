"""Columns of files with one row a trace: our names, one schema, cells that only a preset can read."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from rag_descriptors.errors import CellError, FormatError, OptionError
from rag_descriptors.traces.presets import DEEPEVAL, OPENINFERENCE, PHOENIX_JOINED, RAGAS
from rag_descriptors.traces.readers import is_mixed, open_traces, parse_mixed
from rag_descriptors.traces.tables import Source, named


@pytest.fixture
def file(tmp_path):
    """Make a file: of rows as JSON Lines, of a text, or of columns as Parquet."""

    def make(name, *rows, **columns):
        path = tmp_path / name
        if columns:
            pyarrow.parquet.write_table(pa.table(columns), path)
        else:
            path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return str(path)

    return make


def rows(inputs, preset=None, **options):
    traces = open_traces([inputs] if isinstance(inputs, str) else inputs, preset, **options)
    return [row for batch in traces.batches() for row in batch.to_pylist()]


# --- names


@pytest.mark.parametrize(
    ("form", "columns", "names"),
    [
        (None, ["user_input"], {}),
        (OPENINFERENCE, ["user_input"], {}),
        (RAGAS, ["user_input", "n"], {"question": "user_input"}),
        (RAGAS, ["question"], {"question": "question"}),
        (RAGAS, ["answer", "response"], {"response": "response"}),  # the order of the preset decides
        (DEEPEVAL, ["context", "input"], {"question": "input", "reference_contexts": "context"}),
        (PHOENIX_JOINED, ["input", "reference"], {"question": "input", "contexts": "reference"}),
        (RAGAS, [], {}),
    ],
)
def test_names(tmp_path, form, columns, names):
    assert named(tmp_path, form, columns) == Source(tmp_path, form, names)


def test_a_name_that_would_be_there_twice(tmp_path):
    with pytest.raises(OptionError) as error:
        named(tmp_path, RAGAS, ["user_input", "question", "retrieved_contexts", "contexts"])
    assert str(error.value) == "\n".join(
        f"{tmp_path}: the columns {theirs!r} and {ours!r} both would be {ours!r}. Rename or drop one of them."
        for theirs, ours in (("user_input", "question"), ("retrieved_contexts", "contexts"))
    )


def test_files_of_several_spellings_have_one_schema(file):
    inputs = [
        file("1.jsonl", {"user_input": "a", "retrieved_contexts": ["N"], "n": 1}),
        file("2.jsonl", {"question": "b", "contexts": [], "answer": "r"}),
        file("3.parquet", user_input=["c"], response=["r"]),
    ]
    assert rows(inputs, "ragas") == [
        {"question": "a", "contexts": ["N"], "n": 1, "response": None},
        {"question": "b", "contexts": [], "n": None, "response": "r"},
        {"question": "c", "contexts": None, "n": None, "response": "r"},
    ]


def test_columns_of_other_types_name_the_files(file):
    inputs = [file("1.jsonl", {"user_input": "a", "n": 1}), file("2.jsonl", {"question": 1, "n": 2.5})]
    with pytest.raises(FormatError, match=r"column 'question' don't .*: string in .*1\.jsonl; int64 in .*2\.jsonl\."):
        open_traces(inputs, "ragas")


def test_lists_in_one_file_and_texts_in_another_are_read_cell_by_cell(file, tmp_path):
    inputs = [
        file("1.csv", 'q,c,n\na,"[""A"", ""B""]",1\nb,plain,\nc,42,\nd,,\n'),
        file("2.jsonl", {"q": "e", "c": ["C", None]}, {"q": "f", "c": []}),
        file("3.jsonl", {"c": [{"text": "D"}]}),
    ]
    pa.parquet.write_table(pa.table({"c": [[1, 2]]}), tmp_path / "4.parquet")
    traces = open_traces([*inputs, str(tmp_path / "4.parquet")])
    assert is_mixed(traces.schema.field("c"))
    assert traces.schema.field("n").type == pa.string()
    cells = [cell for batch in traces.batches() for cell in parse_mixed(batch["c"])]
    assert cells == ['["A", "B"]', "plain", "42", "", ["C", None], [], [{"text": "D"}], [1, 2]]


def test_a_file_of_another_preset_is_named(file):
    inputs = [file("1.jsonl", {"user_input": "a"}), file("2.jsonl", {"body": "b"})]
    with pytest.raises(OptionError, match=r"preset 'ragas' does not fit .*2\.jsonl: it has 'body', and"):
        open_traces(inputs, "ragas")


# --- the separator


@pytest.mark.parametrize(
    ("cell", "contexts"),
    [
        ("N|E", ["N", "E"]),
        ("N", ["N"]),
        (" N | E ", [" N ", " E "]),
        ("N|| |E", ["N", None, None, "E"]),
        ("|N", [None, "N"]),
        ('["N|E", "S"]', ["N|E", "S"]),
        ("['N|E']", ["N|E"]),
        ("[1] N|E", ["[1] N", "E"]),
        ("", None),
        (" ", None),
        ("nan", None),
    ],
)
def test_contexts_of_one_text_are_split(file, cell, contexts):
    quoted = cell.replace('"', '""')
    assert rows(file("t.csv", "input,retrieval_context", f'q,"{quoted}"\n'), "deepeval") == [
        {"question": "q", "contexts": contexts}
    ]


def test_the_separator_of_a_preset_is_for_csv(file):
    rows_of_json = [{"input": "q", "actual_output": "a", "retrieval_context": "ps | grep x"}]
    assert rows(file("t.jsonl", *rows_of_json), "deepeval")[0]["contexts"] == "ps | grep x"
    assert rows(file("t.jsonl", *rows_of_json), "deepeval", separator=" | ")[0]["contexts"] == ["ps", "grep x"]


def test_texts_of_parquet_are_split(file):
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        path = file("t.parquet", input=["q", "q"], context=pa.array(["N|E", None], kind), output=["a", "a"])
        assert [row["contexts"] for row in rows(path, "phoenix", separator="|")] == [["N", "E"], None]


def test_lists_are_never_split(file):
    lists = [["ps | grep x", "| a | b |\n|---|---|"]]
    assert rows(file("t.parquet", input=["q"], retrieval_context=lists), "deepeval", separator="|") == [
        {"question": "q", "contexts": lists[0]}
    ]


def test_a_separator_without_a_preset(file):
    path = file("t.jsonl", {"query": "q", "context": "N\n\nE"}, {"query": "q", "context": ["N\n\nE", {"text": "S"}]})
    (batch,) = open_traces([path]).batches()
    assert is_mixed(batch.schema.field("context"))
    assert parse_mixed(batch["context"])[0] == "N\n\nE"
    assert [row["context"] for row in rows(path, separator="\n\n")] == [["N", "E"], ["N\n\nE", "S"]]


def test_a_separator_needs_a_column(file):
    with pytest.raises(
        OptionError, match=r"separator: '\|' needs a column of contexts. Known names are contexts, retr"
    ):
        open_traces([file("t.jsonl", {"q": "a", "c": "b"})], separator="|")


def test_a_separator_is_for_the_columns_that_are_named(file):
    path = file("t.csv", "context,found,also", "a|b,N|E,S|W")
    assert rows(path, separator="|") == [{"context": ["a", "b"], "found": "N|E", "also": "S|W"}]
    assert rows(path, separator="|", contexts=["found"]) == [{"context": "a|b", "found": ["N", "E"], "also": "S|W"}]
    assert rows(path, separator="|", contexts=["found", "also"])[0]["also"] == ["S", "W"]
    assert rows(path, separator="|", contexts=["nowhere"]) == [{"context": "a|b", "found": "N|E", "also": "S|W"}]


def test_a_preset_and_names_both_tell_columns_of_contexts(file):
    path = file("t.csv", "input,retrieval_context,mine", "q,N|E,S|W")
    expected = {"question": "q", "contexts": ["N", "E"], "mine": ["S", "W"]}
    assert rows(path, "deepeval", contexts=["mine"]) == [expected]


def test_a_separator_for_a_file_without_a_key(file):
    assert rows(file("t.jsonl"), separator="|") == []


def test_cells_that_cannot_be_read_name_the_row(file):
    cells = ["a|b", "['N' 'E']", '[{"id": 1}]']
    lines = ["input,retrieval_context", *(f'q,"{cell}"'.replace('{"id"', '{""id""') for cell in cells)]
    inputs = [file("1.csv", *lines[:2], ""), file("2.csv", lines[0], *lines[2:], "")]
    with pytest.raises(CellError) as error:
        rows(inputs, "deepeval")
    first, second, third = str(error.value).split("\n")
    assert first == "column 'contexts' can't be read:"
    assert second.startswith(
        f"  {inputs[1]}, row 0: found the text of a list that can't be read back: ['N' 'E']. Save lists as JSON"
    )
    assert third.startswith(
        f"  {inputs[1]}, row 1: found dict {{'id': 1}} without a known text key; its keys are 'id'."
    )
    with pytest.raises(CellError, match=r":\n  row 0: found the text of a list"):  # of one file, which is known
        rows(inputs[1], "deepeval")


# --- lists where one text is wanted


@pytest.mark.parametrize(
    ("cell", "text"),
    [(["a"], "a"), (["a", "", "b"], "a\nb"), ([], None), (None, None), ("a", "a"), ('["a", "b"]', "a\nb")],
)
def test_references_are_joined(file, cell, text):
    path = file("t.jsonl", {"question": "q", "contexts": ["N"], "ground_truths": cell})
    assert [row["reference"] for row in rows(path, "ragas")] == [text]


def test_replies_are_joined(file):
    path = file("t.parquet", query=["q"], documents=[["N"]], replies=[["a"]])
    assert rows(path, "haystack") == [{"question": "q", "contexts": ["N"], "response": "a"}]


# --- what does not go together


def test_rows_are_for_spans(file):
    with pytest.raises(OptionError, match="rows: 'retriever' is for span exports, and the files have one row a trace"):
        open_traces([file("t.jsonl", {"input": "q"})], "deepeval", rows="retriever")


def test_a_separator_is_not_for_spans(file):
    path = file("t.jsonl", {"trace_id": "t", "run_type": "chain"})
    with pytest.raises(OptionError, match=r"separator: '\|' is for files with one row a trace. Leave it out"):
        open_traces([path], "langsmith", separator="|")


def test_files_with_rows_of_different_kinds_are_read_apart(file):
    """Spans and documents of the same traces would give the same contexts twice."""
    spans = file("1.jsonl", {"context.trace_id": "t", "span_kind": "RETRIEVER"})
    documents = file("2.jsonl", {"context.trace_id": "t", "document_position": 0, "input": "q", "document": "N"})
    joined = file("3.jsonl", {"input": "q", "output": "a", "context": "N"})
    more = file("4.jsonl", {"context.trace_id": "u", "span_kind": "CHAIN"})
    for inputs, says in [
        ([spans, joined], f"one row a span in {spans}; one row a trace in {joined}"),
        ([joined, documents], f"one row a trace in {joined}; one row a document in {documents}"),
        ([spans, documents, more], f"one row a span in {spans}, {more}; one row a document in {documents}"),
    ]:
        with pytest.raises(OptionError) as error:
            open_traces(inputs, "phoenix")
        assert str(error.value) == f"preset 'phoenix': {says}. Read them apart."


def test_a_file_without_rows_is_read_with_the_others(file):
    documents = {"context.trace_id": "t", "document_position": 0, "input": "q", "document": "N"}
    found = rows([file("1.jsonl"), file("2.jsonl", documents)], "phoenix")
    assert [(row["question"], row["contexts"]) for row in found] == [("q", ["N"])]
    joined = {"input": "q", "output": "a", "context": "N"}
    assert rows([file("3.jsonl"), file("4.jsonl", joined)], "phoenix") == [
        {"question": "q", "response": "a", "contexts": "N"}
    ]


@pytest.mark.parametrize("options", [{"preset": "raga"}, {"rows": "traces"}, {"preset": "", "rows": "x"}])
def test_unknown_options(file, options):
    with pytest.raises(OptionError) as error:
        open_traces([file("t.jsonl", {"input": "q"})], **options)
    problems = str(error.value).split("\n")
    assert len(problems) == len(options)
    for option, value in options.items():
        assert any(problem.startswith(f"{option}: {value!r} is unknown.") for problem in problems)
    assert "preset" not in options or "Allowed: None, 'auto', 'ragas'," in str(error.value)


# --- spans as batches


def test_spans_of_a_trace_may_lie_in_several_files(file):
    inputs = [
        file("1.jsonl", {"trace_id": "a", "id": "1", "run_type": "chain", "inputs": {"question": "q"}, "outputs": "r"}),
        file("2.csv", "trace_id,id,parent_run_id,run_type,outputs", "a,2,1,retriever,\"{'documents': ['N']}\"", ""),
    ]
    (row,) = rows(inputs, "auto")
    assert (row["question"], row["contexts"], row["response"], row["source"]) == ("q", ["N"], "r", inputs[0])


def test_counts_are_those_of_the_last_reading(file):
    spans = [{"trace_id": trace, "run_type": "chain", "inputs": "q", "outputs": "a"} for trace in ("a", None, "b")]
    traces = open_traces([file("t.jsonl", *spans)], "langsmith")
    assert traces.unused == {}
    for _ in range(2):
        assert sum(batch.num_rows for batch in traces.batches()) == 2
        assert traces.unused == {"spans without a trace id": 1, "traces without a retriever span": 2}
    assert [batch["trace_id"].to_pylist() for batch in traces.batches(1)] == [["a"]]


@pytest.mark.parametrize("preset", ["langfuse", "ragas", "auto"])
def test_no_rows(file, preset):
    traces = open_traces([file("t.jsonl")], preset)
    assert list(traces.batches()) == []
    assert traces.preset == (None if preset == "auto" else preset)

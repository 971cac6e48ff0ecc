"""Which tool wrote a file: by its first rows; one, none or several."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from rag_descriptors.errors import FormatError, OptionError
from rag_descriptors.traces.presets import PHOENIX_DOCUMENTS, PHOENIX_JOINED, PRESETS, RAGAS
from rag_descriptors.traces.recognition import LOOKED_AT, forms_of, recognised


@pytest.fixture
def file(tmp_path):
    """Make a file of these rows, of a format by its ending."""

    def make(name, *rows):
        path = tmp_path / name
        if path.suffix == ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        else:
            path.write_text(",".join(rows) + "\n")
        return path

    return make


OPENINFERENCE = {"attributes": {"openinference.span.kind": "CHAIN"}, "trace_id": "t"}
OTEL = {"attributes": {"gen_ai.operation.name": "chat"}, "trace_id": "t"}
LANGFUSE = {"traceId": "t", "type": "SPAN", "isRootObservation": True}


@pytest.mark.parametrize(
    ("rows", "preset"),
    [
        ([{"user_input": 1, "response": 2}], "ragas"),
        ([{"question": 1, "contexts": 2, "answer": 3}], "ragas"),
        ([{"user_input": 1}, {"reference": 2}], "ragas"),  # columns count, whichever row has them
        ([{"input": 1, "actualOutput": 2}], "deepeval"),
        ([{"trace_id": 1, "question": 1, "contexts": 2, "response": 3}], "evidently"),
        ([{"query": 1, "result": 2, "source_documents": 3}], "langchain"),
        ([{"query": 1, "contexts": 2, "response": 3}], "llamaindex"),
        ([{"query": 1, "documents": 2, "data": 3}], "haystack"),
        ([LANGFUSE], "langfuse"),
        ([{"data": [LANGFUSE], "meta": {}}], "langfuse"),
        ([OPENINFERENCE], "openinference"),
        ([{"trace_id": "t"}, OPENINFERENCE], "openinference"),
        ([OTEL], "otel-genai"),
        ([{"input": 1, "output": 2, "context": 3}], "phoenix"),
        ([{"context.trace_id": 1, "span_kind": 2, "attributes.openinference.span.kind": 3}], "phoenix"),
        ([{"trace_id": 1, "run_type": "chain"}], "langsmith"),
        ([{"info": {}, "data": {}}], "mlflow"),
    ],
)
def test_marks(file, rows, preset):
    assert recognised([file("t.jsonl", *rows)]) == preset


@pytest.mark.parametrize(
    ("rows", "fits"),
    [
        ([{"q": 1}], "none"),
        ([{"question": 1, "contexts": 2}], "none"),
        ([{"trace_id": "t"}] * LOOKED_AT + [OPENINFERENCE], "none"),
        ([OPENINFERENCE, OTEL], "openinference, otel-genai"),
        ([{"question": 1, "contexts": 2, "answer": 3, "response": 4}], "ragas, evidently"),
    ],
)
def test_none_or_several(file, rows, fits):
    path = file("t.jsonl", *rows)
    with pytest.raises(OptionError) as error:
        recognised([path])
    message = str(error.value)
    assert message.startswith(f"preset 'auto': {path} fits {fits}. Name the preset, one of {', '.join(PRESETS)}; or")


def test_files_of_two_tools(file):
    paths = [file("1.jsonl", LANGFUSE), file("2.jsonl", OTEL), file("3.jsonl")]
    with pytest.raises(OptionError, match=r"1\.jsonl fits langfuse; .*2\.jsonl fits otel-genai. Name"):
        recognised(paths)


def test_files_may_settle_each_other(file):
    both = file("1.jsonl", {"question": 1, "contexts": 2, "answer": 3, "response": 4})
    one = file("2.csv", "question", "contexts", "answer")
    assert recognised([both, one]) == "ragas"


def test_files_without_rows(file):
    assert recognised([file("t.jsonl")]) is None
    assert recognised([file("t.jsonl"), file("t.csv", "user_input", "response")]) == "ragas"
    assert recognised([file("t.csv", "traceId", "type", "isRootObservation")]) == "langfuse"


# --- a preset that was named


@pytest.mark.parametrize(
    ("columns", "preset", "form"),
    [
        (("question", "contexts", "answer"), "ragas", RAGAS),
        (("question", "other"), "ragas", RAGAS),  # no mark, and a column it knows
        (("context.span_id", "document_position", "input", "reference"), "phoenix", PHOENIX_DOCUMENTS),
        (("input", "output", "context"), "phoenix", PHOENIX_JOINED),
        (("q",), None, None),
    ],
)
def test_the_form_of_a_preset(file, columns, preset, form):
    assert forms_of([file("t.csv", *columns)], preset) == [form]


def test_files_without_rows_have_the_form_of_the_others(file):
    empty, documents = file("1.jsonl"), file("2.csv", "context.span_id", "document_position", "input", "document")
    assert forms_of([empty, documents, file("3.jsonl")], "phoenix") == [PHOENIX_DOCUMENTS] * 3
    assert forms_of([empty], "phoenix") == [PRESETS["phoenix"][0]]


def test_spans_with_nothing_but_an_id_may_be_what_they_are_said_to_be(file):
    path = file("t.jsonl", {"trace_id": "t"})
    assert forms_of([path], "langfuse") == [PRESETS["langfuse"][0]]


@pytest.mark.parametrize(
    ("row", "preset", "says"),
    [
        ({"q": 1, "c": 2}, "ragas", "'q', 'c', and user_input + retrieved_contexts is expected. It fits no preset."),
        ({"traceId": 1}, "langsmith", "it has 'traceId', and trace_id + run_type is expected. It fits no preset."),
        (LANGFUSE, "deepeval", "is expected. It fits langfuse."),
        ({"q": 1}, "phoenix", "context.trace_id + span_kind or document_position + input or input + output"),
    ],
)
def test_a_preset_that_does_not_fit(file, row, preset, says):
    path = file("t.jsonl", row)
    with pytest.raises(OptionError) as error:
        forms_of([path], preset)
    assert str(error.value).startswith(f"preset {preset!r} does not fit {path}: it has ")
    assert says in str(error.value)


def test_what_is_no_span_names_file_and_row(file):
    path = file("t.jsonl", {"a": 1}, {"resourceSpans": [5]})
    with pytest.raises(FormatError, match=r"t\.jsonl, row 1: found a int"):
        recognised([path])


def test_maps_of_attributes_are_read(tmp_path):
    attributes = pa.array([[("openinference.span.kind", "CHAIN")]], pa.map_(pa.string(), pa.string()))
    pyarrow.parquet.write_table(pa.table({"trace_id": ["t"], "attributes": attributes}), tmp_path / "t.parquet")
    assert recognised([tmp_path / "t.parquet"]) == "openinference"


def test_an_index_beside_its_column_does_no_harm(tmp_path):
    (tmp_path / "t.csv").write_text("context.span_id,context.trace_id,context.span_id,span_kind\ns,t,s,CHAIN\n")
    assert recognised([tmp_path / "t.csv"]) == "phoenix"


def test_a_column_that_stands_there_twice_is_a_clear_error(tmp_path):
    (tmp_path / "t.csv").write_text("input,input,actual_output\n1,2,3\n")
    with pytest.raises(FormatError, match=r"t\.csv: two columns are called 'input' and differ. Rename"):
        recognised([tmp_path / "t.csv"])


def test_a_frame_with_a_named_index(tmp_path):
    index = pd.MultiIndex.from_tuples([("s", 0)], names=["context.span_id", "document_position"])
    pd.DataFrame({"input": ["q"], "document": ["N"]}, index=index).to_parquet(tmp_path / "t.parquet")
    assert recognised([tmp_path / "t.parquet"]) == "phoenix"

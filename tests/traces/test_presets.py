"""Each sample gives the rows and contexts that its tool promises; `tests/data/README.md` says what the samples are."""

import csv
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from rag_descriptors.jobs.outputs import open_output
from rag_descriptors.traces.columns import CONTEXTS
from rag_descriptors.traces.contexts import parse_contexts
from rag_descriptors.traces.presets import KNOWN_COLUMNS, PRESETS, RowForm, find_column
from rag_descriptors.traces.readers import is_mixed, open_traces, parse_mixed

SAMPLES = Path(__file__).parents[1] / "data" / "presets"
OPENS, KEPT = "When does the dome open?", "Who kept the first log?"
NINE, ILSE = "At nine in the evening, from May to August.", "Ilse Brandt kept it."
DOME, PIPE = "The dome opens at 21:00 from May to August.", "Run `ls | sort -u` to list the telescopes."
LOG = 'The first log was kept by Ilse Brandt, "the owl".'
AT_NINE, BRANDT = "The dome opens at 21:00.", "Ilse Brandt"
T1, T2 = "5b8efff798038103d269b633813fc60c", "6c9f0008a9149214e37ac744924fd71d"


def read(path, preset, **options):
    traces = open_traces([str(path)], preset, **options)
    rows = []
    for batch in traces.batches():
        columns = [
            parse_mixed(column) if is_mixed(field) else column.to_pylist()
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
        rows += [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows, dict(traces.unused), traces


# --- one row a trace: columns take our names, cells are read by the cell parser

TABLES = {
    "ragas.jsonl": [(OPENS, [DOME, PIPE], NINE, AT_NINE), (KEPT, [], ILSE, BRANDT)],
    "ragas.csv": [(OPENS, [DOME, PIPE], NINE, AT_NINE), (KEPT, [LOG, None], ILSE, BRANDT)],
    "ragas_legacy.jsonl": [(OPENS, [DOME, PIPE], NINE, f"{AT_NINE}\nAt nine."), (KEPT, [LOG], ILSE, BRANDT)],
    "deepeval.json": [(OPENS, [DOME, PIPE], NINE, AT_NINE), (KEPT, None, ILSE, BRANDT)],
    "deepeval_camel.json": [(OPENS, [DOME, PIPE], NINE, AT_NINE), (KEPT, [LOG, None], ILSE, BRANDT)],
    "deepeval.csv": [
        (OPENS, [DOME, LOG], NINE, AT_NINE),
        (KEPT, [PIPE, LOG], ILSE, BRANDT),  # a list: the `|` inside of a text stays
        (OPENS, [DOME, None, LOG], NINE, AT_NINE),
        (KEPT, None, ILSE, ""),
    ],
    "evidently.jsonl": [(OPENS, [DOME, PIPE], NINE, AT_NINE), (KEPT, [LOG], ILSE, BRANDT)],
    "langchain.jsonl": [
        (OPENS, [DOME, PIPE], NINE, None),
        (KEPT, [LOG, None], ILSE, None),
        (KEPT, [LOG, DOME], ILSE, None),
    ],
    "langchain_qa.jsonl": [(OPENS, [DOME, PIPE], NINE, None)],
    "llamaindex.jsonl": [(OPENS, [DOME, PIPE], NINE, AT_NINE), (KEPT, [LOG, None], ILSE, BRANDT)],
    "haystack.jsonl": [(OPENS, [DOME, PIPE], NINE, None), (KEPT, [LOG, None], ILSE, None)],
    "haystack_dict.jsonl": [(OPENS, [DOME, PIPE], NINE, None), (KEPT, [LOG, None], ILSE, None)],
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name):
    preset = name.partition(".")[0].partition("_")[0]
    rows, unused, traces = read(SAMPLES / name, "auto")
    found = [(row["question"], parse_contexts(row["contexts"]), row["response"], row.get("reference")) for row in rows]
    assert found == TABLES[name]
    assert (traces.preset, unused) == (preset, {})
    assert read(SAMPLES / name, preset)[0] == rows


@pytest.mark.parametrize("name", [name for name in TABLES if name.endswith("l")])
def test_tables_are_the_same_rows_in_parquet_and_csv(name, tmp_path):
    """Lists come out of Parquet as arrays, out of CSV as the text of Python lists: the contexts are the same."""
    frame = pd.DataFrame([json.loads(line) for line in (SAMPLES / name).read_text("utf-8").splitlines()])
    frame.to_csv(tmp_path / "t.csv", index=False)
    paths = [tmp_path / "t.csv"]
    if name.startswith(("ragas", "evidently")):  # pandas writes no empty objects, and no documents of several kinds
        frame.to_parquet(tmp_path / "t.parquet")
        paths.append(tmp_path / "t.parquet")
    for path in paths:
        found = [(row["question"], parse_contexts(row["contexts"]), row["response"]) for row in read(path, "auto")[0]]
        assert found == [row[:3] for row in TABLES[name]]


def test_a_list_that_became_a_text_in_parquet(tmp_path):
    """Dask turns columns of lists into texts unless it is told not to."""
    pd.DataFrame({"user_input": ["q"], "retrieved_contexts": [str([DOME, PIPE])], "response": ["a"]}).to_parquet(
        tmp_path / "t.parquet"
    )
    ((row,), _, _) = read(tmp_path / "t.parquet", "auto")
    assert parse_contexts(row["contexts"]) == [DOME, PIPE]


def test_other_columns_are_kept():
    (first, _), _, _ = read(SAMPLES / "ragas.jsonl", "ragas")
    assert first == {
        "question": OPENS,
        "contexts": [DOME, PIPE],
        "context_ids": ["d1", "d2"],
        "response": NINE,
        "reference": AT_NINE,
        "reference_contexts": [DOME],
        "rubrics": None,
    }
    (first, *_), _, _ = read(SAMPLES / "evidently.jsonl", "evidently")
    assert first["Ranking for question with context"] == 0.7
    (first, *_), _, _ = read(SAMPLES / "haystack.jsonl", "haystack")
    assert first["contexts"][1] == {
        "id": "h2",
        "content": PIPE,
        "blob": None,
        "score": 0.6,
        "embedding": None,
        "page": 3,
    }


NO_OBJECT = {"init_parameters": None}  # the second row holds none


def test_what_stands_beside_a_wrapped_row_is_kept(tmp_path):
    wrapped = {"type": "GeneratedAnswer", "init_parameters": {"query": "q", "documents": ["N"], "meta": {"k": 1}}}
    rows = [{"n": 1, **wrapped}, {"n": 2, "type": "GeneratedAnswer", "init_parameters": None}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found, _, _ = read(tmp_path / "t.jsonl", "haystack")
    assert found == [
        {"n": 1, "type": "GeneratedAnswer", "question": "q", "contexts": ["N"], "meta": {"k": 1}, **NO_OBJECT},
        {"n": 2, "type": "GeneratedAnswer", "question": None, "contexts": None, "meta": None, **NO_OBJECT},
    ]


def test_both_forms_of_haystack_are_read_together():
    names = ["haystack.jsonl", "haystack_dict.jsonl"]
    traces = open_traces([str(SAMPLES / name) for name in names], "auto")
    found = [question for batch in traces.batches() for question in batch["question"].to_pylist()]
    assert (traces.preset, found) == ("haystack", [OPENS, KEPT] * 2)


def test_the_ideal_contexts_of_deepeval_are_split_too():
    rows, _, _ = read(SAMPLES / "deepeval.csv", "deepeval")
    assert [row["reference_contexts"] for row in rows] == [[DOME], None, None, None]


@pytest.mark.parametrize("separator", ["", "||"])
def test_another_separator_or_none(separator):
    rows, _, _ = read(SAMPLES / "deepeval.csv", "deepeval", separator=separator)
    found = [parse_contexts(row["contexts"]) for row in rows]
    assert found[0] == [f"{DOME}|{LOG}"]
    assert found[2] == ([DOME, LOG] if separator else [f"{DOME}||{LOG}"])


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
def test_delimiters_inside_of_texts_survive_every_format(tmp_path, ending):
    contexts = ["ps | grep x", "| a | b |\n|---|---|", 'a,"b"', "x\r\ny"]
    path = tmp_path / f"t.{ending}"
    schema = pa.schema([("input", pa.string()), ("retrieval_context", CONTEXTS)])
    with open_output(path, schema) as write:
        write(pa.RecordBatch.from_pylist([{"input": "q", "retrieval_context": contexts}], schema=schema))
    ((row,), _, _) = read(path, "deepeval")
    assert row == {"question": "q", "contexts": contexts}


# --- spans: one row a trace

COLUMNS = ("trace_id", "span_id", "question", "contexts", "context_ids", "context_scores", "response", "reference")
LANGFUSE = [
    ("t1", "o1", OPENS, [DOME, PIPE], None, None, NINE, None),
    ("t2", "o4", KEPT, [LOG, None], None, None, ILSE, None),
    ("t3", "o9", "Is it dark?", None, None, None, "Yes.", None),
]
OPENINFERENCE = [
    (T1, "eee19b7ec3c1b173", OPENS, [DOME, PIPE, None], ["x1", "x2", "x3"], [0.9, 0.4, None], NINE, None),
    (T2, "aaa19b7ec3c1b173", KEPT, [LOG], None, None, ILSE, None),
]
LANGSMITH = [
    ("r1", "r1", OPENS, [DOME, PIPE], None, [0.9, 0.4], NINE, None),
    ("r3", "r3", KEPT, [LOG], None, None, ILSE, None),
]
PHOENIX = [
    ("p1", "s1", OPENS, [DOME, PIPE], ["x1", "x2"], [0.9, 0.4], NINE, None),
    ("p2", "s3", KEPT, [LOG, None], ["x3", "x4"], [0.8, 0.1], ILSE, None),
]
MLFLOW = [
    ("tr-1", "A=", OPENS, [DOME, PIPE], ["m1", "m2"], None, NINE, AT_NINE),
    ("tr-2", "D=", KEPT, [LOG, None], None, None, ILSE, None),
]
SPANS = {
    "langfuse_api.json": LANGFUSE,
    "langfuse_blob.jsonl": LANGFUSE,
    "langfuse_blob.csv": LANGFUSE,
    "phoenix_spans.jsonl": PHOENIX,
    "phoenix_documents.csv": [
        ("p1", "s2", OPENS, [DOME, PIPE], None, [0.9, 0.4], None, None),
        ("p2", "s4", KEPT, [LOG], None, [0.8], None, None),
    ],
    "openinference.json": OPENINFERENCE,
    "openinference.jsonl": OPENINFERENCE,
    "otel-genai.jsonl": [
        (T1, "b000000000000001", OPENS, [DOME, None], ["d1", "d2"], [0.9, 0.4], NINE, None),
        (T2, "c000000000000002", KEPT, [None], ["d3"], [0.8], ILSE, None),
    ],
    "langsmith.jsonl": LANGSMITH,
    "langsmith_strings.jsonl": LANGSMITH,
    "mlflow.jsonl": MLFLOW,
    "mlflow_trace.json": MLFLOW[:1],
}
UNUSED = {
    "langfuse": {
        "spans without a trace id": 1,
        "retriever spans inside of others": 1,
        "retriever spans without documents": 1,
        "documents without text": 1,
    },
    "phoenix_documents": {"traces without a response": 2},
    "phoenix": {"documents without text": 1},
    "openinference": {"documents without text": 1},
    "otel-genai": {"documents without text": 2},
    "langsmith": {},
    "mlflow_trace": {"retriever spans inside of others": 1},
    "mlflow": {"retriever spans inside of others": 1, "documents without text": 1},
}


@pytest.mark.parametrize("name", SPANS)
def test_spans(name):
    stem = name.partition(".")[0]
    preset = stem.partition("_")[0]
    rows, unused, traces = read(SAMPLES / name, "auto")
    assert rows == [{**dict(zip(COLUMNS, row, strict=True)), "source": str(SAMPLES / name)} for row in SPANS[name]]
    assert unused == UNUSED.get(stem, UNUSED[preset])
    assert traces.preset == preset
    assert read(SAMPLES / name, preset)[:2] == (rows, unused)


@pytest.mark.parametrize(
    "name", ["langfuse_blob.jsonl", "phoenix_spans.jsonl", "langsmith_strings.jsonl", "mlflow.jsonl"]
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_spans_are_the_same_rows_in_parquet_and_csv(name, ending, tmp_path):
    frame = pd.DataFrame([json.loads(line) for line in (SAMPLES / name).read_text("utf-8").splitlines()])
    if name == "mlflow.jsonl" and ending == "parquet":  # pandas writes no texts and lists in one column
        spans = [cell if isinstance(cell, str) else json.dumps(cell) for cell in frame["spans"]]
        frame = frame.drop(columns="tags").assign(spans=spans)
    path = tmp_path / f"t.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    rows, _, _ = read(path, "auto")
    assert [tuple(row.values())[:-1] for row in rows] == SPANS[name]


RETRIEVERS = {
    "langfuse_blob.jsonl": [
        ("t1", "o2", "dome opening", [DOME, PIPE], NINE),
        ("t2", "o5", "first log", [LOG], ILSE),
        ("t2", "o6", "owl", [None], ILSE),
        ("t3", "o10", "dark", None, "Yes."),
    ],
    "openinference.json": [
        (T1, "eee19b7ec3c1b174", "dome", [DOME, PIPE, None], NINE),
        (T2, "aaa19b7ec3c1b174", "log", [LOG], ILSE),
    ],
    "otel-genai.jsonl": [
        (T1, "b000000000000002", "dome", [DOME, None], NINE),
        (T2, "c000000000000002", KEPT, [None], ILSE),
    ],
    "mlflow.jsonl": [("tr-1", "B=", "dome", [DOME, PIPE], NINE), ("tr-2", "E=", "log", [LOG, None], ILSE)],
    "phoenix_documents.csv": [("p1", "s2", OPENS, [DOME, PIPE], None), ("p2", "s4", KEPT, [LOG], None)],
}


@pytest.mark.parametrize("name", RETRIEVERS)
def test_one_row_a_retriever(name):
    rows, _, _ = read(SAMPLES / name, "auto", rows="retriever")
    found = [(row["trace_id"], row["span_id"], row["question"], row["contexts"], row["response"]) for row in rows]
    assert found == RETRIEVERS[name]


# --- Phoenix, contexts joined to one text: their borders are lost unless somebody tells the separator


@pytest.mark.parametrize(
    ("separator", "contexts"), [(None, [[f"{DOME}\n\n{PIPE}"], [LOG]]), ("\n\n", [[DOME, PIPE], [LOG]])]
)
def test_joined_contexts(separator, contexts):
    rows, _, traces = read(SAMPLES / "phoenix_joined.csv", "auto", separator=separator)
    assert [parse_contexts(row["contexts"]) for row in rows] == contexts
    assert [(row["trace_id"], row["span_id"], row["question"], row["response"]) for row in rows] == [
        ("p1", "s1", OPENS, NINE),
        ("p2", "s3", KEPT, ILSE),
    ]
    assert traces.preset == "phoenix"


# --- Phoenix, forms of the documents that older exports have


@pytest.mark.parametrize(
    "documents",
    [
        [{"document.content": DOME}, {"document.content": PIPE}],
        [{"document": {"content": DOME}}, {"document": {"content": PIPE}}],
        [DOME, PIPE],
        json.dumps([{"document.content": DOME}, {"document.content": PIPE}]),
        json.dumps([DOME, PIPE]),
        repr([{"document.content": DOME}, {"document.content": PIPE}]),
    ],
    ids=["dicts", "nested", "texts", "json", "json texts", "python"],
)
@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
def test_documents_of_phoenix(documents, ending, tmp_path):
    span = {"context.trace_id": "p", "context.span_id": "s", "span_kind": "RETRIEVER", "attributes.input.value": "q"}
    frame = pd.DataFrame([{**span, "attributes.retrieval.documents": documents}])
    path = tmp_path / f"t.{ending}"
    {
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        "parquet": lambda: frame.to_parquet(path),
        "csv": lambda: frame.to_csv(path),
    }[ending]()
    rows, unused, _ = read(path, "auto")
    assert [(row["question"], row["contexts"]) for row in rows] == [("q", [DOME, PIPE])]
    assert unused == {"traces without a response": 1}


def test_documents_of_arize(tmp_path):
    path = tmp_path / "t.parquet"
    span = {"context.trace_id": ["p"], "span_kind": ["RETRIEVER"], "attributes.input.value": ["q"]}
    pd.DataFrame({**span, "attributes.retrieval.documents.contents": [[DOME, PIPE]]}).to_parquet(path)
    assert read(path, "phoenix")[0][0]["contexts"] == [DOME, PIPE]


@pytest.mark.parametrize(("preset", "found"), [("phoenix", "phoenix"), ("auto", "openinference")])
def test_flat_spans_of_arize(tmp_path, preset, found):
    span = {
        "context.trace_id": "t",
        "context.span_id": "s",
        "attributes.openinference.span.kind": "RETRIEVER",
        "attributes.input.value": OPENS,
        "attributes.retrieval.documents.contents": [DOME, PIPE],
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(span))
    rows, _, traces = read(tmp_path / "t.jsonl", preset)
    assert (traces.preset, rows[0]["question"], rows[0]["contexts"]) == (found, OPENS, [DOME, PIPE])


@pytest.mark.parametrize(
    ("preset", "spans"),
    [
        (
            "phoenix",
            [
                {"context.trace_id": "t", "span_kind": "RETRIEVER", "attributes.retrieval.documents": [{"text": LOG}]},
                {"context.trace_id": "t", "span_kind": "RERANKER", "attributes.reranker.output_documents": [DOME]},
            ],
        ),
        (
            "openinference",
            [
                {"traceId": "t", "attributes": {"openinference.span.kind": kind, f"{key}.0.document.content": text}}
                for kind, key, text in (
                    ("RETRIEVER", "retrieval.documents", LOG),
                    ("RERANKER", "reranker.output_documents", DOME),
                )
            ],
        ),
        (
            "mlflow",
            [
                {
                    "trace_id": "t",
                    "request": KEPT,
                    "spans": [
                        {"span_type": "RETRIEVER", "outputs": [{"page_content": LOG}]},
                        {"span_type": "RERANKER", "outputs": [{"page_content": DOME}]},
                    ],
                }
            ],
        ),
    ],
)
def test_rerankers_are_counted_and_not_used(tmp_path, preset, spans):
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, spans)))
    (row,), unused, _ = read(path, preset)
    assert (row["contexts"], unused["reranker spans"]) == ([LOG], 1)


def test_numpy_prints_of_lists_stop_the_reading_and_name_the_row(tmp_path):
    """A frame read from Parquet and saved as CSV: the commas are lost, and nothing is guessed."""
    path = tmp_path / "t.csv"
    span = {"context.trace_id": "p", "context.span_id": "s", "span_kind": "RETRIEVER"}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*span, "attributes.retrieval.documents"])
        writer.writeheader()
        writer.writerow({**span, "attributes.retrieval.documents": "['a', 'b']"})
        writer.writerow({**span, "attributes.retrieval.documents": "['a' 'b']"})
    with pytest.raises(ValueError, match=r"t\.csv, row 1: found the text of a list .*\['a' 'b'\]. Save lists as JSON"):
        read(path, "phoenix")


# --- names


@pytest.mark.parametrize(
    ("kind", "columns", "found"),
    [
        ("question", ["contexts", "question"], "question"),
        ("question", ["query", "user_input"], "user_input"),  # the order of the known names decides
        ("question", ["Question"], None),
        ("question", [], None),
        ("contexts", ["context", "retrieved_docs"], "retrieved_docs"),
        ("contexts", ["documents", 7], "documents"),
        ("response", ["actual_output", "answer"], "answer"),
        ("reference", ["expectedOutput", "ground_truth"], "ground_truth"),
    ],
)
def test_the_first_known_name_is_found(kind, columns, found):
    assert find_column(kind, columns) == found


@pytest.mark.parametrize("kind", KNOWN_COLUMNS)
def test_each_known_name_is_found_alone(kind):
    assert [find_column(kind, ["x", name]) for name in KNOWN_COLUMNS[kind]] == list(KNOWN_COLUMNS[kind])


def test_presets_and_their_samples():
    assert [*PRESETS] == [
        *("ragas", "deepeval", "evidently", "langchain", "llamaindex", "haystack"),
        *("langfuse", "phoenix", "openinference", "otel-genai", "langsmith", "mlflow"),
    ]
    assert {path.name.partition(".")[0].partition("_")[0] for path in SAMPLES.iterdir()} == set(PRESETS)


@pytest.mark.parametrize("preset", [name for name, forms in PRESETS.items() if isinstance(forms[0], RowForm)])
def test_columns_of_row_forms_have_names_of_ours(preset):
    ours = {"question", "contexts", "context_ids", "response", "reference", "reference_contexts"}
    for form in PRESETS[preset]:
        assert set(form.columns) <= ours
        assert {"question", "contexts", "response"} <= set(form.columns)

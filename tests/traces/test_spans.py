"""One span at a time: what is read from it, in all the ways that tools spell it."""

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_descriptors.errors import FormatError
from rag_descriptors.traces.pivot import ROW_COLUMNS, pivot
from rag_descriptors.traces.presets import MLFLOW, OPENINFERENCE, PHOENIX_DOCUMENTS, PRESETS, SpanForm
from rag_descriptors.traces.spans import Document, read_spans, unwrapped

FORM = SpanForm(
    marks=(("t",),),
    trace_id=("t",),
    span_id=("s",),
    parent_id=("p",),
    start=("at",),
    root=("root",),
    kind=("kind",),
    retriever=("retriever",),
    answer=("llm",),
    query=("query",),
    question=("input",),
    response=("output",),
    reference=("reference",),
    documents=("output.documents", "output"),
)


FORMS = [FORM, *(form for forms in PRESETS.values() for form in forms if isinstance(form, SpanForm))]
PATHS = {
    path
    for form in FORMS
    for value in vars(form).values()
    if isinstance(value, tuple)
    for path in value
    if isinstance(path, str)
}
KEYS = st.sampled_from(sorted(PATHS | {"attributes", "key", "value", "resourceSpans", "scopeSpans", "data", "text"}))


def read(form=FORM, **raw):
    (span,) = read_spans(Path("f.jsonl"), [raw], form)
    return span


def documents(value, form=FORM):
    return read(form, t="t", kind="RETRIEVER", output=value).documents


def test_a_span():
    span = read(t="t", s="s", p="p", at=5, root=False, kind="LLM", input="q", output="a", reference="r")
    assert (span.trace_id, span.span_id, span.parent_id, span.start) == ("t", "s", "p", 5)
    assert (span.is_root, span.is_retriever, span.is_answer) == (False, False, True)
    assert (span.question, span.response, span.reference, span.documents) == ("q", "a", "r", None)


def test_a_retriever_asks_its_query_and_answers_nothing():
    span = read(t="t", kind='"RETRIEVER"', query="own", input="q", output=["N"])
    assert (span.is_retriever, span.question, span.response) == (True, "own", None)
    assert read(t="t", kind="retriever", input="q").question == "q"
    assert read(t="t", kind="chain", query="own", input="q").question == "q"


def test_the_first_path_with_a_text_counts():
    tokens = '{"prompt_tokens": 3, "completion_tokens": 5}'
    attributes = {
        "input.value": "q",
        "output.value": tokens,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "a",
    }
    span = read(OPENINFERENCE, trace_id="t", attributes=attributes)
    assert (span.question, span.response) == ("q", "a")
    assert read(t="t", kind="retriever", query={"k": 3, "filter": None}, input="q").question == "q"
    assert read(t="t", output=tokens).response is None


@pytest.mark.parametrize(
    ("value", "found"),
    [
        *((null, None) for null in (None, "", " ", "None", "null", "NaN", float("nan"), [], "[]", "0" * 16)),
        ("a", "a"),
        (" a ", "a"),
        (7, "7"),
        ("0", "0"),
        (["a", "b"], "b"),
        ('["a", "b"]', "b"),
    ],
)
def test_ids(value, found):
    assert read(t="t", p=value).parent_id == found


@pytest.mark.parametrize(
    ("value", "is_root"),
    [(True, True), ("true", True), ("True", True), (1, True), (False, False), ("false", False), (None, False)],
)
def test_roots(value, is_root):
    assert read(t="t", root=value).is_root is is_root


SECOND = 1_000_000_000
NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (1772359200000000000, 1772359200000000000),
        ("1772359200000000000", 1772359200000000000),
        ("2026-03-01T12:00:00Z", NOON),
        ("2026-03-01T12:00:00", NOON),
        ("2026-03-01 13:00:00.000000001+01:00", NOON + 1),
        (datetime(2026, 3, 1, 12), NOON),
        (datetime(2026, 3, 1, 13, tzinfo=timezone(timedelta(hours=1))), NOON),
        (pd.Timestamp("2026-03-01T12:00:00", tz="UTC"), NOON),
        (1.5, 1500),
        (float("inf"), None),
        (float("nan"), None),
        (2**64, None),
        ("9999-01-01", None),
        ("noon", None),
        ("NaT", None),
        ([], None),
        (None, None),
    ],
)
def test_times(value, found):
    assert read(t="t", at=value).start == found


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (None, None),
        ("", None),
        ([], []),
        ("[]", []),
        (["N", "", None], ["N", None, None]),
        ('["N"]', ["N"]),
        ("['N', \"E's\"]", ["N", "E's"]),
        ("N", ["N"]),
        ("[1] says N", ["[1] says N"]),
        ("{N}", ["{N}"]),
        ({"documents": ["N"]}, ["N"]),
        ('{"documents": ["N"]}', ["N"]),
        ({"text": "N"}, ["N"]),
        ('{"text": "N"}', ["N"]),
        ({"rows": 3}, None),
        (5, None),
        ([{"page_content": "N"}, {"id": "x"}, {"text": None}, 5], ["N", None, None, None]),
        ([["N", 0.5], [{"text": "E"}, 0.25]], ["N", "E"]),
        (["ps | grep x", "| a | b |\n|---|---|"], ["ps | grep x", "| a | b |\n|---|---|"]),
    ],
)
def test_documents(value, texts):
    found = documents(value)
    assert (found and [document.text for document in found]) == texts


@pytest.mark.parametrize(
    ("document", "id", "score"),
    [
        ({"page_content": "N", "id": "x", "metadata": {"score": 0.5}}, "x", 0.5),
        ({"page_content": "N", "metadata": {"relevance_score": "0.5"}}, None, 0.5),
        ({"lc": 1, "kwargs": {"page_content": "N", "id": "x", "metadata": {"score": 0.5}}}, "x", 0.5),
        ({"lc": 1, "id": ["langchain", "Document"], "kwargs": {"page_content": "N", "id": "x"}}, "x", None),
        ({"lc": 1, "id": ["langchain", "Document"], "kwargs": {"page_content": "N"}}, None, None),
        ({"text": "N", "id": {"$oid": "x"}, "doc_id": "y"}, "y", None),
        ({"text": "N", "id": True}, None, None),
        ({"text": "N", "id": 0}, "0", None),
        ({"node": {"text": "N", "id_": "x"}, "score": 0.5}, "x", 0.5),
        ({"document.content": "N", "document.id": 7, "document.score": 1}, "7", 1.0),
        ({"document": {"content": "N", "id": "x", "score": 0.5}}, "x", 0.5),
        ({"content": "N", "id": "x", "score": None}, "x", None),
        ({"text": "N", "score": "high"}, None, None),
        ({"text": "N", "score": float("inf")}, None, None),
        ([{"text": "N", "id": "x"}, 0.5], "x", 0.5),
        (["N", 0.5], None, 0.5),
        ({"text": "N", "id": "\ud800", "score": 10**400}, "\ufffd", None),
    ],
)
def test_ids_and_scores_of_documents(document, id, score):
    assert documents([document]) == [Document(text="N", id=id, score=score)]


@pytest.mark.parametrize("key", ["output", "p"])
def test_lists_that_cannot_be_read_back_name_file_and_row(key):
    rows = [{"t": "t"}, {"t": "t", "kind": "retriever", key: "['N' 'E']"}]
    with pytest.raises(FormatError, match=r"f\.jsonl, row 1: found the text of a list that can't be read back"):
        list(read_spans(Path("f.jsonl"), rows, FORM))


def test_lone_surrogates_become_the_replacement_character():
    span = read(t="t", input='"\\ud800"', output={"answer": "\udc00"})
    assert (span.question, span.response) == ("\ufffd", "\ufffd")


# --- spans in other things


def otlp(*spans, names=("resourceSpans", "scopeSpans")):
    outer, inner = names
    return {outer: [{"resource": {}, inner: [{"scope": {}, "spans": [*spans]}]}]}


@pytest.mark.parametrize(
    "names",
    [
        ("resourceSpans", "scopeSpans"),
        ("resource_spans", "scope_spans"),
        ("resourceSpans", "instrumentationLibrarySpans"),
    ],
)
def test_otlp(names):
    attributes = [{"key": "input.value", "value": {"stringValue": "q"}}]
    row = otlp({"traceId": "t", "attributes": attributes}, {"traceId": "t"}, names=names)
    assert list(unwrapped(row, OPENINFERENCE)) == [
        {"traceId": "t", "attributes": {"input.value": "q"}},
        {"traceId": "t"},
    ]


def test_a_span_of_the_sdk_stands_alone():
    row = {"context": {"trace_id": "0x1", "span_id": "0x2"}, "parent_id": None, "attributes": {"input.value": "q"}}
    (span,) = read_spans(Path("f"), [row], OPENINFERENCE)
    assert (span.trace_id, span.span_id, span.parent_id, span.question) == ("0x1", "0x2", None, "q")


@pytest.mark.parametrize("row", [otlp(5), {"resourceSpans": [5]}, {"resourceSpans": [{"scopeSpans": ["x"]}]}])
def test_what_is_no_span_names_file_and_row(row):
    with pytest.raises(FormatError, match=r"f, row 0: found a (int|str) where a span \(an object\) is expected"):
        list(read_spans(Path("f"), [row], OPENINFERENCE))


@pytest.mark.parametrize("row", [{"resourceSpans": []}, {"resourceSpans": [{"scopeSpans": []}]}, otlp()])
def test_nothing_in_otlp(row):
    assert list(read_spans(Path("f"), [row], OPENINFERENCE)) == []


@pytest.mark.parametrize("held", ["spans", "data"])
def test_a_trace_that_holds_its_spans_is_their_root(held):
    spans = [{"trace_id": "other", "span_id": "s", "inputs": "x"}]
    row = {"trace_id": "t", "request": "q", held: spans if held == "spans" else {"spans": spans}}
    root, span = read_spans(Path("f"), [row], MLFLOW)
    assert (root.trace_id, root.span_id, root.is_root, root.question) == ("t", None, True, "q")
    assert (span.trace_id, span.span_id, span.is_root, span.question) == ("t", "s", False, "x")


@pytest.mark.parametrize("spans", [None, "", "none", 5])
def test_a_trace_without_spans_is_a_root_all_the_same(spans):
    (root,) = read_spans(Path("f"), [{"trace_id": "t", "request": "q", "spans": spans}], MLFLOW)
    assert (root.trace_id, root.span_id, root.parent_id, root.question) == ("t", None, None, "q")


@pytest.mark.parametrize(("text", "found"), [("N", "N"), ("['N' 'E']", "['N' 'E']"), (" ", None), (None, None)])
def test_a_row_that_is_a_document(text, found):
    row = {"context.span_id": "s", "document_position": "3", "input": "q", "document": text, "document_score": "0.5"}
    (span,) = read_spans(Path("f"), [row], PHOENIX_DOCUMENTS)
    assert (span.trace_id, span.is_retriever, span.position) == ("s", True, 3)
    assert span.documents == [Document(text=found, score=0.5)]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["[1", '{"text": "N"}', "t"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(rows=st.lists(st.dictionaries(KEYS, JSON_VALUES), max_size=3), form=st.sampled_from(FORMS))
@settings(deadline=None)
def test_any_json_becomes_rows_or_a_clear_error(rows, form):
    try:
        spans = list(read_spans(Path("f"), rows, form))
    except FormatError as error:
        assert str(error).startswith("f, row ")  # noqa: PT017
        return
    found = list(pivot((("f", span) for span in spans), "trace", Counter()))
    assert len(found) == len({span.trace_id for span in spans} - {None})
    pa.RecordBatch.from_pylist(found, schema=ROW_COLUMNS)

"""Spans in any order to rows: small traces, the rows by hand."""

import sys
from collections import Counter
from itertools import permutations

import pytest

from rag_descriptors.traces import pivot as module
from rag_descriptors.traces.pivot import ROW_COLUMNS, pivot
from rag_descriptors.traces.spans import Document, Span


def span(trace="t", id=None, parent=None, **values):
    empty = dict.fromkeys(("position", "start", "question", "response", "reference", "documents"))
    flags = dict.fromkeys(("is_root", "is_retriever", "is_reranker", "is_answer"), False)
    return Span(trace_id=trace, span_id=id, parent_id=parent, **{**empty, **flags, **values})


def retriever(trace="t", id=None, parent=None, texts=(), **values):
    documents = None if texts is None else [Document(text=text) for text in texts]
    return span(trace, id, parent, is_retriever=True, documents=documents, **values)


def rows(*spans, per="trace"):
    unused = Counter()
    found = list(pivot([("f", span) for span in spans], per, unused))
    return found, dict(unused)


def contexts(*spans):
    return [row["contexts"] for row in rows(*spans)[0]]


def test_a_row():
    (row,), unused = rows(
        span(id="a", question="q", response="r", reference="f"),
        span("t", "b", "a", is_retriever=True, question="own", documents=[Document(text="N", id="x", score=0.5)]),
    )
    assert row == {
        "trace_id": "t",
        "span_id": "a",
        "question": "q",
        "contexts": ["N"],
        "context_ids": ["x"],
        "context_scores": [0.5],
        "response": "r",
        "reference": "f",
        "source": "f",
    }
    assert set(row) == set(ROW_COLUMNS.names)
    assert unused == {}


def test_traces_stand_in_the_order_of_their_first_span():
    found, _ = rows(span("b"), span("a"), span("b", question="q"), span("c"), span("a"))
    assert [(row["trace_id"], row["question"]) for row in found] == [("b", "q"), ("a", None), ("c", None)]


TWO = [
    retriever(id="a", start=2, texts=["N"]),
    retriever(id="b", start=1, texts=["E", None]),
    retriever(id="c", texts=[]),
]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_contexts_of_several_retrievers_stand_in_the_order_of_time(order):
    assert contexts(*(TWO[place] for place in order)) == [["E", None, "N"]]


def test_without_times_the_order_is_that_of_the_file():
    assert contexts(retriever(id="b", texts=["N"]), retriever(id="a", texts=["E"])) == [["N", "E"]]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_retrievers_inside_of_retrievers_are_left_out(order):
    spans = [
        span(id="root"),
        retriever(id="a", parent="root", texts=["N"]),
        span(id="b", parent="a"),
        retriever(id="c", parent="b", texts=["part of a"]),
    ]
    found, unused = rows(*(spans[place] for place in order))
    assert [row["contexts"] for row in found] == [["N"]]
    assert unused["retriever spans inside of others"] == 1


def test_parents_in_a_circle_end():
    found, _ = rows(retriever(id="a", parent="b", texts=["N"]), span(id="b", parent="c"), span(id="c", parent="b"))
    assert [row["contexts"] for row in found] == [["N"]]


def test_parents_of_another_trace_are_not_these():
    assert contexts(retriever("t", "a", texts=["N"]), retriever("u", "b", "a", texts=["E"])) == [["N"], ["E"]]


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        ([], None),
        ([retriever(texts=None)], None),
        ([retriever(texts=[])], []),
        ([retriever(texts=[None])], [None]),
        ([retriever(texts=None), retriever(texts=["N"])], ["N"]),
    ],
)
def test_no_contexts_and_no_documents(spans, found):
    assert contexts(span(id="root"), *spans) == [found]


def test_ids_and_scores_stand_beside_the_contexts():
    documents = [Document(text="N", id="x"), Document(text=None, id=None)]
    (row,), _ = rows(span(id="a", is_retriever=True, documents=documents), retriever(id="b", texts=["E"]))
    assert (row["contexts"], row["context_ids"], row["context_scores"]) == (["N", None, "E"], ["x", None, None], None)


# --- input and output of the trace


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        ([span(id="a", question="no"), span(id="b", is_root=True, question="q")], "q"),
        ([span(id="b", parent="a", question="no"), span(id="a", question="q")], "q"),
        ([span(id="a"), span(id="b", question="q")], "q"),
        ([span(id="b", parent="not here", question="q"), span(id="c", parent="b", question="no")], "q"),
        ([span(id="a"), span(id="b", parent="a", question="no")], None),
        ([span(id="a"), retriever(id="b", parent="a", question="q")], "q"),
        ([retriever(id="b", question="q")], "q"),
    ],
)
def test_the_question_is_the_input_of_the_root(spans, found):
    (row,), unused = rows(*spans)
    assert row["question"] == found
    assert unused.get("traces without a question", 0) == (found is None)


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        ([span(id="a", response="r"), span(id="b", parent="a", is_answer=True, response="no")], "r"),
        ([span(id="a"), span(id="b", parent="a", response="no")], None),
        (
            [
                span(id="a"),
                span(id="b", parent="a", start=2, is_answer=True, response="last"),
                span(id="c", parent="a", start=1, is_answer=True, response="no"),
            ],
            "last",
        ),
    ],
)
def test_the_response_is_the_output_of_the_root_or_of_the_last_answer(spans, found):
    (row,), unused = rows(*spans)
    assert row["response"] == found
    assert unused.get("traces without a response", 0) == (found is None)


# --- one row a retriever


def test_one_row_a_retriever():
    found, unused = rows(
        span(id="root", question="q", response="r", reference="f"),
        retriever(id="b", parent="root", start=2, texts=["E"]),
        retriever(id="a", parent="root", start=1, question="own", texts=["N"]),
        retriever(id="c", parent="a", texts=["part of a"]),
        span("u", question="none retrieved", response="r"),
        per="retriever",
    )
    assert [tuple(row.values())[:4] for row in found] == [("a", "own", "r", "f"), ("b", "q", "r", "f")]
    assert [(row["trace_id"], row["contexts"]) for row in found] == [("t", ["N"]), ("t", ["E"])]
    assert unused == {"retriever spans inside of others": 1, "traces without a retriever span": 1}


def test_one_row_a_document_is_gathered_by_its_place():
    parts = [
        retriever(id=span_id, question="q", position=position, texts=[f"{span_id}{position}"])
        for span_id, position in (("b", 10), ("a", 1), ("b", 2), ("a", 0))
    ]
    assert contexts(*parts) == [["b2", "b10", "a0", "a1"]]
    found, _ = rows(*parts, per="retriever")
    assert [(row["span_id"], row["contexts"]) for row in found] == [("b", ["b2", "b10"]), ("a", ["a0", "a1"])]


# --- what could not be used


def test_counts():
    _, unused = rows(
        span(None),
        span(None),
        span("t", "root"),
        retriever("t", "a", "root", texts=[None, "N", None]),
        retriever("t", "b", "root", texts=None),
        span("u", question="q"),
    )
    assert unused == {
        "spans without a trace id": 2,
        "documents without text": 2,
        "retriever spans without documents": 1,
        "traces without a question": 1,
        "traces without a response": 2,
        "traces without a retriever span": 1,
    }


def test_a_span_that_is_there_twice_counts_once():
    """Exports of overlapping windows: the first one stays."""
    found, unused = rows(
        retriever(id="a", texts=["N"], question="q"),
        retriever(id="a", texts=["N"], question="later"),
        retriever(trace="u", id="a", texts=["E"]),
        retriever(texts=["S"]),
        retriever(texts=["S"]),
    )
    assert [row["contexts"] for row in found] == [["N", "S", "S"], ["E"]]
    assert found[0]["question"] == "q"
    assert unused["spans seen twice"] == 1


def test_no_spans():
    assert rows() == ([], {})


def test_characters_come_back_as_they_were():
    text = "a\0b 😀 \u2028 \\ud800 ps | grep x\n| a |"
    assert contexts(retriever("t\0'é", texts=[text])) == [[text]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the size of files")
def test_no_room_for_the_table_says_where():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    spans = (("f", retriever(f"t{n}", texts=["word " * 2000])) for n in range(2000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
    try:
        with pytest.raises(OSError, match=r"the temporary table of spans, in .*: .*\. Make room there, or set TMPDIR"):
            list(module.pivot(spans, "trace", Counter()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

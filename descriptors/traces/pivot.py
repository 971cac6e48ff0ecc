"""Spans, in any order, to one row a trace, or one row a retriever.

The spans of a trace may lie anywhere in the files. They wait in a temporary SQLite table, which lives in memory as long
as it is small, and in a file that nobody else sees when it is not; one trace at a time is taken out of it.
"""

import json
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from itertools import chain
from typing import Any, Literal

import pyarrow as pa

from rag_descriptors.traces.spans import Document, Span

__all__ = ["ROW_COLUMNS", "RowsOf", "pivot"]

RowsOf = Literal["trace", "retriever"]
ROW_COLUMNS = pa.schema(
    [
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("question", pa.string()),
        ("contexts", pa.list_(pa.string())),
        ("context_ids", pa.list_(pa.string())),
        ("context_scores", pa.list_(pa.float64())),
        ("response", pa.string()),
        ("reference", pa.string()),
        ("source", pa.string()),
    ]
)
TABLES = """
    PRAGMA journal_mode = OFF;
    CREATE TABLE traces (number INTEGER PRIMARY KEY, id TEXT UNIQUE, source TEXT);
    CREATE TABLE spans (number INTEGER PRIMARY KEY, trace INTEGER, id TEXT, position INTEGER, start INTEGER, span TEXT);
    CREATE UNIQUE INDEX twice ON spans (trace, id, IFNULL(position, -1));
"""


def pivot(
    spans: Iterable[tuple[str, Span]], per: RowsOf, unused: Counter[str]
) -> Generator[dict[str, Any], None, None]:
    """Yield the rows of spans, in the order in which their traces appear first.

    Args:
        spans: Each with the name of its source.
        per: What is one row: a trace, or a retriever that stands in no other.
        unused: What could not be used is counted here: of spans while they are read, of traces with their rows.

    Raises:
        OSError: There is no room for the temporary table.
    """
    with closing(sqlite3.connect("")) as store, _told():
        store.executescript(TABLES)
        for source, span in spans:
            _keep(store, source, span, unused)
        for number, trace_id, source in store.execute("SELECT number, id, source FROM traces ORDER BY number"):
            for row in _rows(_spans_of(store, number), per, unused):
                yield {**row, "trace_id": trace_id, "source": source}


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(
            f"the temporary table of spans, in {tempfile.gettempdir()}: {error}. Make room there, or set TMPDIR."
        ) from error


def _keep(store: sqlite3.Connection, source: str, span: Span, unused: Counter[str]) -> None:
    if span.trace_id is None:
        unused["spans without a trace id"] += 1
        return
    store.execute("INSERT OR IGNORE INTO traces (id, source) VALUES (?, ?)", (span.trace_id, source))
    done = store.execute(
        "INSERT OR IGNORE INTO spans (trace, id, position, start, span) "
        "SELECT number, ?, ?, ?, ? FROM traces WHERE id = ?",
        (span.span_id, span.position, span.start, json.dumps(asdict(span)), span.trace_id),
    )
    if not done.rowcount:
        unused["spans seen twice"] += 1


def _spans_of(store: sqlite3.Connection, trace: int) -> list[Span]:
    """Return the spans of a trace in the order of time, those without a time in the order of the file."""
    found = store.execute("SELECT span FROM spans WHERE trace = ? ORDER BY start, number", (trace,))
    return [_read(text) for (text,) in found]


def _read(text: str) -> Span:
    values = json.loads(text)
    documents = values["documents"] and [Document(**document) for document in values["documents"]]
    return Span(**{**values, "documents": documents})


def _rows(spans: list[Span], per: RowsOf, unused: Counter[str]) -> Iterator[dict[str, Any]]:
    retrievers = _retrievers(spans, unused)
    roots = _roots(spans)
    answers = [span for span in reversed(spans) if span.is_answer]
    whole = {
        "span_id": _first(span.span_id for span in roots),
        "question": _first(span.question for span in chain(roots, retrievers)),
        "response": _first(span.response for span in chain(roots, answers)),
        "reference": _first(span.reference for span in roots),
    }
    _count(unused, spans, retrievers, whole)
    if per == "trace":
        yield {**whole, **_documents(retrievers)}
        return
    for retriever in retrievers:
        asked = {"span_id": retriever.span_id, "question": retriever.question or whole["question"]}
        yield {**whole, **asked, **_documents([retriever])}


def _count(unused: Counter[str], spans: list[Span], retrievers: list[Span], whole: dict[str, str | None]) -> None:
    texts = [document.text for span in retrievers for document in span.documents or []]
    counts = {
        "traces without a retriever span": not retrievers,
        "retriever spans without documents": sum(span.documents is None for span in retrievers),
        "documents without text": texts.count(None),
        "reranker spans": sum(span.is_reranker for span in spans),
        "traces without a question": whole["question"] is None,
        "traces without a response": whole["response"] is None,
    }
    unused.update({what: int(count) for what, count in counts.items() if count})


def _retrievers(spans: list[Span], unused: Counter[str]) -> list[Span]:
    """Return the retrievers that stand in no other one, each once and with all its documents."""
    by_id = {span.span_id: span for span in spans if span.position is None}
    whole: dict[str | int | None, list[Span]] = {}
    for number, span in enumerate(spans):
        if span.is_retriever:
            whole.setdefault(number if span.span_id is None else span.span_id, []).append(span)
    merged = [_merged(parts) for parts in whole.values()]
    found = [span for span in merged if not any(above.is_retriever for above in _above(span, by_id))]
    if len(merged) > len(found):
        unused["retriever spans inside of others"] += len(merged) - len(found)
    return found


def _merged(parts: list[Span]) -> Span:
    """Return the span of which each part is a document."""
    if len(parts) == 1:
        return parts[0]
    parts = sorted(parts, key=lambda part: part.position or 0)
    return replace(parts[0], documents=[document for part in parts for document in part.documents or []])


def _above(span: Span, by_id: dict[str | None, Span]) -> Iterator[Span]:
    seen = {span.span_id}
    while span.parent_id in by_id and span.parent_id not in seen and span.parent_id is not None:
        span = by_id[span.parent_id]
        seen.add(span.span_id)
        yield span


def _roots(spans: list[Span]) -> list[Span]:
    """Return what may hold input and output of the whole trace, the likeliest first.

    These are spans that are said to be the root, then those without a parent, then those whose parent was not exported.
    """
    ids = {span.span_id for span in spans}
    said = [span for span in spans if span.is_root]
    top = [span for span in spans if span.parent_id is None and not span.is_root]
    cut = [span for span in spans if span.parent_id is not None and span.parent_id not in ids and not span.is_root]
    return said + top + cut


def _first(texts: Iterable[str | None]) -> str | None:
    return next((text for text in texts if text is not None), None)


def _documents(retrievers: list[Span]) -> dict[str, list[Any] | None]:
    lists = [span.documents for span in retrievers if span.documents is not None]
    documents = list(chain.from_iterable(lists))
    columns: dict[str, list[Any]] = {
        "context_ids": [document.id for document in documents],
        "context_scores": [document.score for document in documents],
    }
    known = {name: values if any(value is not None for value in values) else None for name, values in columns.items()}
    return {"contexts": [document.text for document in documents] if lists else None, **known}

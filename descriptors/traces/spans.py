"""Spans as a tool exports them, read by the form that the tool gives them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd

from rag_descriptors.errors import FormatError
from rag_descriptors.texts import scrub
from rag_descriptors.traces.contexts import parse_contexts, parse_literal
from rag_descriptors.traces.paths import answer_text, find, plain, question_text
from rag_descriptors.traces.presets import SpanForm

__all__ = ["Document", "Span", "read_spans", "unwrapped"]

DOCUMENT_ID = ("kwargs.id", "id", "document.id", "id_", "node.id_", "node.node_id", "doc_id")
DOCUMENT_SCORE = ("score", "document.score", "metadata.score", "metadata.relevance_score", "kwargs.metadata.score")
NO_ID = frozenset({"", "null", "none", "nan", "nat"})
INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A retrieved document: its text, None where it has none, and what is known beside."""

    text: str | None
    id: str | None = None
    score: float | None = None


@dataclass(frozen=True, kw_only=True)
class Span:
    """What a row needs of a span.

    Attributes:
        trace_id: None where the span has none.
        span_id: Its id within the trace.
        parent_id: The id of the span it is part of.
        position: Where each row of the file is a document: its place among those of the span.
        start: When it began; comparable within a trace.
        is_root: Whether it is said to be the root.
        is_retriever: Whether it retrieves.
        is_reranker: Whether it puts documents in another order.
        is_answer: Whether its output is the response where the root has none.
        question: The text of its input.
        response: The text of its output, None for a retriever.
        reference: The text of the reference.
        documents: What it retrieved; None where it has no documents.
    """

    trace_id: str | None
    span_id: str | None
    parent_id: str | None
    position: int | None
    start: int | None
    is_root: bool
    is_retriever: bool
    is_reranker: bool
    is_answer: bool
    question: str | None
    response: str | None
    reference: str | None
    documents: list[Document] | None


def read_spans(file: Path, rows: Iterable[Mapping[str, Any]], form: SpanForm) -> Iterator[Span]:
    """Yield the spans of a file's rows.

    Raises:
        FormatError: Documents can't be read; the message names file and row.
    """
    for number, row in enumerate(rows):
        try:
            yield from (_span(raw, form, trace_id) for raw, trace_id in _spans_of(row, form))
        except ValueError as error:
            raise FormatError(f"{file}, row {number}: {error}") from error


def unwrapped(row: Mapping[str, Any], form: SpanForm) -> Iterator[Mapping[str, Any]]:
    """Yield the spans that a row of a file wraps; the row itself where it wraps none."""
    rows: list[Any] = [row]
    for keys in form.wrapped:
        rows = [inner for outer in rows for inner in _inside(outer, keys)]
    for found in rows:
        if not isinstance(found, Mapping):
            raise ValueError(f"found a {type(found).__name__} where a span (an object) is expected. Mend the file.")
        yield {**found, "attributes": plain(found["attributes"])} if "attributes" in found else found


def _inside(outer: Any, keys: tuple[str, ...]) -> list[Any]:
    lists = [outer[key] for key in keys if isinstance(outer, Mapping) and isinstance(outer.get(key), list)]
    return lists[0] if lists else [outer]


def _spans_of(row: Mapping[str, Any], form: SpanForm) -> Iterator[tuple[Mapping[str, Any], str | None]]:
    """Yield spans, each with the id of the trace that holds it where the rows are traces."""
    if not form.held:
        yield from ((span, None) for span in unwrapped(row, form))
        return
    trace_id = _id(find(row, form.trace_id))
    held = find(row, form.held)
    held = parse_literal(held) if isinstance(held, str) else held
    yield row, trace_id
    if isinstance(held, list):
        yield from ((span, trace_id) for inner in held for span in unwrapped(inner, form))


def _span(raw: Mapping[str, Any], form: SpanForm, trace_id: str | None) -> Span:
    is_trace = bool(form.held) and find(raw, form.held) is not None
    kind = str(find(raw, form.kind)).strip('"').lower()
    is_retriever = not form.retriever or kind in form.retriever
    asked = form.query + form.question if is_retriever else form.question
    return Span(
        trace_id=trace_id if form.held else _id(find(raw, form.trace_id)),
        span_id=None if is_trace else _id(find(raw, form.span_id)),
        parent_id=_id(find(raw, form.parent_id)),
        position=_ordinal(find(raw, form.position)),
        start=_ordinal(find(raw, form.start)),
        is_root=is_trace or str(find(raw, form.root)).lower() in {"true", "1"},
        is_retriever=is_retriever,
        is_reranker=kind in form.reranker,
        is_answer=kind in form.answer,
        question=_said(raw, asked, question_text),
        response=None if is_retriever else _said(raw, form.response, answer_text),
        reference=_said(raw, form.reference, answer_text),
        documents=_documents(raw, form) if is_retriever else None,
    )


def _said(raw: Mapping[str, Any], paths: Iterable[str], text_of: Callable[[Any], str | None]) -> str | None:
    """Return the text under the first of the paths that holds one."""
    texts = (text_of(find(raw, [path])) for path in paths)
    return _clean(next(filter(None, texts), None))


def _clean(text: str | None) -> str | None:
    cleaned: str | None = scrub(text)
    return cleaned


def _id(value: Any) -> str | None:
    """Return an id as text; of the ids of all ancestors the last; None for what stands where there is none."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = parse_literal(value)
    if isinstance(value, list):
        value = value[-1] if value else None
    text = str(value).strip()
    return None if text.lower() in NO_ID or (len(text) >= 16 and not text.strip("0")) else _clean(text)


def _ordinal(value: Any) -> int | None:
    """Return a number that grows with a count or a time; None for what is neither."""
    try:
        if isinstance(value, float):
            count = int(value * 1000)
        elif isinstance(value, int) or (isinstance(value, str) and value.strip().isdigit()):
            count = int(value)
        else:
            moment = pd.Timestamp(value)
            count = INT64.stop if pd.isna(moment) else moment.as_unit("ns").value
    except (ValueError, TypeError, OverflowError):
        return None
    return count if count in INT64 else None


def _documents(raw: Mapping[str, Any], form: SpanForm) -> list[Document] | None:
    value = find(raw, form.documents)
    if form.position:
        return [Document(text=_text(value), score=_number(find(raw, form.score)))]
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        literal = parse_literal(value.strip())
        value = literal if isinstance(literal, list | Mapping) else value
    if isinstance(value, Mapping):
        return [_document(value)] if _text(value) is not None else None
    if isinstance(value, str):
        return [_document(value)]
    return [_document(item) for item in value] if isinstance(value, list) else None


def _document(item: Any) -> Document:
    score = None
    if isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[1], Real):
        item, score = item
    ids = (find(item, [path]) for path in DOCUMENT_ID if isinstance(item, Mapping))
    found = next((value for value in ids if isinstance(value, str | int) and not isinstance(value, bool)), None)
    score = find(item, DOCUMENT_SCORE) if isinstance(item, Mapping) and score is None else score
    return Document(text=_text(item), id=None if found is None else _clean(str(found)), score=_number(score))


def _text(item: Any) -> str | None:
    """Return the text of a document; None if it has none, or none under a known key."""
    try:
        (text,) = parse_contexts([item]) or [None]
    except ValueError:
        return None
    return text


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return number if math.isfinite(number) else None

"""Reading one cell of a text or contexts column, whatever wrote it.

A contexts cell may be: a list, tuple or array of texts, of documents (dicts or objects with a known text key) or of
(document, score) pairs; one document; a JSON string or a Python literal of any of these; one plain text; null.
"""

import ast
import json
import re
import reprlib
import tokenize
import warnings
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from rag_descriptors.texts import scrub

__all__ = ["NOT_DATA", "is_missing", "parse_contexts", "parse_literal", "parse_text"]

TEXT_KEYS = (
    "page_content",
    "content",
    "text",
    "document.content",
    "document",
    "node",
    "context",
    "text_resource",  # a LlamaIndex node
    "kwargs",  # a LangChain document as its `dumpd` writes it
)
INNER_KEYS = {
    "document": ("content",),
    "node": ("text", "text_resource"),
    "text_resource": ("text",),
    "kwargs": ("page_content",),
}
NULL_TEXTS = ("", "null", "None", "nan", "NaN")
LIST_START = re.compile(r"""\[[\s\[(]*((None|nan|NaN|null)\s+)*(['"]|\{\s*['"]|\w[\w.]*\()""")
NOT_DATA = object()
SHORT = reprlib.Repr()  # bounded in depth and length, and proof against objects whose repr fails
SHORT.maxstring = SHORT.maxother = 80


def parse_contexts(cell: object) -> list[str | None] | None:
    """Return the texts of one contexts cell; None for a missing cell, and inside the list for a missing context.

    Raises:
        ValueError: The cell holds no contexts; the message says what was found and the way out.
    """
    if is_missing(cell):
        return None
    if isinstance(cell, str | bytes):
        return _parse_string(_decode(cell))
    if isinstance(cell, np.ndarray | pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        return parse_contexts(cell.tolist())
    return [_item(item) for item in (cell if isinstance(cell, Sequence) else [cell])]


def parse_text(cell: object) -> str | None:
    """Return the text of one cell, None if it is missing: null, NaN, empty or blank. Lone surrogates become U+FFFD.

    Raises:
        ValueError: The cell holds no text.
    """
    if is_missing(cell):
        return None
    if not isinstance(cell, str | bytes):
        raise ValueError(
            f'found {_describe(cell)} where a text is expected. Convert the column with .astype("string").'
        )
    return _clean(_decode(cell))


def is_missing(cell: object) -> bool:
    """Return whether a cell is a null of any library: None, NaN, NA, NaT."""
    if cell is None or isinstance(cell, str):
        return cell is None
    return bool(pd.api.types.is_scalar(cell) and pd.isna(cell))  # type: ignore[call-overload]


def _decode(text: str | bytes) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _clean(text: str) -> str | None:
    cleaned: str | None = scrub(text) if text.strip() else None
    return cleaned


def _item(item: object) -> str | None:
    if is_missing(item) or isinstance(item, str | bytes):
        return parse_text(item)
    if isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[1], Real):
        return _item(item[0])
    if isinstance(item, Sequence | np.ndarray | set | Real):
        raise ValueError(
            f"found {_describe(item)} where a context is expected. Each row takes a list of texts or of documents."
        )
    return _document(item)


def _document(document: object) -> str | None:
    known = list(_known_values(document))
    for _, value in known:
        if isinstance(value, str):
            return _clean(value)
    for key, value in known:
        if not is_missing(value):
            raise ValueError(f"found a document whose {key!r} holds {_describe(value)}. It must hold a text.")
    if known:
        return None
    keys = ", ".join(map(repr, document)) if isinstance(document, Mapping) else ""
    raise ValueError(
        f"found {_describe(document)} without a known text key{f'; its keys are {keys}' if keys else ''}. "
        f"The text is looked for under {', '.join(TEXT_KEYS)}: rename the key, or pass the texts themselves."
    )


def _known_values(document: object) -> Iterator[tuple[str, object]]:
    for key in TEXT_KEYS:
        for value in _inner(key, _get(document, key)):
            yield key, value


def _inner(key: str, value: object) -> Iterator[object]:
    if value is NOT_DATA:
        return
    if key not in INNER_KEYS or isinstance(value, str) or is_missing(value):
        yield value
        return
    for inner in INNER_KEYS[key]:
        yield from _inner(inner, _get(value, inner))


def _get(document: object, key: str) -> object:
    if isinstance(document, Mapping):
        return document.get(key, NOT_DATA)
    return getattr(document, key, NOT_DATA)


def _parse_string(text: str) -> list[str | None] | None:
    stripped = text.strip()
    if stripped in NULL_TEXTS:
        return None
    value = parse_literal(stripped) if stripped[0] in "[({" else NOT_DATA
    if isinstance(value, list | tuple) and not _is_numbers(value):
        return [_item(item) for item in value]
    if isinstance(value, dict) and any(_known_values(value)):
        return [_document(value)]
    return [_clean(text)]


def _is_numbers(items: Sequence[object]) -> bool:
    return all(isinstance(item, Real) for item in items) and not all(map(is_missing, items))


def parse_literal(text: str) -> Any:
    """Return the value that a text spells as JSON or as a Python literal; `NOT_DATA` if it spells none.

    Raises:
        ValueError: It begins like a list, and can't be read back.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        value = _parse_python(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        value = NOT_DATA
    if value is NOT_DATA and LIST_START.match(text):
        raise ValueError(
            f"found the text of a list that can't be read back: {_shorten(text)}. Save lists as JSON (json.dumps), "
            "Parquet or JSON Lines; if it is one plain text, put it into a list."
        )
    return value


def _parse_python(text: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes such as '\d' in the text are no fault of the caller's code
        tree = ast.parse(text, mode="eval")
        is_adjacent = _has_adjacent_strings(text)
    if is_adjacent:
        raise ValueError("strings side by side: how numpy prints an array")
    return ast.literal_eval(_NanToNone().visit(tree))


def _has_adjacent_strings(text: str) -> bool:
    layout = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)
    tokens = [token.type for token in tokenize.generate_tokens(StringIO(text).readline) if token.type not in layout]
    return (tokenize.STRING, tokenize.STRING) in pairwise(tokens)


class _NanToNone(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(None) if node.id in NULL_TEXTS else node


def _describe(value: object) -> str:
    return f"{type(value).__name__} {SHORT.repr(value)}"


def _shorten(text: str, width: int = 80) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"

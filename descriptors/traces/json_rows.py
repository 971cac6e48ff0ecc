"""JSON files as rows: JSON Lines, one array, or one object."""

import json
import re
from codecs import BOM_UTF8 as BOM
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any

from rag_descriptors.errors import FormatError
from rag_descriptors.texts import scrub

__all__ = ["Rows", "json_rows"]

Rows = Generator[dict[str, Any], None, None]
HEAD_BYTES = 64 * 1024
ARRAY_CHARS = 1024 * 1024
FIRST_ITEM, NEXT_ITEM, ARRAY_END = map(re.compile, (r"[ \t\r\n]*", r"[ \t\r\n]*,[ \t\r\n]*", r"[ \t\r\n]*\]"))
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
DECODER = json.JSONDecoder()


def json_rows(file: Path) -> Rows:
    """Yield the objects of JSON Lines, or of one JSON array, or the one object that a `.json` file may be."""
    with file.open("rb") as content:
        if _begins_array(content):
            with TextIOWrapper(content, "utf-8", "surrogatepass", newline="") as text:
                yield from _parse_array(file, text)
        else:
            yield from _parse_lines(file, content)


def _begins_array(content: IO[bytes]) -> bool:
    """Return whether a file is a JSON array, and go behind its bracket; else to its start."""
    head = content.read(HEAD_BYTES)
    start = head.removeprefix(BOM).lstrip()
    is_array = start.startswith(b"[")
    content.seek(len(head) - len(start) + 1 if is_array else 0)
    return is_array


def _parse_array(file: Path, text: IO[str]) -> Iterator[dict[str, Any]]:
    """Yield the items of an array from behind its bracket on; what is held grows with the longest, not with all."""
    held, place, number = "", 0, 0
    while not (end := ARRAY_END.match(held, place)):
        before = (NEXT_ITEM if number else FIRST_ITEM).match(held, place)
        start = before.end() if before else len(held)
        try:
            row, after = DECODER.raw_decode(held, start)
        except (ValueError, RecursionError) as error:
            held, place = held[place:] + _more(file, text, number, len(held) - place, error), 0
            continue
        yield _object(file, f"item {number}", scrub(row) if SURROGATE.search(held, start, after) else row)
        place, number = after, number + 1
    with _told(file, "after the array"):
        if (held[end.end() :] + text.read(ARRAY_CHARS)).strip():
            raise ValueError("Extra data")


def _more(file: Path, text: IO[str], number: int, length: int, error: Exception) -> str:
    """Return as much again as there is, so that a long item is tried few times; what was wrong where there is none."""
    with _told(file, f"item {number}, or one behind it"):
        more = text.read(max(length, ARRAY_CHARS))
    with _told(file, f"item {number}"):
        if not more:
            raise ValueError(getattr(error, "msg", str(error)))  # the place it tells is one in what is held
    return more


def _parse_lines(file: Path, lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.removeprefix(BOM).strip())
    for number, line in islice(numbered, 1):
        start = line.removeprefix(BOM).strip()
        if file.suffix.lower() == ".json" and start.startswith(b"{") and not start.endswith(b"}"):
            yield _object(file, "the object", _loads(file, "the object", b"".join([line, *lines])))
        else:
            yield _object(file, f"line {number}", _loads(file, f"line {number}", line))
    for number, line in numbered:
        yield _object(file, f"line {number}", _loads(file, f"line {number}", line))


def _loads(file: Path, place: str, content: bytes) -> Any:
    with _told(file, place):
        text = content.removeprefix(BOM).decode("utf-8", "surrogatepass")
        value = json.loads(text)
        return scrub(value) if SURROGATE.search(text) else value


@contextmanager
def _told(file: Path, place: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{file}, {place}: no JSON: {error}. One object a line, or one array, is expected."
        ) from error


def _object(file: Path, place: str, row: object) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise FormatError(f"{file}, {place}: found a {type(row).__name__} where an object (a row) is expected.")
    return row

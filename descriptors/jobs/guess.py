"""Which columns of an unknown table hold questions and contexts, by what stands there: for messages, never for runs."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import pyarrow as pa

from rag_descriptors.errors import FormatError, OptionError
from rag_descriptors.traces.contexts import is_missing, parse_contexts, parse_text
from rag_descriptors.traces.presets import KNOWN_COLUMNS, PRESETS, SpanForm
from rag_descriptors.traces.readers import Traces, is_mixed, parse_mixed
from rag_descriptors.traces.recognition import recognised

__all__ = ["guess_columns", "how_to_name"]

ROWS = 200
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+")
REFERENCES = ("reference", "ground_truth", "groundtruth", "expected", "gold")
RESPONSES = {"answer", "completion", "generation", "output", "prediction", "reply", "response", "result"}
RESPONSES |= {"answers", "completions", "outputs", "predictions", "replies", "responses", "results"}
ASKING = 0.5  # the share of question marks from which texts are taken for nothing but questions


def how_to_name(traces: Traces, found: Mapping[str, str | None]) -> Iterator[str]:
    """Yield what to type for the kinds of columns that were not found by name, if a preset or their content tells them.

    Args:
        traces: The files; their first rows are looked at.
        found: Names of columns by kind, `"question"` and `"contexts"`; None for those that were not found.
    """
    is_sought = None in found.values()
    preset = _preset(traces) if is_sought else None
    if preset is not None:
        yield f"The files look like an export of spans by {preset}: --preset {preset} reads such."
        is_sought = False  # what a column of spans holds is not what a row would
    names = {kind: name for kind, name in guess_columns(traces).items() if found[kind] is None} if is_sought else {}
    if names:
        flags = " ".join(f"--{kind} {shlex.quote(name)}" for kind, name in names.items())
        table = "\n".join(f"{kind} = {json.dumps(name, ensure_ascii=False)}" for kind, name in names.items())
        yield f"By what the columns hold, it may be: {flags}\nor, in a configuration:\n[columns]\n{table}"


def _preset(traces: Traces) -> str | None:
    """Return the preset of spans that files fit which were opened without one, if there is one and only one."""
    try:
        preset = recognised(traces.files) if traces.preset is None else None
    except (OptionError, FormatError):
        return None
    return preset if any(isinstance(form, SpanForm) for form in PRESETS.get(preset or "", ())) else None


def guess_columns(traces: Traces) -> dict[str, str]:
    """Return the columns that look most like questions and like contexts, by kind; none where nothing does."""
    batch = next(traces.batches(ROWS), None)
    if batch is None:
        return {}
    cells = {field.name: held for field in batch.schema if (held := _cells(batch, field))}
    found: dict[str, str | None] = {"contexts": _best(cells, "contexts", _like_contexts)}
    others = {name: held for name, held in cells.items() if name != found["contexts"]}
    found["question"] = _best(others, "question", _like_question)
    return {kind: name for kind in ("question", "contexts") if (name := found[kind]) is not None}


def _cells(batch: pa.RecordBatch, field: pa.Field) -> list[Any]:
    column = batch[field.name]
    return [cell for cell in (parse_mixed(column) if is_mixed(field) else column.to_pylist()) if not is_missing(cell)]


def _best(cells: Mapping[str, Sequence[Any]], kind: str, rank: Any) -> str | None:
    """Return the column that its name, then its content speaks for; what asks is no contexts but by its name."""
    ranked = {
        name: (by_name, rank(held)) for name, held in cells.items() if (by_name := _by_name(name, kind)) is not None
    }
    fit = [name for name, (_, content) in ranked.items() if content is not None]
    if kind == "contexts":
        fit = [name for name in fit if ranked[name][0] > 0 or (_like_question(cells[name]) or (0,))[0] <= ASKING]
    return max(fit, key=ranked.__getitem__, default=None)


def _by_name(name: str, kind: str) -> int | None:
    """Return how much a name speaks for a kind of column: above 0 a known one, below 0 a reference's or a response's.

    None for a column of the other kind, and for a response where a question is sought.
    """
    plain, other = _plain(name), "contexts" if kind == "question" else "question"
    known = [*map(_plain, KNOWN_COLUMNS[kind])]
    if plain in known:
        return len(known) - known.index(plain)
    if plain in map(_plain, KNOWN_COLUMNS[other]):
        return None
    if plain.startswith(REFERENCES):
        return -2
    if RESPONSES.isdisjoint(plain.split("_")):
        return 0
    return None if kind == "question" else -1


def _plain(name: str) -> str:
    """Return a name in small letters, with one underscore between its words."""
    return "_".join(WORD.findall(name)).lower()


def _like_contexts(cells: Sequence[Any]) -> tuple[float, float] | None:
    """Return how much a column looks like contexts: lists before texts, then long before short; None if it can't be."""
    try:
        lists = [[text for text in parse_contexts(cell) or () if text] for cell in cells]
    except ValueError:
        return None
    are_lists = fmean(not isinstance(cell, str) or cell.lstrip()[:1] in ("[", "(") for cell in cells)
    length = fmean(sum(map(len, texts)) for texts in lists)
    has_words = any(" " in text for texts in lists for text in texts)
    return (are_lists, length) if has_words else None


def _like_question(cells: Sequence[Any]) -> tuple[float, float, float] | None:
    """Return how much a column looks like questions: question marks, then several words, then short before long."""
    try:
        texts = [text for text in map(parse_text, cells) if text]
    except ValueError:
        return None
    if not any(" " in text for text in texts) or all(text.lstrip()[:1] in ("[", "{") for text in texts):
        return None
    asks = fmean(text.rstrip().endswith(("?", "？", "؟")) for text in texts)
    return asks, fmean(" " in text for text in texts), -fmean(map(len, texts))

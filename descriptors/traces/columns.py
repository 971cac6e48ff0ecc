"""From columns as people have them to the two kinds that descriptors read: texts and lists of texts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_descriptors.errors import CellError
from rag_descriptors.longframe import LongFrame
from rag_descriptors.traces.contexts import is_missing, parse_contexts, parse_text

__all__ = ["CONTEXTS", "TEXT", "is_settled", "to_column"]

TEXT = pa.string()
CONTEXTS = pa.list_(pa.string())
PARSERS: dict[pa.DataType, Callable[[object], Any]] = {TEXT: parse_text, CONTEXTS: parse_contexts}
CELL_TYPES: dict[pa.DataType, tuple[type, ...]] = {TEXT: (str,), CONTEXTS: (list, tuple, np.ndarray)}


def to_column(
    cells: pa.Array | pa.ChunkedArray | Sequence[object],
    field: pa.Field,
    row_name: Callable[[int], str] = "row {}".format,
    parse: Callable[[object], Any] | None = None,
) -> pa.Array:
    """Return `cells` as an Arrow array of the field's type, blank texts as nulls.

    Args:
        cells: One column, as an Arrow array of any type or as Python objects.
        field: The column's name, and `TEXT` or `CONTEXTS`; to any other type a column is only cast.
        row_name: What an error calls the row at a position.
        parse: What reads a cell, in place of `parse_text` or `parse_contexts`; a ValueError says what is wrong.

    Raises:
        CellError: Cells can't be read; the message names column, rows, and what was found.
        pa.ArrowCapacityError: They hold more than Arrow's texts, whose offsets have 32 bits, can.
    """
    if parse is not None:
        return _blank_to_null(_parse_each(cells, field, parse, row_name))
    try:
        column = _convert(cells, field.type)
    except (pa.ArrowException, TypeError, UnicodeError, OverflowError) as error:
        if field.type not in PARSERS:
            raise CellError(f"column {field.name!r} can't be read as {field.type}: {error}") from error
        column = None
    return _blank_to_null(_parse_each(cells, field, PARSERS[field.type], row_name) if column is None else column)


def _convert(cells: Any, kind: pa.DataType) -> pa.Array | None:
    """Convert a whole column at once; None where only the cell parser can tell what the cells mean."""
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    if isinstance(cells, pa.Array):
        if pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_decode()
        return cells.cast(kind) if is_settled(cells.type, kind) else None
    if all(isinstance(cell, CELL_TYPES.get(kind, object)) or is_missing(cell) for cell in cells):
        return pa.array(cells, type=kind, from_pandas=True)
    return None


def is_settled(found: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether all cells of the type that was found can be read as `kind`, and a cast says what they mean."""
    if pa.types.is_null(found) or kind not in PARSERS:
        return True
    if kind == CONTEXTS:
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)  # pyarrow 26 casts list views wrongly
        return bool(is_list) and is_settled(found.value_type, TEXT)
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def _parse_each(
    cells: Any, field: pa.Field, parse: Callable[[object], Any], row_name: Callable[[int], str]
) -> pa.Array:
    parsed, problems = [], []
    for position, cell in enumerate(cells.to_pylist() if isinstance(cells, pa.Array | pa.ChunkedArray) else cells):
        try:
            parsed.append(parse(cell))
        except Exception as error:  # noqa: BLE001 - a document's own code may raise anything
            problems.append(f"{row_name(position)}: {error}")
    if problems:
        more = [f"and {len(problems) - 3} more of {len(cells)} rows"] if len(problems) > 3 else []
        raise CellError("\n  ".join([f"column {field.name!r} can't be read:", *problems[:3], *more]))
    return pa.array(parsed, type=field.type)


def _blank_to_null(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):  # what pyarrow makes of too much for one
        raise pa.ArrowCapacityError(f"{len(column)} cells hold more than 2 GiB of text.")
    if column.type == CONTEXTS:
        frame = LongFrame.explode(column)
        items = _blank_to_null(frame.items)
        return column if items is frame.items else frame.regroup(items, frame.is_null)
    if column.type == TEXT:
        first = pc.utf8_slice_codeunits(column, 0, 1)
        if pc.any(pc.or_(pc.equal(first, ""), pc.utf8_is_space(first))).as_py():
            is_blank = pc.equal(pc.utf8_trim_whitespace(column), "").fill_null(False)
            return pc.replace_with_mask(column, is_blank, pa.scalar(None, TEXT))
    return column

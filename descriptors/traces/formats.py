"""Files of each format as record batches, or as rows: Parquet, Arrow, JSON Lines, JSON and CSV, in bounded memory."""

import csv
import json
import re
from codecs import BOM_UTF8 as BOM
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from rag_descriptors.errors import FormatError, OptionError
from rag_descriptors.texts import json_value
from rag_descriptors.traces.json_rows import Rows, json_rows
from rag_descriptors.traces.paths import opened

__all__ = [
    "CSV",
    "FORMATS",
    "JSON",
    "MIXED",
    "ROWS_AT_ONCE",
    "as_mixed",
    "format_of",
    "is_mixed",
    "keys_agree",
    "parse_mixed",
    "told",
    "united",
]

ROWS_AT_ONCE = 4096
CSV_BLOCK_BYTES = 32 * 1024 * 1024
MIXED = {b"holds": b"json"}
HEADER_BYTES = 1024 * 1024
OTHER_DELIMITERS = (";", "\t", "|")
WRONG_ROW = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


@dataclass(frozen=True)
class Format:
    """How files of one ending are read: their columns; their rows in these columns; their rows as Python objects."""

    schema: Callable[[Path], pa.Schema]
    batches: Callable[[Path, pa.Schema], Iterator[pa.RecordBatch]]
    rows: Callable[[Path], Rows]


def format_of(file: Path, wrapped: str | None = None) -> Format:
    """Return how a file is read.

    Args:
        file: The file.
        wrapped: The key of an object in each row that holds the columns; what stands beside it is kept.

    Raises:
        OptionError: Its ending is unknown.
    """
    if file.suffix.lower() not in FORMATS:
        raise OptionError(f"input {str(file)!r}: the ending {file.suffix!r} is unknown. Allowed: {', '.join(FORMATS)}.")
    found = FORMATS[file.suffix.lower()]
    return found if wrapped is None else _by_rows(partial(_unwrapped, found.rows, wrapped))


def _unwrapped(rows_of: Callable[[Path], Rows], key: str, file: Path) -> Rows:
    with closing(rows_of(file)) as rows:
        for row in rows:
            held = opened(row.get(key))
            beside = {name: value for name, value in row.items() if name != key}
            yield {**beside, **held} if isinstance(held, dict) else row


def _table_rows(batches: Callable[[Path, pa.Schema], Iterator[pa.RecordBatch]], file: Path) -> Rows:
    for batch in batches(file, pa.schema([])):
        for name in batch.schema.names:
            first, *others = (batch.column(place) for place in batch.schema.get_all_field_indices(name))
            if not all(first.equals(other) for other in others):  # an index may have been written beside its column
                raise FormatError(f"{file}: two columns are called {name!r} and differ. Rename or drop one.")
        with told(file):
            rows = batch.to_pylist(maps_as_pydicts="lossy")
        yield from rows


def _parquet_schema(file: Path) -> pa.Schema:
    with told(file), pa.parquet.ParquetFile(file) as parquet:
        return parquet.schema_arrow


def _parquet_batches(file: Path, _: pa.Schema) -> Iterator[pa.RecordBatch]:
    with told(file), pa.parquet.ParquetFile(file) as parquet:
        for group in range(parquet.num_row_groups):  # of one after the other the reader keeps nothing
            yield from parquet.iter_batches(ROWS_AT_ONCE, [group])


def _arrow_schema(file: Path) -> pa.Schema:
    with told(file), _open_arrow(file) as reader:
        return reader.schema


def _arrow_batches(file: Path, _: pa.Schema) -> Iterator[pa.RecordBatch]:
    with told(file), _open_arrow(file) as reader:
        is_stream = isinstance(reader, pa.RecordBatchStreamReader)
        for batch in reader if is_stream else map(reader.get_batch, range(reader.num_record_batches)):
            yield from (batch.slice(start, ROWS_AT_ONCE) for start in range(0, batch.num_rows, ROWS_AT_ONCE))


def _open_arrow(file: Path) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    try:
        return pa.ipc.open_file(pa.memory_map(str(file)))
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(pa.memory_map(str(file)))


def _csv_schema(file: Path) -> pa.Schema:
    _check_header(file)
    with told(file), _told_of_csv(file), _open_csv(file, {}) as reader:
        return pa.schema([(name, pa.string()) for name in reader.schema.names])


def _check_header(file: Path) -> None:
    """Make sure that a CSV is UTF-8 with commas, as far as its first line tells."""
    with file.open("rb") as content:
        line = content.readline(HEADER_BYTES)
    if line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise FormatError(f"{file} is UTF-16. {_to_utf_8(file, 'UTF-16')}")
    names: list[str] = []
    with suppress(csv.Error):  # what can't be told from the first line, Arrow tells
        names = next(csv.reader(line.removeprefix(BOM).decode("utf-8", "replace").splitlines()[:1]), [])
    between = next((mark for mark in OTHER_DELIMITERS if len(names) == 1 and mark in names[0]), None)
    if between:
        raise FormatError(
            f"{file}: the header is one name, {names[0].strip()!r}. Columns stand between commas, not between "
            f"{between!r}: save it so."
        )


def _to_utf_8(file: Path, encoding: str) -> str:
    return f"Save it as CSV UTF-8, or convert it: iconv -f {encoding} -t UTF-8 {file.name} > utf8.csv"


@contextmanager
def _told_of_csv(file: Path) -> Iterator[None]:
    """Say in plain words what Arrow says of a CSV."""
    try:
        yield
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
            raise FormatError(f"{file} is no UTF-8. {_to_utf_8(file, 'WINDOWS-1252')}") from error
        found = WRONG_ROW.search(str(error))
        if found is None:
            raise
        place = f", row {int(found[1]) - 2}" if found[1] else ""
        raise FormatError(
            f"{file}{place}: {found[3]} cells where the header has {found[2]}. Quote cells that hold commas or line "
            "breaks; a cell that is missing is an empty one between commas."
        ) from error


def _csv_batches(file: Path, _: pa.Schema) -> Iterator[pa.RecordBatch]:
    texts = _csv_schema(file)
    kinds = {name: pa.string() for name in texts.names}
    with told(file), _told_of_csv(file), _open_csv(file, kinds) as reader:
        last = texts.names[-1]
        for batch in reader:
            last = batch[-1][-1].as_py() if batch.num_rows else last
            yield from (batch.slice(start, ROWS_AT_ONCE) for start in range(0, batch.num_rows, ROWS_AT_ONCE))
    if _is_left_open(file, last):
        raise FormatError(
            f"{file}, the last row: a quote opens a cell of {len(last)} characters and is never closed. "
            "Close it, or double the quotes inside of cells."
        )


def _is_left_open(file: Path, last: str) -> bool:
    """Return whether the file ends inside of quotes: with a quote that opens a cell, and all of the last cell."""
    tail = b'"' + last.replace('"', '""').encode()
    with file.open("rb") as content:
        content.seek(max(file.stat().st_size - len(tail) - 1, 0))
        before, found = content.read(1), content.read()
    return found == tail and before in b",\r\n"


def _open_csv(file: Path, types: Mapping[str, pa.DataType]) -> pa.csv.CSVStreamingReader:
    return pa.csv.open_csv(
        file,
        read_options=pa.csv.ReadOptions(block_size=CSV_BLOCK_BYTES, use_threads=False),  # with threads no row is told
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=types),
    )


def _by_rows(rows: Callable[[Path], Rows]) -> Format:
    """Return how files are read of whose columns only the rows tell.

    A column whose values are of several kinds holds them as JSON, and is marked so.
    """
    return Format(partial(_rows_schema, rows), partial(_rows_batches, rows), rows)


def _rows_schema(rows: Callable[[Path], Rows], file: Path) -> pa.Schema:
    kinds: dict[str, pa.DataType | None] = {}
    for chunk in _chunks(rows, file):
        for name in dict.fromkeys(chain.from_iterable(chunk)):
            kinds[name] = _common(kinds.get(name, pa.null()), _infer([row.get(name) for row in chunk]))
    return pa.schema(
        pa.field(name, pa.string(), metadata=MIXED) if kind is None else (name, kind) for name, kind in kinds.items()
    )


def _rows_batches(rows: Callable[[Path], Rows], file: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for chunk in _chunks(rows, file):
        with told(file):
            arrays = [_array([row.get(field.name) for row in chunk], field) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _chunks(rows: Callable[[Path], Rows], file: Path) -> Iterator[list[dict[str, Any]]]:
    with closing(rows(file)) as found:
        while chunk := list(islice(found, ROWS_AT_ONCE)):
            yield chunk


def _infer(values: list[Any]) -> pa.DataType | None:
    """Return the type that all values have; None if there is none, or if it would give objects keys they don't have."""
    try:
        kind = pa.array(values).type
    except (pa.ArrowException, OverflowError):
        return None
    if "struct<" not in str(kind):
        return kind
    return kind if "struct<>" not in str(kind) and all(_has_keys(value, kind) for value in values) else None


def _has_keys(value: Any, kind: pa.DataType) -> bool:
    """Return whether all objects in a value have the keys that the type has."""
    if value is None:
        return True
    if pa.types.is_list(kind):
        return all(_has_keys(item, kind.value_type) for item in value)
    if pa.types.is_struct(kind):
        return len(value) == kind.num_fields and all(_has_keys(value[field.name], field.type) for field in kind)
    return True


def _common(left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | None:
    if left is None or right is None or not keys_agree(left, right):
        return None
    return united(left, right)


def united(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that both go into; None if there is none."""
    try:
        schemas = [pa.schema([("", kind)]) for kind in (left, right)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def keys_agree(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether objects of two types have the same keys, at every depth where both have objects."""
    if pa.types.is_list(left) and pa.types.is_list(right):
        return keys_agree(left.value_type, right.value_type)
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        fields = {field.name: field.type for field in right}
        names = {field.name for field in left}
        return names == fields.keys() and all(keys_agree(field.type, fields[field.name]) for field in left)
    return True


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    return as_mixed(values) if is_mixed(field) else pa.array(values, field.type)


def as_mixed(values: Iterable[Any]) -> pa.StringArray:
    """Return values of several kinds as a column of strict JSON."""
    cells = map(json_value, values)
    return pa.array([None if cell is None else json.dumps(cell, ensure_ascii=False) for cell in cells], pa.string())


def is_mixed(field: pa.Field) -> bool:
    """Return whether a column holds values of several kinds, as JSON."""
    return (field.metadata or {}).items() >= MIXED.items()


def parse_mixed(texts: pa.StringArray) -> list[Any]:
    """Return the values of a column that holds them as JSON; a text of another file's, which is no JSON, as it is."""
    return [None if text is None else _parsed(text) for text in texts.to_pylist()]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@contextmanager
def told(file: Path) -> Iterator[None]:
    """Name the file in what Arrow says of it; what the system says names it already."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FormatError(f"{file} can't be read as {file.suffix}: {error}") from error


PARQUET = Format(_parquet_schema, _parquet_batches, partial(_table_rows, _parquet_batches))
ARROW = Format(_arrow_schema, _arrow_batches, partial(_table_rows, _arrow_batches))
JSON = _by_rows(json_rows)
CSV = Format(_csv_schema, _csv_batches, partial(_table_rows, _csv_batches))
FORMATS = {
    ".parquet": PARQUET,
    ".arrow": ARROW,
    ".feather": ARROW,
    ".jsonl": JSON,
    ".json": JSON,
    ".csv": CSV,
}

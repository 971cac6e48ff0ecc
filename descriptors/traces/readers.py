"""Trace files as record batches: Parquet, Arrow, JSON Lines, JSON and CSV, one after the other, in bounded memory."""

import json
import re
from codecs import BOM_UTF8 as BOM
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from rag_descriptors.errors import FormatError, OptionError
from rag_descriptors.traces.contexts import scrub

__all__ = ["Traces", "is_mixed", "open_traces", "parse_mixed"]

ROWS_AT_ONCE = 4096
CSV_BLOCK_BYTES = 32 * 1024 * 1024
MIXED = {b"holds": b"json"}
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")


@dataclass(frozen=True)
class Traces:
    """Rows of one or more files.

    Attributes:
        files: The files, in the order in which they are read.
        schema: The columns of all files together; a file without one of them has nulls there.
    """

    files: Sequence[Path]
    schema: pa.Schema

    def batches(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows, or the first `limit`, in batches that have the columns of `schema`."""
        done = 0
        for file in self.files:
            for batch in _reader(file).batches(file, self.schema):
                wanted = batch if limit is None else batch.slice(0, limit - done)
                done += wanted.num_rows
                if wanted.num_rows:
                    yield _conform(file, wanted, self.schema)
                if done == limit:
                    return


def open_traces(inputs: Sequence[str]) -> Traces:
    """Return the rows of files, of all trace files in folders, and of globs.

    Raises:
        OptionError: An input names no file, or a file of an unknown format.
        FormatError: A file is not what its ending says.
    """
    files = [file for name in inputs for file in _expand(name)]
    schemas = [_reader(file).schema(file) for file in files]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise FormatError(f"the columns of {', '.join(map(str, files))} don't go together: {error}") from error
    return Traces(files, pa.schema([field.with_nullable(True) for field in schema]))


@dataclass(frozen=True)
class Format:
    """How files of one ending are read: their columns, and their rows in these columns."""

    schema: Callable[[Path], pa.Schema]
    batches: Callable[[Path, pa.Schema], Iterator[pa.RecordBatch]]


def _expand(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.suffix.lower() in FORMATS]
    else:
        found = [path] if path.is_file() else [*map(Path, glob(name, recursive=True))]  # noqa: PTH207 - Path.glob takes no absolute pattern
    files = sorted(file for file in found if file.is_file())
    if not files:
        raise OptionError(f"input {name!r}: there is no such file, and no folder or pattern that holds any.")
    return files


def _reader(file: Path) -> Format:
    if file.suffix.lower() not in FORMATS:
        raise OptionError(f"input {str(file)!r}: the ending {file.suffix!r} is unknown. Allowed: {', '.join(FORMATS)}.")
    return FORMATS[file.suffix.lower()]


def _conform(file: Path, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns of the schema, nulls where it has none."""
    names = set(batch.schema.names)
    with _told(file):
        arrays = [
            batch[field.name].cast(field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _parquet_schema(file: Path) -> pa.Schema:
    with _told(file), pa.parquet.ParquetFile(file) as parquet:
        return parquet.schema_arrow


def _parquet_batches(file: Path, _: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _told(file), pa.parquet.ParquetFile(file) as parquet:
        yield from parquet.iter_batches(ROWS_AT_ONCE)


def _arrow_schema(file: Path) -> pa.Schema:
    with _told(file), _open_arrow(file) as reader:
        return reader.schema


def _arrow_batches(file: Path, _: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _told(file), _open_arrow(file) as reader:
        is_stream = isinstance(reader, pa.RecordBatchStreamReader)
        for batch in reader if is_stream else map(reader.get_batch, range(reader.num_record_batches)):
            yield from (batch.slice(start, ROWS_AT_ONCE) for start in range(0, batch.num_rows, ROWS_AT_ONCE))


def _open_arrow(file: Path) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    try:
        return pa.ipc.open_file(pa.memory_map(str(file)))
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(pa.memory_map(str(file)))


def _csv_schema(file: Path) -> pa.Schema:
    with _told(file), _open_csv(file, {}) as reader:
        return pa.schema([(name, pa.string()) for name in reader.schema.names])


def _csv_batches(file: Path, _: pa.Schema) -> Iterator[pa.RecordBatch]:
    texts = _csv_schema(file)
    with _told(file), _open_csv(file, {name: pa.string() for name in texts.names}) as reader:
        for batch in reader:
            yield from (batch.slice(start, ROWS_AT_ONCE) for start in range(0, batch.num_rows, ROWS_AT_ONCE))


def _open_csv(file: Path, types: Mapping[str, pa.DataType]) -> pa.csv.CSVStreamingReader:
    return pa.csv.open_csv(
        file,
        read_options=pa.csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=types),
    )


def _json_schema(file: Path) -> pa.Schema:
    """Return the columns of a JSON file; one whose values are of several kinds holds them as JSON, and is marked so."""
    kinds: dict[str, pa.DataType | None] = {}
    for rows in _json_rows(file):
        for name in dict.fromkeys(chain.from_iterable(rows)):
            kinds[name] = _common(kinds.get(name, pa.null()), _infer([row.get(name) for row in rows]))
    return pa.schema(
        pa.field(name, pa.string(), metadata=MIXED) if kind is None else (name, kind) for name, kind in kinds.items()
    )


def _json_batches(file: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for rows in _json_rows(file):
        with _told(file):
            arrays = [_json_array([row.get(field.name) for row in rows], field) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _json_rows(file: Path) -> Iterator[list[dict[str, Any]]]:
    with file.open("rb") as opened:
        rows = _parse_rows(file, opened)
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            yield chunk


def _parse_rows(file: Path, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects of JSON Lines, or of one JSON array."""
    is_first = True
    for number, line in enumerate(lines, start=1):
        if not line.removeprefix(BOM).strip():
            continue
        if is_first and line.removeprefix(BOM).lstrip().startswith(b"["):
            yield from _parse_array(file, b"".join([line, *lines]))
        else:
            yield _object(file, f"line {number}", _loads(file, f"line {number}", line))
        is_first = False


def _parse_array(file: Path, text: bytes) -> Iterator[dict[str, Any]]:
    for position, row in enumerate(_loads(file, "the array", text)):
        yield _object(file, f"item {position}", row)


def _loads(file: Path, place: str, text: bytes) -> Any:
    try:
        value = json.loads(text.removeprefix(BOM))
        return scrub(value) if SURROGATE.search(text) else value
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{file}, {place}: no JSON: {error}. One object a line, or one array, is expected."
        ) from error


def _object(file: Path, place: str, row: object) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise FormatError(f"{file}, {place}: found a {type(row).__name__} where an object (a row) is expected.")
    return row


def _infer(values: list[Any]) -> pa.DataType | None:
    """Return the type that all values have; None if there is none."""
    try:
        kind = pa.array(values).type
    except (pa.ArrowException, OverflowError):
        return None
    return None if "struct<>" in str(kind) else kind


def _common(left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | None:
    if left is None or right is None:
        return None
    try:
        schemas = [pa.schema([("", kind)]) for kind in (left, right)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        return None


def _json_array(values: list[Any], field: pa.Field) -> pa.Array:
    if is_mixed(field):
        values = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    return pa.array(values, field.type)


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
def _told(file: Path) -> Iterator[None]:
    """Name the file in what Arrow says of it; what the system says names it already."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FormatError(f"{file} can't be read as {file.suffix}: {error}") from error


FORMATS = {
    ".parquet": Format(_parquet_schema, _parquet_batches),
    ".arrow": Format(_arrow_schema, _arrow_batches),
    ".feather": Format(_arrow_schema, _arrow_batches),
    ".jsonl": Format(_json_schema, _json_batches),
    ".json": Format(_json_schema, _json_batches),
    ".csv": Format(_csv_schema, _csv_batches),
}

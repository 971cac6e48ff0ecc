"""Scored rows as files: Parquet, Arrow, JSON Lines, JSON, CSV; a file has its name only when it is whole."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from rag_descriptors.errors import FormatError, OptionError, suggest
from rag_descriptors.jobs.places import check_place, replacing, told
from rag_descriptors.texts import json_value, to_json
from rag_descriptors.traces.readers import is_mixed, parse_mixed

__all__ = ["check_places", "n_bytes", "open_output"]

TEXTS = (pa.string(), pa.large_string())
GROUP_ROWS = 65_536
GROUP_BYTES = 64 * 1024 * 1024
Write = Callable[[pa.RecordBatch], object]


def check_places(
    inputs: Iterable[Path], *, output: Path | None = None, summary: Path | None = None, cache: Path | None = None
) -> None:
    """Make sure that what is to be written can be, and stands over no input, nor over another thing that is written.

    Raises:
        OptionError: It can't, or it would.
    """
    if output is not None:
        _check_output(output)
    if summary is not None:
        check_place("summary", summary)
    taken = dict.fromkeys(map(_identity, inputs), "one of the inputs")
    for option, path in {"output": output, "summary": summary, "cache": cache}.items():
        if path is not None and _identity(path) in taken:
            raise OptionError(f"{option} {str(path)!r} is {taken[_identity(path)]}. Give another name.")
        if path is not None:
            taken[_identity(path)] = f"the {option} too"


def _identity(path: Path) -> object:
    """Return what is the same for all names of one file."""
    try:
        found = path.stat()
    except OSError:  # it is still to be made
        return path.resolve()
    return found.st_dev, found.st_ino


def _check_output(path: Path) -> None:
    if path.suffix.lower() not in WRITERS:
        raise OptionError(
            f"output {str(path)!r}: the ending {path.suffix!r} is unknown.{suggest(path.suffix, WRITERS)}"
        )
    check_place("output", path)


@contextmanager
def open_output(path: Path, schema: pa.Schema) -> Iterator[Write]:
    """Yield a function that writes batches; the file takes its name when the block ends without an error.

    Raises:
        FormatError: The format has no form for a column; the function raises it for a value.
    """
    stack = ExitStack()

    def write_told(batch: pa.RecordBatch) -> None:
        with _told(path):
            write(batch)

    with replacing(path) as file:
        try:
            with _told(path):
                write = stack.enter_context(WRITERS[path.suffix.lower()](file, schema))
            yield write_told
            with _told(path):
                stack.close()
        except BaseException as error:
            with suppress(Exception):  # what fails in closing a file that is given up says less than what came first
                stack.__exit__(type(error), error, error.__traceback__)
            raise


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Name the file in what the system says of it, and in what Arrow and Python say of a value."""
    try:
        with told(path):
            yield
    except (pa.ArrowException, OverflowError) as error:
        raise FormatError(
            f"{path} can't be written as {path.suffix}: {error}. Give it another ending, or convert the column."
        ) from error


@contextmanager
def _parquet(file: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    """Batches are gathered into row groups: each group costs a reader a seek, and the footer an entry a column."""
    held: list[pa.RecordBatch] = []
    rows = size = 0

    def write(batch: pa.RecordBatch) -> None:
        nonlocal rows, size
        held.append(batch)
        rows, size = rows + batch.num_rows, size + n_bytes(batch)
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            flush()
            rows = size = 0

    def flush() -> None:
        writer.write_table(pa.Table.from_batches(held, schema))
        held.clear()

    with pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        yield write
        if held:
            flush()


def n_bytes(batch: pa.RecordBatch) -> int:
    """Return how large a batch is."""
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:  # an older Arrow can't tell where the texts of views lie
        return int(batch.get_total_buffer_size())


@contextmanager
def _arrow(file: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    """Columns encoded by a dictionary are decoded: a file takes one dictionary a column, batches may bring several."""
    plain = pa.schema([field.with_type(_decoded(field.type)) for field in schema], metadata=schema.metadata)
    with pa.ipc.new_file(file, plain) as writer:
        yield lambda batch: writer.write_batch(batch.cast(plain))


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@contextmanager
def _csv(file: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    """Cells that hold lists or objects are JSON."""
    flat = pa.schema([pa.field(field.name, _flat_type(field.type)) for field in schema])

    def write(batch: pa.RecordBatch) -> None:
        arrays = [_flat(array, kind) for array, kind in zip(batch.columns, flat.types, strict=True)]
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=flat))

    with pa.csv.CSVWriter(file, flat) as writer:
        yield write


def _flat_type(kind: pa.DataType) -> pa.DataType:
    kind = _decoded(kind)
    is_number = pa.types.is_primitive(kind) and not pa.types.is_interval(kind)
    return kind if is_number or pa.types.is_decimal(kind) or kind in TEXTS else pa.string()


def _flat(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind != pa.string() or pa.types.is_string(array.type):
        return array.cast(kind)
    return pa.array([None if cell is None else _cell(json_value(cell)) for cell in array.to_pylist()], kind)


def _cell(value: object) -> str:
    return value if isinstance(value, str) else to_json(value)


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = [
        parse_mixed(column) if is_mixed(field) else column.to_pylist()
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True))


@contextmanager
def _json_lines(file: IO[bytes], _: pa.Schema) -> Iterator[Write]:
    def write(batch: pa.RecordBatch) -> None:
        file.writelines(f"{to_json(row)}\n".encode() for row in _rows(batch))

    yield write


@contextmanager
def _json(file: IO[bytes], _: pa.Schema) -> Iterator[Write]:
    before = "[\n"

    def write(batch: pa.RecordBatch) -> None:
        nonlocal before
        for row in _rows(batch):
            file.write(f"{before}{to_json(row)}".encode())
            before = ",\n"

    yield write
    file.write(b"[]\n" if before == "[\n" else b"\n]\n")


WRITERS: dict[str, Callable[[IO[bytes], pa.Schema], AbstractContextManager[Write]]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".jsonl": _json_lines,
    ".json": _json,
    ".csv": _csv,
}

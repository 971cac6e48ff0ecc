"""Scored rows as files: Parquet, Arrow, JSON Lines, JSON, CSV; a file has its name only when it is whole."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from glob import escape
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from rag_descriptors.errors import FormatError, OptionError, suggest
from rag_descriptors.traces.readers import is_mixed, parse_mixed

__all__ = ["check_output", "check_place", "open_output", "replacing", "to_json"]

TEXTS = (pa.string(), pa.large_string())
SECONDS_A_DAY = 86_400
Write = Callable[[pa.RecordBatch], object]


def check_output(path: Path) -> None:
    """Make sure that a file of this name can be written.

    Raises:
        OptionError: Its ending is unknown, or its folder is not there.
    """
    if path.suffix.lower() not in WRITERS:
        raise OptionError(
            f"output {str(path)!r}: the ending {path.suffix!r} is unknown.{suggest(path.suffix, WRITERS)}"
        )
    check_place("output", path)


def check_place(option: str, path: Path) -> None:
    """Make sure that there can be a file of this name.

    Raises:
        OptionError: Its folder is not there, or it is a folder itself.
    """
    if path.is_dir():
        raise OptionError(f"{option} {str(path)!r} is a folder. Give the name of a file.")
    folder = _target(path).parent
    if not folder.is_dir():
        raise OptionError(f"{option} {str(path)!r}: the folder {str(folder)!r} is not there. Make it first.")


@contextmanager
def open_output(path: Path, schema: pa.Schema) -> Iterator[Write]:
    """Yield a function that writes batches; the file takes its name when the block ends without an error.

    Raises:
        FormatError: The format has no form for a column; the function raises it for a value.
    """
    with replacing(path) as file, ExitStack() as stack:
        with _told(path):
            write = stack.enter_context(WRITERS[path.suffix.lower()](file, schema))

        def write_told(batch: pa.RecordBatch) -> None:
            with _told(path):
                write(batch)

        yield write_told
        with _told(path):
            stack.close()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Name the file in what the system says of it, and in what Arrow and Python say of a value."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror or error}; nothing was written", str(path)) from error
    except (pa.ArrowException, OverflowError) as error:
        raise FormatError(
            f"{path} can't be written as {path.suffix}: {error}. Give it another ending, or convert the column."
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file beside `path` that replaces it when the block ends without an error.

    Of two processes that write to one name, each has a temporary file of its own, and the last to end has the name. The
    target of a link is replaced, not the link. A temporary file that a killed process left behind is removed once
    nothing was written to it for a day.
    """
    path = _target(path)
    for part in path.parent.glob(f".{escape(path.name)}.*.part"):
        if time.time() - part.stat().st_mtime > SECONDS_A_DAY:
            part.unlink(missing_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False) as file:
        try:
            yield file
            with _told(path):
                file.flush()
                os.fsync(file.fileno())
            Path(file.name).chmod(0o666 & ~_umask())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _target(path: Path) -> Path:
    return path.resolve() if path.is_symlink() else path


def to_json(value: object) -> str:
    """Return strict JSON: nan and infinity as null, what JSON has no form for as text."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    return value if isinstance(value, str | int | None) else str(value)


@contextmanager
def _parquet(file: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    with pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        yield writer.write_batch


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
    return pa.array([None if cell is None else _cell(_plain(cell)) for cell in array.to_pylist()], kind)


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


WRITERS: dict[str, Callable[[IO[bytes], pa.Schema], AbstractContextManager[Write]]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".jsonl": _json_lines,
    ".json": _json,
    ".csv": _csv,
}

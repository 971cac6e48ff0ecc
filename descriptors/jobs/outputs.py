"""Scored rows as files: Parquet, Arrow, JSON Lines, JSON, CSV; a file has its name only when it is whole."""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from rag_descriptors.errors import OptionError, suggest

__all__ = ["check_output", "open_output", "replacing", "to_json"]

Write = Callable[[pa.RecordBatch], object]


def check_output(path: Path) -> None:
    """Make sure that a file of this name can be written.

    Raises:
        OptionError: Its ending is unknown, or its folder is not there.
    """
    if path.suffix not in WRITERS:
        raise OptionError(
            f"output {str(path)!r}: the ending {path.suffix!r} is unknown.{suggest(path.suffix, WRITERS)}"
        )
    if not path.parent.is_dir():
        raise OptionError(f"output {str(path)!r}: the folder {str(path.parent)!r} is not there. Make it first.")


@contextmanager
def open_output(path: Path, schema: pa.Schema) -> Iterator[Write]:
    """Yield a function that writes batches; the file takes its name when the block ends without an error."""
    with replacing(path) as file, WRITERS[path.suffix](file, schema) as write:
        yield write


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file beside `path` that replaces it when the block ends without an error."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o666 & ~_umask())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def to_json(value: object) -> str:
    """Return strict JSON: nan and infinity as null, what JSON has no form for as text."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


@contextmanager
def _parquet(file: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    with pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        yield writer.write_batch


@contextmanager
def _arrow(file: IO[bytes], schema: pa.Schema) -> Iterator[Write]:
    with pa.ipc.new_file(file, schema) as writer:
        yield writer.write_batch


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
    return pa.string() if pa.types.is_nested(kind) or pa.types.is_null(kind) else kind


def _flat(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_nested(array.type):
        return array.cast(kind)
    return pa.array([None if cell is None else to_json(cell) for cell in array.to_pylist()], kind)


@contextmanager
def _json_lines(file: IO[bytes], _: pa.Schema) -> Iterator[Write]:
    def write(batch: pa.RecordBatch) -> None:
        file.writelines(f"{to_json(row)}\n".encode() for row in batch.to_pylist())

    yield write


@contextmanager
def _json(file: IO[bytes], _: pa.Schema) -> Iterator[Write]:
    before = "[\n"

    def write(batch: pa.RecordBatch) -> None:
        nonlocal before
        for row in batch.to_pylist():
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

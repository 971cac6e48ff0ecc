"""Trace files as record batches of rows, one file after the other, in bounded memory; other tools' exports as well."""

import os
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from glob import glob
from itertools import islice
from pathlib import Path
from typing import NoReturn, cast, get_args

import pyarrow as pa

from rag_descriptors.errors import FormatError, OptionError
from rag_descriptors.options import one_of, together
from rag_descriptors.traces.formats import FORMATS, ROWS_AT_ONCE, format_of, is_mixed, parse_mixed
from rag_descriptors.traces.pivot import ROW_COLUMNS, RowsOf, pivot
from rag_descriptors.traces.presets import PRESETS, Form, SpanForm
from rag_descriptors.traces.recognition import forms_of, recognised
from rag_descriptors.traces.spans import Span, read_spans
from rag_descriptors.traces.tables import (
    Cells,
    RowName,
    Source,
    list_cells,
    named,
    numbered,
    read_tables,
    unified,
)

__all__ = ["Traces", "is_mixed", "open_traces", "parse_mixed"]

HIDDEN = (".", "_")  # Spark and Arrow leave such out as well: logs, markers and files that are being written


@dataclass(frozen=True)
class Traces:
    """Rows of one or more files.

    Attributes:
        files: The files, in the order in which they are read.
        schema: The columns of all files together; a file without one of them has nulls there.
        sources: How each file is read.
        cells: The columns whose cells are read with the file, by our name.
        preset: The preset, the one that was found for `"auto"`; None without one.
        rows: What one row of a span export is.
        unused: What could not be used, as counts, such as `{"spans without a trace id": 3}`. Files that have one row a
            trace have none. Filled while `batches` is read, complete when it has come to its end.
    """

    files: Sequence[Path]
    schema: pa.Schema
    sources: Sequence[Source]
    cells: Mapping[str, Cells] = field(default_factory=dict)
    preset: str | None = None
    rows: RowsOf = "trace"
    unused: Counter[str] = field(default_factory=Counter, compare=False)

    def batches(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows, or the first `limit`, in batches that have the columns of `schema`.

        Raises:
            FormatError: A file is damaged, or is not what its ending says.
            CellError: Contexts can't be split, or are lists that can't be read.
            OSError: A file can't be read, or there is no room for the spans that wait for the rest of their trace.
        """
        with closing(self.named_batches(limit)) as batches:
            for batch, _ in batches:
                yield batch

    def named_batches(self, limit: int | None = None) -> Generator[tuple[pa.RecordBatch, RowName], None, None]:
        """Yield what `batches` does, each with what errors call its rows."""
        self.unused.clear()
        is_spans = any(isinstance(source.form, SpanForm) for source in self.sources)
        found = _pivoted(self, limit) if is_spans else read_tables(self.sources, self.schema, self.cells)
        done = 0
        with closing(found) as batches:
            for batch, row_name in batches:
                wanted = batch if limit is None else batch.slice(0, limit - done)
                done += wanted.num_rows
                if wanted.num_rows:
                    yield wanted, row_name
                if done == limit:
                    return


def open_traces(
    inputs: Sequence[str],
    preset: str | None = None,
    *,
    rows: RowsOf = "trace",
    separator: str | None = None,
    contexts: Sequence[str] = (),
) -> Traces:
    """Return the rows of files, of all trace files in folders, and of globs; a file that is named twice is read once.

    In folders, files and folders whose names begin with `.` or `_` are left out.

    Files with one row a trace keep all their columns; those that the preset knows take our names: `trace_id`,
    `span_id`, `question`, `contexts`, `context_ids`, `response`, `reference`, `reference_contexts`.

    Span exports become the columns `trace_id`, `span_id` (of the root, or of the retriever), `question`, `contexts`,
    `context_ids`, `context_scores`, `response`, `reference` and `source` (the file): all of them always, null where
    nothing is known. Traces stand in the order in which they appear first, and the contexts of several retrievers one
    after the other in the order of time.

    Args:
        inputs: Names of files, folders and globs.
        preset: Which tool wrote the files, a key of `PRESETS`; `"auto"` finds it out; None takes columns as they are.
        rows: What becomes a row of a span export: a `"trace"`, or each `"retriever"`, with its own query as question.
        separator: What stands between the contexts in a cell that is one plain text, such as a blank line; an empty one
            switches off the separator that a preset has. Cells that hold a list are never split.
        contexts: The columns of contexts, by our names; without them those that the preset knows, or the one that has
            a known name.

    Raises:
        OptionError: An input names no file, or a file of an unknown format; an option is unknown or does not go with
            the files; a preset does not fit; none fits, or several.
        FormatError: A file is not what its ending says, or may not be read.
    """
    together([*one_of("rows", rows, get_args(RowsOf)), *one_of("preset", preset, (None, "auto", *PRESETS))])
    files = _files(inputs)
    preset = recognised(files) if preset == "auto" else preset
    forms = forms_of(files, preset)
    if any(isinstance(form, SpanForm) for form in forms):
        return _open_spans(files, forms, preset, rows, separator)
    if rows != "trace":
        raise OptionError(f"rows: {rows!r} is for span exports, and the files have one row a trace. Leave it out.")
    unnamed = [Source(file, form) for file, form in zip(files, forms, strict=True)]
    schemas = [format_of(source.file, source.wrapped).schema(source.file) for source in unnamed]
    sources = [named(file, form, schema.names) for file, form, schema in zip(files, forms, schemas, strict=True)]
    found = unified(sources, schemas)
    cells = list_cells(sources, found, separator, contexts)
    schema = pa.schema([pa.field(item.name, cells[item.name].kind) if item.name in cells else item for item in found])
    return Traces(files, schema, sources, cells, preset)


def _open_spans(
    files: list[Path], forms: list[Form | None], preset: str | None, rows: RowsOf, separator: str | None
) -> Traces:
    kinds: dict[str, list[str]] = {}
    for file, form in zip(files, forms, strict=True):
        kinds.setdefault(_row_of(form), []).append(str(file))
    if len(kinds) > 1:  # of the same traces, they would give the same contexts twice
        told = "; ".join(f"one row a {kind} in {', '.join(names)}" for kind, names in kinds.items())
        raise OptionError(f"preset {preset!r}: {told}. Read them apart.")
    if separator:
        raise OptionError(f"separator: {separator!r} is for files with one row a trace. Leave it out.")
    sources = [Source(file, form) for file, form in zip(files, forms, strict=True)]
    return Traces(files, ROW_COLUMNS, sources, preset=preset, rows=rows)


def _row_of(form: Form | None) -> str:
    if not isinstance(form, SpanForm):
        return "trace"
    return "document" if form.position else "span"


def _files(inputs: Sequence[str]) -> list[Path]:
    """Return all files that are named, each once, and each one that may be read."""
    found: dict[Path, Path] = {}
    for file in (file for name in inputs for file in _expand(name)):
        found.setdefault(file.resolve(), file)
        with _permitted(file), file.open("rb"):
            pass
    return [*found.values()]


def _expand(name: str) -> list[Path]:
    path = Path(name)
    with _permitted(path):
        if path.is_dir():
            found = [*_files_in(path)]
        else:
            found = [path] if path.is_file() else [*map(Path, glob(name, recursive=True))]  # noqa: PTH207 - Path.glob takes no absolute pattern
        files = sorted(file for file in found if file.is_file())
        if not files:
            os.scandir(next(folder for folder in (path, *path.parents, Path()) if folder.is_dir())).close()
    if not files:
        raise OptionError(f"input {name!r}: there is no such file, and no folder or pattern that holds any.")
    return files


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the trace files of a folder and of those in it, but for what is hidden by its name."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        paths = (Path(place, name) for name in names if not name.startswith(HIDDEN))
        yield from (path for path in paths if path.suffix.lower() in FORMATS)


@contextmanager
def _permitted(path: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise FormatError(
            f"{error.filename or path} can't be read: {error.strerror}. Let yourself read it (chmod), or leave it out."
        ) from error


def _pivoted(traces: Traces, limit: int | None) -> Generator[tuple[pa.RecordBatch, RowName], None, None]:
    first = 0
    with closing(pivot(_spans(traces.sources), traces.rows, traces.unused)) as rows:
        wanted = islice(rows, limit)  # no further: what is made into a row is counted
        while chunk := list(islice(wanted, ROWS_AT_ONCE)):
            yield pa.RecordBatch.from_pylist(chunk, schema=traces.schema), numbered("row", first)
            first += len(chunk)


def _spans(sources: Sequence[Source]) -> Iterator[tuple[str, Span]]:
    for source in sources:
        with closing(format_of(source.file).rows(source.file)) as rows:
            for span in read_spans(source.file, rows, cast("SpanForm", source.form)):
                yield str(source.file), span

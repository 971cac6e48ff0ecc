"""Scoring trace files: a loop over record batches."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from rag_descriptors.base import Descriptor
from rag_descriptors.errors import CellError, MissingColumnError, OptionError, PlanError, suggest
from rag_descriptors.jobs.guess import how_to_name
from rag_descriptors.jobs.outputs import check_places, n_bytes, open_output
from rag_descriptors.jobs.workers import check_portable, score_in_workers
from rag_descriptors.options import unknown
from rag_descriptors.planning import OnConflict, input_schema, output_fields, plan
from rag_descriptors.relevance import ContextRelevance
from rag_descriptors.scoring import CacheLike, describe, read_cells, score_batches, summarise
from rag_descriptors.summary import Account, RunSummary, fingerprint
from rag_descriptors.texts import to_json
from rag_descriptors.traces.columns import is_settled
from rag_descriptors.traces.presets import KNOWN_COLUMNS, find_column
from rag_descriptors.traces.readers import Traces, is_mixed
from rag_descriptors.traces.tables import RowName

__all__ = [
    "check_cells",
    "chosen",
    "count_cells",
    "default_descriptors",
    "estimate_traces",
    "plan_traces",
    "score_traces",
    "select",
    "with_inputs",
]

BYTES_AT_ONCE = 256 * 1024 * 1024  # more, and Arrow texts, whose offsets have 32 bits, might not hold a batch
GATHERED_ROWS, GATHERED_BYTES = 4096, 64 * 1024 * 1024
METADATA = b"rag_descriptors"


def chosen(
    traces: Traces, descriptors: Sequence[Descriptor], columns: Mapping[str, str]
) -> tuple[Sequence[Descriptor], Mapping[str, str]]:
    """Return the descriptors and the renamed columns: those given or, without a descriptor, the default ones.

    Raises:
        OptionError: There is no default, for no column has a known name.
    """
    if descriptors:
        return descriptors, columns
    names = {kind: columns.get(kind) for kind in ("question", "contexts")}
    others = {new: old for new, old in columns.items() if new not in names}
    return default_descriptors(traces, **names), others


def default_descriptors(
    traces: Traces, *, question: str | None = None, contexts: str | None = None
) -> list[Descriptor]:
    """Return what is computed when nothing is asked for: `ContextRelevance` on the columns given, or known by name.

    Files without a row may name no columns: then it is computed on the first known names.

    Raises:
        OptionError: No column has a known name; the message says which ones look as if they held what is missing.
    """
    columns = traces.schema.names
    names = {"question": question, "contexts": contexts}
    found = {kind: name or find_column(kind, columns or KNOWN_COLUMNS[kind]) for kind, name in names.items()}
    problems = [
        f"no column of {kind} is known among {', '.join(map(repr, columns))}. Name it with --{kind} COLUMN; "
        f"known names are {', '.join(KNOWN_COLUMNS[kind])}."
        for kind, name in found.items()
        if name is None
    ]
    if problems:
        raise OptionError("\n".join([*problems, *how_to_name(traces, found)]))
    return [ContextRelevance(str(found["question"]), str(found["contexts"]), output_scores=True, output_status=True)]


def score_traces(
    traces: Traces,
    output: Path,
    descriptors: Sequence[Descriptor],
    *,
    columns: Mapping[str, str] | None = None,
    cache: CacheLike = None,
    on_conflict: OnConflict = "error",
    limit: int | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> RunSummary:
    """Write the rows of `traces`, with the columns of the descriptors, to a file, and return the summary.

    Rows are read, scored and written in batches, so that memory does not grow with their number. Vectors go into
    `cache` as they are made: run again after an interruption, nothing is encoded twice. The file takes its name when it
    is whole; of two runs onto one name, the last to end has it.

    Args:
        traces: What `open_traces` returned.
        output: The file, of a format by its ending; an earlier one is replaced when the new one is whole.
        descriptors: What to compute.
        columns: Columns of the files, by the names that the descriptors read. In the output they keep their own names.
        cache: A path or a `Cache`; None keeps vectors for this run.
        on_conflict: What to do about a column that is there already: `"error"`, or `"overwrite"`.
        limit: Only the first rows, this many.
        workers: How many processes score; several share the cores, and need descriptors that can be pickled.
        progress: Whether to show a bar; None shows one where somebody looks.

    Raises:
        OptionError: The output can't be written, or is one of the inputs; several workers can't compute a descriptor.
        PlanError: Descriptors and columns do not fit.
        CellError: Cells can't be read; raised before a model loads.
        ModelError: A model is not to be found, or does not load.
        WorkerError: A worker process died.
    """
    started = time.perf_counter()
    check_places(traces.files, output=output)
    columns = columns or {}
    traces = with_inputs(traces, descriptors, columns)
    planned = plan_traces(traces, descriptors, columns=columns, on_conflict=on_conflict)
    if workers > 1:
        check_portable(planned)
    check_cells(traces, input_schema(planned), columns, limit)
    provenance = describe(planned)
    schema = _output_schema(traces.schema, output_fields(planned), provenance)
    score = score_batches if workers == 1 else partial(score_in_workers, n_workers=workers)
    waiting, account = deque[pa.RecordBatch](), Account()

    def inputs() -> Iterator[pa.RecordBatch]:
        for batch in _bounded(_gathered(traces.batches(limit))):
            waiting.append(batch)
            yield select(batch, input_schema(planned), columns)

    with (
        open_output(output, schema) as write,
        closing(score(inputs(), planned, cache=cache, progress=progress)) as done,
    ):
        for scored, counted in done:
            write(_assemble(schema, waiting.popleft(), scored))
            account.merge(counted)
    return summarise(account, provenance, started)


def estimate_traces(
    traces: Traces,
    descriptors: Sequence[Descriptor],
    *,
    columns: Mapping[str, str] | None = None,
    cache: CacheLike = None,
    on_conflict: OnConflict = "error",
    limit: int | None = None,
) -> RunSummary:
    """Return how much scoring these traces would take: distinct texts, calls and tokens that the cache does not save.

    Nothing is encoded, asked or written. Arguments and errors are those of `score_traces`.
    """
    started, columns = time.perf_counter(), columns or {}
    traces = with_inputs(traces, descriptors, columns)
    planned = plan_traces(traces, descriptors, columns=columns, on_conflict=on_conflict)
    check_cells(traces, input_schema(planned), columns, limit)
    inputs = (select(batch, input_schema(planned), columns) for batch in _bounded(_gathered(traces.batches(limit))))
    account = Account()
    for _, counted in score_batches(inputs, planned, cache=cache, estimate=True, progress=False):
        account.merge(counted)
    return summarise(account, {}, started)


def with_inputs(traces: Traces, descriptors: Sequence[Descriptor], columns: Mapping[str, str]) -> Traces:
    """Return the traces with the columns that descriptors read, all null, where JSON that holds no key names none."""
    if traces.schema.names:
        return traces
    fields = [field.with_name(columns.get(field.name, field.name)) for field in input_schema(descriptors)]
    return replace(traces, schema=pa.schema(fields))


def plan_traces(
    traces: Traces,
    descriptors: Sequence[Descriptor],
    *,
    columns: Mapping[str, str],
    on_conflict: OnConflict = "error",
) -> list[Descriptor]:
    """Return the descriptors, once it is certain that they fit the columns of the files.

    Raises:
        PlanError: They do not, or `columns` names what is not there, or what no descriptor reads; all faults at once.
    """
    names, read = traces.schema.names, input_schema(descriptors).names
    errors = [*_wrong_columns(columns, names, read)]
    planned: list[Descriptor] = []
    try:
        planned = plan(descriptors, [*names, *(new for new in columns if new not in names)], on_conflict=on_conflict)
    except PlanError as error:
        errors.append(error)
    if errors:
        raised = type(errors[0]) if len(errors) == 1 else PlanError
        sought = {*read} - {*names, *columns}
        hints = how_to_name(traces, {kind: None if kind in sought else kind for kind in ("question", "contexts")})
        raise raised("\n".join([*map(str, errors), *hints]))
    return planned


def _wrong_columns(columns: Mapping[str, str], names: Sequence[str], read: Sequence[str]) -> Iterator[PlanError]:
    lost = {new: old for new, old in columns.items() if old not in names}
    if lost:
        texts = (
            f"column {old!r}, to be read as {new!r}, is missing.{suggest(old, names)}" for new, old in lost.items()
        )
        yield MissingColumnError("\n".join(texts))
    unread = unknown("columns", columns, read)
    if unread:
        yield PlanError("\n".join(unread))


def check_cells(traces: Traces, inputs: pa.Schema, columns: Mapping[str, str], limit: int | None = None) -> None:
    """Read all cells once where their type leaves it open whether they can be read.

    Raises:
        CellError: Cells can't be read; each column that holds some is named, with its first ones.
    """
    found = {field.name: traces.schema.field(columns.get(field.name, field.name)) for field in inputs}
    unsettled = pa.schema([field for field in inputs if not _is_settled(found[field.name], field)])
    if unsettled.names:
        count_cells(traces, unsettled, columns, limit)


def count_cells(
    traces: Traces, inputs: pa.Schema, columns: Mapping[str, str], limit: int | None = None
) -> tuple[int, dict[str, int]]:
    """Read the cells of all columns `inputs`; return the number of rows, and how many cells are missing in each.

    Raises:
        CellError: As `check_cells` says.
    """
    rows, missing = 0, dict.fromkeys(inputs.names, 0)
    problems: dict[str, str] = {}
    for batch, row_name in _parts(traces, limit):
        for field in (field for field in inputs if field.name not in problems):
            try:
                missing[field.name] += _read(batch, field, columns, row_name).null_count
            except CellError as error:
                problems[field.name] = str(error)
        rows += batch.num_rows
    if problems:
        raise CellError("\n".join(problems.values()))
    return rows, missing


def _parts(traces: Traces, limit: int | None) -> Iterator[tuple[pa.RecordBatch, RowName]]:
    """Yield all rows in bounded batches, each with what errors call its rows."""
    for batch, row_name in traces.named_batches(limit):
        first = 0
        for part in _bounded(iter([batch])):
            yield part, partial(_later, row_name, first)
            first += part.num_rows


def _later(row_name: RowName, first: int, position: int) -> str:
    return row_name(first + position)


def _read(batch: pa.RecordBatch, field: pa.Field, columns: Mapping[str, str], row_name: RowName) -> pa.Array:
    return read_cells(select(batch, pa.schema([field]), columns), field, row_name)


def select(batch: pa.RecordBatch, inputs: pa.Schema, columns: Mapping[str, str]) -> pa.RecordBatch:
    """Return those columns of a batch of files that descriptors read, as they are, under the names that they read."""
    names = [columns.get(name, name) for name in inputs.names]
    fields = [batch.schema.field(name).with_name(new) for name, new in zip(names, inputs.names, strict=True)]
    return pa.RecordBatch.from_arrays([batch[name] for name in names], schema=pa.schema(fields))


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, as many small files give them: a judge is asked, and a model computes, a batch at a time."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if rows + batch.num_rows > GATHERED_ROWS or size + n_bytes(batch) > GATHERED_BYTES:
            yield from _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows, size = rows + batch.num_rows, size + n_bytes(batch)
    yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return one batch of all rows, or the batches where Arrow can't join them, such as small dictionaries."""
    try:
        return [pa.concat_batches(batches)] if len(batches) > 1 else batches
    except pa.ArrowException:
        return batches


def _bounded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Halve batches until each holds no more bytes than it may."""
    for batch in batches:
        if n_bytes(batch) <= BYTES_AT_ONCE or batch.num_rows == 1:
            yield batch
        else:
            half = batch.num_rows // 2
            yield from _bounded(iter((batch.slice(0, half), batch.slice(half))))


def _is_settled(found: pa.Field, wanted: pa.Field) -> bool:
    return not is_mixed(found) and is_settled(found.type, wanted.type)


def _output_schema(schema: pa.Schema, added: pa.Schema, provenance: Mapping[str, Mapping[str, Any]]) -> pa.Schema:
    """Return the columns of the output; what each score column was made with goes along, as JSON."""
    fields = {field.name: field for field in [*schema, *(field.remove_metadata() for field in added)]}
    made = {name: {"fingerprint": fingerprint(made), **made} for name, made in provenance.items()}
    return pa.schema(fields.values(), metadata={METADATA: to_json(made)})


def _assemble(schema: pa.Schema, batch: pa.RecordBatch, scored: pa.RecordBatch) -> pa.RecordBatch:
    names = set(scored.schema.names)
    arrays = [scored[name] if name in names else batch[name] for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

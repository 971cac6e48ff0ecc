"""Scoring trace files: a loop over record batches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from rag_descriptors.base import Descriptor
from rag_descriptors.errors import OptionError
from rag_descriptors.frame import to_pandas
from rag_descriptors.jobs.outputs import check_output, open_output
from rag_descriptors.relevance import ContextRelevance
from rag_descriptors.scoring import CacheLike, OnConflict, Run, input_schema, plan
from rag_descriptors.summary import RunSummary
from rag_descriptors.traces.columns import is_settled, to_column
from rag_descriptors.traces.presets import KNOWN_COLUMNS, find_column
from rag_descriptors.traces.readers import Traces, is_mixed, parse_mixed

__all__ = ["default_descriptors", "score_traces"]


def default_descriptors(
    columns: Sequence[str], *, question: str | None = None, contexts: str | None = None
) -> list[Descriptor]:
    """Return what is computed when nothing is asked for: `ContextRelevance` on the columns given, or known by name.

    Files without a row may name no columns: then it is computed on the first known names.

    Raises:
        OptionError: No column has a known name.
    """
    names = {"question": question, "contexts": contexts}
    found = {kind: name or find_column(kind, columns or KNOWN_COLUMNS[kind]) for kind, name in names.items()}
    problems = [
        f"no column of {kind} is known among {', '.join(map(repr, columns))}. Name it with --{kind} COLUMN; "
        f"known names are {', '.join(KNOWN_COLUMNS[kind])}."
        for kind, name in found.items()
        if name is None
    ]
    if problems:
        raise OptionError("\n".join(problems))
    return [ContextRelevance(str(found["question"]), str(found["contexts"]), output_scores=True, output_status=True)]


def score_traces(
    traces: Traces,
    output: Path,
    descriptors: Sequence[Descriptor],
    *,
    cache: CacheLike = None,
    on_conflict: OnConflict = "error",
    limit: int | None = None,
    progress: bool | None = None,
) -> RunSummary:
    """Write the rows of `traces`, with the columns of the descriptors, to a file, and return the summary.

    Rows are read, scored and written in batches, so that memory does not grow with their number. Vectors go into
    `cache` as they are made: run again after an interruption, nothing is encoded twice.

    Args:
        traces: What `open_traces` returned.
        output: The file, of a format by its ending; an earlier one is replaced when the new one is whole.
        descriptors: What to compute.
        cache: A path or a `Cache`; None keeps vectors for this run.
        on_conflict: What to do about a column that is there already: `"error"`, or `"overwrite"`.
        limit: Only the first rows, this many.
        progress: Whether to show a bar; None shows one where somebody looks.

    Raises:
        OptionError: The output can't be written, or is one of the inputs.
        PlanError: Descriptors and columns do not fit.
        CellError: Cells can't be read; raised before a model loads.
        ModelError: A model is not to be found, or does not load.
    """
    check_output(output)
    if any(output.exists() and output.samefile(file) for file in traces.files):
        raise OptionError(f"output {str(output)!r} is one of the inputs. Give another name.")
    if not traces.schema.names:  # JSON without a row names no columns
        traces = replace(traces, schema=input_schema(descriptors))
    planned = plan(descriptors, traces.schema.names, on_conflict=on_conflict)
    _check_cells(traces, input_schema(planned), limit)
    with Run(planned, cache=cache, progress=progress) as run:
        schema = _with_columns(traces.schema, run.outputs)
        with open_output(output, schema) as write:
            for batch, inputs in _read(traces, input_schema(planned), limit):
                scored = run.score(inputs)
                to_pandas(pa.Table.from_batches([scored]))  # checks the columns against their schema
                write(_assemble(schema, batch, scored))
        return run.summary()


def _check_cells(traces: Traces, inputs: pa.Schema, limit: int | None) -> None:
    """Read all cells once where their type leaves it open whether they can be read."""
    unsettled = pa.schema([field for field in inputs if not _is_settled(traces.schema.field(field.name), field)])
    if unsettled.names:
        for _ in _read(traces, unsettled, limit):
            pass


def _read(traces: Traces, inputs: pa.Schema, limit: int | None) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield batches of traces, each with its input columns as descriptors read them."""
    first = 0
    for batch in traces.batches(limit):
        columns = [to_column(_cells(batch, field.name), field, partial(_row_name, first)) for field in inputs]
        yield batch, pa.RecordBatch.from_arrays(columns, schema=inputs)
        first += batch.num_rows


def _is_settled(found: pa.Field, wanted: pa.Field) -> bool:
    return not is_mixed(found) and is_settled(found.type, wanted.type)


def _cells(batch: pa.RecordBatch, name: str) -> pa.Array | list[object]:
    return parse_mixed(batch[name]) if is_mixed(batch.schema.field(name)) else batch[name]


def _row_name(first: int, position: int) -> str:
    return f"row {first + position}"


def _with_columns(schema: pa.Schema, added: pa.Schema) -> pa.Schema:
    fields = {field.name: field for field in [*schema, *(field.remove_metadata() for field in added)]}
    return pa.schema(fields.values())


def _assemble(schema: pa.Schema, batch: pa.RecordBatch, scored: pa.RecordBatch) -> pa.RecordBatch:
    names = set(scored.schema.names)
    arrays = [scored[name] if name in names else batch[name] for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

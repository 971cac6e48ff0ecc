"""DataFrames in, DataFrames out: the only file that touches one."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Event
from typing import Any

import pandas as pd
import pyarrow as pa

from rag_descriptors.base import Descriptor
from rag_descriptors.errors import PlanError, ScoringError
from rag_descriptors.longframe import LongFrame
from rag_descriptors.models.calls import STOP
from rag_descriptors.planning import OnConflict, OnError, input_schema, plan
from rag_descriptors.scoring import CacheLike, Run
from rag_descriptors.summary import RunSummary
from rag_descriptors.traces.columns import to_column

__all__ = ["ScoredFrame", "add_descriptors", "ascore_frame", "score_frame", "to_pandas"]

ROWS_AT_ONCE = 8192
NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


@dataclass(frozen=True, eq=False)
class ScoredFrame:
    """A scored DataFrame, and the summary of the run that scored it."""

    frame: pd.DataFrame
    summary: RunSummary


def add_descriptors(
    df: pd.DataFrame,
    descriptors: Descriptor | str | Sequence[Descriptor | str],
    *,
    cache: CacheLike = None,
    on_conflict: OnConflict = "error",
    on_error: OnError = "null",
    progress: bool | None = None,
) -> pd.DataFrame:
    """Return a new DataFrame: the columns, index and row order of `df`, and the columns of the descriptors.

    Rows are told apart by position alone, so any index will do. `df` is not changed. What can't be scored is missing
    (nan, NA or None), never 0.

    Args:
        df: A table with the columns that the descriptors read.
        descriptors: One, or several in a list. A text is the name of a plugin, made without arguments.
        cache: A path or a `Cache` where vectors and verdicts are kept for later runs; None keeps them for this call.
        on_conflict: What to do about a column that is there already: `"error"`, or `"overwrite"`.
        on_error: What becomes of a row that fails: `"null"` makes it missing, with a status; `"raise"` ends the call.
        progress: Whether to show a bar; None shows one where somebody looks, for work of more than two seconds.

    Raises:
        PlanError: Descriptors and table do not fit; all problems at once, before any work.
        CellError: Cells can't be read; raised before a model loads.
        ModelError: A model is not to be found, or does not load.
        ScoringError: A row failed under `on_error="raise"`, or a method or descriptor broke its contract.

    Example:
        >>> import pandas as pd
        >>> from rag_descriptors import ContextRelevance, add_descriptors
        >>> traces = pd.DataFrame({"question": ["Who wrote Faust?"], "contexts": [["Goethe wrote Faust.", "Bread."]]})
        >>> relevance = ContextRelevance("question", "contexts", aggregation_method="max", alias="relevance")
        >>> traces.pipe(add_descriptors, relevance)["relevance"].round(2).tolist()
        [0.96]
    """
    return score_frame(
        df, descriptors, cache=cache, on_conflict=on_conflict, on_error=on_error, progress=progress
    ).frame


def score_frame(
    df: pd.DataFrame,
    descriptors: Descriptor | str | Sequence[Descriptor | str],
    *,
    cache: CacheLike = None,
    on_conflict: OnConflict = "error",
    on_error: OnError = "null",
    estimate: bool = False,
    progress: bool | None = None,
) -> ScoredFrame:
    """Do what `add_descriptors` does, and return the frame together with the summary of the run.

    With `estimate` no text is encoded and no judge asked: the frame is a copy without new columns, and the summary
    tells how many distinct texts and prompts there are, how many of them the cache knows, and how many tokens a judge
    would be sent. What a descriptor asks only after an answer is counted as if it had to be asked.
    """
    if not isinstance(df, pd.DataFrame):
        raise PlanError(f"found a {type(df).__name__} where a pandas DataFrame is expected.")
    planned = plan(descriptors, list(df.columns), on_conflict=on_conflict, on_error=on_error)
    inputs = input_schema(planned)
    parts = (_batches(df.iloc[start : start + ROWS_AT_ONCE], inputs, start) for start in _starts(len(df)))
    batches = [*chain.from_iterable(parts)]
    with Run(planned, cache=cache, on_error=on_error, estimate=estimate, progress=progress) as run:
        scored = pa.Table.from_batches(map(run.score, batches), schema=run.outputs)
        return ScoredFrame(df.copy() if estimate else _with_columns(df, scored), run.summary())


async def ascore_frame(
    df: pd.DataFrame,
    descriptors: Descriptor | str | Sequence[Descriptor | str],
    *,
    cache: CacheLike = None,
    on_conflict: OnConflict = "error",
    on_error: OnError = "null",
    estimate: bool = False,
    progress: bool | None = None,
) -> ScoredFrame:
    """Do what `score_frame` does in a thread of its own, while the event loop goes on.

    Where the caller is cancelled no further calls to a judge are made, and a model finishes the texts that it has in
    hand, about a second's work.
    """
    stop = Event()
    token = STOP.set(stop)
    try:
        return await asyncio.to_thread(
            score_frame,
            df,
            descriptors,
            cache=cache,
            on_conflict=on_conflict,
            on_error=on_error,
            estimate=estimate,
            progress=progress,
        )
    finally:
        stop.set()
        STOP.reset(token)


def _starts(n_rows: int) -> range:
    return range(0, max(n_rows, 1), ROWS_AT_ONCE)


def _batches(df: pd.DataFrame, inputs: pa.Schema, first: int) -> Iterator[pa.RecordBatch]:
    """Yield the columns `inputs` of rows, of which `first` is the first, in as few batches as Arrow's texts allow."""
    try:
        yield _batch(df, inputs, first)
    except pa.ArrowCapacityError:
        if len(df) == 1:
            raise
        half = len(df) // 2
        yield from _batches(df.iloc[:half], inputs, first)
        yield from _batches(df.iloc[half:], inputs, first + half)


def _batch(df: pd.DataFrame, inputs: pa.Schema, first: int) -> pa.RecordBatch:
    def row_name(position: int) -> str:
        return f"row {first + position} (index {df.index[position]!r})"

    columns = [to_column(_cells(df[field.name]), field, row_name) for field in inputs]
    return pa.RecordBatch.from_arrays(columns, schema=inputs)


def _cells(column: "pd.Series[Any]") -> pa.Array | pa.ChunkedArray | list[object]:
    if column.dtype == object:
        return list(column)
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError, UnicodeError):
        return list(column)


def to_pandas(scored: pa.Table) -> pd.DataFrame:
    """Return computed columns as pandas holds them, once they have passed their schema.

    Raises:
        ScoringError: They break it.
    """
    columns = pd.DataFrame({name: _series(scored[name].combine_chunks()) for name in scored.column_names})
    _validate(columns, scored.schema)
    return columns


def _with_columns(df: pd.DataFrame, scored: pa.Table) -> pd.DataFrame:
    columns = to_pandas(scored)
    frame = df.copy()
    for name in columns:
        frame[name] = columns[name].array
    return frame


def _series(values: pa.Array) -> "pd.Series[Any]":
    if values.type == pa.list_(pa.float64()):
        return pd.Series(_float_lists(values), dtype=object)
    if pa.types.is_nested(values.type):
        return pd.Series(values.to_pylist(), dtype=object)
    if pa.types.is_string(values.type):
        return pd.Series(values.to_pylist(), dtype=pd.Series([""]).dtype)  # pandas' dtype for text, without rows too
    series: pd.Series[Any] = values.to_pandas(types_mapper=NULLABLE.get)
    return series


def _float_lists(lists: pa.ListArray) -> list[list[float] | None]:
    frame = LongFrame.explode(lists)
    items = frame.items.to_numpy(zero_copy_only=False).tolist()
    ends = zip(frame.offsets, frame.offsets[1:], frame.is_null, strict=False)
    return [None if is_null else items[start:end] for start, end, is_null in ends]


def _validate(columns: pd.DataFrame, fields: pa.Schema) -> None:
    from pandera.errors import SchemaErrors  # noqa: PLC0415 - takes long, and files need no pandera

    from rag_descriptors.schemas import output_schema  # noqa: PLC0415 - made of pandera

    try:
        output_schema(fields).validate(columns, lazy=True)
    except SchemaErrors as error:
        cases = error.failure_cases[["column", "check", "failure_case", "index"]].head(3).to_dict("records")
        raise ScoringError(
            f"computed columns break their schema: {cases}. Run check_descriptor on the descriptor."
        ) from error

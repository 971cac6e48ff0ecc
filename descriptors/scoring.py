"""One run over record batches: the engine-neutral core that frames, files and workers share."""

import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import fields
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_descriptors.base import NOT_SCORED, OK, WITHOUT_FAULT, Bindable, Descriptor
from rag_descriptors.cache.entities import CachedExtractor, UnusedExtractor
from rag_descriptors.cache.meters import JudgeMeter, Share, TextMeter
from rag_descriptors.cache.store import Cache
from rag_descriptors.cache.vectors import CachedEmbedder, UnusedEmbedder
from rag_descriptors.cache.verdicts import CachedJudge, UnusedJudge
from rag_descriptors.errors import CellError, ScoringError, TruncationWarning
from rag_descriptors.longframe import as_bool
from rag_descriptors.models.calls import check_wanted
from rag_descriptors.models.judge import Asker
from rag_descriptors.planning import OnError, input_schema, output_fields
from rag_descriptors.progress import Progress
from rag_descriptors.schemas import broken_columns
from rag_descriptors.summary import Account, JudgeCounts, RunSummary, Tally, TextCounts
from rag_descriptors.traces.columns import to_column
from rag_descriptors.traces.readers import is_mixed, parse_mixed

__all__ = ["CacheLike", "Run", "describe", "models_of", "read_cells", "score_batches", "summarise"]

CacheLike = Cache | str | PathLike[str] | None


class Run:
    """Descriptors bound to a cache and to meters, and the account of what they did.

    Args:
        descriptors: What `plan` returned.
        cache: Where answers are looked up and kept; None keeps them for this run.
        on_error: `"raise"` turns a failed row into an error.
        estimate: Whether to count what would be encoded and asked, and do neither; the scores then say nothing, and no
            cache is made where there is none.
        progress: Whether to show a bar; None shows it where somebody looks.
        share: The part of this process in a run of several; None if it is the only one.

    Raises:
        ModelError: A model is not to be found.
        CacheError: The cache can't be opened.
    """

    def __init__(
        self,
        descriptors: Sequence[Descriptor],
        *,
        cache: CacheLike = None,
        on_error: OnError = "null",
        estimate: bool = False,
        progress: bool | None = None,
        share: Share | None = None,
    ) -> None:
        self._started = time.perf_counter()
        self._provenance = describe(descriptors)
        self._n_rows = 0
        self._on_error = on_error
        self._estimate = estimate
        self._start = None if share is None else share.start
        self._account = Account()
        with ExitStack() as opened:
            self._cache = cache if isinstance(cache, Cache) else opened.enter_context(closing(_open(cache, estimate)))
            self._judged = opened.enter_context(closing(JudgeMeter()))
            self._texts = opened.enter_context(closing(TextMeter(None if share is None else share.seen)))
            self._progress = {
                unit: opened.enter_context(closing(Progress(unit, progress))) for unit in ("texts", "prompts")
            }
            self._descriptors = [_bind(descriptor, self._cached) for descriptor in descriptors]
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._opened.close()

    @property
    def outputs(self) -> pa.Schema:
        """The columns that all descriptors promise."""
        return output_fields(self._descriptors)

    def score(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the promised columns for one batch of input columns, as `to_column` gives them.

        Raises:
            ScoringError: A descriptor broke its contract, or a row failed under `on_error="raise"`.
        """
        columns: dict[str, pa.Array] = {}
        for descriptor in self._descriptors:
            check_wanted()
            computed = _compute(descriptor, batch)
            statuses = _statuses(descriptor, computed)
            if self._on_error == "raise" and not self._estimate:
                _raise_failed(descriptor, statuses, self._n_rows, self._judged.messages)
            self._account.tallies.setdefault(descriptor.name, Tally()).add(computed[descriptor.name], statuses)
            columns |= {name: computed[name] for name in descriptor.outputs.names}
        self._account.rows += batch.num_rows
        self._n_rows += batch.num_rows
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self.outputs)

    def take(self) -> Account:
        """Return the account of what was scored since it was last taken."""
        taken, self._account = self._account, Account()
        meter = self._texts
        taken.texts = TextCounts(distinct=meter.distinct, encoded=meter.encoded, cut=meter.cut)
        meter.distinct = meter.encoded = meter.cut = 0
        taken.judge = JudgeCounts(**{count.name: getattr(self._judged, count.name) for count in fields(JudgeCounts)})
        return taken

    def summary(self) -> RunSummary:
        """Return the account, once taken, as a summary; one warning says how many texts were cut."""
        return summarise(self.take(), {} if self._estimate else self._provenance, self._started)

    def _cached(self, model: Any) -> Any:
        if isinstance(model, Asker):
            asker = UnusedJudge(model) if self._estimate else model
            return CachedJudge(asker, self._cache, self._judged, self._progress["prompts"])
        extractor = UnusedExtractor if self._estimate else CachedExtractor
        embedder = UnusedEmbedder if self._estimate else CachedEmbedder
        if callable(getattr(model, "extract", None)):
            return extractor(model, self._cache, self._texts, self._progress["texts"], self._start)
        return embedder(model, self._cache, self._texts, self._progress["texts"], self._start)


def score_batches(
    batches: Iterable[pa.RecordBatch],
    descriptors: Sequence[Descriptor],
    *,
    cache: CacheLike = None,
    estimate: bool = False,
    progress: bool | None = None,
    share: Share | None = None,
) -> Generator[tuple[pa.RecordBatch, Account], None, None]:
    """Yield the promised columns of each batch, checked, and the account of the batch.

    This is all that a process does, whatever engine feeds it batches: the command itself, its workers, or a function
    that maps iterators of record batches. Models are loaded at the first text that needs them, once per process.

    Args:
        batches: Rows with the columns that the descriptors read, of any type; further columns are left alone.
        descriptors: What `plan` returned.
        cache: As for `Run`.
        estimate: As for `Run`.
        progress: As for `Run`.
        share: As for `Run`.

    Raises:
        CellError: A cell can't be read.
        ScoringError: A descriptor broke its contract.
    """
    inputs, first = input_schema(descriptors), 0
    with Run(descriptors, cache=cache, estimate=estimate, progress=progress, share=share) as run:
        for batch in batches:
            scored = run.score(_read_inputs(batch, inputs, first))
            _check(scored)
            yield scored, run.take()
            first += batch.num_rows


def read_cells(batch: pa.RecordBatch, field: pa.Field, row_name: Callable[[int], str]) -> pa.Array:
    """Return the cells of a column of a file as descriptors read them; `row_name` is what errors call a row.

    Raises:
        CellError: Cells can't be read.
    """
    found = batch[field.name]
    return to_column(parse_mixed(found) if is_mixed(batch.schema.field(field.name)) else found, field, row_name)


def _read_inputs(batch: pa.RecordBatch, inputs: pa.Schema, first: int) -> pa.RecordBatch:
    """Return the columns `inputs` of a batch of a file as descriptors read them; its first row is the file's `first`.

    Raises:
        CellError: Cells can't be read; all columns that hold some are named.
    """
    columns: list[pa.Array] = []
    problems: list[str] = []
    for field in inputs:
        try:
            columns.append(read_cells(batch, field, lambda position: f"row {first + position}"))
        except CellError as error:
            problems.append(str(error))
    if problems:
        raise CellError("\n".join(problems))
    return pa.RecordBatch.from_arrays(columns, schema=inputs)


def describe(descriptors: Sequence[Descriptor]) -> dict[str, dict[str, Any]]:
    """Return the provenance of each score column: all that changes its values. No model is loaded, but looked for.

    Raises:
        ModelError: A model is not to be found, or its identity is no mapping of JSON values.
        OptionError: A model that was found does not take its options, such as labels that it does not know.
    """
    return {descriptor.name: _provenance(descriptor) for descriptor in descriptors}


def summarise(account: Account, provenance: Mapping[str, Mapping[str, Any]], started: float) -> RunSummary:
    """Return the summary of a run that began at `started`; one warning says how many texts were cut."""
    texts = account.texts
    if texts.cut:
        warnings.warn(
            f"{texts.cut} of {texts.distinct} distinct texts are longer than the model reads. What becomes of them is "
            "said by long_context among the method_params; 'window_max' reads contexts whole.",
            TruncationWarning,
            stacklevel=4,
        )
    return account.summary(provenance, time.perf_counter() - started, version("rag-descriptors"))


def _open(path: str | PathLike[str] | None, estimate: bool) -> Cache:
    """Return the cache of a path; an estimate looks into a file that is there, and makes none."""
    is_there = path is not None and Path(path).expanduser().exists()
    return Cache(path if is_there or not estimate else None)


def _check(scored: pa.RecordBatch) -> None:
    problems = broken_columns(scored)
    if problems:
        raise ScoringError(
            f"computed columns break their schema: {'; '.join(problems)}. Run check_descriptor on the descriptor."
        )


def models_of(descriptor: Descriptor) -> list[Any]:
    """Return the models that a descriptor uses, as far as it lets a run put something before them."""
    models: list[Any] = []

    def noted(model: Any) -> Any:
        models.append(model)
        return model

    _bind(descriptor, noted)
    return models


def _bind(descriptor: Descriptor, wrap: Callable[[Any], Any]) -> Descriptor:
    return descriptor.bind(wrap) if isinstance(descriptor, Bindable) else descriptor


def _provenance(descriptor: Descriptor) -> dict[str, Any]:
    return {
        "library": version("rag-descriptors"),
        **getattr(descriptor, "provenance", {"descriptor": type(descriptor).__name__, "options": repr(descriptor)}),
    }


def _compute(descriptor: Descriptor, batch: pa.RecordBatch) -> pa.RecordBatch:
    computed = descriptor.compute(batch.select(descriptor.inputs.names))
    if not isinstance(computed, pa.RecordBatch):
        raise ScoringError(
            f"{descriptor!r} computed a {type(computed).__name__}. It must return a pyarrow.RecordBatch."
        )
    wrong = [f for f in descriptor.outputs if f.name not in computed.schema.names or computed[f.name].type != f.type]
    if wrong or computed.num_rows != batch.num_rows:
        raise ScoringError(
            f"{descriptor!r} promised {descriptor.outputs.names} for {batch.num_rows} rows and computed "
            f"{computed.num_rows} rows of {computed.schema.to_string()}. Run check_descriptor on it."
        )
    return _nan_to_null(computed, descriptor.name)


def _nan_to_null(computed: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return the columns with one spelling of missing among the scores."""
    place, scores = computed.schema.get_field_index(name), computed[name]
    is_nan = pc.is_nan(scores)
    if not pc.any(is_nan).as_py():
        return computed
    return computed.set_column(place, computed.schema.field(place), pc.if_else(is_nan, None, scores))


def _statuses(descriptor: Descriptor, computed: pa.RecordBatch) -> pa.Array:
    name = f"{descriptor.name} status"
    if name in computed.schema.names:
        return computed[name]
    return pa.array(np.where(as_bool(computed[descriptor.name].is_valid()), OK, NOT_SCORED))


def _raise_failed(descriptor: Descriptor, statuses: pa.Array, first: int, messages: Mapping[str, str | None]) -> None:
    numbered = enumerate(statuses.to_pylist(), start=first)
    failed = [(row, status) for row, status in numbered if status not in WITHOUT_FAULT]
    if failed:
        row, status = failed[0]
        told = "".join(f" {failure}: {message}" for failure, message in messages.items() if message)
        raise ScoringError(
            f"{descriptor.name!r}: {len(failed)} rows failed, the first, row {row}, with status {status!r}.{told}"
        )

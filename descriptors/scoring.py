"""One run over record batches: the engine-neutral core that frames, files and workers share."""

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from importlib.metadata import version
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, TypeGuard, get_args

import numpy as np
import pyarrow as pa

from rag_descriptors.base import NOT_SCORED, OK, WITHOUT_FAULT, Descriptor
from rag_descriptors.cache.cached import (
    CachedEmbedder,
    CachedExtractor,
    CachedJudge,
    JudgeMeter,
    TextMeter,
    UnusedEmbedder,
    UnusedExtractor,
    UnusedJudge,
)
from rag_descriptors.cache.store import Cache
from rag_descriptors.errors import (
    ColumnConflictError,
    MissingColumnError,
    PlanError,
    ScoringError,
    TruncationWarning,
    suggest,
)
from rag_descriptors.longframe import as_bool
from rag_descriptors.models.judge import Asker
from rag_descriptors.options import one_of
from rag_descriptors.progress import Progress
from rag_descriptors.summary import JudgeCounts, RunSummary, Tally, TextCounts

__all__ = ["CacheLike", "OnConflict", "OnError", "Run", "input_schema", "plan"]

OnConflict = Literal["error", "overwrite"]
OnError = Literal["null", "raise"]
CacheLike = Cache | str | PathLike[str] | None


def plan(
    descriptors: object, columns: Sequence[object], *, on_conflict: object = "error", on_error: object = "null"
) -> list[Descriptor]:
    """Return the descriptors as a list, once it is certain that they fit a table with these columns.

    Raises:
        MissingColumnError: Columns that descriptors read are not there, or there twice.
        ColumnConflictError: Columns that descriptors write are taken, by the table or by each other.
        PlanError: An option has a wrong value, something is no descriptor, or there are faults of several kinds. All of
            them are in the one message.
    """
    listed = list(descriptors) if isinstance(descriptors, list | tuple) else [descriptors]
    sound = [item for item in listed if _is_descriptor(item)]
    problems: dict[type[PlanError], list[str]] = {
        PlanError: [
            *(
                f"{item!r} is no descriptor. Give objects such as ContextRelevance(…)."
                for item in listed
                if not _is_descriptor(item)
            ),
            *_unnamed(sound),
            *_differences(sound),
            *one_of("on_conflict", on_conflict, get_args(OnConflict)),
            *one_of("on_error", on_error, get_args(OnError)),
        ],
        MissingColumnError: list(_missing(sound, columns)),
        ColumnConflictError: list(_conflicts(sound, () if on_conflict == "overwrite" else columns)),
    }
    kinds = [kind for kind, texts in problems.items() if texts]
    if kinds:
        kind = kinds[0] if len(kinds) == 1 else PlanError
        raise kind("\n".join(text for texts in problems.values() for text in texts))
    return sound


def input_schema(descriptors: Sequence[Descriptor]) -> pa.Schema:
    """Return the columns that all descriptors read, each once."""
    return pa.schema({field.name: field for descriptor in descriptors for field in descriptor.inputs}.values())


class Run:
    """Descriptors bound to a cache and to meters, and the account of what they did.

    Args:
        descriptors: What `plan` returned.
        cache: Where answers are looked up and kept; None keeps them for this run.
        on_error: `"raise"` turns a failed row into an error.
        estimate: Whether to count what would be encoded and asked, and do neither; the scores then say nothing.
        progress: Whether to show a bar; None shows it where somebody looks.

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
    ) -> None:
        self._started = time.perf_counter()
        self._provenance = [_provenance(descriptor) for descriptor in descriptors]  # may fail: before files are open
        self._n_rows = 0
        self._on_error = on_error
        self._cache = cache if isinstance(cache, Cache) else Cache(cache)
        self._owns_cache = not isinstance(cache, Cache)
        self._estimate = estimate
        self._texts, self._judged = TextMeter(), JudgeMeter()
        self._progress = {unit: Progress(unit, progress) for unit in ("texts", "prompts")}
        self._descriptors = [_bind(descriptor, self._cached) for descriptor in descriptors]
        self._tallies = [Tally() for _ in descriptors]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for progress in self._progress.values():
            progress.close()
        self._texts.close()
        if self._owns_cache:
            self._cache.close()

    @property
    def outputs(self) -> pa.Schema:
        """The columns that all descriptors promise."""
        return pa.schema([field for descriptor in self._descriptors for field in descriptor.outputs])

    def score(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the promised columns for one batch of input columns, as `to_column` gives them.

        Raises:
            ScoringError: A descriptor broke its contract, or a row failed under `on_error="raise"`.
        """
        self._n_rows += batch.num_rows
        columns: dict[str, pa.Array] = {}
        for descriptor, tally in zip(self._descriptors, self._tallies, strict=True):
            computed = _compute(descriptor, batch)
            statuses = _statuses(descriptor, computed)
            if self._on_error == "raise":
                _raise_failed(descriptor, statuses, tally.n_total)
            tally.add(computed[descriptor.name], statuses)
            columns |= {name: computed[name] for name in descriptor.outputs.names}
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self.outputs)

    def summary(self) -> RunSummary:
        """Return the account of all batches so far; one warning says how many texts were cut."""
        texts = TextCounts(distinct=self._texts.distinct, encoded=self._texts.encoded, cut=self._texts.cut)
        judge = JudgeCounts(**{count.name: getattr(self._judged, count.name) for count in fields(JudgeCounts)})
        if texts.cut:
            warnings.warn(
                f"{texts.cut} of {texts.distinct} distinct texts are longer than the model reads. method_params="
                "{'long_context': …} says what becomes of them; 'window_max' reads contexts whole.",
                TruncationWarning,
                stacklevel=3,
            )
        accounts = zip(self._descriptors, self._tallies, self._provenance, strict=True)
        scored = () if self._estimate else accounts
        columns = {descriptor.name: tally.summary(provenance) for descriptor, tally, provenance in scored}
        return RunSummary(
            rows=self._n_rows,
            columns=columns,
            texts=texts,
            judge=judge,
            seconds=time.perf_counter() - self._started,
            version=version("rag-descriptors"),
        )

    def _cached(self, model: Any) -> Any:
        if isinstance(model, Asker):
            asker = UnusedJudge(model) if self._estimate else model
            return CachedJudge(asker, self._cache, self._judged, self._progress["prompts"])
        extractor = UnusedExtractor if self._estimate else CachedExtractor
        embedder = UnusedEmbedder if self._estimate else CachedEmbedder
        kind = extractor if callable(getattr(model, "extract", None)) else embedder
        return kind(model, self._cache, self._texts, self._progress["texts"])


def _is_descriptor(item: object) -> TypeGuard[Descriptor]:
    return isinstance(item, Descriptor) and not isinstance(item, type)


def _unnamed(descriptors: Sequence[Descriptor]) -> Iterator[str]:
    for descriptor in descriptors:
        if descriptor.name not in descriptor.outputs.names:
            yield f"{descriptor!r} promises no column {descriptor.name!r}, its name. Add it to its outputs."
        elif descriptor.outputs.field(descriptor.name).type not in (pa.float64(), pa.int64()):
            yield f"{descriptor!r} promises a score column that holds no numbers. Make it with score_field."


def _missing(descriptors: Sequence[Descriptor], columns: Sequence[object]) -> Iterator[str]:
    counts = Counter(columns)
    for name in dict.fromkeys(name for descriptor in descriptors for name in descriptor.inputs.names):
        if counts[name] == 0:
            yield f"column {name!r} is missing.{suggest(name, columns)}"
        elif counts[name] > 1:
            yield f"column {name!r} stands there {counts[name]} times. Rename or drop all but one."


def _differences(descriptors: Sequence[Descriptor]) -> Iterator[str]:
    read = input_schema(descriptors)
    for descriptor in descriptors:
        for field in descriptor.inputs:
            if field.type != read.field(field.name).type:
                other = read.field(field.name).type
                yield f"column {field.name!r} can't be read as {field.type} and as {other} in one call."


def _conflicts(descriptors: Sequence[Descriptor], columns: Sequence[object]) -> Iterator[str]:
    taken = dict.fromkeys(
        columns, "is in the table already. Give another alias, or on_conflict='overwrite' (--overwrite)."
    )
    for descriptor in descriptors:
        for name in descriptor.outputs.names:
            if name in taken:
                yield f"column {name!r} of {type(descriptor).__name__} {taken[name]}"
            taken[name] = "is written twice in one run. Give one of the two another alias."


def _bind(descriptor: Descriptor, wrap: Any) -> Descriptor:
    bind = getattr(descriptor, "bind", None)
    return descriptor if bind is None else bind(wrap)


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
    return computed


def _statuses(descriptor: Descriptor, computed: pa.RecordBatch) -> pa.Array:
    name = f"{descriptor.name} status"
    if name in computed.schema.names:
        return computed[name]
    return pa.array(np.where(as_bool(computed[descriptor.name].is_valid()), OK, NOT_SCORED))


def _raise_failed(descriptor: Descriptor, statuses: pa.Array, first: int) -> None:
    numbered = enumerate(statuses.to_pylist(), start=first)
    failed = [(row, status) for row, status in numbered if status not in WITHOUT_FAULT]
    if failed:
        row, status = failed[0]
        raise ScoringError(
            f"{descriptor.name!r}: {len(failed)} rows failed, the first, row {row}, with status {status!r}."
        )

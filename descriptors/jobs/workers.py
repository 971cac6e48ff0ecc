"""Scoring in several processes: slices of batches out, scored slices back, in the order in which they went.

Workers are spawned, never forked: each is a fresh interpreter that loads its models once. They share one cache file,
and one file in which distinct texts are counted. Each begins at another place of its texts, and looks into the cache
before each block of them: only a text that two of them encode at the same moment is encoded twice, to the same vector.
"""

import os
import pickle
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from rag_descriptors.base import Descriptor
from rag_descriptors.cache.meters import Share
from rag_descriptors.cache.store import Cache
from rag_descriptors.errors import DescriptorError, WorkerError
from rag_descriptors.models.encoder import n_cores
from rag_descriptors.models.judge import Asker
from rag_descriptors.options import together
from rag_descriptors.progress import Progress
from rag_descriptors.scoring import CacheLike, models_of, score_batches
from rag_descriptors.summary import Account

__all__ = ["check_portable", "score_in_workers"]

ROWS_AT_ONCE = 512  # in a slice: few enough that a run of a few thousand rows has work for every worker
SLICES_AHEAD = 2  # a worker's: one that it works on, and the next
END = b""
CORES = "OMP_NUM_THREADS"
JOIN_TIMEOUT_S = 30


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every worker of a run is told.

    Attributes:
        descriptors: What to compute.
        cache: The file of answers.
        share: Which part of the work is this worker's.
        n_threads: How many cores are one worker's share.
    """

    descriptors: tuple[Descriptor, ...]
    cache: Path
    share: Share
    n_threads: int


def check_portable(descriptors: Sequence[Descriptor]) -> None:
    """Make sure that descriptors can be computed in several processes.

    Raises:
        OptionError: One asks a judge, or can't be sent to another process; all such are named.
    """
    together(problem for descriptor in descriptors for problem in _hindrances(descriptor))


def _hindrances(descriptor: Descriptor) -> Iterator[str]:
    if any(isinstance(model, Asker) for model in models_of(descriptor)):
        yield (
            f"workers: {descriptor.name!r} asks a judge, whose limits hold within one process. Use one worker; "
            "max_concurrency says how many calls are made at a time."
        )
        return
    try:
        pickle.dumps(descriptor)
    except Exception as error:  # noqa: BLE001 - whatever another's class raises, it can't be sent
        yield (
            f"workers: {descriptor!r} can't be sent to another process: {error}. Use functions that a module "
            "defines, or one worker."
        )


def score_in_workers(
    batches: Iterable[pa.RecordBatch],
    descriptors: Sequence[Descriptor],
    n_workers: int,
    *,
    cache: CacheLike = None,
    progress: bool | None = None,
) -> Generator[tuple[pa.RecordBatch, Account], None, None]:
    """Do what `score_batches` does in `n_workers` processes, to which batches are dealt in slices.

    Two slices a worker are on their way, never more. A worker starts when there is a slice for it. However the
    iteration ends, no worker outlives it.

    The descriptors are some that have passed `check_portable`.

    Raises:
        WorkerError: A worker died.
        DescriptorError: What a worker raised.
    """
    are_last = deque[bool]()

    def slices() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, max(batch.num_rows, 1), ROWS_AT_ONCE):
                are_last.append(start + ROWS_AT_ONCE >= batch.num_rows)
                yield batch.slice(start, ROWS_AT_ONCE)

    parts, account = list[pa.RecordBatch](), Account()
    with closing(_dealt(slices(), descriptors, n_workers, cache, progress)) as scored:
        for part, counted in scored:
            parts.append(part)
            account.merge(counted)
            if are_last.popleft():
                yield pa.concat_batches(parts), account
                parts, account = [], Account()


def _dealt(
    slices: Iterable[pa.RecordBatch],
    descriptors: Sequence[Descriptor],
    n_workers: int,
    cache: CacheLike,
    progress: bool | None,
) -> Generator[tuple[pa.RecordBatch, Account], None, None]:
    """Deal slices to workers in turn, and yield them, scored, in the order in which they came."""
    with ExitStack() as stack:
        folder = TemporaryDirectory(prefix="rag-descriptors-", ignore_cleanup_errors=True)
        jobs = _jobs(descriptors, n_workers, cache, Path(stack.enter_context(folder)))
        bar = Progress("rows", progress)
        stack.callback(bar.close)
        workers: list[Worker] = []
        stack.callback(_kill, workers)
        waiting: deque[Worker] = deque()
        for place, part in enumerate(slices):
            if place < n_workers:
                workers.append(Worker(jobs[place]))
            waiting.append(workers[place % n_workers])
            bar.expect(part.num_rows)
            waiting[-1].send(part)
            if len(waiting) == SLICES_AHEAD * n_workers:
                yield _advance(bar, waiting.popleft().receive())
        while waiting:
            yield _advance(bar, waiting.popleft().receive())
        for worker in workers:
            worker.end()


def _jobs(descriptors: Sequence[Descriptor], n_workers: int, cache: CacheLike, folder: Path) -> list[Job]:
    path = cache.path if isinstance(cache, Cache) else cache
    return [
        Job(
            descriptors=tuple(descriptors),
            cache=folder / "answers.sqlite" if path is None else Path(path),
            share=Share(seen=folder / "seen.sqlite", start=place / n_workers),
            n_threads=max(n_cores() // n_workers, 1),
        )
        for place in range(n_workers)
    ]


def _advance(bar: Progress, scored: tuple[pa.RecordBatch, Account]) -> tuple[pa.RecordBatch, Account]:
    bar.advance(scored[1].rows)
    return scored


def _kill(workers: Sequence["Worker"]) -> None:
    for worker in workers:
        worker.kill()


class Worker:
    """A process that scores batches one after the other."""

    def __init__(self, job: Job) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, job), daemon=True)
        with _no_interrupt(), _cores(job.n_threads):
            self._process.start()
        theirs.close()

    def send(self, batch: pa.RecordBatch) -> None:
        """Give the worker one more batch."""
        with self._alive():
            self._connection.send_bytes(_packed(batch))

    def receive(self) -> tuple[pa.RecordBatch, Account]:
        """Return the next batch in the order of sending, and its account; raise what went wrong with it."""
        with self._alive():
            result = self._connection.recv()
        if isinstance(result, Exception):
            raise result
        packed, account, warned = result
        for warning in warned:
            warnings.warn(warning, stacklevel=2)
        return _unpacked(packed), account

    def end(self) -> None:
        """Let the worker close what it has open."""
        with self._alive():
            self._connection.send_bytes(END)
        self._process.join(JOIN_TIMEOUT_S)

    def kill(self) -> None:
        """End the worker at once."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            self._process.join(JOIN_TIMEOUT_S)
            raise WorkerError(
                f"a worker process died ({_cause(self._process.exitcode)}). Nothing was written; answers made so far "
                "are in the cache, if there is one. Run again to go on, with fewer workers if memory ran out."
            ) from error


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Keep Ctrl-C from a process that is started: its terminal sends it to all, and it is the parent's to answer."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # the first process starts it, which lets SIGINT through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _cores(number: int) -> Iterator[None]:
    """Let a process that is started use so many cores, whatever this one may: libraries ask when they are loaded."""
    before = os.environ.get(CORES)
    os.environ[CORES] = str(number)
    try:
        yield
    finally:
        del os.environ[CORES]
        os.environ.update({} if before is None else {CORES: before})


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def work(connection: Connection, job: Job) -> None:
    """Score the batches that come through `connection`, and send each back with its account and its warnings."""
    batches: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(connection, batches), daemon=True).start()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        received = map(_unpacked, iter(batches.get, END))
        try:
            for scored, account in score_batches(
                received, job.descriptors, cache=job.cache, progress=False, share=job.share
            ):
                connection.send((_packed(scored), account, [warning.message for warning in warned]))
                warned.clear()
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent raises it
            with suppress(OSError):  # nobody is there to read it
                connection.send(_portable(error))


def _listen(connection: Connection, batches: "SimpleQueue[bytes]") -> None:
    """Pass on what comes, so that the parent never waits to send; leave at once when the parent is gone."""
    try:
        while True:
            batches.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(1)


def _portable(error: Exception) -> Exception:
    """Return an error as it can be sent to another process; one that is not ours brings its traceback along."""
    if not isinstance(error, DescriptorError):
        error.add_note(traceback.format_exc())
    try:
        found = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - any fault of another's class
        found = None
    return error if type(found) is type(error) else WorkerError(f"a worker failed: {error!r}")


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(packed: bytes) -> Any:
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_next_batch()

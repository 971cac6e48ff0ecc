"""Several processes: the same scores in the same order, and what becomes of their errors."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from multiprocessing import get_context
from queue import SimpleQueue
from threading import Thread

import numpy as np
import pyarrow as pa
import pytest

from rag_descriptors import Cache, ContextRelevance
from rag_descriptors.cache.meters import Share
from rag_descriptors.errors import CacheError, OptionError, ScoringError, WorkerError
from rag_descriptors.jobs import workers
from rag_descriptors.jobs.workers import check_portable, score_in_workers
from rag_descriptors.scoring import score_batches
from rag_descriptors.summary import Account

STUB = '''
import os, signal, warnings
from dataclasses import dataclass

import numpy as np
from rag_descriptors import Embeddings


@dataclass(frozen=True)
class Stub:
    """An embedder that does what a text says."""

    def identity(self, role):
        return {"model": "stub"}

    def embed(self, texts, role):
        for text in texts:
            if text == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if text == "leave":
                os._exit(7)
            if text == "fail":
                raise KeyError("no such text")
            if text == "odd":
                raise Odd(1, 2)
            if text == "warn":
                warnings.warn("an odd text")
            if text.startswith("mask"):
                warnings.warn(f"blocked in {text}: {signal.pthread_sigmask(signal.SIG_BLOCK, [])}")
            if text == "cores":
                warnings.warn(f"{os.environ['OMP_NUM_THREADS']} cores")
        vectors = [[1 + len(text) % 7, 1 + sum(text.encode()) % 11, 3] for text in texts]
        return Embeddings(np.array(vectors, np.float32), np.zeros(len(texts), np.int32))


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")
'''


@pytest.fixture
def stub(package):
    """A descriptor over the embedder above, which worker processes can import."""
    package("stub", STUB)
    from stub import Stub  # noqa: PLC0415

    return ContextRelevance("question", "contexts", method_params={"embedder": Stub()}, alias="cr", output_scores=True)


def batches(*texts, n=3):
    for text in texts:
        yield pa.RecordBatch.from_pydict({"question": ["q"] * n, "contexts": [[f"{text}"], [], [f"{text} {n}", "c"]]})


def scored(results):
    merged, tables = Account(), []
    for batch, account in results:
        tables.append(batch)
        merged.merge(account)
    return tables, merged


@pytest.mark.parametrize("n_workers", [2, 3])
def test_the_same_in_the_same_order(stub, n_workers):
    texts = [f"text {n % 5}" for n in range(11)]
    expected, alone = scored(score_batches(batches(*texts), [stub]))
    found, together = scored(score_in_workers(batches(*texts), [stub], n_workers))
    assert found == expected
    assert found[0].schema == expected[0].schema
    assert (together.rows, together.texts.distinct, together.texts.cut) == (33, alone.texts.distinct, 0)
    assert together.texts.distinct == 1 + 5 + 5 + 1
    assert together.texts.encoded >= alone.texts.encoded == together.texts.distinct
    described = [account.summary({"cr": {}}, 0, "1").columns["cr"] for account in (together, alone)]
    assert described[0] == described[1]


def test_no_batches_need_no_workers(stub):
    assert list(score_in_workers(iter(()), [stub], 2)) == []


def test_workers_share_a_cache(stub, tmp_path):
    path = tmp_path / "c.sqlite"
    with closing(Cache(path)) as opened:
        for cache in (path, str(path), opened):
            _, account = scored(score_in_workers(batches("a", "b"), [stub], 2, cache=cache))
            assert account.texts.distinct == 6
    assert account.texts.encoded == 0


def test_never_more_than_two_batches_a_worker_are_on_their_way(stub):
    taken = []

    def counted():
        for number, batch in enumerate(batches(*"abcdefghij")):
            taken.append(number)
            yield batch

    results = score_in_workers(counted(), [stub], 2)
    next(results)
    assert len(taken) == 4
    results.close()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("die", WorkerError, r"a worker process died \(killed by SIGKILL\)\. Nothing was written"),
        ("leave", WorkerError, r"a worker process died \(exit code 7\)"),
        ("fail", KeyError, "no such text"),
        ("odd", WorkerError, r"a worker failed: Odd\('1 2'\)"),
    ],
)
def test_what_becomes_of_errors(stub, text, error, message):
    with pytest.raises(error, match=message) as raised:
        list(score_in_workers(batches("a", text, "b"), [stub], 2))
    if error is KeyError:
        assert 'raise KeyError("no such text")' in raised.value.__notes__[0]


def test_errors_of_ours_come_as_they_are(stub):
    wrong = pa.RecordBatch.from_pydict({"question": [1], "contexts": [["c"]]})
    with pytest.raises(ValueError, match=r"column 'question' can't be read:\n  row 0: found int 1") as raised:
        list(score_in_workers(iter([wrong]), [stub], 2))
    assert not hasattr(raised.value, "__notes__")


def test_warnings_come_too(stub):
    with pytest.warns(UserWarning, match="an odd text"):
        list(score_in_workers(batches("warn"), [stub], 2))


def test_a_worker_that_is_gone_before_it_gets_its_batch(stub, monkeypatch):
    results = score_in_workers(batches(*"abcdefgh"), [stub], 1)
    started = []
    monkeypatch.setattr(workers, "Worker", lambda job: started.append(made := original(job)) or made)
    next(results)
    started[0]._process.kill()
    started[0]._process.join()
    with pytest.raises(WorkerError, match="killed by SIGKILL"):
        list(results)


original = workers.Worker


def test_functions_without_a_name_cannot_go(stub):
    descriptor = ContextRelevance("question", "contexts", method=lambda q, c: [1.0] * len(q))
    with pytest.raises(OptionError, match=r"workers: .* can't be sent to another process: .*or one worker"):
        check_portable([stub, descriptor])


def test_no_worker_outlives_the_iteration(stub, monkeypatch):
    started = []
    monkeypatch.setattr(workers, "Worker", lambda job: started.append(made := original(job)) or made)
    results = score_in_workers(batches(*"abcdefgh"), [stub], 2)
    next(results)
    results.close()
    assert len(started) == 2
    assert not any(worker._process.is_alive() for worker in started)


def test_the_cores_are_shared(stub, monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "n_cores", lambda: 7)
    jobs = {n: workers._jobs([stub], n, None, tmp_path) for n in (1, 2, 3, 8)}
    assert {n: jobs[n][0].n_threads for n in jobs} == {1: 7, 2: 3, 3: 2, 8: 1}
    assert [job.share.start for job in jobs[2]] == [0, 0.5]


@pytest.mark.parametrize("told", ["7", None])
def test_a_worker_has_its_share_of_the_cores(stub, monkeypatch, told):
    if told is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(workers, "n_cores", lambda: 7)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", told)
    with pytest.warns(UserWarning, match="^3 cores$"):
        list(score_in_workers(batches("cores"), [stub], 2))
    assert os.environ.get("OMP_NUM_THREADS") == told


def test_one_batch_is_dealt_to_several_workers(stub, monkeypatch):
    started = []
    monkeypatch.setattr(workers, "Worker", lambda job: started.append(made := original(job)) or made)
    texts = [[f"text {n % 50}"] * (n % 3) for n in range(1025)]
    rows = [
        pa.record_batch({"question": ["q"] * 1025, "contexts": texts}),
        pa.record_batch({"question": pa.nulls(0, pa.string()), "contexts": pa.nulls(0, pa.list_(pa.string()))}),
        pa.record_batch({"question": ["q", None], "contexts": [["a"], None]}),
    ]
    expected, alone = scored(score_batches(rows, [stub]))
    found, together = scored(score_in_workers(rows, [stub], 4))
    assert found == expected
    assert [batch.num_rows for batch in found] == [1025, 0, 2]
    assert len(started) == 4  # 512, 512 and 1 rows; 0 rows; then the first one's turn
    assert together.rows == alone.rows == 1027
    assert together.texts.distinct == alone.texts.distinct == 52


MASKS = """
import pyarrow as pa
from rag_descriptors import ContextRelevance
from rag_descriptors.jobs.workers import score_in_workers
from stub import Stub

descriptor = ContextRelevance("question", "contexts", method_params={"embedder": Stub()})
batches = [pa.record_batch({"question": [text], "contexts": [["c"]]}) for text in ("mask 1", "mask 2")]
assert len(list(score_in_workers(batches, [descriptor], 2))) == 2
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks here")
def test_no_worker_is_interrupted_by_a_terminal_not_even_the_first(stub):
    """In a process of its own, which has started no other one before."""
    done = subprocess.run([sys.executable, "-c", MASKS], check=False, capture_output=True, text=True, timeout=60)
    found = [line.partition("blocked in ")[2] for line in done.stderr.splitlines() if "blocked in " in line]
    assert (done.returncode, found) == (0, [f"mask {n}: {{<Signals.SIGINT: 2>}}" for n in (1, 2)])


def test_systems_without_signal_masks(monkeypatch):
    monkeypatch.delattr(signal, "pthread_sigmask", raising=False)
    with workers._no_interrupt():
        pass


# --- a worker's own side, in this process


@pytest.fixture
def line(monkeypatch, tmp_path, stub):
    """The parent's end of a worker's connection, while `work` runs in a thread; `os._exit` only notes its code."""
    ours, theirs = get_context("spawn").Pipe()
    left = SimpleQueue()
    monkeypatch.setattr(workers.os, "_exit", left.put)
    job = workers.Job(descriptors=(stub,), cache=tmp_path / "c", share=Share(seen=tmp_path / "s", start=0), n_threads=1)
    thread = Thread(target=workers.work, args=(theirs, job))
    thread.start()
    yield ours, left
    thread.join(30)
    assert not thread.is_alive()


def test_a_worker_answers_until_it_is_told_to_end(line):
    ours, left = line
    for batch in batches("a", "b"):
        ours.send_bytes(workers._packed(batch))
    answers = [ours.recv() for _ in range(2)]
    ours.send_bytes(workers.END)
    ours.close()
    assert [workers._unpacked(packed).num_rows for packed, _, _ in answers] == [3, 3]
    assert [account.rows for _, account, _ in answers] == [3, 3]
    assert left.get(timeout=30) == 1


def test_a_worker_sends_what_went_wrong(line):
    ours, left = line
    ours.send_bytes(workers._packed(next(batches("fail"))))
    assert isinstance(ours.recv(), KeyError)
    ours.close()
    assert left.get(timeout=30) == 1


def test_errors_that_can_be_sent():
    error = CacheError("the cache")
    assert workers._portable(error) is error
    assert isinstance(workers._portable(ScoringError("x")), ScoringError)


class Odd(Exception):
    """An error that can be pickled, but not read back."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def test_errors_that_cannot_be_sent():
    found = workers._portable(Odd(1, 2))
    assert isinstance(found, WorkerError)
    assert str(found) == "a worker failed: Odd('1 2')"


def test_processes_count_distinct_texts_together(tmp_path):
    from rag_descriptors.cache.meters import TextMeter  # noqa: PLC0415

    one, two = TextMeter(tmp_path / "seen"), TextMeter(tmp_path / "seen")
    one.count([b"a", b"b"], np.array([False, True]), n_encoded=2)
    two.count([b"b", b"c"], np.array([True, False]), n_encoded=1)
    assert (one.distinct, one.cut, two.distinct, two.cut) == (2, 1, 1, 0)
    one.close()
    two.close()


def test_a_judge_is_asked_by_one_process(stub):
    judged = ContextRelevance("question", "contexts", method="llm", alias="judged")
    with pytest.raises(OptionError, match="workers: 'judged' asks a judge, whose limits hold within one process"):
        check_portable([stub, judged])


def test_all_that_hinders_is_told_at_once(stub):
    judged = [ContextRelevance("question", "contexts", method="llm", alias=alias) for alias in "ab"]
    unsent = ContextRelevance("question", "contexts", method=lambda q, c: [1.0] * len(q))
    with pytest.raises(OptionError) as error:
        check_portable([judged[0], unsent, stub, judged[1]])
    first, second, third = str(error.value).splitlines()
    assert first.startswith("workers: 'a' asks a judge")
    assert second.startswith("workers: ContextRelevance(input='question', ")
    assert third.startswith("workers: 'b' asks a judge")


def test_descriptors_that_can_be_sent(stub):
    check_portable([stub])

"""Runs that are killed, and runs that stand side by side: real processes on real files."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, suppress

import pytest

from rag_descriptors import Cache

TIMEOUT_S = 30
N_ROWS = 6000

SCORE = '''
"""Score argv[1] into argv[2] with the cache argv[3]; each text that is encoded goes into the log argv[4]."""
import sys, time, warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rag_descriptors import ContextRelevance, Embeddings
from rag_descriptors.jobs.batch import score_traces
from rag_descriptors.traces.readers import open_traces

warnings.simplefilter("error")


@dataclass(frozen=True)
class Slow:
    log: str
    seconds: float

    def identity(self, role):
        return {"model": "slow"}

    def embed(self, texts, role):
        time.sleep(self.seconds)
        with Path(self.log).open("a") as log:
            log.writelines(f"{text}\\n" for text in texts)
        vectors = [[1 + len(text) % 7, 1 + sum(text.encode()) % 11, 3] for text in texts]
        return Embeddings(np.array(vectors, np.float32), np.zeros(len(texts), np.int32))


source, output, cache, log, seconds = sys.argv[1:]
embedder = Slow(log, float(seconds))
descriptor = ContextRelevance("question", "contexts", method_params={"embedder": embedder}, output_scores=True)
print("ready", flush=True)
score_traces(open_traces([source]), Path(output), [descriptor], cache=cache)
'''


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "score.py"
    path.write_text(SCORE)
    return path


@pytest.fixture
def source(tmp_path):
    """A log whose rows hold a text of their own and one that others hold too."""
    path = tmp_path / "in.jsonl"
    rows = [
        {"n": n, "question": f"question {n % 50}", "contexts": [f"text {n}", f"text {n // 2}"]} for n in range(N_ROWS)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def started():
    """Start processes; none outlives the test."""
    processes = []

    def start(*command, **options):
        process = subprocess.Popen(
            [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def wait_for(holds, timeout_s=TIMEOUT_S):
    """Wait until something holds that another process brings about."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def entries(path):
    """Count the entries of a cache that other processes write."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path, timeout=TIMEOUT_S)) as connection:
        try:
            return connection.execute("SELECT count(*) FROM answer").fetchone()[0]
        except sqlite3.OperationalError:  # not made yet
            return 0


def encoded(log):
    return Counter(log.read_text().splitlines())


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
def test_a_killed_run_repeats_no_finished_work(tmp_path, script, source, started):
    whole, cache, log = tmp_path / "whole.parquet", tmp_path / "c.sqlite", tmp_path / "log"
    process = started(script, source, whole, tmp_path / "other.sqlite", tmp_path / "other", 0)
    assert process.wait(TIMEOUT_S) == 0

    output = tmp_path / "out.parquet"
    process = started(script, source, output, cache, log, 0.3)
    wait_for(lambda: entries(cache) > 2000)
    process.send_signal(signal.SIGKILL)
    assert process.wait(TIMEOUT_S) == -signal.SIGKILL
    assert not output.exists()
    finished = entries(cache)
    assert finished < N_ROWS + 50  # it was stopped half-way

    before = encoded(log)
    process = started(script, source, output, cache, log, 0)
    assert process.communicate(timeout=TIMEOUT_S)[1] == ""
    again = encoded(log) - before
    assert set(again.values()) == {1}
    assert sum(again.values()) == N_ROWS + 50 - finished  # what the killed run had stored was not encoded again
    assert output.read_bytes() == whole.read_bytes()


def test_four_processes_share_a_cache(tmp_path, script, source, started):
    cache = tmp_path / "c.sqlite"
    names = ["1", "2", "3", "4"]
    processes = [
        started(script, source, tmp_path / f"{name}.parquet", cache, tmp_path / f"{name}.log", 0.02) for name in names
    ]
    for process in processes:
        assert process.communicate(timeout=TIMEOUT_S)[1] == ""  # no error, no warning of a locked file
        assert process.returncode == 0
    assert entries(cache) == N_ROWS + 50
    assert len({(tmp_path / f"{name}.parquet").read_bytes() for name in names}) == 1
    process = started(script, source, tmp_path / "5.parquet", cache, tmp_path / "5.log", 0)
    assert process.communicate(timeout=TIMEOUT_S) == ("ready\n", "")
    assert not (tmp_path / "5.log").exists()  # nothing was lost


OPEN = """
import sys, time, warnings
from rag_descriptors import Cache
warnings.simplefilter("error")
time.sleep(max(0, float(sys.argv[2]) - time.time()))
for n in range(20):
    cache = Cache(sys.argv[1])
    cache.put("vector", {f"{sys.argv[3]} {n}".encode(): b"x" * 5000})
    cache.close()
"""


def test_processes_that_open_a_new_cache_at_once(tmp_path, started):
    path = tmp_path / "new" / "c.sqlite"
    start = time.time() + 4
    processes = [started("-c", OPEN, path, start, name) for name in range(4)]
    for process in processes:
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")
    with closing(Cache(path)) as cache:
        assert cache.stats().entries == {"vector": 80}


COMMAND = """
import sys, time
from pathlib import Path
from rag_descriptors.jobs import batch
from rag_descriptors import ContextRelevance, cli
sys.argv, folder = ["rag-descriptors", *sys.argv[2:]], Path(sys.argv[1])
sys.path.insert(0, str(folder))

def slow(questions, contexts):
    (folder / "scoring").touch()
    time.sleep(60)

cli.default_descriptors = lambda *_, **__: [ContextRelevance("question", "contexts", method=slow)]
cli.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_leaves_nothing_half_done(tmp_path, source, started, number, code):
    output = tmp_path / "out.csv"
    output.write_text("earlier")
    arguments = ["score", source, "-o", output, "--cache", tmp_path / "c.sqlite"]
    process = started("-c", COMMAND, tmp_path, *arguments)
    wait_for((tmp_path / "scoring").exists)
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (code, "")
    assert err.startswith("stopped: ")
    assert err.count("\n") == 1
    assert output.read_text() == "earlier"
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.csv", "c.sqlite", "scoring"}


@pytest.mark.model
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_the_command_stops_in_the_midst_of_encoding(tmp_path, started):
    """With the real model at work: the message comes, the process ends, what was encoded is kept."""
    path, cache = tmp_path / "in.jsonl", tmp_path / "c.sqlite"
    rows = [{"question": "what?", "contexts": [f"the {n}th of many short texts" for n in range(6000)]}]
    path.write_text("\n".join(map(json.dumps, rows)))
    code = "from rag_descriptors.cli import main; main()"
    process = started("-c", code, "score", path, "-o", tmp_path / "out.csv", "--cache", cache)
    wait_for(lambda: entries(cache) > 0, timeout_s=4 * TIMEOUT_S)  # the question's vector: the model has loaded
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert err.startswith("stopped: ")
    assert "Traceback" not in err
    assert not (tmp_path / "out.csv").exists()
    with closing(Cache(cache)) as store:
        assert store.stats().entries["vector"] > 0


@pytest.mark.model
@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes there")
def test_a_full_disk_is_4(tmp_path, source, started):
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))\n"
        "from rag_descriptors.cli import main; main()"
    )
    source.write_text("\n".join(json.dumps({"question": None, "contexts": [f"text {n}"]}) for n in range(N_ROWS)))
    output = tmp_path / "out.csv"
    process = started("-c", code, "score", source, "-o", output, "--no-cache")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (4, "")
    assert err == "error: [Errno 27] File too large\n"
    assert list(tmp_path.iterdir()) == [source]

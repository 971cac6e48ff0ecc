"""Runs that are killed, and runs that stand side by side: real processes on real files."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, suppress

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
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
for n in range(40):
    time.sleep(max(0, float(sys.argv[2]) + n / 20 - time.time()))
    cache = Cache(f"{sys.argv[1]}-{n // 2}")
    cache.put("vector", {f"{sys.argv[3]} {n}".encode(): b"x" * 5000})
    cache.close()
"""


def test_processes_that_open_new_caches_at_once(tmp_path, started):
    path = tmp_path / "new" / "c.sqlite"
    start = time.time() + 4
    processes = [started("-c", OPEN, path, start, name) for name in range(4)]
    for process in processes:
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")
    for n in range(20):
        with closing(Cache(f"{path}-{n}")) as cache:
            assert cache.stats().entries == {"vector": 8}


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

batch.default_descriptors = lambda *_, **__: [ContextRelevance("question", "contexts", method=slow)]
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
    assert err.startswith(f"error: [Errno 27] {output} can't be written: File too large. Nothing of it was written")
    assert list(tmp_path.iterdir()) == [source]


# --- the command with workers, and a configuration of the fake encoder

MAIN = "from rag_descriptors.cli import main; main()"
posix = pytest.mark.skipif(os.name != "posix", reason="signals and process groups are POSIX")


@pytest.fixture
def command(started, tmp_path, monkeypatch):
    """Start the command in a process group of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    def start(*arguments, before=""):
        return started("-c", f"{before}\n{MAIN}", *arguments, start_new_session=True)

    return start


def is_gone(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def log_lines(log):
    return log.read_text().splitlines() if log.exists() else []


def texts_of(log):
    return Counter(line.partition(" ")[2] for line in log_lines(log))


@pytest.fixture
def slow(stub, tmp_path):
    """A configuration that takes its time, and logs what it encodes."""
    return stub(f"log = '{tmp_path / 'log'}'", "seconds = 0.3", name="slow.toml")


@posix
@pytest.mark.parametrize(
    ("number", "to_all", "code"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_stopped_workers_leave_nothing_half_done(tmp_path, command, source, slow, number, to_all, code):
    output = tmp_path / "out.csv"
    output.write_text("earlier")
    arguments = ["score", source, "-c", slow, "-o", output, "--cache", tmp_path / "c.sqlite", "--workers", 2]
    process = command(*arguments)
    wait_for(lambda: len({line.split()[0] for line in log_lines(tmp_path / "log")}) == 2)  # both workers are at it
    if to_all:
        os.killpg(process.pid, number)  # as a terminal sends Ctrl-C
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (code, "")
    assert err.startswith("stopped: ")
    assert err.count("\n") == 1
    assert output.read_text() == "earlier"
    wait_for(lambda: is_gone(process.pid))
    assert not list(tmp_path.glob(".*.part"))
    assert not list((tmp_path / "tmp").iterdir())


@posix
def test_a_killed_run_with_workers_goes_on_where_it_stopped(tmp_path, command, source, stub, slow):
    whole, output, cache, log = (tmp_path / name for name in ("whole.parquet", "out.parquet", "c.sqlite", "log"))
    assert command("score", source, "-c", stub(), "-o", whole, "--no-cache").wait(TIMEOUT_S) == 0
    process = command("score", source, "-c", slow, "-o", output, "--cache", cache, "--workers", 2)
    wait_for(lambda: entries(cache) > 1000)
    process.kill()
    assert process.wait(TIMEOUT_S) == -signal.SIGKILL
    wait_for(lambda: is_gone(process.pid))  # the workers noticed
    assert not output.exists()
    finished, before = entries(cache), texts_of(log)
    assert finished < N_ROWS + 50
    quick = stub(f"log = '{log}'")
    process = command("score", source, "-c", quick, "-o", output, "--cache", cache, "--workers", 2, "--json")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, "")
    again = texts_of(log) - before
    assert len(again) == N_ROWS + 50 - finished  # nothing that was stored was encoded again
    assert json.loads(out)["texts"]["distinct"] == N_ROWS + 50
    assert json.loads(out)["texts"]["encoded"] == again.total()
    assert pd.read_parquet(output).equals(pd.read_parquet(whole))


@posix
def test_a_worker_that_is_killed_is_4(tmp_path, command, source, slow):
    output = tmp_path / "out.parquet"
    process = command("score", source, "-c", slow, "-o", output, "--no-cache", "--workers", 2)
    wait_for(lambda: log_lines(tmp_path / "log"))
    os.kill(int(log_lines(tmp_path / "log")[0].split()[0]), signal.SIGKILL)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (4, "")
    assert err.startswith("error: a worker process died (killed by SIGKILL). Nothing was written")
    assert err.count("\n") == 1
    wait_for(lambda: is_gone(process.pid))
    assert not output.exists()
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_disk_that_runs_full_is_4(tmp_path, command, source, stub, workers):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False, capture_output=True)
        if sys.platform == "linux"
        else None
    )
    if mounted is None or mounted.returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        output = disk / "out.csv"
        process = command("score", source, "-c", stub(), "-o", output, "--no-cache", "--workers", workers)
        out, err = process.communicate(timeout=2 * TIMEOUT_S)
        assert (process.returncode, out) == (4, "")
        assert err.startswith(
            f"error: [Errno 28] {output} can't be written: No space left on device. Nothing of it was"
        )
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that can be opened, but not read")  # noqa: PTH110
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_file_that_cannot_be_read_is_4(tmp_path, command, stub, ending):
    (tmp_path / f"in.{ending}").symlink_to("/proc/self/mem")
    process = command("score", tmp_path / f"in.{ending}", "-c", stub(), "-o", tmp_path / "out.csv", "--no-cache")
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (4, "")
    assert "Input/output error" in err
    assert "Traceback" not in err
    assert not (tmp_path / "out.csv").exists()


def test_two_runs_onto_one_output(tmp_path, command, source, stub):
    """Whoever ends last has the name; neither sees the other's half-written file."""
    output = tmp_path / "out.parquet"
    for round_ in range(2):
        names = ["one", "two"]
        processes = [
            command("score", source, "-c", stub(f"alias = '{name}'", name=f"{name}.toml"), "-o", output, "--no-cache")
            for name in names
        ]
        for process in processes:
            _, err = process.communicate(timeout=2 * TIMEOUT_S)
            assert (process.returncode, err) == (0, ""), round_
        found = pd.read_parquet(output)
        assert found["n"].tolist() == list(range(N_ROWS))
        assert found.columns[-1] in names
        assert len(found.columns) == 4
    assert not list(tmp_path.glob(".*.part"))


N_MANY = 100_000


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A long log with gaps: 1 % null questions, 1 % null and 1 % empty lists, blank and null items."""
    random = np.random.default_rng(0)
    chance = random.random((3, N_MANY))
    contexts = [
        None if chance[0, n] < 0.01 else [] if chance[0, n] < 0.02 else
        [f"text {n % 997}", " " if chance[1, n] < 0.01 else None if chance[1, n] < 0.02 else f"text {n % 31}"]
        for n in range(N_MANY)
    ]  # fmt: skip
    questions = [
        None if chance[2, n] < 0.005 else " " if chance[2, n] < 0.01 else f"q {n % 101}" for n in range(N_MANY)
    ]
    path = tmp_path_factory.mktemp("many") / "in.parquet"
    table = pa.table({"n": range(N_MANY), "question": questions, "contexts": pa.array(contexts, pa.list_(pa.string()))})
    pa.parquet.write_table(table, path)
    return path


def test_many_rows_with_gaps(tmp_path, command, stub, many):
    config, summaries = stub("output_scores = true", "output_status = true"), []
    for workers in (1, 2):
        output = tmp_path / f"{workers}.parquet"
        process = command("score", many, "-c", config, "-o", output, "--no-cache", "--json", "--workers", workers)
        out, err = process.communicate(timeout=4 * TIMEOUT_S)
        assert (process.returncode, err) == (0, "")
        summaries.append(json.loads(out))
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()
    scored = pd.read_parquet(tmp_path / "1.parquet")
    assert scored["n"].tolist() == list(range(N_MANY))
    question_is_missing = scored["question"].str.strip().fillna("") == ""
    has_none = scored["contexts"].map(lambda cell: cell is None or len(cell) == 0)
    expected = np.select([question_is_missing, has_none], ["missing_input", "no_contexts"], "ok")
    assert (scored["cr status"] == expected).all()
    assert (scored["cr"].notna() == (expected == "ok")).all()
    column = summaries[0]["columns"]["cr"]
    assert column["statuses"] == {str(k): int(v) for k, v in pd.Series(expected).value_counts().items()}
    assert sum(column["statuses"].values()) == column["n_total"] == summaries[0]["rows"] == N_MANY
    assert column["n_scored"] == column["statuses"]["ok"] == scored["cr"].notna().sum()
    assert column["coverage"] == column["n_scored"] / N_MANY
    assert column["mean"] == pytest.approx(scored["cr"].mean())
    assert summaries[1]["columns"] == summaries[0]["columns"]
    assert summaries[0]["texts"]["distinct"] == summaries[1]["texts"]["distinct"] == 101 + 997

"""The cache's file: shared, private, and never a reason for a run to fail."""

import os
import pickle
import random
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from rag_descriptors import Cache
from rag_descriptors.cache import store
from rag_descriptors.cache.keys import digest
from rag_descriptors.errors import CacheError, CacheWarning

ANSWERS = {digest(f"text {n}"): f"answer {n}".encode() * 20 for n in range(300)}
KEYS = list(ANSWERS)
SIZE = sum(map(len, ANSWERS.values()))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "answers.sqlite"


@pytest.fixture
def full(path):
    """A cache file with answers, closed."""
    with closing(Cache(path)) as cache:
        cache.put("vector", ANSWERS)
    return path


def sql(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(*(statement if isinstance(statement, tuple) else (statement,)))


def used(path):
    """Look all answers up, put them again, look again: what was found each time, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with closing(Cache(path)) as cache:
            before = cache.get(KEYS)
            cache.put("vector", ANSWERS)
            after = cache.get(KEYS)
    return before, after, [warning for warning in caught if issubclass(warning.category, CacheWarning)]


def holds_no_wrong_answer(found):
    return all(ANSWERS[key] == value for key, value in found.items())


# --- what it is for


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "temporary"])
def test_what_is_put_is_got(path, is_file):
    with closing(Cache(path if is_file else None)) as cache:
        assert cache.get(KEYS) == {}
        assert cache.get([]) == {}
        cache.put("vector", {})
        cache.put("vector", ANSWERS)
        assert cache.get(KEYS) == ANSWERS
        assert cache.get([KEYS[0], digest("unknown"), KEYS[0]]) == {KEYS[0]: ANSWERS[KEYS[0]]}
        cache.put("vector", {KEYS[0]: b"other"})
        assert cache.get(KEYS[:1]) == {KEYS[0]: b"other"}


def test_more_keys_than_one_question_takes(full):
    more = {digest(str(n)): b"x" for n in range(2 * store.KEYS_AT_ONCE + 1)}
    with closing(Cache(full)) as cache:
        cache.put("vector", more)
        assert cache.get([*more, *KEYS]) == {**more, **ANSWERS}


def test_close_and_open_again(path):
    cache = Cache(path)
    cache.put("vector", ANSWERS)
    cache.close()
    cache.close()
    assert cache.get(KEYS) == ANSWERS
    cache.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # the log is folded in
    assert used(path) == (ANSWERS, ANSWERS, [])


def test_a_temporary_cache_forgets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = Cache()
    cache.put("vector", ANSWERS)
    assert cache.stats() == store.CacheStats(entries={"vector": 300}, bytes={"vector": SIZE}, file_bytes=0)
    cache.close()
    assert cache.get(KEYS) == {}
    cache.close()
    assert list(tmp_path.iterdir()) == []


def test_a_pickled_copy_opens_the_same_file(full):
    with closing(Cache(full)) as cache, closing(pickle.loads(pickle.dumps(cache))) as copy:
        assert (repr(copy), copy.path) == (repr(cache), full)
        copy.put("vector", {digest("new"): b"new"})
        assert cache.get([digest("new")]) == {digest("new"): b"new"}
    with closing(Cache()) as cache, closing(pickle.loads(pickle.dumps(cache))) as copy:
        assert repr(copy) == "Cache(None)"


def test_what_a_fork_does_with_its_parents_caches(full):
    with closing(Cache(full)) as cache:
        parents, lock = cache._connection, cache._lock
        store._leave_all()
        assert store.LEFT[-1] is parents
        assert cache._lock is not lock
        assert cache.get(KEYS) == ANSWERS
        store.LEFT.remove(parents)
        parents.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks there")
@pytest.mark.parametrize("first", ["get", "close"])
def test_a_fork_opens_the_file_for_itself(full, first):
    with closing(Cache(full)) as cache:
        assert cache.get(KEYS[:1])
        parents = cache._connection
        with cache._lock:  # as another thread may hold it
            child = os.fork()
        if not child:
            cache.close() if first == "close" else cache.get(KEYS)
            cache.put("vector", {digest("new"): b"new"})
            os._exit(cache._connection is parents)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert cache.get([*KEYS, digest("new")]) == ANSWERS | {digest("new"): b"new"}
        assert cache._connection is parents


def test_home_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    with closing(Cache("~/c.sqlite")) as cache:
        assert cache.path == tmp_path / "c.sqlite"
        assert cache.path.exists()


def test_threads_share_a_cache(path):
    with closing(Cache(path)) as cache:

        def work(n):
            for key in KEYS[n::8]:
                cache.put("vector", {key: ANSWERS[key]})
            return cache.get(KEYS[n::8])

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(work, range(8)))
        assert {key: value for part in found for key, value in part.items()} == ANSWERS
        assert cache.get(KEYS) == ANSWERS


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_it(path, umask):
    before = os.umask(umask)
    try:
        with closing(Cache(path)) as cache:
            cache.put("vector", ANSWERS)
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert len(modes) > 1  # the log too
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_stats(full):
    with closing(Cache(full)) as cache:
        cache.put("verdict", {digest("v"): b"four"})
        stats = cache.stats()
    assert stats.entries == {"vector": 300, "verdict": 1}
    assert stats.bytes == {"vector": SIZE, "verdict": 4}
    assert stats.file_bytes > 0


@pytest.mark.parametrize(("days", "dropped"), [(3, 0), (1, 2), (0.5, 2), (0, 300)])
def test_prune_drops_what_is_old(full, days, dropped):
    old = time.time() - 2 * store.SECONDS_A_DAY
    sql(full, ("UPDATE answer SET created = ? WHERE key IN (?, ?)", (old, *KEYS[:2])))
    with closing(Cache(full)) as cache:
        assert cache.prune(days=days) == dropped
        assert len(cache.get(KEYS)) == 300 - dropped
        assert cache.prune(days=days) == 0


def test_clear_drops_all_and_gives_the_space_back(full):
    before = full.stat().st_size
    with closing(Cache(full)) as cache:
        assert cache.clear() == 300
        assert (cache.get(KEYS), cache.stats().entries) == ({}, {})
    assert full.stat().st_size < before / 2
    assert b"answer 7" not in full.read_bytes()


# --- damage: a miss, one warning, no error


@pytest.mark.parametrize("size", [15, 16, 100, 1024, 4096, 5000, 8192, 20_000])
def test_a_truncated_file(full, size):
    os.truncate(full, size)
    before, after, told = used(full)
    assert holds_no_wrong_answer(before)
    assert after == ANSWERS
    assert len(told) == 1
    assert f"If {full} is a cache, delete it" in str(told[0].message)


@pytest.mark.parametrize("size", [0, 1])
def test_an_empty_file_is_a_new_cache(full, size):
    os.truncate(full, size)
    assert used(full) == ({}, ANSWERS, [])


@pytest.mark.parametrize(
    "content",
    [b"some text\n" * 1000, b"\0" * 8192, b"SQLite format 3\0" + b"\xff" * 8000, pickle.dumps([1])],
    ids=["text", "zeros", "header", "pickle"],
)
def test_a_file_that_is_no_cache_is_left_as_it_is(full, content):
    full.write_bytes(content)
    before, after, told = used(full)
    assert (before, after, len(told)) == ({}, ANSWERS, 1)
    assert full.read_bytes() == content


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes(full, seed):
    draw = random.Random(seed)
    content = bytearray(full.read_bytes())
    for _ in range(draw.choice([1, 10, 1000])):
        content[draw.randrange(len(content))] ^= draw.randrange(1, 256)
    full.write_bytes(bytes(content))
    before, after, told = used(full)
    assert holds_no_wrong_answer(before)
    assert holds_no_wrong_answer(after)
    assert len(told) == 1 or before == after == ANSWERS


@pytest.mark.parametrize("place", range(0, 100, 4))
def test_a_damaged_header(full, place):
    content = bytearray(full.read_bytes())
    content[place : place + 4] = b"\xde\xad\xbe\xef"
    full.write_bytes(bytes(content))
    before, after, told = used(full)
    assert holds_no_wrong_answer(before)
    assert holds_no_wrong_answer(after)
    assert len(told) <= 1


@pytest.mark.parametrize("name", ["answers.sqlite-wal", "answers.sqlite-shm", "answers.sqlite-journal"])
@pytest.mark.parametrize("content", [b"x" * 5000, b"\0" * 100], ids=["text", "zeros"])
def test_a_damaged_log(full, name, content):
    full.with_name(name).write_bytes(content)
    before, after, told = used(full)
    assert holds_no_wrong_answer(before)
    assert after == ANSWERS
    assert len(told) <= 1


@pytest.mark.parametrize(
    "value",
    [b"", b"other", pickle.dumps(print), "text", 7, 1.5, b"\0" * 10_000],
    ids=["empty", "other", "pickle", "text", "int", "float", "long"],
)
def test_a_tampered_value_is_a_miss(full, value):
    sql(full, ("UPDATE answer SET value = ? WHERE key = ?", (value, KEYS[0])))
    before, after, told = used(full)
    assert before == {key: answer for key, answer in ANSWERS.items() if key != KEYS[0]}
    assert (after, len(told)) == (ANSWERS, 1)
    assert used(full) == (ANSWERS, ANSWERS, [])  # mended for good


def test_values_that_changed_places_are_misses(full):
    swap = "UPDATE answer SET value = (SELECT value FROM answer WHERE key = ?) WHERE key = ?"
    sql(full, (swap, (KEYS[0], KEYS[1])))
    before, after, told = used(full)
    assert KEYS[1] not in before
    assert (len(before), after, len(told)) == (299, ANSWERS, 1)


@pytest.mark.parametrize("checksum", [b"", b"\0" * 8, "text", 5])
def test_a_tampered_checksum_is_a_miss(full, checksum):
    sql(full, ("UPDATE answer SET checksum = ?", (checksum,)))
    before, after, told = used(full)
    assert (before, after, len(told)) == ({}, ANSWERS, 1)


def test_damage_is_told_once(full):
    sql(full, "UPDATE answer SET checksum = x'00'")
    with closing(Cache(full)) as cache:
        with pytest.warns(CacheWarning, match="entries of the cache are damaged"):
            assert cache.get(KEYS[:5]) == {}
        assert cache.get(KEYS) == {}  # a second warning would be an error here


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE answer RENAME COLUMN value TO worth"],
        ["ALTER TABLE answer ADD COLUMN more TEXT"],
        ["DROP TABLE answer", "CREATE TABLE answer (key BLOB, value BLOB)"],
        ["DROP TABLE answer", "CREATE VIEW answer AS SELECT 1 AS key"],
        ["CREATE TRIGGER stop BEFORE INSERT ON answer BEGIN SELECT RAISE(ABORT, 'no'); END"],
    ],
    ids=["renamed", "more", "other", "view", "trigger"],
)
def test_another_schema_is_survived(full, statements):
    sql(full, *statements)
    before, after, told = used(full)
    assert holds_no_wrong_answer(before)
    assert (after, len(told)) == (ANSWERS, 1)


def test_a_missing_table_is_made_again(full):
    sql(full, "DROP TABLE answer")
    assert used(full) == ({}, ANSWERS, [])


def test_damage_while_it_is_open(full):
    with closing(Cache(full)) as cache:
        sql(full, "DROP TABLE answer")
        with pytest.warns(CacheWarning, match="goes on without it"):
            assert cache.get(KEYS) == {}
        cache.put("vector", ANSWERS)  # a second warning would be an error here
        assert cache.get(KEYS) == ANSWERS


def test_a_file_deleted_while_it_is_open(full):
    with closing(Cache(full)) as cache:
        full.unlink()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            cache.put("vector", ANSWERS)
        assert cache.get(KEYS) == ANSWERS


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_file_is_survived(full):
    full.chmod(0o400)
    full.parent.chmod(0o500)
    try:
        before, after, told = used(full)
    finally:
        full.parent.chmod(0o700)
    assert holds_no_wrong_answer(before)
    assert (after, len(told)) == (ANSWERS, 1)


def test_a_file_on_a_read_only_disk_is_survived(full):
    try:
        subprocess.run(["mount", "--bind", "-o", "ro", full.parent, full.parent], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a read-only disk can't be mounted here")
    try:
        before, after, told = used(full)
    finally:
        subprocess.run(["umount", full.parent], check=True)
    assert holds_no_wrong_answer(before)
    assert (after, len(told)) == (ANSWERS, 1)
    assert "What it holds stands: let yourself write" in str(told[0].message)


def test_each_kind_of_trouble_is_told_once(full):
    with closing(Cache(full)) as cache:
        sql(full, "UPDATE answer SET value = x'00'")
        with pytest.warns(CacheWarning, match="entries of the cache are damaged"):
            cache.get(KEYS)
        cache.get(KEYS)  # a second warning would be an error here
        with pytest.warns(CacheWarning, match="busy"):
            cache.warn("the file is busy.", "Run again.")


def test_a_file_locked_for_good_is_survived(full, monkeypatch):
    monkeypatch.setattr(store, "BUSY_TIMEOUT_S", 0)
    with closing(sqlite3.connect(full, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        _, after, told = used(full)
    assert (after, len(told)) == (ANSWERS, 1)
    assert "locked" in str(told[0].message)


def test_a_new_file_that_another_process_is_about_to_fill_is_waited_for(tmp_path):
    with closing(sqlite3.connect(tmp_path / "c", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.3, other.execute, ["COMMIT"]).start()
        assert used(tmp_path / "c") == ({}, ANSWERS, [])


def test_what_a_busy_file_could_not_take_is_written_in_the_end(full, monkeypatch):
    monkeypatch.setattr(store, "BUSY_TIMEOUT_S", 0)
    cache = Cache(full)
    with closing(sqlite3.connect(full, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.warns(CacheWarning, match=r"locked\); .* and tries to write it at its end"):
            cache.put("vector", {b"late": b"answer"})
        other.execute("ROLLBACK")
    assert cache.get([b"late"]) == {b"late": b"answer"}
    with pytest.raises(CacheError, match=r"can't be used now \(database is locked\)\. What it holds stands"):
        cache.stats()
    cache.close()
    assert cache.stats().entries == {"vector": len(ANSWERS) + 1}  # it is the file that is open again
    assert cache.get([b"late", *KEYS]) == {b"late": b"answer", **ANSWERS}
    cache.close()


# --- paths that can't be


@pytest.mark.parametrize("name", ["folder", "file/c.sqlite", "file/deep/c.sqlite"])
def test_a_path_that_cannot_be_made(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(CacheError, match=r"can't be used: .*Give another path, or none"):
        Cache(tmp_path / name)


@pytest.mark.parametrize(
    "use", [Cache.stats, Cache.clear, lambda cache: cache.prune(days=1)], ids=["stats", "clear", "prune"]
)
def test_commands_on_damage_are_errors(full, use):
    with closing(Cache(full)) as cache:
        sql(full, "DROP TABLE answer")
        with pytest.raises(CacheError, match=r"no such table: answer\. Give another path"):
            use(cache)


# --- a full disk


FILL = """
import resource, sys, warnings
from rag_descriptors import Cache
warnings.showwarning = lambda message, *_: print("warned:", message)
cache = Cache(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
answers = {n.to_bytes(16): b"x" * 1000 for n in range(int(sys.argv[2]))}
for key, value in answers.items():
    cache.put("vector", {key: value})
last = list(answers)[-50:]
print(cache.get(last) == {key: answers[key] for key in last})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes there")
@pytest.mark.parametrize("n", [150, 9000])
def test_a_file_that_cannot_grow_is_survived(full, n):
    command = [sys.executable, "-c", FILL, str(full), str(n)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    first, last = done.stdout.splitlines()
    assert first.startswith("warned: the cache can't be used")
    assert last == "True"
    assert used(full) == (ANSWERS, ANSWERS, [])  # what was there is there


@pytest.mark.parametrize(
    ("pragma", "says"),
    [
        ("max_page_count = 1", "database or disk is full"),
        ("query_only = 1", "readonly database"),
    ],
)
def test_a_sound_cache_that_takes_no_more_is_not_to_be_deleted(full, pragma, says):
    with closing(Cache(full)) as cache:
        cache.get(KEYS)
        cache._connection.execute(f"PRAGMA {pragma}")
        with pytest.warns(CacheWarning, match=rf"{says}.* What it holds stands: .* give another path\.$") as told:
            cache.put("vector", {b"new": bytes(1_000_000)})
        assert cache.get([b"new"]) == {b"new": bytes(1_000_000)}
    assert len(told) == 1
    with closing(Cache(full)) as cache:
        assert len(cache.get(KEYS)) == len(KEYS)

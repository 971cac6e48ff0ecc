"""One SQLite file of answers, shared by processes; no pickle, and no text but what a judge answered.

Every entry carries a checksum: a damaged one is a miss. A file that can't be read or written is left as it is, and the
run goes on with a temporary one; if it was only busy, full or out of reach, what the run found is written into it at
its end, should that be possible by then. Either way there is one warning.
"""

import hashlib
import math
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Self, TypeVar
from weakref import WeakSet

from rag_descriptors.errors import CacheError, CacheWarning

__all__ = ["Cache", "CacheStats"]

T = TypeVar("T")
SCHEMA = """
CREATE TABLE IF NOT EXISTS answer (
    key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, value BLOB NOT NULL, checksum BLOB NOT NULL, created REAL NOT NULL
)
"""
INSERT = "REPLACE INTO answer VALUES (?, ?, ?, ?, ?)"
KEYS_AT_ONCE = 500
BUSY_TIMEOUT_S, BUSY_WAIT_S = 60, 0.01
SECONDS_A_DAY = 86_400
WAYS_OUT = {
    sqlite3.SQLITE_FULL: "What it holds stands: free some space, or give another path.",
    sqlite3.SQLITE_IOERR: "Look whether the disk is full or can't be reached; else give another path.",
    sqlite3.SQLITE_READONLY: "What it holds stands: let yourself write there, or give another path.",
    sqlite3.SQLITE_CANTOPEN: "What it holds stands: let yourself write into its folder, or give another path.",
    sqlite3.SQLITE_PERM: "What it holds stands: let yourself write there, or give another path.",
    sqlite3.SQLITE_PROTOCOL: "What it holds stands: run again, or give another path.",
    sqlite3.SQLITE_NOMEM: "What it holds stands: free some memory, and run again.",
    sqlite3.SQLITE_BUSY: "What it holds stands: another process kept it to itself. Run again, or give another path.",
}


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """What a cache holds: entries and bytes of answers per kind, and the size of its file in bytes."""

    entries: Mapping[str, int]
    bytes: Mapping[str, int]
    file_bytes: int


class Cache:
    """Answers by key, in a file that processes share, or for one run only.

    Transactions are short, and none is open while a model works. Another process, be the cache pickled for it or forked
    with it, opens the file for itself.

    Args:
        path: The file, made with mode 0600 if there is none; None keeps the answers in a temporary file that goes with
            the object. A network file system can't hold it.

    Raises:
        CacheError: The file can't be made or opened.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path).expanduser().absolute()
        self._lock = RLock()
        self._warned: set[str] = set()
        self._set_aside_by: sqlite3.Error | None = None
        self._connection: sqlite3.Connection | None = None
        CACHES.add(self)
        self._try(self._connected)

    def __repr__(self) -> str:
        return f"Cache({None if self.path is None else str(self.path)!r})"

    def __reduce__(self) -> tuple[type[Self], tuple[Path | None]]:
        return type(self), (self.path,)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the answers that are known, by key."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), KEYS_AT_ONCE):
            found |= self._try(partial(self._select, keys[start : start + KEYS_AT_ONCE]))
        return found

    def put(self, kind: str, answers: Mapping[bytes, bytes]) -> None:
        """Keep answers of one kind, in one transaction; known keys are replaced."""
        now = time.time()
        rows = [(key, kind, value, _checksum(key, value), now) for key, value in answers.items()]
        self._try(partial(self._insert, rows))

    def stats(self) -> CacheStats:
        """Return how much the cache holds."""
        self._check_in_use()
        with self._lock, _told(self.path):
            rows = self._connected().execute("SELECT kind, count(*), sum(length(value)) FROM answer GROUP BY kind")
            sizes = {kind: (entries, size) for kind, entries, size in rows}
        return CacheStats(
            entries={kind: entries for kind, (entries, _) in sizes.items()},
            bytes={kind: size for kind, (_, size) in sizes.items()},
            file_bytes=self.path.stat().st_size if self.path else 0,
        )

    def prune(self, *, days: float) -> int:
        """Drop answers that were stored more than `days` ago; return how many."""
        return self._delete(before=time.time() - days * SECONDS_A_DAY)

    def clear(self) -> int:
        """Drop all answers; return how many."""
        return self._delete(before=math.inf)

    def _delete(self, *, before: float) -> int:
        self._check_in_use()
        with self._lock, _told(self.path):
            with self._connected() as connection:
                deleted = connection.execute("DELETE FROM answer WHERE created < ?", (before,)).rowcount
            connection.execute("VACUUM")
        return deleted

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                if self._set_aside_by is not None and _way_out(self._set_aside_by):
                    self._hand_over(self._connection)
                self._connection.close()
                self._connection = self._set_aside_by = None

    def _hand_over(self, kept: sqlite3.Connection) -> None:
        """Write into the file what was kept beside it, if that is possible by now."""
        with suppress(CacheError, sqlite3.Error), closing(_connect(self.path)) as connection, connection:
            connection.executemany(INSERT, kept.execute("SELECT key, kind, value, checksum, created FROM answer"))

    def _check_in_use(self) -> None:
        if self._set_aside_by is not None:
            way_out = _way_out(self._set_aside_by)
            problem = f"can't be used now ({self._set_aside_by})" if way_out else "is no cache, or a damaged one"
            raise CacheError(f"{str(self.path)!r} {problem}. {way_out or 'Give another path, or delete it.'}")

    def _select(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        marks = ",".join("?" * len(keys))
        rows = self._connected().execute(f"SELECT key, value, checksum FROM answer WHERE key IN ({marks})", keys)  # noqa: S608 - marks only
        found = {key: (value, checksum) for key, value, checksum in rows}
        sound = {key: value for key, (value, checksum) in found.items() if checksum == _checksum(key, value)}
        if len(sound) < len(found):
            self.warn("entries of the cache are damaged; they are worked out again.")
        return sound

    def _insert(self, rows: Sequence[Sequence[object]]) -> None:
        with self._connected() as connection:
            connection.executemany(INSERT, rows)

    def _try(self, work: Callable[[], T]) -> T:
        with self._lock:
            try:
                return work()
            except sqlite3.Error as error:
                way_out = _way_out(error)
                end = "tries to write it at its end" if way_out else "keeps nothing in it"
                self.warn(f"the cache can't be used ({error}); this run goes on without it, and {end}.", way_out)
                self.close()
                self._set_aside_by = error
                with _told(self.path):
                    self._connection = _connect(None)
                    return work()

    def warn(self, problem: str, way_out: str | None = None) -> None:
        """Tell of damage, or of another kind of trouble, once, and what to do about it."""
        hint = way_out or f"If {self.path} is a cache, delete it with its -wal and -shm files; else give another path."
        if hint not in self._warned:
            self._warned.add(hint)
            warnings.warn(f"{problem} {hint}", CacheWarning, stacklevel=2)

    def _connected(self) -> sqlite3.Connection:
        with self._lock:
            if self._connection is None:
                self._connection = _connect(self.path)
            return self._connection

    def leave_to_parent(self) -> None:
        """Go on, in a process that was forked, without what is the parent's, which SQLite forbids to use or close."""
        LEFT.append(self._connection)
        self._lock = RLock()
        self._connection = self._set_aside_by = None


CACHES: WeakSet[Cache] = WeakSet()
LEFT: list[sqlite3.Connection | None] = []  # so that they stay open


def _leave_all() -> None:
    for cache in CACHES:
        cache.leave_to_parent()


getattr(os, "register_at_fork", dict)(after_in_child=_leave_all)  # where there are forks


@contextmanager
def _told(path: Path | None) -> Iterator[None]:
    """Name the file in what the system or SQLite says of it."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise CacheError(f"the cache {str(path)!r} can't be used: {error}. Give another path, or none.") from error


def _way_out(error: sqlite3.Error) -> str | None:
    """Return what to do about a cache that is sound, but can't be used now; None where it may be damaged."""
    return WAYS_OUT.get(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF)


def _connect(path: Path | None) -> sqlite3.Connection:
    with _told(path):
        if path is not None and not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(path or "", timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000}")
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work at once; where others are about to do the same, SQLite itself does not wait."""
    end = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(BUSY_WAIT_S)
        else:
            return


def _checksum(key: bytes, value: object) -> bytes | None:
    if not isinstance(value, bytes):
        return None
    return hashlib.blake2b(value, key=key, digest_size=8).digest()

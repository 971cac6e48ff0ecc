"""What the models of a run were given, counted: each text and each prompt once."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rag_descriptors.errors import CacheError
from rag_descriptors.models.judge import NOT_ASKED, Answer, Verdict

__all__ = ["JudgeMeter", "Share", "TextMeter"]

TURN_TIMEOUT_S = 60
KNOWN, ANSWERED = "known", "answered"  # what became of a prompt; else it is the status of its failure


@dataclass(frozen=True, kw_only=True)
class Share:
    """The part that one process has in a run of several.

    Attributes:
        seen: The file in which they count texts together.
        start: Where in its texts it begins to encode, a share of them that no other process has.
    """

    seen: Path
    start: float


class TextMeter:
    """Counts the distinct texts of a run; which ones they were is kept on disk, not in memory.

    Args:
        path: A file that the processes of one run share: a text is counted by the first that meets it, so that their
            counts add up. None is a temporary one.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.distinct = self.encoded = self.cut = 0
        self._seen = _table(path, "seen (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def count(self, keys: Sequence[bytes], is_cut: npt.NDArray[np.bool_], *, n_encoded: int) -> None:
        """Count texts by key, each once in a run."""
        n_cut = self._first_seen(compress(keys, is_cut))
        self.cut += n_cut
        self.distinct += n_cut + self._first_seen(compress(keys, ~is_cut))
        self.encoded += n_encoded

    def count_unread(self, keys: Sequence[bytes], known: Collection[bytes]) -> None:
        """Count texts of an estimate by key: those that are not known would be encoded, each once in a run."""
        n_new = self._first_seen(key for key in keys if key not in known)
        self.encoded += n_new
        self.distinct += n_new + self._first_seen(key for key in keys if key in known)

    def close(self) -> None:
        """Forget which texts were counted."""
        self._seen.close()

    def _first_seen(self, keys: Iterable[bytes]) -> int:
        with _counting(), self._seen as connection:
            return connection.executemany("INSERT OR IGNORE INTO seen VALUES (?)", ((key,) for key in keys)).rowcount


def _table(path: Path | None, columns: str) -> sqlite3.Connection:
    """Return a file with a table, a temporary one without a path."""
    with _counting():
        connection = sqlite3.connect(path or "", timeout=TURN_TIMEOUT_S, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"CREATE TABLE IF NOT EXISTS {columns}")
        return connection


@contextmanager
def _counting() -> Iterator[None]:
    """Say what failed where the temporary file of what was counted can't be written."""
    try:
        yield
    except sqlite3.Error as error:
        raise CacheError(f"a temporary file of what was counted: {error}. Make room for it in TMPDIR.") from error


class JudgeMeter:
    """Counts what the judges of a run were asked; which prompts they were is kept on disk, not in memory.

    Attributes:
        calls: Calls made, tries included.
        prompt_tokens: Tokens sent.
        completion_tokens: Tokens received.
        cost: US dollars; None where no price is known.
        saved: US dollars that the known answers had cost; None likewise.
    """

    def __init__(self) -> None:
        self.calls = self.prompt_tokens = self.completion_tokens = 0
        self.cost: float | None = None
        self.saved: float | None = None
        self._became = _table(None, "became (key BLOB PRIMARY KEY, what TEXT) WITHOUT ROWID")
        self._counts = Counter[str]()
        self._messages: dict[str, str | None] = {}

    def count_known(self, key: bytes, answer: Answer) -> None:
        """Count an answer that was known before the run."""
        if self._is_first(key, KNOWN):
            self.saved = _sum(self.saved, answer.usage.cost)

    def count(self, key: bytes, answer: Answer, verdict: Verdict) -> None:
        """Count an answer, and whether it could be used; what an estimate would ask counts once."""
        if verdict.failure == NOT_ASKED and not self._is_first(key, ANSWERED):
            return
        self.calls += answer.calls
        self.prompt_tokens += answer.usage.prompt_tokens or 0
        self.completion_tokens += answer.usage.completion_tokens or 0
        self.cost = _sum(self.cost, answer.usage.cost)
        is_failure = verdict.failure is not None and verdict.failure != NOT_ASKED
        self._settle(key, str(verdict.failure) if is_failure else ANSWERED)
        if is_failure:
            self._messages.setdefault(str(verdict.failure), verdict.message)

    def close(self) -> None:
        """Forget which prompts were counted, not how many."""
        self._became.close()

    @property
    def prompts(self) -> int:
        """Distinct prompts."""
        return self._counts.total()

    @property
    def was_answered(self) -> bool:
        """Whether a judge has answered in this run."""
        return self._counts[ANSWERED] > 0

    @property
    def cached(self) -> int:
        """Prompts whose answer was known."""
        return self._counts[KNOWN]

    @property
    def failures(self) -> dict[str, int]:
        """Prompts without an answer that can be used, per status."""
        return {what: n for what, n in sorted(self._counts.items()) if n and what not in (KNOWN, ANSWERED)}

    @property
    def messages(self) -> dict[str, str | None]:
        """What was said of the first failure of each status."""
        return {status: self._messages[status] for status in self.failures}

    def _is_first(self, key: bytes, what: str) -> bool:
        """Note what became of a prompt that was not met before; return whether it was not."""
        with _counting(), self._became as connection:
            is_first = connection.execute("INSERT OR IGNORE INTO became VALUES (?, ?)", (key, what)).rowcount > 0
        self._counts[what] += is_first
        return is_first

    def _settle(self, key: bytes, what: str) -> None:
        """Note what became of a prompt, whatever that was before."""
        if not self._is_first(key, what):
            with _counting(), self._became as connection:
                (before,) = connection.execute("SELECT what FROM became WHERE key = ?", (key,)).fetchone()
                connection.execute("UPDATE became SET what = ? WHERE key = ?", (what, key))
            self._counts[before] -= 1
            self._counts[what] += 1


def _sum(total: float | None, more: float | None) -> float | None:
    return total if more is None else (total or 0.0) + more

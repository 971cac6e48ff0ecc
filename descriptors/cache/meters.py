"""What the models of a run were given, counted: each text and each prompt once."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rag_descriptors.errors import CacheError
from rag_descriptors.models.judge import NOT_ASKED, Answer, Verdict

__all__ = ["JudgeMeter", "Share", "TextMeter"]

TURN_TIMEOUT_S = 60


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
        with _counting():
            self._seen = sqlite3.connect(path or "", timeout=TURN_TIMEOUT_S, check_same_thread=False)
            self._seen.execute("PRAGMA synchronous = OFF")
            self._seen.execute("CREATE TABLE IF NOT EXISTS seen (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def count(self, keys: Sequence[bytes], is_cut: npt.NDArray[np.bool_], *, n_encoded: int) -> None:
        """Count texts by key, each once in a run."""
        n_cut = self._first_seen(compress(keys, is_cut))
        self.cut += n_cut
        self.distinct += n_cut + self._first_seen(compress(keys, ~is_cut))
        self.encoded += n_encoded

    def close(self) -> None:
        """Forget which texts were counted."""
        self._seen.close()

    def _first_seen(self, keys: Iterable[bytes]) -> int:
        with _counting(), self._seen as connection:
            return connection.executemany("INSERT OR IGNORE INTO seen VALUES (?)", ((key,) for key in keys)).rowcount


@contextmanager
def _counting() -> Iterator[None]:
    """Say what failed where the temporary file of counted texts can't be written."""
    try:
        yield
    except sqlite3.Error as error:
        raise CacheError(f"texts can't be counted in a temporary file: {error}. Make room for it in TMPDIR.") from error


@dataclass
class JudgeMeter:
    """Counts what the judges of a run were asked."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    saved: float | None = None
    _known: set[bytes] = field(default_factory=set)
    _answered: set[bytes] = field(default_factory=set)
    _failed: dict[bytes, str] = field(default_factory=dict)
    _messages: dict[str, str | None] = field(default_factory=dict)

    def count_known(self, key: bytes, answer: Answer) -> None:
        """Count an answer that was known before the run."""
        if key not in self._known and key not in self._answered:
            self._known.add(key)
            self.saved = _sum(self.saved, answer.usage.cost)

    def count(self, key: bytes, answer: Answer, verdict: Verdict) -> None:
        """Count an answer, and whether it could be used."""
        self.calls += answer.calls
        self.prompt_tokens += answer.usage.prompt_tokens or 0
        self.completion_tokens += answer.usage.completion_tokens or 0
        self.cost = _sum(self.cost, answer.usage.cost)
        self._failed.pop(key, None)
        if verdict.failure is None or verdict.failure == NOT_ASKED:
            self._answered.add(key)
        else:
            self._failed[key] = verdict.failure
            self._messages.setdefault(verdict.failure, verdict.message)

    @property
    def prompts(self) -> int:
        """Distinct prompts."""
        return len(self._known) + len(self._answered) + len(self._failed)

    @property
    def was_answered(self) -> bool:
        """Whether a judge has answered in this run."""
        return bool(self._answered)

    @property
    def cached(self) -> int:
        """Prompts whose answer was known."""
        return len(self._known)

    @property
    def failures(self) -> dict[str, int]:
        """Prompts without an answer that can be used, per status."""
        return dict(sorted(Counter(self._failed.values()).items()))

    @property
    def messages(self) -> dict[str, str | None]:
        """What was said of the first failure of each status."""
        return {status: self._messages[status] for status in self.failures}


def _sum(total: float | None, more: float | None) -> float | None:
    return total if more is None else (total or 0.0) + more

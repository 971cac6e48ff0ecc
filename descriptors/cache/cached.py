"""Models that answer each distinct question once."""

import hashlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from rag_descriptors.cache.store import Cache
from rag_descriptors.errors import ModelError
from rag_descriptors.models.embedder import Embedder, Embeddings, Role
from rag_descriptors.progress import Progress

__all__ = ["CachedEmbedder", "TextMeter", "digest"]

FIRST_BLOCK = 16  # texts
SECONDS_A_BLOCK = 1
VECTOR = "vector"
ITEM = 4  # bytes of an int32 or a float32


class CachedEmbedder:
    """An embedder that looks into a cache first, and stores what it has to encode as soon as it is known."""

    def __init__(self, embedder: Embedder, cache: Cache, meter: "TextMeter", progress: Progress) -> None:
        self._embedder = embedder
        self._cache = cache
        self._meter = meter
        self._progress = progress
        self._unkept: dict[bytes, bytes] = {}

    def identity(self, role: Role) -> Mapping[str, Any]:
        """Return the identity of the embedder itself."""
        return self._embedder.identity(role)

    def windows(self, texts: Sequence[str], role: Role) -> list[list[str]]:
        """Return the windows that the embedder itself cuts."""
        return self._embedder.windows(texts, role)  # type: ignore[attr-defined, no-any-return]

    def embed(self, texts: Sequence[str], role: Role) -> Embeddings:
        """Return one vector per text; `texts` are distinct."""
        identity = json.dumps(dict(self.identity(role)), sort_keys=True, default=str)
        keys = [digest(VECTOR, identity, text) for text in texts]
        known = self._known(keys)
        missing = [place for place, key in enumerate(keys) if key not in known]
        self._progress.expect(len(missing))
        for places in _blocks(sorted(missing, key=lambda place: len(texts[place]), reverse=True)):
            answers = self._encode([texts[place] for place in places], role)
            encoded = dict(zip((keys[place] for place in places), answers, strict=True))
            self._keep(encoded)
            known |= encoded
            self._progress.advance(len(places))
        embeddings = self._unpack([known[key] for key in keys])
        self._meter.count(keys, embeddings.unread > 0, n_encoded=len(missing))
        return embeddings

    def _known(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """Return what the cache has, without entries that can't be vectors of one model."""
        found = self._cache.get(keys) | {key: self._unkept[key] for key in keys if key in self._unkept}
        sizes = Counter(len(value) for value in found.values() if len(value) > ITEM and len(value) % ITEM == 0)
        size = max(sizes, key=sizes.__getitem__, default=0)
        sound = {key: value for key, value in found.items() if len(value) == size}
        if len(sound) < len(found):
            self._cache.warn("entries of the cache hold no vectors; they are worked out again.")
        return sound

    def _keep(self, answers: Mapping[bytes, bytes]) -> None:
        """Store answers: in the cache, or for this run alone where they are no numbers."""
        finite = {key: answer for key, answer in answers.items() if np.isfinite(_unpack([answer]).vectors).all()}
        self._cache.put(VECTOR, finite)
        self._unkept |= {key: answer for key, answer in answers.items() if key not in finite}

    def _unpack(self, answers: Sequence[bytes]) -> Embeddings:
        if len({len(answer) for answer in answers}) > 1:
            raise ModelError(
                f"{self._embedder!r} gave vectors of different lengths under one identity. "
                "Let its identity name all that changes a vector, and clear the cache."
            )
        return _unpack(answers)

    def _encode(self, texts: list[str], role: Role) -> list[bytes]:
        read = self._embedder.embed(texts, role)
        try:
            vectors, unread = np.asarray(read.vectors, np.float32), np.asarray(read.unread, np.int32)
        except (AttributeError, TypeError, ValueError) as error:
            raise ModelError(
                f"{self._embedder!r} gave {type(read).__name__}, not Embeddings of numbers: {error}"
            ) from error
        if vectors.ndim != 2 or 0 in vectors.shape or len(vectors) != len(texts) or unread.shape != (len(texts),):
            raise ModelError(
                f"{self._embedder!r} gave vectors of shape {vectors.shape} and unread of shape {unread.shape} for "
                f"{len(texts)} texts. It must return one vector and one count per text."
            )
        return [n.tobytes() + vector.tobytes() for n, vector in zip(unread, vectors, strict=True)]


def digest(*fields: str) -> bytes:
    """Return a 16-byte blake2b of the fields, each framed by its length, so that no two lists of fields collide."""
    encoded = [field.encode() for field in fields]
    return hashlib.blake2b(b"".join(b"%d:%b" % (len(field), field) for field in encoded), digest_size=16).digest()


def _blocks(places: list[int]) -> Iterator[list[int]]:
    """Yield places in blocks that are done in about a second: so little can a kill lose."""
    size, start = FIRST_BLOCK, 0
    while start < len(places):
        began = time.monotonic()
        yield places[start : start + size]
        start += size
        size = size * 2 if time.monotonic() - began < SECONDS_A_BLOCK / 2 else max(size // 2, FIRST_BLOCK)


def _unpack(answers: Sequence[bytes]) -> Embeddings:
    """Return stored answers as arrays: each is an int32 of unread tokens, then the float32 vector."""
    table = np.frombuffer(b"".join(answers), np.int32).reshape(len(answers), -1)
    return Embeddings(np.ascontiguousarray(table[:, 1:]).view(np.float32), table[:, 0])


class TextMeter:
    """Counts the distinct texts of a run; which ones they were is kept on disk, not in memory."""

    def __init__(self) -> None:
        self.distinct = self.encoded = self.cut = 0
        self._seen = sqlite3.connect("", check_same_thread=False)
        self._seen.execute("CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID")

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
        with self._seen as connection:
            return connection.executemany("INSERT OR IGNORE INTO seen VALUES (?)", ((key,) for key in keys)).rowcount

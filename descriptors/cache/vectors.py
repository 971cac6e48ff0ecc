"""An embedder that encodes each distinct text once."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rag_descriptors.cache.keys import blocks, digest
from rag_descriptors.cache.meters import TextMeter
from rag_descriptors.cache.store import Cache
from rag_descriptors.errors import ModelError
from rag_descriptors.models.calls import check_wanted
from rag_descriptors.models.embedder import Embedder, Embeddings, Role
from rag_descriptors.models.identity import identity_key
from rag_descriptors.progress import Progress

__all__ = ["CachedEmbedder", "UnusedEmbedder"]

VECTOR = "vector"
ITEM = 4  # bytes of an int32 or a float32
ROOM = 64 * 1024 * 1024  # bytes of texts and answers at hand, about


class CachedEmbedder:
    """An embedder that looks into a cache first, and stores what it has to encode as soon as it is known.

    The answers found last stay at hand, as far as they need little room: batch after batch holds much the same texts.

    Args:
        embedder: What encodes.
        cache: Where vectors are looked up and kept.
        meter: Counts the texts.
        progress: Shows how many are to be encoded.
        start: Where in its texts one process of several begins, a share of them. It looks into the cache again before
            each block, so that all of them together encode most texts once; None where there are no others.
    """

    def __init__(
        self, embedder: Embedder, cache: Cache, meter: TextMeter, progress: Progress, start: float | None = None
    ) -> None:
        self._start = start
        self._embedder = embedder
        self._cache = cache
        self._meter = meter
        self._progress = progress
        self._unkept: dict[bytes, bytes] = {}
        self._at_hand = defaultdict[str, dict[str, bytes]](dict)
        self._filled = 0

    def identity(self, role: Role) -> Mapping[str, Any]:
        """Return the identity of the embedder itself."""
        return self._embedder.identity(role)

    def windows(self, texts: Sequence[str], role: Role) -> list[list[str]]:
        """Return the windows that the embedder itself cuts."""
        return self._embedder.windows(texts, role)  # type: ignore[attr-defined, no-any-return]

    def embed(self, texts: Sequence[str], role: Role) -> Embeddings:
        """Return one vector per text; `texts` are distinct."""
        identity = identity_key(self._embedder, role)
        at_hand = self._at_hand[identity]
        recent = {text: at_hand[text] for text in texts if text in at_hand}
        answers = recent | self._find([text for text in texts if text not in recent], role, identity, recent.values())
        return self._unpack([answers[text] for text in texts])

    def _find(self, texts: Sequence[str], role: Role, identity: str, others: Collection[bytes]) -> dict[str, bytes]:
        """Return the answers to texts that are not at hand, from the cache or the embedder, and count the texts."""
        keys = [digest(VECTOR, identity, text) for text in texts]
        known = self._known(keys, others)
        missing = [place for place, key in enumerate(keys) if key not in known]
        self._progress.expect(len(missing))
        missing.sort(key=lambda place: len(texts[place]), reverse=True)
        n_encoded = 0
        for places in blocks(missing, self._start):
            check_wanted()
            known |= {} if self._start is None else self._known([keys[place] for place in places], others)
            left = [place for place in places if keys[place] not in known]
            encoded = self._encode({keys[place]: texts[place] for place in left}, role)
            known |= encoded
            n_encoded += len(encoded)
            self._progress.advance(len(places))
        answers = {text: known[key] for text, key in zip(texts, keys, strict=True)}
        unread = np.frombuffer(b"".join(answers[text][:ITEM] for text in texts), np.int32)
        self._meter.count(keys, unread > 0, n_encoded=n_encoded)
        self._remember(identity, answers)
        return answers

    def _remember(self, identity: str, answers: Mapping[str, bytes]) -> None:
        """Keep answers at hand; all go when they take more room than there is."""
        self._at_hand[identity] |= answers
        self._filled += sum(len(text) + len(answer) for text, answer in answers.items())
        if self._filled > ROOM:
            self._at_hand.clear()
            self._filled = 0

    def _known(self, keys: Sequence[bytes], others: Collection[bytes]) -> dict[bytes, bytes]:
        """Return what the cache has, without entries that can't be vectors of one model, as `others` are."""
        found = self._cache.get(keys) | {key: self._unkept[key] for key in keys if key in self._unkept}
        sizes = Counter(map(len, [*found.values(), *others]))
        possible = (size for size in sizes if size > ITEM and size % ITEM == 0)
        size = max(possible, key=sizes.__getitem__, default=0)
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
        if len({*map(len, answers)}) > 1:
            raise ModelError(
                f"{self._embedder!r} gave vectors of different lengths under one identity. "
                "Let its identity name all that changes a vector, and clear the cache."
            )
        return _unpack(answers)

    def _encode(self, texts: Mapping[bytes, str], role: Role) -> dict[bytes, bytes]:
        """Encode texts by key, and keep what they come to."""
        if not texts:
            return {}
        answers = dict(zip(texts, self._answers([*texts.values()], role), strict=True))
        self._keep(answers)
        return answers

    def _answers(self, texts: list[str], role: Role) -> list[bytes]:
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


class UnusedEmbedder(CachedEmbedder):
    """An embedder that counts what it would have to encode, and encodes nothing."""

    def embed(self, texts: Sequence[str], role: Role) -> Embeddings:
        """Return vectors that say nothing."""
        identity = identity_key(self._embedder, role)
        keys = [digest(VECTOR, identity, text) for text in texts]
        self._meter.count_unread(keys, self._cache.get(keys))
        return Embeddings(np.full((len(keys), 1), np.nan, np.float32), np.zeros(len(keys), np.int32))


def _unpack(answers: Sequence[bytes]) -> Embeddings:
    """Return stored answers as arrays: each is an int32 of unread tokens, then the float32 vector."""
    table = np.frombuffer(bytearray().join(answers), np.int32).reshape(len(answers), -1)
    return Embeddings(table.view(np.float32)[:, 1:], table[:, 0])

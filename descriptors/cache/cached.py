"""Models that answer each distinct question once."""

import hashlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import compress
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rag_descriptors.cache.store import Cache
from rag_descriptors.errors import CacheError, ModelError
from rag_descriptors.models.embedder import Embedder, Embeddings, Role
from rag_descriptors.models.entities import Entities, EntityExtractor
from rag_descriptors.models.judge import NOT_ASKED, Answer, Asker, Prompt, Usage, read
from rag_descriptors.progress import Progress

__all__ = [
    "CachedEmbedder",
    "CachedExtractor",
    "CachedJudge",
    "JudgeMeter",
    "Share",
    "TextMeter",
    "UnusedEmbedder",
    "UnusedExtractor",
    "UnusedJudge",
    "digest",
]

FIRST_BLOCK = 16  # texts
SECONDS_A_BLOCK = 1
VECTOR, ENTITIES, VERDICT = "vector", "entities", "verdict"
BYTES_A_TOKEN = 4  # of English, in an estimate
TURN_TIMEOUT_S = 60
ITEM = 4  # bytes of an int32 or a float32


class CachedEmbedder:
    """An embedder that looks into a cache first, and stores what it has to encode as soon as it is known.

    Args:
        embedder: What encodes.
        cache: Where vectors are looked up and kept.
        meter: Counts the texts.
        progress: Shows how many are to be encoded.
        start: Where in its texts one process of several begins, a share of them. It looks into the cache again before
            each block, so that all of them together encode most texts once; None where there are no others.
    """

    def __init__(
        self, embedder: Embedder, cache: Cache, meter: "TextMeter", progress: Progress, start: float | None = None
    ) -> None:
        self._start = start
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
        missing.sort(key=lambda place: len(texts[place]), reverse=True)
        first, n_encoded = int(len(missing) * (self._start or 0)), 0
        for places in _blocks(missing[first:] + missing[:first]):
            known |= {} if self._start is None else self._known([keys[place] for place in places])
            left = [place for place in places if keys[place] not in known]
            encoded = self._encode({keys[place]: texts[place] for place in left}, role)
            known |= encoded
            n_encoded += len(encoded)
            self._progress.advance(len(places))
        embeddings = self._unpack([known[key] for key in keys])
        self._meter.count(keys, embeddings.unread > 0, n_encoded=n_encoded)
        return embeddings

    def _known(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
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
        identity = json.dumps(dict(self.identity(role)), sort_keys=True, default=str)
        keys = [digest(VECTOR, identity, text) for text in texts]
        new = [key for key in keys if key not in self._unkept]
        self._unkept |= dict.fromkeys(new, b"")
        self._meter.count(keys, np.zeros(len(keys), bool), n_encoded=len(new) - len(self._cache.get(new)))
        return Embeddings(np.full((len(keys), 1), np.nan, np.float32), np.zeros(len(keys), np.int32))


class CachedJudge:
    """An asker that looks into a cache first, and stores each answer that can be read as soon as it comes."""

    def __init__(self, asker: Asker, cache: Cache, meter: "JudgeMeter", progress: Progress) -> None:
        self._asker = asker
        self._cache = cache
        self._meter = meter
        self._progress = progress

    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the judge itself."""
        return self._asker.identity()

    def ask(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, Answer]]:
        """Yield the known answers first, the others as they come."""
        identity = json.dumps(dict(self.identity()), sort_keys=True, default=str)
        keys = [digest(VERDICT, identity, *prompt.key) for prompt in prompts]
        known = self._known(keys)
        for place, key in enumerate(keys):
            if key in known:
                self._meter.count_known(key, known[key])
                yield place, known[key]
        missing = [place for place, key in enumerate(keys) if key not in known]
        self._progress.expect(len(missing))
        for number, answer in self._asker.ask([prompts[place] for place in missing]):
            place = missing[number]
            failure = read(prompts[place], answer).failure
            if failure is None:
                self._cache.put(VERDICT, {keys[place]: _pack(answer)})
            self._meter.count(keys[place], answer, failure)
            self._progress.advance(1)
            yield place, answer

    def _known(self, keys: list[bytes]) -> dict[bytes, Answer]:
        found = {key: _unpack_answer(value) for key, value in self._cache.get(keys).items()}
        if None in found.values():
            self._cache.warn("entries of the cache hold no answers; they are asked for again.")
        return {key: answer for key, answer in found.items() if answer is not None}


class UnusedJudge:
    """An asker that says of each prompt, once, what it would take, and leaves it without an answer."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._seen: set[bytes] = set()

    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the judge itself."""
        return self._asker.identity()

    def ask(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, Answer]]:
        """Yield one call per prompt, and a quarter of its bytes as tokens."""
        for place, prompt in enumerate(prompts):
            key = digest(*prompt.key)
            size = sum(len(message["content"].encode()) for message in prompt.messages)
            if key in self._seen:
                yield place, Answer(failure=NOT_ASKED)
            else:
                yield place, Answer(failure=NOT_ASKED, calls=1, usage=Usage(prompt_tokens=ceil(size / BYTES_A_TOKEN)))
            self._seen.add(key)


class CachedExtractor:
    """An extractor that looks into a cache first, and stores what it has to extract as soon as it is known."""

    def __init__(self, extractor: EntityExtractor, cache: Cache, meter: "TextMeter", progress: Progress) -> None:
        self._extractor = extractor
        self._cache = cache
        self._meter = meter
        self._progress = progress
        self._failed: dict[bytes, Entities] = {}

    @property
    def joins_contexts(self) -> bool:
        """Whether the extractor itself is given the contexts of a row as one text."""
        return bool(getattr(self._extractor, "joins_contexts", False))

    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the extractor itself."""
        return self._extractor.identity()

    def extract(self, texts: Sequence[str]) -> list[Entities]:
        """Return the entities of each text; `texts` are distinct. What failed is not asked again in this run."""
        identity = json.dumps(dict(self.identity()), sort_keys=True, default=str)
        keys = [digest(ENTITIES, identity, text) for text in texts]
        known = self._known(keys) | {key: self._failed[key] for key in keys if key in self._failed}
        missing = [place for place, key in enumerate(keys) if key not in known]
        self._progress.expect(len(missing))
        for places in _blocks(missing):
            answers = self._answers([texts[place] for place in places])
            said = dict(zip((keys[place] for place in places), answers, strict=True))
            self._keep(said)
            known |= said
            self._progress.advance(len(places))
        self._meter.count(keys, np.zeros(len(keys), bool), n_encoded=len(missing))
        return [known[key] for key in keys]

    def _known(self, keys: list[bytes]) -> dict[bytes, Entities]:
        found = {key: _listed(value) for key, value in self._cache.get(keys).items()}
        sound = {key: Entities(entities) for key, entities in found.items() if entities is not None}
        if len(sound) < len(found):
            self._cache.warn("entries of the cache hold no entities; they are worked out again.")
        return sound

    def _keep(self, said: Mapping[bytes, Entities]) -> None:
        """Store answers: in the cache, or for this run alone where they are failures."""
        told = {key: answer for key, answer in said.items() if answer.entities is not None}
        self._cache.put(ENTITIES, {key: json.dumps(answer.entities).encode() for key, answer in told.items()})
        self._failed |= {key: answer for key, answer in said.items() if key not in told}

    def _answers(self, texts: list[str]) -> list[Entities]:
        said = self._extractor.extract(texts)
        wrong = [answer for answer in said if not _is_answer(answer)] if isinstance(said, list) else [said]
        if wrong or len(said) != len(texts):
            found = f"{wrong[0]!r}" if wrong else f"{len(said)} answers"
            raise ModelError(
                f"{self._extractor!r} gave {found} for {len(texts)} texts. It must return a list of one Entities per "
                "text, each with a tuple of texts or a failure."
            )
        return said


class UnusedExtractor(CachedExtractor):
    """An extractor that counts what it would have to read, and reads nothing."""

    def extract(self, texts: Sequence[str]) -> list[Entities]:
        """Return one entity per text, so that all texts are counted that may have to be read."""
        identity = json.dumps(dict(self.identity()), sort_keys=True, default=str)
        keys = [digest(ENTITIES, identity, text) for text in texts]
        new = [key for key in keys if key not in self._failed]
        self._failed |= {key: Entities(None, NOT_ASKED) for key in new}
        self._meter.count(keys, np.zeros(len(keys), bool), n_encoded=len(new) - len(self._cache.get(new)))
        return [Entities((NOT_ASKED,)) for _ in texts]


def _is_answer(answer: object) -> bool:
    if not isinstance(answer, Entities):
        return False
    if answer.entities is None:
        return isinstance(answer.failure, str) and bool(answer.failure)
    return isinstance(answer.entities, tuple) and all(isinstance(entity, str) for entity in answer.entities)


def _listed(stored: bytes) -> tuple[str, ...] | None:
    """Return the entities of a stored answer, None if it is none."""
    try:
        entities = json.loads(stored)
    except ValueError:
        return None
    is_sound = isinstance(entities, list) and all(isinstance(entity, str) for entity in entities)
    return tuple(entities) if is_sound else None


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


def _pack(answer: Answer) -> bytes:
    return json.dumps({"text": answer.text, **asdict(answer.usage)}).encode()


def _unpack_answer(value: bytes) -> Answer | None:
    try:
        held = json.loads(value)
        return Answer(text=str(held.pop("text")), usage=Usage(**held))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


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

    def count_known(self, key: bytes, answer: Answer) -> None:
        """Count an answer that was known before the run."""
        if key not in self._known | self._answered:
            self._known.add(key)
            self.saved = _sum(self.saved, answer.usage.cost)

    def count(self, key: bytes, answer: Answer, failure: str | None) -> None:
        """Count an answer, and whether it could be used."""
        self.calls += answer.calls
        self.prompt_tokens += answer.usage.prompt_tokens or 0
        self.completion_tokens += answer.usage.completion_tokens or 0
        self.cost = _sum(self.cost, answer.usage.cost)
        self._failed.pop(key, None)
        if failure in (None, NOT_ASKED):
            self._answered.add(key)
        else:
            self._failed[key] = failure

    @property
    def prompts(self) -> int:
        """Distinct prompts."""
        return len(self._known) + len(self._answered) + len(self._failed)

    @property
    def cached(self) -> int:
        """Prompts whose answer was known."""
        return len(self._known)

    @property
    def failures(self) -> dict[str, int]:
        """Prompts without an answer that can be used, per status."""
        return dict(sorted(Counter(self._failed.values()).items()))


def _sum(total: float | None, more: float | None) -> float | None:
    return total if more is None else (total or 0.0) + more


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

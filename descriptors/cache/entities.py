"""An extractor that reads each distinct text once."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rag_descriptors.cache.keys import blocks, digest
from rag_descriptors.cache.meters import TextMeter
from rag_descriptors.cache.store import Cache
from rag_descriptors.errors import DescriptorError, ExtractorWarning, ModelError
from rag_descriptors.models.calls import check_wanted
from rag_descriptors.models.entities import Entities, EntityExtractor
from rag_descriptors.models.identity import identity_key
from rag_descriptors.models.judge import NOT_ASKED
from rag_descriptors.progress import Progress
from rag_descriptors.texts import redacted, scrub

__all__ = ["CachedExtractor", "UnusedExtractor"]

ENTITIES = "entities"
EXTRACTOR_ERROR = "extractor_error"


class CachedExtractor:
    """An extractor that looks into a cache first, and stores what it has to extract as soon as it is known.

    `start` is that of `CachedEmbedder`.
    """

    def __init__(
        self,
        extractor: EntityExtractor,
        cache: Cache,
        meter: TextMeter,
        progress: Progress,
        start: float | None = None,
    ) -> None:
        self._start = start
        self._extractor = extractor
        self._cache = cache
        self._meter = meter
        self._progress = progress
        self._unkept: dict[bytes, Entities] = {}
        self._has_warned = False

    @property
    def joins_contexts(self) -> bool:
        """Whether the extractor itself is given the contexts of a row as one text."""
        return bool(getattr(self._extractor, "joins_contexts", False))

    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the extractor itself."""
        return self._extractor.identity()

    def extract(self, texts: Sequence[str]) -> list[Entities]:
        """Return the entities of each text; `texts` are distinct. What failed is not asked again in this run."""
        identity = identity_key(self._extractor)
        keys = [digest(ENTITIES, identity, text) for text in texts]
        known = self._known(keys) | {key: self._unkept[key] for key in keys if key in self._unkept}
        missing, n_read = [place for place, key in enumerate(keys) if key not in known], 0
        self._progress.expect(len(missing))
        for places in blocks(missing, self._start):
            check_wanted()
            known |= {} if self._start is None else self._known([keys[place] for place in places])
            left = [place for place in places if keys[place] not in known]
            answers = self._answers([texts[place] for place in left]) if left else []
            said = dict(zip((keys[place] for place in left), answers, strict=True))
            self._keep(said)
            known |= said
            n_read += len(left)
            self._progress.advance(len(places))
        self._meter.count(keys, np.zeros(len(keys), bool), n_encoded=n_read)
        return [known[key] for key in keys]

    def _known(self, keys: list[bytes]) -> dict[bytes, Entities]:
        found = {key: _listed(value) for key, value in self._cache.get(keys).items()}
        sound = {key: Entities(entities) for key, entities in found.items() if entities is not None}
        if len(sound) < len(found):
            self._cache.warn("entries of the cache hold no entities; they are worked out again.")
        return sound

    def _keep(self, said: Mapping[bytes, Entities]) -> None:
        """Store answers: in the cache, or for this run alone where they are failures, or the extractor wants it."""
        is_kept = getattr(self._extractor, "is_kept", True)
        told = {key: answer for key, answer in said.items() if is_kept and answer.entities is not None}
        self._cache.put(ENTITIES, {key: json.dumps(answer.entities).encode() for key, answer in told.items()})
        self._unkept |= {key: answer for key, answer in said.items() if key not in told}

    def _answers(self, texts: list[str]) -> list[Entities]:
        """Return what the extractor says; where it fails on several texts, it is asked of each alone."""
        try:
            said = self._extractor.extract(texts)
        except DescriptorError:  # which says itself what to do
            raise
        except Exception as error:  # noqa: BLE001 - an extractor of one's own may raise anything
            return [self._failure(error)] if len(texts) == 1 else [self._answers([text])[0] for text in texts]
        _check(self._extractor, said, len(texts))
        return [replace(answer, entities=_scrubbed(answer.entities)) for answer in said]

    def _failure(self, error: Exception) -> Entities:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{self._extractor!r} failed on texts, the first time with {redacted(repr(error))}. Rows that need "
                f"them are null, with status {EXTRACTOR_ERROR!r}.",
                ExtractorWarning,
                stacklevel=2,
            )
        return Entities(None, EXTRACTOR_ERROR)


class UnusedExtractor(CachedExtractor):
    """An extractor that counts what it would have to read, and reads nothing."""

    def extract(self, texts: Sequence[str]) -> list[Entities]:
        """Return one entity per text, so that all texts are counted that may have to be read."""
        identity = identity_key(self._extractor)
        keys = [digest(ENTITIES, identity, text) for text in texts]
        self._meter.count_unread(keys, self._cache.get(keys))
        return [Entities((NOT_ASKED,)) for _ in texts]


def _check(extractor: EntityExtractor, said: object, n_texts: int) -> None:
    answers = said if isinstance(said, list) else []
    wrong = [answer for answer in answers if not _is_answer(answer)] if isinstance(said, list) else [said]
    if wrong or len(answers) != n_texts:
        found = f"{wrong[0]!r}" if wrong else f"{len(answers)} answers"
        raise ModelError(
            f"{extractor!r} gave {found} for {n_texts} texts. It must return a list of one Entities per text, each "
            "with a tuple of texts or a failure."
        )


def _scrubbed(entities: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if entities is None else tuple(map(scrub, entities))


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

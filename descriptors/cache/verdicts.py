"""A judge that is asked each distinct prompt once."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import ceil
from typing import Any

from rag_descriptors.cache.keys import digest
from rag_descriptors.cache.meters import JudgeMeter
from rag_descriptors.cache.store import Cache
from rag_descriptors.errors import JudgeError, JudgeWarning
from rag_descriptors.models.identity import identity_key
from rag_descriptors.models.judge import NOT_ASKED, Answer, Asker, Prompt, Usage, read
from rag_descriptors.progress import Progress

__all__ = ["CachedJudge", "UnusedJudge"]

VERDICT = "verdict"
BYTES_A_TOKEN = 4  # of English, in an estimate


class CachedJudge:
    """An asker that looks into a cache first, and stores each answer that can be read as soon as it comes."""

    def __init__(self, asker: Asker, cache: Cache, meter: JudgeMeter, progress: Progress) -> None:
        self._asker = asker
        self._cache = cache
        self._meter = meter
        self._progress = progress

    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the judge itself."""
        return self._asker.identity()

    def ask(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, Answer]]:
        """Yield the known answers first, the others as they come."""
        identity = identity_key(self)
        keys = [digest(VERDICT, identity, *prompt.key) for prompt in prompts]
        known = self._known(prompts, keys)
        for place, key in enumerate(keys):
            if key in known:
                self._meter.count_known(key, known[key])
                yield place, known[key]
        missing = [place for place, key in enumerate(keys) if key not in known]
        self._progress.expect(len(missing))
        for place, answer in self._asked(prompts, missing):
            verdict = read(prompts[place], answer)
            if verdict.failure is None:
                self._cache.put(VERDICT, {keys[place]: _pack(answer)})
            self._meter.count(keys[place], answer, verdict)
            self._progress.advance(1)
            yield place, answer

    def _asked(self, prompts: Sequence[Prompt], places: Sequence[int]) -> Iterator[tuple[int, Answer]]:
        """Yield the answers of some of the prompts; an error is one only where no judge of the run has answered yet."""
        left = set(places)
        try:
            for number, answer in self._asker.ask([prompts[place] for place in places]):
                left.remove(places[number])
                yield places[number], answer
        except JudgeError as error:
            if not self._meter.was_answered:
                raise
            warnings.warn(f"{error} Finished rows are kept, the others are missing.", JudgeWarning, stacklevel=2)
            yield from ((place, Answer(failure=error.status, message=str(error))) for place in sorted(left))

    def _known(self, prompts: Sequence[Prompt], keys: list[bytes]) -> dict[bytes, Answer]:
        """Return the stored answers that can be read, by a later release too."""
        asked = dict(zip(keys, prompts, strict=True))
        found = {key: _unpack(value) for key, value in self._cache.get(keys).items()}
        if None in found.values():
            self._cache.warn("entries of the cache hold no answers; they are asked for again.")
        return {
            key: answer
            for key, answer in found.items()
            if answer is not None and read(asked[key], answer).failure is None
        }


class UnusedJudge:
    """An asker that says of each prompt what it would take, and leaves it without an answer."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the judge itself."""
        return self._asker.identity()

    def ask(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, Answer]]:
        """Yield one call per prompt, and a quarter of its bytes as tokens."""
        for place, prompt in enumerate(prompts):
            size = sum(len(message["content"].encode()) for message in prompt.messages)
            yield place, Answer(failure=NOT_ASKED, calls=1, usage=Usage(prompt_tokens=ceil(size / BYTES_A_TOKEN)))


def _pack(answer: Answer) -> bytes:
    return json.dumps({"text": answer.text, **asdict(answer.usage)}).encode()


def _unpack(value: bytes) -> Answer | None:
    try:
        held = json.loads(value)
        return Answer(text=str(held.pop("text")), usage=Usage(**held))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

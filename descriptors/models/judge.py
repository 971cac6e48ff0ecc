"""Prompts to verdicts: the seam, and what its two sides say to each other."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from rag_descriptors.errors import ReplyError
from rag_descriptors.models.replies import parse_reply
from rag_descriptors.texts import scrub

__all__ = ["Answer", "Asker", "Completion", "Judge", "Prompt", "Usage", "Verdict", "verdicts"]

UNPARSEABLE = "unparseable"
NOT_ASKED = "not_asked"  # of prompts that an estimate counts


@dataclass(frozen=True)
class Prompt:
    """One question to a judge.

    Attributes:
        system: What a judge is to do, and the form of its reply; none of a user's data.
        user: The data, between markers that they can't forge.
        schema: The JSON schema of the reply, an object.
        read: Makes of the reply's object what the asker wants; raises `ReplyError` where it can't.
        sample: Which of several answers to one question this is.
    """

    system: str
    user: str
    schema: Mapping[str, Any]
    read: Callable[[Mapping[str, Any]], Any]
    sample: int = 0

    @cached_property
    def key(self) -> tuple[str, ...]:
        """All of the prompt that changes the answer."""
        return (self.system, self.user, json.dumps(self.schema, sort_keys=True), str(self.sample))

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as chat messages."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a call took: tokens, None where the server does not say, and US dollars, None where no price is known."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True)
class Completion:
    """What a judge wrote, and what it took; with a `failure`, a status, where that is no whole answer."""

    text: str
    usage: Usage = Usage()
    failure: str | None = None


class Judge(Protocol):
    """A prompt in, a text out. Calls are paced, retried, counted and kept by those who ask."""

    def identity(self) -> Mapping[str, Any]:
        """Return all that changes an answer, as JSON values: what a cache and a summary know the judge by."""
        ...

    def complete(self, prompt: Prompt) -> Awaitable[Completion]:
        """Return the answer to one prompt; write it as `async def`.

        Raises:
            JudgeError: There is none; its attributes say why, and whether to ask again.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of one prompt: a text, or why there is none, as a status and in words; and what it took."""

    text: str | None = None
    failure: str | None = None
    message: str | None = None
    usage: Usage = Usage()
    calls: int = 0


@runtime_checkable
class Asker(Protocol):
    """Puts many prompts to a judge."""

    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the judge itself."""
        ...

    def ask(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, Answer]]:
        """Yield the place of each prompt and its answer, in the order in which they come."""
        ...


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An answer that was read, or why there is none."""

    value: Any = None
    failure: str | None = None
    message: str | None = None


def verdicts(asker: Asker, prompts: Sequence[Prompt]) -> list[Verdict]:
    """Return one verdict per prompt; equal prompts are asked once, and an unreadable answer is asked for once more."""
    distinct = {prompt.key: prompt for prompt in prompts}
    found: dict[tuple[str, ...], Verdict] = {}
    for _ in range(2):
        wanted = [prompt for key, prompt in distinct.items() if key not in found or found[key].failure == UNPARSEABLE]
        for place, answer in asker.ask(wanted) if wanted else ():
            found[wanted[place].key] = read(wanted[place], answer)
    return [found[prompt.key] for prompt in prompts]


def read(prompt: Prompt, answer: Answer) -> Verdict:
    """Return what an answer says."""
    if answer.text is None:
        return Verdict(failure=answer.failure, message=scrub(answer.message))
    try:
        return Verdict(value=prompt.read(parse_reply(answer.text)))
    except (ReplyError, RecursionError) as error:
        return Verdict(failure=UNPARSEABLE, message=scrub(str(error)))

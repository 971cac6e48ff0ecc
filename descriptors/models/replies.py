"""From the text of a reply to values that can be trusted: nothing is guessed, clamped or salvaged."""

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from rag_descriptors.errors import ReplyError
from rag_descriptors.texts import scrub

__all__ = ["a_list", "a_number", "a_text", "a_word", "parse_reply"]

REASONING = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
END_OF_REASONING = "</think>"  # some servers leave out how it begins
UNFINISHED = re.compile(r"\A\s*<(think|thinking|reasoning)>")
OBJECT_START = re.compile(r'\{\s*"')
MARKS = "`^~"  # of Markdown, which are no punctuation to Unicode
SHOWN = 200  # characters of a reply in a message


def parse_reply(text: str) -> dict[str, Any]:
    """Return the one JSON object of a reply; fences, prose and reasoning before an answer may stand around it.

    Raises:
        ReplyError: There is no object, one that is broken or repeats a key, or several that differ.
    """
    answer = REASONING.sub("", text, count=1)
    if UNFINISHED.match(answer):
        raise ReplyError(f"the reply holds reasoning and no answer: {_shown(text)}")
    found: dict[str, dict[str, Any]] = {}
    end = 0
    while match := OBJECT_START.search(answer, end):
        if END_OF_REASONING in answer[end : match.start()]:
            found.clear()  # what stood before was thought, not said
        value, end = _decode(answer, match.start())
        found[json.dumps(value, sort_keys=True)] = value
    if END_OF_REASONING in answer[end:]:
        found.clear()
    if len(found) != 1:
        problem = "no JSON object" if not found else f"{len(found)} JSON objects that differ"
        raise ReplyError(f"the reply holds {problem}: {_shown(text)}")
    said: dict[str, Any] = scrub(next(iter(found.values())))
    return said


def a_number(reply: Mapping[str, Any], key: str, low: float, high: float) -> float:
    """Return a number of the reply, given as such or as text.

    Raises:
        ReplyError: There is none, or it lies outside [low, high].
    """
    value = reply.get(key)
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not low <= number <= high:
        raise ReplyError(f"{key}: {value!r} is no number from {low:g} to {high:g}.")
    return number


def a_word(reply: Mapping[str, Any], key: str, allowed: Iterable[str]) -> str:
    """Return which of the `allowed` words the reply holds, whole, trimmed of case, space and punctuation.

    Raises:
        ReplyError: It is none of them.
    """
    value = reply.get(key)
    words = {word.casefold(): word for word in allowed}
    said = _trimmed(value).casefold() if isinstance(value, str) else None
    if said not in words:
        raise ReplyError(f"{key}: {value!r} is none of {', '.join(words.values())}.")
    return words[said]


def a_list(reply: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    """Return a list of the reply whose items are all of one kind.

    Raises:
        ReplyError: It is none.
    """
    value = reply.get(key)
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise ReplyError(f"{key}: {_shown(repr(value))} is no list of {kind.__name__}.")
    return value


def a_text(reply: Mapping[str, Any], key: str) -> str | None:
    """Return a text of the reply; None if it is missing, blank or no text."""
    value = reply.get(key)
    return value.strip() or None if isinstance(value, str) else None


def _trimmed(word: str) -> str:
    """Return a word without the space and punctuation, of any script, around it."""
    inner = [
        place for place, letter in enumerate(word) if not (unicodedata.category(letter)[0] in "CPZ" or letter in MARKS)
    ]
    return word[inner[0] : inner[-1] + 1] if inner else ""


def _decode(text: str, start: int) -> tuple[dict[str, Any], int]:
    try:
        return DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"the reply holds broken JSON ({error}): {_shown(text[start:])}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held: dict[str, Any] = {}
    for key, value in pairs:
        if key in held and held[key] != value:
            raise ReplyError(f"the reply says two things of {key!r}: {_shown(repr(held[key]))}, {_shown(repr(value))}.")
        held[key] = value
    return held


def _refuse(constant: str) -> NoReturn:
    raise ReplyError(f"the reply holds {constant}, which is no JSON.")


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse, strict=False)  # raw line breaks in texts

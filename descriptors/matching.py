"""When two forms name the same entity: each has a key, and equal keys match. An entity never matches a part of one."""

import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rag_descriptors.errors import OptionError, ScoringError

__all__ = ["KEYS", "Matcher", "Mentions", "exact", "normalized"]

Key = Callable[[str], Hashable]
MENTIONS = "mentions"
QUOTES = str.maketrans(dict.fromkeys("‘’‚‛′ʼ`´", "'") | dict.fromkeys("“”„‟″«»", '"'))
SIGNS = "#%&@"  # punctuation to Unicode, but parts of names: C# is not C
INSIDE_WORDS = f"{SIGNS}+_\u200c\u200d"  # the joiners of Indic and Persian words too


def normalized(form: str) -> str:
    """Return a form without its accidents: case, Unicode form, kinds of quotes and blanks, outer punctuation.

    NFKC, casefold, NFKC. Accents stay, so `Koln` is not `Köln`, and so do `#`, `%`, `&` and `@`, which are parts of
    names. Empty if nothing is left.
    """
    words = _folded(form)
    start = next((place for place, letter in enumerate(words) if not _is_outer(letter)), len(words))
    end = next((place for place in range(len(words), start, -1) if not _is_outer(words[place - 1])), start)
    return words[start:end]


def exact(form: str) -> str:
    """Return the form itself: letter for letter, as Ragas compares."""
    return form


KEYS: Mapping[str, Key] = {"normalized": normalized, "exact": exact, MENTIONS: normalized}


@dataclass(frozen=True, eq=False)
class Matcher:
    """Forms to keys, aliases included.

    Attributes:
        key: From a form to what it is compared by; a form names nothing if it is blank, if its key is None, or if
            `normalized` leaves nothing of it.
        canonical: From the key of an alias to that of the form which it stands for.
        aliases: From the key of a form to those of its aliases.
    """

    key: Key
    canonical: Mapping[Hashable, Hashable]
    aliases: Mapping[Hashable, Sequence[Hashable]]

    @classmethod
    def of(cls, key: Key, aliases: Mapping[str, str] | None) -> Self:
        """Return the matcher of a key function and of aliases, each a form and its canonical one.

        Raises:
            OptionError: Aliases lead in a circle, or the key function fails on one.
        """
        try:
            pairs = {_key(key, form): _key(key, canonical) for form, canonical in (aliases or {}).items()}
        except ScoringError as error:
            raise OptionError(str(error)) from error
        canonical = {form: _last(form, pairs) for form in pairs}
        found: dict[Hashable, list[Hashable]] = {}
        for form, last in canonical.items():
            found.setdefault(last, []).append(form)
        return cls(key, canonical, found)

    def forms(self, entities: Iterable[str]) -> dict[Hashable, str]:
        """Return entities by key, each once, in the form in which it came first."""
        found: dict[Hashable, str] = {}
        for entity in entities:
            key = _key(self.key, entity)
            canonical = self.canonical.get(key, key)
            if entity.strip() and self._names(key) and self._names(canonical):
                found.setdefault(canonical, entity)
        return found

    def _names(self, key: Hashable) -> bool:
        return key is not None and (self.key is not normalized or key != "")

    def spellings(self, key: Hashable) -> set[Hashable]:
        """Return all keys that stand for `key`, itself among them, but for those of aliases that name nothing."""
        return {key, *(form for form in self.aliases.get(key, ()) if self._names(form))}


class Mentions:
    """The words of a text, as a container of the entities that stand in it.

    An entity is in it if its words stand there, in order and whole: "Paris" is not in "Parisian", but "York" is in "New
    York", since a text without its entities does not tell. Words are letters and digits with their combining marks, and
    the signs that stand at them without a blank: "C" is not in "C++". Where words are written without blanks between
    them, as in Chinese, an entity is found only between punctuation.
    """

    def __init__(self, text: str, matcher: Matcher) -> None:
        self._text = _folded(text)
        self._matcher = matcher

    def __contains__(self, key: Hashable) -> bool:
        return any(self._stands(str(form)) for form in self._matcher.spellings(key))

    def _stands(self, form: str) -> bool:
        if form not in self._text:
            return False
        starts = (match.start() for match in re.finditer(f"(?={re.escape(form)})", self._text))
        return any(self._is_whole(start, start + len(form)) for start in starts)

    def _is_whole(self, start: int, end: int) -> bool:
        around = self._text[max(start - 1, 0) : start] + self._text[end : end + 1]
        return not any(map(_is_inside_word, around))


def _key(function: Key, form: str) -> Any:
    try:
        key = function(form)
        hash(key)
    except Exception as error:
        raise ScoringError(f"matching: {function!r} failed on {form!r}: {error!r}. It must return a key.") from error
    return key


def _last(form: Hashable, pairs: Mapping[Hashable, Hashable]) -> Hashable:
    seen = {form}
    while pairs.get(form, form) != form:
        form = pairs[form]
        if form in seen:
            raise OptionError(f"aliases: {form!r} leads back to itself. Map each form to one canonical form.")
        seen.add(form)
    return form


def _folded(text: str) -> str:
    unified = unicodedata.normalize("NFKC", text.translate(QUOTES)).translate(QUOTES)
    return " ".join(unicodedata.normalize("NFKC", unified.casefold()).split())


def _is_inside_word(letter: str) -> bool:
    return letter.isalnum() or letter in INSIDE_WORDS or unicodedata.category(letter)[0] == "M"


def _is_outer(letter: str) -> bool:
    return letter == " " or (unicodedata.category(letter)[0] == "P" and letter not in SIGNS)

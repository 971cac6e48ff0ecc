"""Which words of a parsed text are entities: the names that are written as names, and what a pipeline labels.

Two texts are compared by what is found in each, so what counts is that the same name is cut alike in both. A model cuts
it by the words around it; capitals are there or not. So runs of capitalised words come first, the model's spans say
where two names meet, which capitals are only dates, and what else there is.
"""

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

__all__ = ["labelled", "names", "written"]

Span = tuple[int, int]
Counts = Callable[[str], bool]
LINKS = frozenset({"-", "of", "de", "del", "der", "di", "da", "du", "la", "van", "von"})
LINKS_AT_ONCE = 2
DETERMINERS = frozenset({"the", "a", "an"})
POSSESSIVES = frozenset({"'s", "’s"})
SENTENCE_MARKS = frozenset(".!?…:•▪◦‣") | {"..."}
BULLETS = frozenset("-–—*·+>#")
OPENING_QUOTES = frozenset("\"'“‘„‚«‹")


def labelled(doc: Any, counts: Counts) -> list[Span]:
    """Return the spans that the pipeline gave a label that counts."""
    return [(span.start, span.end) for span in doc.ents if counts(span.label_)]


def names(doc: Any, counts: Counts) -> list[Span]:
    """Return the runs of capitalised words, and the labelled spans that touch none of them, in order."""
    owners = {place: span for span in doc.ents for place in range(span.start, span.end)}
    runs = [_with_numbers(doc, run, owners) for run in _runs(doc, owners) if not _is_discounted(run, owners, counts)]
    taken = {place for start, end in runs for place in range(start, end)}
    others = [span for span in labelled(doc, counts) if taken.isdisjoint(range(*span))]
    return sorted([*runs, *others])


def written(doc: Any, spans: list[Span], *, numbers: bool = False) -> tuple[str, ...]:
    """Return the words of spans, each once, without determiners, possessives and outer punctuation.

    What holds no letter is left out; where `numbers` are entities too, what holds neither letter nor digit.
    """
    is_word = str.isalnum if numbers else str.isalpha
    forms = (doc[slice(*_trimmed(doc, span))].text for span in spans)
    return tuple(dict.fromkeys(form for form in forms if any(map(is_word, form))))


def _runs(doc: Any, owners: dict[int, Any]) -> Iterator[Span]:
    is_name = [any(map(str.isupper, token.text)) for token in doc]
    start = 0
    while start < len(doc):
        end = start + 1
        if is_name[start] and _may_begin(doc, start):
            while (after := _linked(doc, is_name, owners, end)) is not None:
                end = after + 1
            yield start, end
        start = end


def _may_begin(doc: Any, place: int) -> bool:
    """A capital says nothing at the start of a sentence, nor in the word "I"."""
    kind = doc[place].pos_
    return kind == "PROPN" or (kind != "PRON" and not _opens_sentence(doc, place))


def _opens_sentence(doc: Any, place: int) -> bool:
    """Whether a sentence may begin here: a text does, a line, an item of a list, a quotation, or what a colon tells."""
    for token in reversed(doc[:place]):
        if "\n" in token.text or token.text in SENTENCE_MARKS or _opens_quotation(doc, token):
            return True
        if not _is_before_sentence(doc, token):
            return False
    return True


def _opens_quotation(doc: Any, token: Any) -> bool:
    before = doc[token.i - 1] if token.i else None
    is_after_word = before is not None and not (before.whitespace_ or before.is_punct or before.is_space)
    return token.text in OPENING_QUOTES and not (token.whitespace_ or is_after_word)


def _is_before_sentence(doc: Any, token: Any) -> bool:
    """Whether a token may stand between the end of a sentence and the next: a bullet or the number in "1)" does."""
    is_number = (token.is_digit or len(token) == 1) and doc[token.i + 1].text == ")"
    return is_number or token.text in BULLETS or token.is_space or token.is_quote or token.is_bracket


def _linked(doc: Any, is_name: list[bool], owners: dict[int, Any], end: int) -> int | None:
    """Return the place of the name that goes on after `end`, at once or over links; None if there is none."""
    ahead = doc[end : end + LINKS_AT_ONCE]
    links = list(takewhile(lambda token: token.lower_ in LINKS and not is_name[token.i], ahead))
    after = end + len(links)
    if after >= len(doc) or not is_name[after]:
        return None
    is_spaced_dash = any(token.text == "-" and doc[token.i - 1].whitespace_ for token in links)
    meet = links and end not in owners and owners.keys() >= {end - 1, after}  # as in "Nehru of India"
    return None if is_spaced_dash or meet else after


def _is_discounted(run: Span, owners: dict[int, Any], counts: Counts) -> bool:
    """Whether all of a run lies in one span whose label does not count, such as a date."""
    span = owners.get(run[0])
    return span is not None and run[1] <= span.end and not counts(span.label_)


def _with_numbers(doc: Any, run: Span, owners: dict[int, Any]) -> Span:
    """Return a run with the number before or after it that the pipeline holds to be of the same name: "Apollo 11"."""
    start, end = run
    before, after = owners.get(start - 1), owners.get(end)
    start -= before is not None and doc[start - 1].is_digit and before is owners.get(start)
    end += after is not None and doc[end].is_digit and after is owners.get(end - 1)
    return start, end


def _trimmed(doc: Any, span: Span) -> Span:
    start, end = span
    while start < end and (_is_outer(doc[start]) or doc[start].lower_ in DETERMINERS):
        start += 1
    while start < end and _is_outer(doc[end - 1]):
        end -= 1
    return start, end


def _is_outer(token: Any) -> bool:
    return token.is_punct or token.is_space or token.lower_ in POSSESSIVES

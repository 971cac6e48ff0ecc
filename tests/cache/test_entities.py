import json

import pytest

from rag_descriptors.cache.entities import CachedExtractor, UnusedExtractor
from rag_descriptors.cache.keys import FIRST_BLOCK, digest
from rag_descriptors.cache.meters import TextMeter
from rag_descriptors.errors import CacheWarning, ExtractorWarning, ModelError
from rag_descriptors.models.entities import Entities
from rag_descriptors.progress import Progress

nan = float("nan")


class Words:
    """Every word is an entity; texts with a question mark fail."""

    def __init__(self, identity="words"):
        self.name, self.texts = identity, []

    def identity(self):
        return {"extractor": self.name}

    def extract(self, texts):
        self.texts.extend(texts)
        return [Entities(None, "timeout") if "?" in text else Entities(tuple(text.split())) for text in texts]


@pytest.fixture
def extracting(cache, meter):
    return lambda extractor: CachedExtractor(extractor, cache, meter, Progress("texts", show=False))


def test_each_text_is_extracted_once(extracting, cache, meter):
    words = Words()
    for _ in range(2):
        assert extracting(words).extract(["b a", "é"]) == [Entities(("b", "a")), Entities(("é",))]
    assert words.texts == ["b a", "é"]
    assert cache.stats().entries == {"entities": 2}
    assert (meter.distinct, meter.encoded, meter.cut) == (2, 2, 0)
    extracting(Words("other")).extract(["é"])
    assert cache.stats().entries == {"entities": 3}


def test_a_text_without_entities_is_known_too(extracting):
    class Nothing(Words):
        def extract(self, texts):
            self.texts.extend(texts)
            return [Entities(()) for _ in texts]

    nothing = Nothing()
    for _ in range(2):
        assert extracting(nothing).extract(["a"]) == [Entities(())]
    assert nothing.texts == ["a"]


def test_failures_are_not_stored(extracting, cache):
    words = Words()
    extractor = extracting(words)
    for _ in range(2):
        assert extractor.extract(["a", "?"]) == [Entities(("a",)), Entities(None, "timeout")]
    assert words.texts == ["a", "?"]
    assert cache.stats().entries == {"entities": 1}
    extracting(words).extract(["a", "?"])
    assert words.texts == ["a", "?", "?"]


def test_entities_are_stored_block_by_block(extracting, cache):
    class Failing(Words):
        def extract(self, texts):
            if self.texts:
                raise KeyboardInterrupt
            return super().extract(texts)

    texts = [f"text {n:05}" for n in range(FIRST_BLOCK + 5)]
    with pytest.raises(KeyboardInterrupt):
        extracting(Failing()).extract(texts)
    assert cache.stats().entries == {"entities": FIRST_BLOCK}
    resumed = Words()
    extracting(resumed).extract(texts)
    assert resumed.texts == texts[-5:]


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (None, "gave None for 1 texts"),
        ([], "gave 0 answers for 1 texts"),
        ([Entities(("a",)), Entities(("b",))], "gave 2 answers"),
        ([["a"]], r"gave \['a'\] for"),
        ([Entities(["a"])], r"gave Entities\(entities=\['a'\]"),
        ([Entities((1,))], r"gave Entities\(entities=\(1,\)"),
        ([Entities(None)], r"gave Entities\(entities=None"),
    ],
)
def test_an_extractor_that_breaks_its_contract(extracting, cache, answers, found):
    class Odd(Words):
        def extract(self, texts):
            return answers

    with pytest.raises(ModelError, match=found):
        extracting(Odd()).extract(["a"])
    assert cache.stats().entries == {}


@pytest.mark.parametrize("stored", [b"[1]", b"{}", b"\xff", b"[", b'"a"'])
def test_an_entry_that_holds_no_entities_is_worked_out_again(extracting, cache, stored):
    cache.put("entities", {digest("entities", json.dumps({"extractor": "words"}), "a"): stored})
    words = Words()
    with pytest.warns(CacheWarning, match="hold no entities"):
        assert extracting(words).extract(["a"]) == [Entities(("a",))]
    assert words.texts == ["a"]


class Fragile(Words):
    """Raises on a question mark, and does not say at which text."""

    def extract(self, texts):
        self.texts.append(texts)
        if any("?" in text for text in texts):
            raise ConnectionError("gone")
        return [Entities((text,)) for text in texts]


def test_a_text_on_which_an_extractor_raises_fails_alone(extracting, cache):
    fragile = Fragile()
    extractor = extracting(fragile)
    failure = Entities(None, "extractor_error")
    with pytest.warns(
        ExtractorWarning, match=r"failed on texts, the first time with ConnectionError\('gone'\)"
    ) as warned:
        assert extractor.extract(["a", "?", "b", "??"]) == [Entities(("a",)), failure, Entities(("b",)), failure]
    assert len(warned) == 1
    assert fragile.texts == [["a", "?", "b", "??"], ["a"], ["?"], ["b"], ["??"]]
    assert cache.stats().entries == {"entities": 2}
    assert extractor.extract(["?"]) == [failure]
    assert len(fragile.texts) == 5


def test_an_error_of_the_library_ends_the_run(extracting):
    class Lost(Words):
        def extract(self, texts):
            raise ModelError("no weights")

    with pytest.raises(ModelError, match=r"^no weights$"):
        extracting(Lost()).extract(["a", "b"])


def test_answers_that_are_not_to_be_kept(extracting, cache):
    words = Words()
    words.is_kept = False
    extractor = extracting(words)
    for _ in range(2):
        assert extractor.extract(["a b"]) == [Entities(("a", "b"))]
    assert words.texts == ["a b"]
    assert cache.stats().entries == {}


def test_lone_surrogates_are_replaced(extracting):
    class Torn(Words):
        def extract(self, texts):
            return [Entities(("a\ud800b", "\udc00", "é")) for _ in texts]

    assert extracting(Torn()).extract(["a"]) == [Entities(("a\ufffdb", "\ufffd", "é"))]


@pytest.mark.parametrize("kind", [CachedExtractor, UnusedExtractor])
def test_an_identity_that_is_none(cache, meter, kind):
    with pytest.raises(ModelError, match=r"the identity of .* is \{'extractor': <object"):
        kind(Words(object()), cache, meter, Progress("texts", show=False)).extract(["a"])


def test_what_is_read_at_once_is_the_extractors_own(extracting):
    words = Words()
    assert extracting(words).joins_contexts is False
    words.joins_contexts = True
    assert extracting(words).joins_contexts is True
    assert extracting(words).identity() == {"extractor": "words"}


def test_an_unused_extractor_counts_and_reads_nothing(extracting, cache, meter):
    words = Words()
    extracting(words).extract(["a"])
    unused = UnusedExtractor(words, cache, counted := TextMeter(), Progress("texts", show=False))
    for _ in range(2):
        assert [said.failure for said in unused.extract(["a", "b", "c"])] == [None] * 3
    assert words.texts == ["a"]
    assert (counted.distinct, counted.encoded) == (3, 2)
    counted.close()

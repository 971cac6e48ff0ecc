import json

import numpy as np
import pytest

from rag_descriptors.cache import vectors
from rag_descriptors.cache.keys import FIRST_BLOCK, digest
from rag_descriptors.cache.meters import TextMeter
from rag_descriptors.cache.vectors import CachedEmbedder, UnusedEmbedder
from rag_descriptors.errors import CacheWarning, ModelError
from rag_descriptors.models.embedder import Embeddings
from rag_descriptors.progress import Progress
from rag_descriptors.testing import FakeEmbedder

nan = float("nan")


@pytest.fixture
def cached(cache, meter):
    return lambda embedder: CachedEmbedder(embedder, cache, meter, Progress("texts", show=False))


def test_vectors_are_those_of_the_embedder(cached):
    texts = ["b", "a a a", "c c", "a b c d"]
    expected = FakeEmbedder(max_tokens=2).embed(texts, "query")
    embedder = cached(FakeEmbedder(max_tokens=2))
    for _ in range(2):
        found = embedder.embed(texts, "query")
        assert np.array_equal(found.vectors, expected.vectors)
        assert found.vectors.dtype == np.float32
        assert found.unread.tolist() == [0, 1, 0, 2]


def test_only_unknown_texts_are_encoded_the_longest_first(cached):
    fake = FakeEmbedder()
    embedder = cached(fake)
    embedder.embed(["aa", "a"], "query")
    embedder.embed(["b", "a", "bbb"], "query")
    assert fake.texts == ["aa", "a", "bbb", "b"]


@pytest.mark.parametrize(
    ("room", "encoded"),
    [
        (vectors.ROOM, ["b b", "a", "c"]),
        (1, ["b b", "a", "b b", "c", "a", "b b", "a"]),
    ],
)
def test_answers_stay_at_hand_as_long_as_there_is_room(cached, cache, meter, monkeypatch, room, encoded):
    monkeypatch.setattr(vectors, "ROOM", room)
    fake = FakeEmbedder(max_tokens=1)
    embedder = cached(fake)
    embedder.embed(["a", "b b"], "query")
    cache.clear()
    embedder.embed(["b b", "c", "a"], "query")
    cache.clear()
    last = embedder.embed(["a", "b b"], "query")
    assert fake.texts == encoded
    assert np.array_equal(last.vectors, FakeEmbedder(max_tokens=1).embed(["a", "b b"], "query").vectors)
    assert last.unread.tolist() == [0, 1]
    assert (meter.distinct, meter.cut, meter.encoded) == (3, 1, len(encoded))


def test_answers_at_hand_are_those_of_one_identity(cached):
    class Signed(FakeEmbedder):
        def identity(self, role):
            return {**super().identity(role), "role": role}

        def embed(self, texts, role):
            vectors = super().embed(texts, role).vectors
            return Embeddings(vectors if role == "query" else -vectors, np.zeros(len(texts), np.int32))

    embedder = cached(Signed())
    asked, read = embedder.embed(["a"], "query"), embedder.embed(["a"], "document")
    assert np.array_equal(asked.vectors, -read.vectors)


def test_many_texts_are_stored_block_by_block(cached, cache):
    class Failing(FakeEmbedder):
        def embed(self, texts, role):
            if self.texts:
                raise ConnectionError
            return super().embed(texts, role)

    texts = [f"text {n:05}" for n in range(FIRST_BLOCK + 5)]
    with pytest.raises(ConnectionError):
        cached(Failing(n_dimensions=2)).embed(texts, "document")
    assert cache.stats().entries == {"vector": FIRST_BLOCK}
    resumed = FakeEmbedder(n_dimensions=2)
    found = cached(resumed).embed(texts, "document")
    assert resumed.texts == texts[-5:]
    assert np.array_equal(found.vectors, FakeEmbedder(n_dimensions=2).embed(texts, "document").vectors)


class ByRole(FakeEmbedder):
    def identity(self, role):
        return {**super().identity(role), "role": role}


@pytest.mark.parametrize(("kind", "n_encoded"), [(FakeEmbedder, 1), (ByRole, 2)])
def test_what_the_identity_names_is_in_the_key(cached, kind, n_encoded):
    fake = kind()
    for role in ("query", "document", "query"):
        cached(fake).embed(["a"], role)
    assert len(fake.texts) == n_encoded


@pytest.mark.parametrize("wrapper", [CachedEmbedder, UnusedEmbedder])
@pytest.mark.parametrize("identity", ["fake", {"model": object}])
def test_an_identity_that_is_none(cache, meter, wrapper, identity):
    class Odd(FakeEmbedder):
        def identity(self, role):
            return identity

    with pytest.raises(ModelError, match=r"the identity of .* is .*It must be a dict from names to JSON values"):
        wrapper(Odd(), cache, meter, Progress("texts", show=False)).embed(["a"], "query")


def test_identity_and_windows_are_the_embedders(cached):
    fake = FakeEmbedder(max_tokens=1)
    assert cached(fake).identity("query") == fake.identity("query")
    assert cached(fake).windows(["a b"], "document") == [["a", "b"]]


class Odd:
    def __init__(self, vectors, unread):
        self.answer = Embeddings(vectors, unread)

    def identity(self, role):
        return {"model": "odd"}

    def embed(self, texts, role):
        return self.answer


@pytest.mark.parametrize(
    ("vectors", "unread"),
    [
        (np.ones((1, 3)), [0, 0]),
        (np.ones((3, 3)), [0, 0]),
        (np.ones(2), [0, 0]),
        (np.ones((2, 3, 1)), [0, 0]),
        (np.ones((2, 3)), [0]),
        (np.ones((2, 3)), 0),
    ],
)
def test_an_embedder_that_breaks_its_contract(cached, cache, vectors, unread):
    with pytest.raises(ModelError, match=r"for 2 texts\. It must return one vector and one count per text"):
        cached(Odd(vectors, unread)).embed(["a", "b"], "query")
    assert cache.stats().entries == {}


def test_an_embedder_may_answer_with_lists(cached):
    found = cached(Odd([[1, 0], [0, 1]], [0, 2])).embed(["a", "b"], "query")
    assert found.vectors.tolist() == [[1, 0], [0, 1]]
    assert found.unread.tolist() == [0, 2]


@pytest.mark.parametrize(("broken", "n_stored"), [(nan, 1), (float("inf"), 1), (0.0, 2)])
def test_what_is_no_number_is_not_stored(cached, cache, broken, n_stored):
    cached(FakeEmbedder(vectors={"a": (1, 0), "b": (broken, 0)})).embed(["a", "b"], "query")
    assert cache.stats().entries == {"vector": n_stored}


def test_the_meter_of_an_embedder(cached, meter):
    embedder = cached(FakeEmbedder(max_tokens=1))
    for texts in (["a", "a b"], ["a b", "c d"]):
        embedder.embed(texts, "document")
    assert (meter.distinct, meter.cut, meter.encoded) == (3, 2, 3)


class Answering(FakeEmbedder):
    answer: object = None

    def embed(self, texts, role):
        super().embed(texts, role)
        return self.answer(texts) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.ones((1, 2)), "gave ndarray, not Embeddings"),
        (Embeddings([[1, 2], [3]], [0, 0]), "gave Embeddings, not Embeddings of numbers"),
        (Embeddings(np.empty((1, 0)), np.zeros(1)), r"shape \(1, 0\)"),
        (Embeddings(np.ones((2, 2)), np.zeros(2)), r"shape \(2, 2\)"),
    ],
)
def test_an_answer_that_is_no_embeddings(cached, monkeypatch, answer, message):
    monkeypatch.setattr(Answering, "answer", answer)
    with pytest.raises(ModelError, match=message):
        cached(Answering()).embed(["a"], "query")


def test_vectors_of_two_lengths_under_one_identity(cached, monkeypatch):
    monkeypatch.setattr(
        Answering,
        "answer",
        staticmethod(lambda texts: Embeddings(np.ones((len(texts), len(texts[0]))), np.zeros(len(texts)))),
    )
    embedder = cached(Answering())
    embedder.embed(["a"], "query")
    with pytest.raises(ModelError, match="different lengths under one identity"):
        embedder.embed(["a", "bb"], "query")


def test_a_vector_that_is_no_number_is_worked_out_once_a_run(cached, cache):
    fake = FakeEmbedder(vectors={"bad": (nan, 1.0), "good": (1.0, 0.0)})
    embedder = cached(fake)
    for _ in range(2):
        assert np.isnan(embedder.embed(["bad", "good"], "query").vectors).any(axis=1).tolist() == [True, False]
    assert sorted(fake.texts) == ["bad", "good"]
    assert cache.stats().entries == {"vector": 1}


def test_an_entry_that_is_no_vector_is_worked_out_again(cached, cache):
    texts = ["a", "b", "c"]
    cached(FakeEmbedder(n_dimensions=2)).embed(texts, "query")
    identity = json.dumps(dict(FakeEmbedder(n_dimensions=2).identity("query")), sort_keys=True)
    cache.put("vector", {digest("vector", identity, "b"): b"123"})
    again = FakeEmbedder(n_dimensions=2)
    with pytest.warns(CacheWarning, match="hold no vectors"):
        cached(again).embed(texts, "query")
    assert again.texts == ["b"]


def test_an_entry_among_new_texts_is_held_against_the_answers_at_hand(cached, cache):
    fake = FakeEmbedder(n_dimensions=2)
    embedder = cached(fake)
    embedder.embed(["a", "b"], "query")
    identity = json.dumps(dict(fake.identity("query")), sort_keys=True)
    cache.put("vector", {digest("vector", identity, "c"): bytes(8)})
    with pytest.warns(CacheWarning, match="hold no vectors"):
        found = embedder.embed(["a", "b", "c"], "query")
    assert fake.texts == ["a", "b", "c"]
    assert found.vectors.shape == (3, 2)


def test_processes_begin_at_places_of_their_own_and_look_again(cache, meter):
    """What another process stores while this one works is not encoded again."""
    texts = [f"text {'x' * n}" for n in range(64)]
    others = TextMeter()
    other = CachedEmbedder(FakeEmbedder(), cache, others, Progress("texts", show=False))

    class Slow(FakeEmbedder):
        def embed(self, given, role):
            if not self.texts:
                other.embed(texts[32:48], role)
            return super().embed(given, role)

    embedder = Slow()
    cached = CachedEmbedder(embedder, cache, meter, Progress("texts", show=False), start=0.5)
    vectors = cached.embed(texts, "document").vectors
    order = [*texts[::-1][32:], *texts[::-1][:32]]
    assert embedder.texts == [text for text in order if text not in texts[32:48]]
    others.close()
    assert (meter.distinct, meter.encoded) == (64, 48)
    assert (vectors == FakeEmbedder().embed(texts, "document").vectors).all()

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rag_descriptors import ContextRelevance, add_descriptors
from rag_descriptors.errors import ModelError, OptionError, TruncationWarning
from rag_descriptors.models.embedder import Embeddings, SentenceTransformerEmbedder
from rag_descriptors.similarity import PAIRS_AT_ONCE, SemanticSimilarity
from rag_descriptors.testing import FakeEmbedder

nan = float("nan")


def scored(scorer, *pairs):
    questions, contexts = zip(*pairs, strict=True)
    return scorer(pa.array(questions).dictionary_encode(), pa.array(contexts).dictionary_encode())


@pytest.mark.parametrize(
    ("question", "context", "normalized", "cosine"),
    [
        ((1, 0), (1, 0), 1.0, 1.0),
        ((1, 0), (0.6, 0.8), 0.8, 0.6),
        ((1, 0), (0, 1), 0.5, 0.0),
        ((1, 0), (-1, 0), 0.0, -1.0),
        ((1, 1), (1, 1), 1.0, 1.0),
        ((1, 1), (-1, -1), 0.0, -1.0),
        ((3, 0), (0.06, 0.08), 0.8, 0.6),
        ((1e20, 0), (1e-20, 0), 1.0, 1.0),
        ((1e-30, 1e-30), (1e30, 1e30), 1.0, 1.0),
        ((1, 0), (0, 0), nan, nan),
        ((0, 0), (1, 0), nan, nan),
        ((nan, 0), (1, 0), nan, nan),
        ((1, 0), (float("inf"), 0), nan, nan),
        ((0.3, 0.3, 0.3), (0.3, 0.3, 0.3), 1.0, 1.0),
        ((1, 0), (0.1234567, 0.9923502), 0.561728, 0.123457),
    ],
)
def test_scale(question, context, normalized, cosine):
    for similarity, expected in (("normalized_cosine", normalized), ("cosine", cosine)):
        embedder = FakeEmbedder(vectors={"q": question, "c": context})
        found = scored(SemanticSimilarity(similarity=similarity, embedder=embedder), ("q", "c"))
        assert found.values.dtype == np.float64
        assert found.values.tolist() == pytest.approx([expected], abs=0, nan_ok=True)
        assert found.failures == (pa.array(["unusable_vector"]) if np.isnan(expected) else None)


def test_each_distinct_text_once(embedder):
    found = scored(
        SemanticSimilarity(embedder=embedder), ("north?", "N"), ("east?", "E"), ("north?", "E"), ("north?", "N")
    )
    assert found.values.tolist() == [1.0, 1.0, 0.5, 1.0]
    assert embedder.texts == ["north?", "east?", "N", "E"]
    assert found.reasons is None


def test_no_pairs(embedder):
    nothing = pa.array([], pa.string()).dictionary_encode()
    assert SemanticSimilarity(embedder=embedder)(nothing, nothing).values.tolist() == []
    assert embedder.texts == []


def test_more_pairs_than_are_computed_at_once(embedder):
    n = PAIRS_AT_ONCE + 3
    contexts = ["N", "E", "NE"] * (n // 3 + 1)
    found = scored(SemanticSimilarity(embedder=embedder), *(("north?", context) for context in contexts[:n]))
    assert found.values.tolist() == ([1.0, 0.5, 0.8] * (n // 3 + 1))[:n]


WORDS = {"q": (1, 0), "good": (1, 0), "bad": (-1, 0), "odd": (0, 0), "good bad": (0, 1), "long q": (1, 0)}


@pytest.mark.parametrize(
    ("long_context", "context", "score", "reason", "failure"),
    [
        ("truncate", "good", 1.0, None, None),
        ("truncate", "good bad", 0.5, "the last 1 tokens of the context were not read", None),
        ("window_max", "good", 1.0, None, None),
        ("window_max", "good bad", 1.0, None, None),
        ("window_max", "bad odd bad", 0.0, None, None),
        ("window_max", "odd odd", nan, None, "unusable_vector"),
        ("error", "good", 1.0, None, None),
        ("error", "good bad", nan, "the last 1 tokens of the context were not read", "context_too_long"),
    ],
)
def test_long_contexts(long_context, context, score, reason, failure):
    embedder = FakeEmbedder(vectors=WORDS, max_tokens=1)
    found = scored(SemanticSimilarity(long_context=long_context, embedder=embedder), ("q", "bad"), ("q", context))
    assert found.values.tolist() == pytest.approx([0.0, score], nan_ok=True)
    assert (found.reasons and found.reasons.to_pylist()) == (None if reason is None else [None, reason])
    assert (found.failures and found.failures.to_pylist()) == (None if failure is None else [None, failure])


def test_a_question_that_is_too_long():
    scorer = SemanticSimilarity(long_context="error", embedder=FakeEmbedder(vectors=WORDS, max_tokens=1))
    assert scored(scorer, ("long q", "good")).failures.to_pylist() == ["context_too_long"]


def test_windows_that_texts_share_are_embedded_once():
    embedder = FakeEmbedder(vectors=WORDS, max_tokens=1)
    scorer = SemanticSimilarity(long_context="window_max", embedder=embedder)
    found = scored(scorer, ("q", "bad good"), ("q", "good bad"), ("q", "bad bad"))
    assert found.values.tolist() == [1.0, 1.0, 0.0]
    assert embedder.texts == ["q", "bad", "good"]


class WithoutWindows:
    def identity(self, role):
        return {"model": "m"}

    def embed(self, texts, role):
        return Embeddings(np.ones((len(texts), 2), np.float32), np.zeros(len(texts), np.int32))


@pytest.mark.parametrize("windows", [[["N"], []], [["N"]]])
def test_an_embedder_that_gives_no_windows(windows):
    class Windowless(FakeEmbedder):
        def windows(self, texts, role):
            return windows

    scorer = SemanticSimilarity(embedder=Windowless(), long_context="window_max")
    contexts = pa.array(["N", "E"]).dictionary_encode()
    with pytest.raises(ModelError, match=r"gave no windows of some texts\. See rag_descriptors\.Embedder"):
        scorer(pa.array(["q", "q"]).dictionary_encode(), contexts)


def test_an_embedder_without_windows():
    assert scored(SemanticSimilarity(embedder=WithoutWindows()), ("q", "c")).values.tolist() == [1.0]
    with pytest.raises(OptionError, match="has no method 'windows'"):
        SemanticSimilarity(embedder=WithoutWindows(), long_context="window_max")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (None, SemanticSimilarity()),
        ({"similarity": "cosine"}, SemanticSimilarity(similarity="cosine")),
        (
            {"model": "m", "batch_size": 4, "long_context": "error"},
            SemanticSimilarity(embedder=SentenceTransformerEmbedder(model="m", batch_size=4), long_context="error"),
        ),
        ({"embedder": FakeEmbedder()}, SemanticSimilarity(embedder=FakeEmbedder())),
    ],
)
def test_from_params(params, expected):
    assert SemanticSimilarity.from_params(params) == expected
    assert SemanticSimilarity.from_params(expected.params) == expected


@pytest.mark.parametrize(("similarity", "low"), [("cosine", -1.0), ("normalized_cosine", 0.0)])
def test_low(similarity, low):
    assert SemanticSimilarity(similarity=similarity).low == low


def test_bind():
    bound = SemanticSimilarity(embedder=FakeEmbedder()).bind(lambda embedder: WithoutWindows())
    assert isinstance(bound.embedder, WithoutWindows)


def test_a_question_that_is_not_read_whole_is_among_the_reasons():
    fake = FakeEmbedder(max_tokens=2)
    traces = pd.DataFrame({"question": ["a b c d"], "contexts": [["a b", "a b c"]]})
    descriptor = ContextRelevance(
        "question", "contexts", method_params={"embedder": fake}, alias="cr", output_reasons=True
    )
    with pytest.warns(TruncationWarning):
        scored = add_descriptors(traces, descriptor)
    of_question = "the last 2 tokens of the question were not read"
    assert scored["cr reasons"].tolist() == [
        [of_question, f"{of_question}, the last 1 tokens of the context were not read"]
    ]


def test_vectors_of_two_lengths():
    class Uneven(FakeEmbedder):
        def identity(self, role):
            return {"role": role}

        def embed(self, texts, role):
            width = {"query": 2, "document": 3}[role]
            return Embeddings(np.ones((len(texts), width), np.float32), np.zeros(len(texts), np.int32))

    traces = pd.DataFrame({"question": ["a"], "contexts": [["b"]]})
    with pytest.raises(ModelError, match="questions vectors of length 2 and contexts vectors of length 3"):
        add_descriptors(traces, ContextRelevance("question", "contexts", method_params={"embedder": Uneven()}))


def test_an_unknown_option_hides_no_wrong_values():
    with pytest.raises(OptionError) as error:
        SemanticSimilarity.from_params({"modl": "x", "dtype": "y", "similarity": "z"})
    assert [line.split(" is unknown")[0] for line in str(error.value).splitlines()] == [
        "method_params: 'modl'",
        "dtype: 'y'",
        "similarity: 'z'",
    ]

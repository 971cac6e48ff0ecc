import pickle
from dataclasses import dataclass, field
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rag_descriptors.errors import MissingColumnError, OptionError
from rag_descriptors.schemas import score_field
from rag_descriptors.testing import FakeEmbedder, check_descriptor
from rag_descriptors.traces.columns import CONTEXTS, TEXT

EXAMPLE = pd.DataFrame(
    {"question": ["a", "bb", "ccc", None], "contexts": [["a"], ["b", "c"], None, []], "seen": [0.1, 0.2, 0.3, 0.4]}
)


QUESTION = pa.schema([("question", TEXT)])
SCORE = pa.schema([score_field("length")])


@dataclass(frozen=True)
class Length:
    """A descriptor that keeps the contract: the length of a text, over ten."""

    inputs: Any = QUESTION
    outputs: Any = SCORE
    name: str = "length"

    def compute(self, columns):
        return self.batch(self.scores(columns["question"].to_pylist()))

    def scores(self, texts):
        return [None if text is None else len(text) / 10 for text in texts]

    def batch(self, scores):
        return pa.RecordBatch.from_arrays([pa.array(scores, pa.float64())], schema=self.outputs)


class Reversed(Length):
    """Gives each row another row's score."""

    def scores(self, texts):
        return super().scores(texts)[::-1]


class ByPlace(Length):
    """Scores a row by where it stands."""

    def scores(self, texts):
        return [row / 10 for row in range(len(texts))]


class Ranked(Length):
    """Compares the rows of a batch with each other."""

    def scores(self, texts):
        best = max((len(text) for text in texts if text), default=1)
        return [None if text is None else len(text) / best for text in texts]


class Dropping(Length):
    """Leaves out the rows that it can't score."""

    def scores(self, texts):
        return [score for score in super().scores(texts) if score is not None]


class Nothing(Length):
    """Can't do without rows."""

    def scores(self, texts):
        return super().scores(texts) if texts else [0.0]


class Null(Length):
    """Can't do with nulls alone."""

    def scores(self, texts):
        return super().scores(texts) if any(texts) else []


class Counting(Length):
    """Counts its calls, and scores by them."""

    calls = 0

    def scores(self, texts):
        type(self).calls += 1
        return [type(self).calls / 1000] * len(texts)


@dataclass(frozen=True)
class Unpicklable(Length):
    made: Any = field(default_factory=lambda: lambda: None)


@dataclass(frozen=True)
class Forgetful(Length):
    """Loses an option on its way through pickle."""

    scale: float = 0.5

    def __reduce__(self):
        return Forgetful, ()

    def scores(self, texts):
        return [None if score is None else score * self.scale for score in super().scores(texts)]


@dataclass(frozen=True)
class Mutating(Length):
    """Holds the table, and changes a list in it."""

    table: Any = None

    def compute(self, columns):
        self.table["contexts"][0].append("more")
        return super().compute(columns)


class Hit(Length):
    """Scores whole numbers, by place."""

    outputs = pa.schema([score_field("length", type=pa.int64())])

    def __init__(self):
        super().__init__(outputs=self.outputs)

    def batch(self, scores):
        hits = [None if row % 2 else 1 for row in range(len(scores))]
        return pa.RecordBatch.from_arrays([pa.array(hits, pa.int64())], schema=self.outputs)


@pytest.mark.parametrize("example", [EXAMPLE, EXAMPLE[:2], EXAMPLE.set_axis(list("dcba"))])
def test_a_descriptor_that_keeps_the_contract(example, relevance):
    check_descriptor(Length(), example)
    check_descriptor(relevance(output_scores=True, output_status=True, method=lengths), example)


def lengths(questions, contexts):
    return [1 / len(question) for question in questions]


def test_documents_may_be_objects(relevance):
    documents = [[SimpleNamespace(text="N")], [SimpleNamespace(text="E"), None]]
    check_descriptor(relevance(), pd.DataFrame({"question": ["north?", "east?"], "contexts": documents}))


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        (Reversed(), "scores did not follow their rows: shuffled rows"),
        (ByPlace(), "scores did not follow their rows: reversed rows"),
        (Hit(), "scores did not follow their rows: reversed rows"),
        (Counting(), "scores did not follow their rows"),
        (Ranked(), "a split table gave other scores"),
        (Dropping(), "for 4 rows and computed 3 rows"),
        (Nothing(), "for 0 rows and computed 1 rows"),
        (Null(), "rows and computed 0 rows"),
        (Unpicklable(), "it can't be pickled: "),
        (Forgetful(scale=0.25), "a pickled copy scored otherwise"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_a_descriptor_that_breaks_the_contract(descriptor, message):
    with pytest.raises(AssertionError, match=message):
        check_descriptor(descriptor, EXAMPLE)


class Careless(Length):
    """Crashes where there is nothing to score."""

    def scores(self, texts):
        return [len(text) / 10 for text in texts]


class Rowless(Length):
    """Crashes where there are no rows."""

    def scores(self, texts):
        return [None] * len(texts) if texts else texts[0]


@pytest.mark.parametrize(
    ("descriptor", "example", "message", "cause"),
    [
        (Careless(), EXAMPLE, r"it failed on rows of the example: TypeError\(", TypeError),
        (Careless(), EXAMPLE[:3], r"it failed on rows of nulls: TypeError\(", TypeError),
        (Rowless(), EXAMPLE, r"it failed on a table without rows: IndexError\(", IndexError),
    ],
)
def test_a_descriptor_that_raises(descriptor, example, message, cause):
    with pytest.raises(AssertionError, match=message) as caught:
        check_descriptor(descriptor, example)
    assert isinstance(caught.value.__cause__, cause)


def test_what_is_no_fault_of_the_contract():
    with pytest.raises(MissingColumnError, match="column 'question' is missing"):
        check_descriptor(Length(), EXAMPLE[["seen"]])


def test_a_plugin_by_its_name(package):
    package("measures", f"from {__name__} import Length, Ranked", Length="measures:Length", Ranked="measures:Ranked")
    check_descriptor("Length", EXAMPLE)
    with pytest.raises(AssertionError, match="a split table gave other scores"):
        check_descriptor("Ranked", EXAMPLE)
    with pytest.raises(OptionError, match="the descriptor 'Nothing' is not installed"):
        check_descriptor("Nothing", EXAMPLE)


def test_a_descriptor_that_changes_the_table():
    table = pd.DataFrame({"question": ["a", "b"], "contexts": [["a"], ["b"]]})
    with pytest.raises(AssertionError, match="the table was changed"):
        check_descriptor(Mutating(table=table), table)


@pytest.mark.parametrize("kind", [CONTEXTS, pa.float64()])
def test_examples_of_any_type(kind):
    column = "contexts" if kind == CONTEXTS else "seen"

    class Present(Length):
        def compute(self, columns):
            return self.batch([None if item is None else 1.0 for item in columns[column].to_pylist()])

    with pytest.raises(AssertionError, match="it can't be pickled"):  # since it is local; all that comes before holds
        check_descriptor(Present(inputs=pa.schema([(column, kind)])), EXAMPLE)


def test_one_row_proves_nothing():
    with pytest.raises(AssertionError, match="give an example of at least two rows"):
        check_descriptor(Length(), EXAMPLE[:1])


def test_fake_vectors_follow_the_words():
    embedder = FakeEmbedder()
    first, again, permuted, other, both = embedder.embed(
        ["red apples", "red  apples", "apples red", "blue sky", "red sky"], "query"
    ).vectors
    assert first.shape == (256,)
    assert first.dtype == np.float32
    assert np.array_equal(first, again)
    assert np.array_equal(first, permuted)

    def cosine(left, right):
        return left @ right / np.linalg.norm(left) / np.linalg.norm(right)

    assert abs(cosine(first, other)) < 0.3
    assert 0.3 < cosine(first, both) < 0.7
    assert embedder.texts == ["red apples", "red  apples", "apples red", "blue sky", "red sky"]


def test_fake_vectors_are_the_same_in_every_process():
    assert FakeEmbedder(n_dimensions=2).embed(["a"], "query").vectors.tolist() == [
        pytest.approx(np.random.default_rng(seed("a")).standard_normal(2).tolist(), abs=1e-6)
    ]


def seed(word):
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest())


def test_fake_limits():
    embedder = FakeEmbedder(max_tokens=2)
    read = embedder.embed(["a b", "a b c d", "a"], "document")
    assert read.unread.tolist() == [0, 2, 0]
    assert read.unread.dtype == np.int32
    assert np.array_equal(read.vectors[0], read.vectors[1])
    assert embedder.windows(["a b c", "a"], "document") == [["a b", "c"], ["a"]]
    assert FakeEmbedder().windows(["a b c"], "document") == [["a b c"]]


def test_fake_vectors_that_are_given(embedder):
    read = embedder.embed(["N", "E"], "document")
    assert read.vectors.tolist() == [[1, 0], [0, 1]]
    assert embedder.identity("query") == {
        "model": "fake",
        "vectors": {text: list(vector) for text, vector in embedder.vectors.items()},
        "max_tokens": None,
        "dim": 256,
    }


def test_a_fake_is_a_value():
    embedder = FakeEmbedder(max_tokens=2)
    embedder.embed(["a"], "query")
    assert embedder == FakeEmbedder(max_tokens=2) != FakeEmbedder()
    assert pickle.loads(pickle.dumps(embedder)) == embedder
    assert repr(embedder) == "FakeEmbedder(vectors={}, max_tokens=2, n_dimensions=256)"


def test_words_have_the_width_of_given_vectors():
    assert FakeEmbedder(vectors={"a": (1, 0)}).embed(["a", "other words"], "query").vectors.shape == (2, 2)

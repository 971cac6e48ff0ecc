"""For tests of descriptors, your own included: fake models, and the contract that every descriptor keeps."""

import hashlib
import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rag_descriptors.base import Descriptor
from rag_descriptors.errors import DescriptorError, ScoringError
from rag_descriptors.frame import add_descriptors
from rag_descriptors.models.embedder import Embeddings, Role
from rag_descriptors.models.judge import Completion, Prompt
from rag_descriptors.plugins import make

__all__ = ["FakeEmbedder", "FakeJudge", "check_descriptor"]


@dataclass(frozen=True, kw_only=True)
class FakeEmbedder:
    """An embedder without a model: texts of the same words have the same vector, those with none in common differ.

    Attributes:
        vectors: Vectors for given texts, all of one length; other texts get one made of their words.
        max_tokens: How many words are read; None for all.
        n_dimensions: The length of vectors made of words, where none are given.
        texts: The texts that were embedded, in order.
    """

    vectors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    max_tokens: int | None = None
    n_dimensions: int = 256
    texts: list[str] = field(default_factory=list, compare=False, repr=False)

    def identity(self, role: Role) -> Mapping[str, Any]:
        """Return what the vectors depend on; the role is not among it."""
        vectors = {text: list(vector) for text, vector in self.vectors.items()}
        return {"model": "fake", "vectors": vectors, "max_tokens": self.max_tokens, "dim": self.n_dimensions}

    def embed(self, texts: Sequence[str], role: Role) -> Embeddings:
        """Return one vector per text."""
        self.texts.extend(texts)
        words = [text.split() for text in texts]
        vectors = [self._vector(text, read[: self.max_tokens]) for text, read in zip(texts, words, strict=True)]
        unread = [max(0, len(read) - (self.max_tokens or len(read))) for read in words]
        return Embeddings(np.array(vectors, np.float32), np.array(unread, np.int32))

    def windows(self, texts: Sequence[str], role: Role) -> list[list[str]]:
        """Return each text cut into windows of `max_tokens` words."""
        return [list(self._windows(text.split())) for text in texts]

    def _windows(self, words: list[str]) -> Iterator[str]:
        width = self.max_tokens or len(words)
        for start in range(0, len(words), width):
            yield " ".join(words[start : start + width])

    def _vector(self, text: str, words: Sequence[str]) -> npt.NDArray[np.float32]:
        if text in self.vectors:
            return np.asarray(self.vectors[text], np.float32)
        total: npt.NDArray[np.float32] = np.array([self._word(word) for word in words], np.float32).sum(axis=0)
        return total

    def _word(self, word: str) -> npt.NDArray[np.float64]:
        seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())
        given = next(iter(self.vectors.values()), None)
        return np.random.default_rng(seed).standard_normal(self.n_dimensions if given is None else len(given))


@dataclass(frozen=True)
class FakeJudge:
    """A judge without a model: it says what it is told to.

    Attributes:
        replies: What it says: to each prompt the next of a list, the last one ever after; or what a function of the
            prompt returns. A text is given as it is, a dict as JSON, a `Completion` as such; an error is raised.
        name: What the judge is known by; another name is another judge.
        prompts: The prompts that were put to it, in order; their number is that of the calls.
    """

    replies: Sequence[Any] | Callable[[Prompt], Any]
    name: str = "fake"
    prompts: list[Prompt] = field(default_factory=list, compare=False, repr=False)

    def identity(self) -> Mapping[str, Any]:
        """Return the name."""
        return {"model": self.name}

    async def complete(self, prompt: Prompt) -> Completion:
        """Return the reply to a prompt."""
        self.prompts.append(prompt)
        if callable(self.replies):
            reply = self.replies(prompt)
        else:
            reply = self.replies[min(len(self.prompts), len(self.replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        return Completion(reply if isinstance(reply, str) else json.dumps(reply))


def check_descriptor(descriptor: Descriptor | str, example: pd.DataFrame) -> None:
    """Check that a descriptor keeps the contract: one row in, one row out, whatever stands beside it.

    The scores must follow their rows through any order, split and index (unsorted, with repeats); no rows, and rows of
    nulls, must give the promised columns; the descriptor must survive pickling and leave the table alone.

    Args:
        descriptor: What to check; a text is the name of a plugin, made without arguments.
        example: At least two rows, with the columns that the descriptor reads.

    Raises:
        AssertionError: The contract is broken, or the descriptor raises; the message says how, the cause is kept.
        OptionError: There is no plugin of this name that can be made without arguments.
        MissingColumnError: The example lacks columns that the descriptor reads.
    """
    descriptor = make(descriptor) if isinstance(descriptor, str) else descriptor
    _require(len(example) > 1, "give an example of at least two rows")
    before = deepcopy(_plain(example))
    scored = _records(descriptor, example)
    _require(_same(_plain(example), before), "the table was changed")
    for what, order in _orders(len(example)).items():
        again = _records(descriptor, example.iloc[order])
        _require(_same(again, [scored[row] for row in order]), f"scores did not follow their rows: {what}")
    for what, index in _indexes(len(example)).items():
        _require(
            _same(_records(descriptor, example.set_axis(index)), scored), f"scores did not follow their rows: {what}"
        )
    halves = [_records(descriptor, half) for half in (example.iloc[:1], example.iloc[1:])]
    _require(_same(halves[0] + halves[1], scored), "a split table gave other scores")
    _require(_same(_records(_pickled(descriptor), example), scored), "a pickled copy scored otherwise")
    _check_without_data(descriptor, example)


def _check_without_data(descriptor: Descriptor, example: pd.DataFrame) -> None:
    full, empty = _scored(descriptor, example), _scored(descriptor, example.iloc[:0], "a table without rows")
    _require(list(empty.columns) == list(full.columns), "a table without rows lost columns")
    _require(list(empty.dtypes) == list(full.dtypes), "a table without rows changed dtypes")
    nulls = example.assign(**dict.fromkeys(descriptor.inputs.names))
    _require(len(_scored(descriptor, nulls, "rows of nulls")) == len(nulls), "rows of nulls were lost")


def _pickled(descriptor: Descriptor) -> Any:
    try:
        return pickle.loads(pickle.dumps(descriptor))
    except Exception as error:
        raise AssertionError(f"it can't be pickled: {error}") from error


def _orders(n_rows: int) -> dict[str, list[int]]:
    shuffled = np.random.default_rng(0).permutation(n_rows).tolist()
    return {
        "reversed rows": list(range(n_rows))[::-1],
        "shuffled rows": shuffled,
        "repeated rows": [0, *range(n_rows), 0],
    }


def _indexes(n_rows: int) -> dict[str, list[Any]]:
    return {
        "unsorted index": list(range(n_rows))[::-1],
        "repeated index": [0] * n_rows,
        "text index": [f"row {n_rows - row}" for row in range(n_rows)],
    }


def _records(descriptor: Descriptor, table: pd.DataFrame) -> list[dict[str, Any]]:
    return _plain(_scored(descriptor, table)[descriptor.outputs.names])


def _scored(descriptor: Descriptor, table: pd.DataFrame, rows: str = "rows of the example") -> pd.DataFrame:
    try:
        return add_descriptors(table, descriptor)
    except ScoringError as error:
        raise AssertionError(str(error)) from error
    except DescriptorError:  # no fault of the contract
        raise
    except Exception as error:
        raise AssertionError(f"it failed on {rows}: {error!r}") from error


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    columns = {name: table[name].tolist() for name in table.columns}
    return [{name: values[row] for name, values in columns.items()} for row in range(len(table))]


def _same(left: object, right: object) -> bool:
    """Compare values of cells; missing ones are the same, numbers to 6 decimals."""
    if isinstance(left, float | np.floating) and isinstance(right, float | np.floating):
        return bool(np.isclose(left, right, atol=1e-6, equal_nan=True))
    if isinstance(left, list | tuple | np.ndarray) and isinstance(right, list | tuple | np.ndarray):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if type(left) is type(right) and hasattr(left, "__dict__"):
        return _same(vars(left), vars(right))
    return left is right or (left is not pd.NA and right is not pd.NA and bool(left == right))


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)

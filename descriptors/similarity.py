"""Scoring pairs by the similarity of their vectors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rag_descriptors.base import PairScores
from rag_descriptors.errors import ModelError
from rag_descriptors.models.embedder import Embedder, Embeddings, SentenceTransformerEmbedder
from rag_descriptors.models.identity import identity_of
from rag_descriptors.options import caught, mappings, one_of, together, unknown

__all__ = ["SemanticSimilarity"]

Similarity = Literal["normalized_cosine", "cosine"]
LongContext = Literal["truncate", "window_max", "error"]
CONTEXT_TOO_LONG = "context_too_long"
UNUSABLE_VECTOR = "unusable_vector"
UNREAD = "the last {} tokens of the {} were not read"
PAIRS_AT_ONCE = 1024  # their vectors fit into a core's cache
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SemanticSimilarity:
    """A scorer: the cosine of the question's and the context's vectors.

    Attributes:
        similarity: `"normalized_cosine"` is `clip((1 + cos) / 2, 0, 1)`, Evidently's scale; `"cosine"` is
            `clip(cos, -1, 1)`. Both are rounded to 6 decimals, so that noise below them never moves a hit.
        long_context: What becomes of a text that is longer than the model reads. `"truncate"` scores its beginning,
            counts it and says so among the reasons; `"window_max"` scores windows of it, and the best one counts;
            `"error"` fails its pairs with status `context_too_long`.
        embedder: What turns texts into vectors.
    """

    similarity: Similarity = "normalized_cosine"
    long_context: LongContext = "truncate"
    embedder: Embedder = field(default_factory=SentenceTransformerEmbedder)
    repeats: ClassVar[int] = 1

    def __post_init__(self) -> None:
        together([*self._problems()])

    def _problems(self) -> Iterator[str]:
        yield from one_of("similarity", self.similarity, get_args(Similarity))
        yield from one_of("long_context", self.long_context, get_args(LongContext))
        for method in ("embed", "identity", *(["windows"] if self.long_context == "window_max" else [])):
            if isinstance(self.embedder, type) or not callable(getattr(self.embedder, method, None)):
                yield f"embedder: {self.embedder!r} has no method {method!r}; see rag_descriptors.Embedder."

    @property
    def low(self) -> float:
        """The lowest possible score; the highest is 1."""
        return -1.0 if self.similarity == "cosine" else 0.0

    @classmethod
    def option_names(cls) -> list[str]:
        """Return what `from_params` takes."""
        return [*_names(cls), *_names(SentenceTransformerEmbedder)]

    @classmethod
    def from_params(cls, params: Mapping[str, Any] | None = None) -> Self:
        """Return the scorer with these options; those that are not its own are the embedder's.

        Raises:
            OptionError: Names or values are not allowed, or an `embedder` is given together with its options.
        """
        together(mappings(method_params=params))
        own = _names(cls)
        mine = {name: value for name, value in (params or {}).items() if name in own}
        model = {name: value for name, value in (params or {}).items() if name in _names(SentenceTransformerEmbedder)}
        problems = unknown("method_params", params or {}, cls.option_names())
        if "embedder" in mine and model:
            problems.append(f"method_params: {', '.join(model)} can't stand beside embedder. Set them on the embedder.")
        together([*problems, *caught(lambda: SentenceTransformerEmbedder(**model), lambda: cls(**mine))])
        return cls(**{"embedder": SentenceTransformerEmbedder(**model), **mine})

    @property
    def params(self) -> dict[str, Any]:
        """The options that make this scorer."""
        return {"similarity": self.similarity, "long_context": self.long_context, "embedder": self.embedder}

    @property
    def provenance(self) -> dict[str, Any]:
        """All that changes a score."""
        return {
            "name": "semantic_similarity",
            "similarity": self.similarity,
            "long_context": self.long_context,
            "query": identity_of(self.embedder, "query"),
            "document": identity_of(self.embedder, "document"),
        }

    def bind(self, wrap: Callable[[Any], Any]) -> Self:
        """Return this scorer with its embedder wrapped."""
        return replace(self, embedder=wrap(self.embedder))

    def __call__(self, questions: pa.DictionaryArray, contexts: pa.DictionaryArray) -> PairScores:
        """Return the similarity of each pair; nan where a vector is zero or not finite, or a text is too long."""
        if len(questions) == 0:
            return PairScores(np.empty(0))
        q, c = questions.indices.to_numpy(), contexts.indices.to_numpy()
        asked = self.embedder.embed(questions.dictionary.to_pylist(), "query")
        read, offsets = self._embed_contexts(contexts.dictionary.to_pylist())
        if asked.vectors.shape[1] != read.vectors.shape[1]:
            raise ModelError(
                f"{self.embedder!r} gave questions vectors of length {asked.vectors.shape[1]} and contexts vectors of "
                f"length {read.vectors.shape[1]}. They must be of one length."
            )
        cosines = _best_cosines(asked.vectors, read.vectors, q, c, offsets)
        unread = {"question": (asked.unread, q), "context": (np.add.reduceat(read.unread, offsets[:-1]), c)}
        is_cut = np.any([counts[places] > 0 for counts, places in unread.values()], axis=0)
        too_long = is_cut if self.long_context == "error" else np.zeros_like(is_cut)
        values = np.where(too_long, np.nan, self._scale(cosines))
        return PairScores(values, _reasons(unread) if is_cut.any() else None, _failures(values, too_long))

    def _embed_contexts(self, texts: list[str]) -> tuple[Embeddings, npt.NDArray[np.int64]]:
        """Return the vectors of all windows of all texts, each distinct one embedded once, and each text's offsets."""
        if self.long_context != "window_max":
            return self.embedder.embed(texts, "document"), np.arange(len(texts) + 1)
        windows = self.embedder.windows(texts, "document")  # type: ignore[attr-defined]
        if len(windows) != len(texts) or not all(windows):
            raise ModelError(f"{self.embedder!r} gave no windows of some texts. See rag_descriptors.Embedder.")
        places = {text: place for place, text in enumerate(dict.fromkeys(chain.from_iterable(windows)))}
        read = self.embedder.embed(list(places), "document")
        index = [places[text] for text in chain.from_iterable(windows)]
        offsets = np.concatenate([[0], np.cumsum([len(cut) for cut in windows])])
        return Embeddings(read.vectors[index], read.unread[index]), offsets

    def _scale(self, cosines: Floats) -> Floats:
        scores = cosines if self.similarity == "cosine" else (1 + cosines) / 2
        return np.round(np.clip(scores, self.low, 1), 6).astype(np.float64)


def _names(kind: type[SemanticSimilarity] | type[SentenceTransformerEmbedder]) -> list[str]:
    return [option.name for option in fields(kind)]


def _best_cosines(
    asked: npt.NDArray[np.float32],
    read: npt.NDArray[np.float32],
    q: npt.NDArray[np.int32],
    c: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
) -> Floats:
    """Return for pair `i` the highest cosine of `asked[q[i]]` and any of the windows `offsets` gives to text `c[i]`."""
    counts = np.diff(offsets)[c]
    firsts = np.cumsum(counts) - counts
    windows = np.arange(counts.sum()) + np.repeat(offsets[c] - firsts, counts)
    cosines = _cosines(_unit(asked), _unit(read), np.repeat(q, counts), windows)
    return np.fmax.reduceat(cosines, firsts)


def _cosines(
    left: npt.NDArray[np.float32], right: npt.NDArray[np.float32], i: npt.NDArray[Any], j: npt.NDArray[Any]
) -> Floats:
    cosines = np.empty(len(i))
    for start in range(0, len(i), PAIRS_AT_ONCE):
        block = slice(start, start + PAIRS_AT_ONCE)
        cosines[block] = np.einsum("ij,ij->i", left[i[block]], right[j[block]])
    return cosines


def _unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return vectors of length 1; nan for those that are zero or not finite."""
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)).astype(np.float32)
        usable = np.isfinite(lengths) & (lengths > 0)
        return (vectors / np.where(usable, lengths, np.nan)[:, None]).astype(np.float32, copy=False)


def _reasons(unread: Mapping[str, tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]) -> pa.StringArray:
    """Return a text for each pair of which not all was read, null for the others.

    `unread` gives, by what the tokens belong to, the count of each distinct text, and the text of each pair.
    """
    told = [
        pa.array([UNREAD.format(n, kind) if n else None for n in counts], pa.string()).take(pa.array(places))
        for kind, (counts, places) in unread.items()
    ]
    return pc.coalesce(pc.binary_join_element_wise(*told, ", "), *told)


def _failures(values: Floats, too_long: npt.NDArray[np.bool_]) -> pa.StringArray | None:
    failed = np.isnan(values)
    if not failed.any():
        return None
    return pa.array(np.where(too_long, CONTEXT_TOO_LONG, UNUSABLE_VECTOR), pa.string(), mask=~failed)

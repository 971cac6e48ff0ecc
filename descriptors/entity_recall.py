"""ContextEntityRecall: the share of the reference's entities that the contexts hold."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from rag_descriptors.base import MISSING_REFERENCE, NO_CONTEXTS, NO_REFERENCE_ENTITIES, NOT_SCORED, OK, to_batch
from rag_descriptors.conditions import Condition, fields_of, problems_of, results_of
from rag_descriptors.judging import JudgedEntities
from rag_descriptors.longframe import LongFrame
from rag_descriptors.matching import KEYS, MENTIONS, Key, Matcher, Mentions
from rag_descriptors.models.entities import CallableExtractor, EntityExtractor, ListEntities, SpacyExtractor
from rag_descriptors.models.identity import identity_of
from rag_descriptors.models.llm import DEFAULT_MODEL
from rag_descriptors.options import (
    build,
    caught,
    column_names,
    flags,
    keep_copies,
    mappings,
    one_of,
    qualified_name,
    stable_repr,
    together,
)
from rag_descriptors.schemas import entities_field, score_field, status_field
from rag_descriptors.traces.columns import CONTEXTS, TEXT

__all__ = ["ContextEntityRecall"]

BETWEEN = "\n\n"
Held = dict[Hashable, str] | Mentions | str  # what a text holds, or the status of a failure


@dataclass(frozen=True)
class ContextEntityRecall:
    """The share of the reference's entities that the contexts hold, in [0, 1]: Ragas' metric, over sets.

    Score: `|entities of the contexts ∩ entities of the reference| / |entities of the reference|`.

    Columns: `{alias}`, the score; with `output_entities` `{alias} entities`, a dict of four lists: `reference`,
    `contexts`, `found` and `missing`, each entity once and as it is written; with `output_status` `{alias} status`; and
    one nullable boolean column per test. A reference with entities and contexts that are empty are 0.0. A missing
    reference, one without entities, null contexts and a failed extraction are null, and the status says which.

    Attributes:
        reference: The column of references: what a right answer says.
        contexts: The column of contexts.
        method: What finds entities: `"llm"`; `"spacy"`, which needs no key and no network; an `EntityExtractor`; or a
            callable from a list of distinct texts to as many lists of entities, None for a text that it can't read.
        method_params: For `"spacy"` the options of `SpacyExtractor`. For `"llm"` those of `Limits` and, unless a
            `judge` is given, of `LiteLLMJudge`; `prompt`, a task of your own that holds `{text}`; and `repeats` (1):
            with more, the score is the mean, `{alias} spread` the distance of the lowest from the highest, and the
            entities are the first answers'.
        model: For `"llm"`, the judge's model, see `LiteLLMJudge`.
        matching: When two forms are one entity. `"normalized"`: they differ in case, Unicode form, quotes, blanks or
            outer punctuation (but for `# % & @`) at most; `"exact"`: in nothing; a callable from a form to a key: their
            keys are equal. A form whose key is None is no entity; any other key counts, 0 and "" too.
            `"mentions"`: no entities are sought in the contexts, but the reference's entities as whole words in their
            text, normalized.
        alias: The name of the score column.
        tests: Conditions on the score, see `rag_descriptors.conditions`.
        aliases: From a form of an entity to its canonical one, such as `{"FDR": "Franklin D. Roosevelt"}`.
        output_entities: Whether to give the entities.
        output_status: Whether to say what became of each row.

    Raises:
        OptionError: A name or a value is not allowed.

    Example:
        >>> import pandas as pd
        >>> from rag_descriptors import ContextEntityRecall, add_descriptors
        >>> traces = pd.DataFrame(
        ...     {
        ...         "reference": ["Marie Curie, born in Warsaw, studied at the University of Paris."],
        ...         "contexts": [["The University of Paris taught Marie Curie from 1891.", "Bread."]],
        ...     }
        ... )
        >>> recall = ContextEntityRecall("reference", "contexts", "spacy", alias="recall", output_entities=True)
        >>> scored = traces.pipe(add_descriptors, recall)
        >>> scored["recall"].round(2).tolist()
        [0.67]
        >>> scored["recall entities"][0]["missing"]
        ['Warsaw']
    """

    reference: str
    contexts: str
    method: str | EntityExtractor | ListEntities = "llm"
    method_params: Mapping[str, Any] | None = None
    model: str = DEFAULT_MODEL
    matching: str | Key = "normalized"
    alias: str | None = None
    tests: Sequence[Condition] | None = None
    _: KW_ONLY
    aliases: Mapping[str, str] | None = None
    output_entities: bool = False
    output_status: bool = False
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        keep_copies(self)
        together([*self._problems(), *caught(lambda: self._extractor, lambda: self._matcher)])

    def _problems(self) -> Iterator[str]:
        yield from column_names(reference=self.reference, contexts=self.contexts, alias=self.name)
        yield from flags(self, "output_entities", "output_status")
        if not isinstance(self.model, str) or not self.model.strip():
            yield f"model: {self.model!r} is not allowed. Give a name such as {DEFAULT_MODEL!r}."
        yield from problems_of(self.tests)

    def __repr__(self) -> str:
        return stable_repr(self)

    def __hash__(self) -> int:
        return hash((type(self), self.reference, self.contexts, self.name))

    @property
    def name(self) -> str:
        """The name of the score column."""
        return self.alias if self.alias is not None else f"Entity recall of {self.reference} in {self.contexts}"

    @property
    def inputs(self) -> pa.Schema:
        """The reference and contexts columns."""
        return pa.schema([(self.reference, TEXT), (self.contexts, CONTEXTS)])

    @property
    def outputs(self) -> pa.Schema:
        """The score column, and the others that were asked for."""
        fields = [score_field(self.name)]
        fields += [score_field(f"{self.name} spread")] * (len(self._samples) > 1)
        fields += [entities_field(f"{self.name} entities")] * self.output_entities
        fields += [status_field(f"{self.name} status")] * self.output_status
        return pa.schema([*fields, *fields_of(self.name, self.tests)])

    @property
    def provenance(self) -> dict[str, Any]:
        """All that changes the values of the score column."""
        return {
            "descriptor": type(self).__name__,
            "version": self.version,
            "method": identity_of(self._extractor),
            "matching": qualified_name(self.matching) if callable(self.matching) else self.matching,
            "aliases": self.aliases or {},
        }

    def bind(self, wrap: Callable[[Any], Any]) -> Self:
        """Return this descriptor with its extractor wrapped; one that has a `bind` of its own is bound instead."""
        extractor = self._extractor
        bind = getattr(extractor, "bind", None)
        method = bind(wrap) if callable(bind) else wrap(extractor)
        return replace(self, method=method, method_params=None, model=DEFAULT_MODEL)

    def compute(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns for `columns`, row for row."""
        references, contexts = columns[self.reference].to_pylist(), _lists_of_texts(columns[self.contexts])
        runs = [self._rows(references, contexts, extractor) for extractor in self._samples]
        scores = np.array([[row.score for row in run] for run in runs], np.float64)
        rows = [next((row for row in same if row.score is None), same[0]) for same in zip(*runs, strict=True)]
        score = pa.array(scores.mean(axis=0), from_pandas=True)
        fields = entities_field(f"{self.name} entities")
        return to_batch(
            self,
            {
                self.name: score,
                f"{self.name} spread": pa.array(np.ptp(scores, axis=0), from_pandas=True),
                fields.name: pa.array([row.entities for row in rows], fields.type),
                f"{self.name} status": pa.array([row.status for row in rows], pa.string()),
                **results_of(self.name, self.tests, score),
            },
        )

    def _rows(
        self, references: list[str | None], contexts: list[list[str] | None], extractor: EntityExtractor
    ) -> "list[Row]":
        """References are read first: what contexts hold matters only where there is something to be found."""
        rows = list(zip(references, contexts, strict=True))
        said = self._entities(extractor, (ref for ref, texts in rows if ref is not None and texts is not None))
        sought = [None if ref is None else said.get(ref) for ref in references]
        joins = self.matching != MENTIONS and getattr(extractor, "joins_contexts", False)
        units = [_units(texts, joins) if _has_any(found) else [] for found, texts in zip(sought, contexts, strict=True)]
        held = self._held(extractor, chain.from_iterable(units))
        read = [[held[unit] for unit in row] for row in units]
        return list(map(_row, references, contexts, sought, read))

    def _entities(self, extractor: EntityExtractor, texts: Iterable[str]) -> dict[str, Held]:
        """Return the entities of each distinct text by key, or the status of its failure."""
        distinct, matcher = list(dict.fromkeys(texts)), self._matcher
        answers = extractor.extract(distinct) if distinct else []
        return {
            text: (said.failure or NOT_SCORED) if said.entities is None else matcher.forms(said.entities)
            for text, said in zip(distinct, answers, strict=True)
        }

    def _held(self, extractor: EntityExtractor, texts: Iterable[str]) -> dict[str, Held]:
        if self.matching != MENTIONS:
            return self._entities(extractor, texts)
        matcher = self._matcher
        return {text: Mentions(text, matcher) for text in dict.fromkeys(texts)}

    @property
    def _samples(self) -> Sequence[EntityExtractor]:
        """The extractor, once per repeat."""
        extractor = self._extractor
        return extractor.samples if isinstance(extractor, JudgedEntities) else [extractor]

    @property
    def _extractor(self) -> EntityExtractor:
        if not isinstance(self.method, str):
            given = ["method_params: an extractor has options of its own. Leave them out."] * bool(self.method_params)
            together([*_not_an_extractor(self.method), *given, *_not_asked(self.model)])
            method: Any = self.method
            return method if _is_extractor(method) else CallableExtractor(method)
        together([*one_of("method", self.method, METHODS), *mappings(method_params=self.method_params)])
        return METHODS[self.method](self.method_params, model=self.model)

    @property
    def _matcher(self) -> Matcher:
        together(
            [*([] if callable(self.matching) else one_of("matching", self.matching, KEYS)), *_not_aliases(self.aliases)]
        )
        return Matcher.of(self.matching if callable(self.matching) else KEYS[self.matching], self.aliases)


def _spacy(params: Mapping[str, Any] | None, *, model: str) -> SpacyExtractor:
    built: list[SpacyExtractor] = []
    together([*_not_asked(model), *caught(lambda: built.append(build(SpacyExtractor, params, "method_params")))])
    return built[0]


METHODS: Mapping[str, Callable[..., EntityExtractor]] = {
    "llm": JudgedEntities.from_params,
    "spacy": _spacy,
}


@dataclass(frozen=True)
class Row:
    """What became of one row; `entities` are the cell of the entities column."""

    status: str
    score: float | None = None
    entities: dict[str, list[str] | None] | None = None


def _units(texts: list[str] | None, joins: bool) -> list[str]:
    """Return what is read at once: each context, or all of a row as one text, whatever their order and doubles."""
    distinct = list(dict.fromkeys(texts or ()))
    return [BETWEEN.join(sorted(distinct))] if joins and distinct else distinct


def _row(reference: str | None, contexts: list[str] | None, sought: Held | None, held: list[Held]) -> Row:
    if reference is None:
        return Row(MISSING_REFERENCE)
    if contexts is None:
        return Row(NO_CONTEXTS)
    if not isinstance(sought, dict):
        return Row(str(sought))
    cell = {"reference": list(sought.values()), "contexts": None, "found": None, "missing": None}
    failures = [said for said in held if isinstance(said, str)]
    if failures or not sought:
        return Row(failures[0] if failures else NO_REFERENCE_ENTITIES, entities=cell)
    found = {key for key in sought if any(key in said for said in held if not isinstance(said, str))}
    cell["contexts"] = _listed(held)
    cell["found"] = [form for key, form in sought.items() if key in found]
    cell["missing"] = [form for key, form in sought.items() if key not in found]
    return Row(OK if held else NO_CONTEXTS, len(found) / len(sought), cell)


def _has_any(sought: Held | None) -> bool:
    return isinstance(sought, dict) and bool(sought)


def _listed(held: list[Held]) -> list[str] | None:
    """Return the entities of contexts, each once; None where none were sought."""
    forms: dict[Hashable, str] = {}
    for said in held:
        if not isinstance(said, dict):
            return None
        forms |= {key: form for key, form in said.items() if key not in forms}
    return list(forms.values())


def _lists_of_texts(contexts: pa.ListArray) -> list[list[str] | None]:
    """Return each row's contexts without the missing ones, None for a null list; a text that repeats is held once."""
    frame = LongFrame.explode(contexts).distinct()
    texts = [*frame.items.dictionary.to_pylist(), None]
    items = [texts[place] for place in frame.items.indices.fill_null(len(texts) - 1).to_pylist()]
    ends = zip(frame.offsets, frame.offsets[1:], frame.is_null, strict=False)
    return [
        None if is_null else [text for text in items[start:end] if text is not None] for start, end, is_null in ends
    ]


def _not_asked(model: object) -> list[str]:
    is_given = isinstance(model, str) and model.strip() not in ("", DEFAULT_MODEL)
    return [f"model: {model!r} is the judge's, and no judge is asked. Leave it out."] * is_given


def _is_extractor(method: object) -> bool:
    return all(callable(getattr(method, name, None)) for name in ("identity", "extract"))


def _not_an_extractor(method: object) -> list[str]:
    if not isinstance(method, type) and (_is_extractor(method) or callable(method)):
        return []
    names = ", ".join(map(repr, METHODS))
    return [f"method: {method!r} is none of {names}, no EntityExtractor, and no function from texts to their entities."]


def _not_aliases(aliases: object) -> list[str]:
    pairs = aliases.items() if isinstance(aliases, Mapping) else ()
    if isinstance(aliases, Mapping | None) and all(isinstance(text, str) for pair in pairs for text in pair):
        return []
    return [f"aliases: {aliases!r} is not allowed. Give a dict from forms to canonical forms, both texts."]

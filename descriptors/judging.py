"""How a descriptor puts its questions to a judge."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import isclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from rag_descriptors.base import PARTIAL, PairScores
from rag_descriptors.errors import OptionError
from rag_descriptors.models.calls import JudgeSession
from rag_descriptors.models.entities import Entities
from rag_descriptors.models.identity import identity_of
from rag_descriptors.models.judge import NOT_ASKED, Asker, Judge, Verdict, verdicts
from rag_descriptors.models.limits import Limits
from rag_descriptors.models.llm import DEFAULT_MODEL, LiteLLMJudge
from rag_descriptors.models.prompts import ENTITIES, RELEVANCE, Template
from rag_descriptors.options import caught, mappings, together, unknown, whole_number

__all__ = ["JudgedEntities", "JudgedRelevance", "Judging"]


@dataclass(frozen=True, kw_only=True)
class Judging:
    """A judge, how it is called, and what it is told; what is made of its answers is said by those that are one.

    Attributes:
        judge: Who answers.
        limits: How it is called.
        template: What it is told.
        repeats: How often each question is asked.
        usual: What it is told where no `prompt` is given.
    """

    judge: Judge | Asker
    limits: Limits
    template: Template
    repeats: int = 1
    usual: ClassVar[Template]

    @classmethod
    def from_params(cls, params: Mapping[str, Any] | None = None, *, model: str | None = None) -> Self:
        """Return what these options name: `judge`, or those of `LiteLLMJudge`; those of `Limits`; `prompt`, `repeats`.

        Args:
            params: The options.
            model: The judge's model, of a descriptor that has an argument for it.

        Raises:
            OptionError: Names or values are not allowed, or a `judge` is given together with its options.
        """
        together(mappings(method_params=params))
        given, problems = _with_model(params or {}, model)
        limits, judge, own = _sorted(given)
        judge |= {"model": model} if model is not None and own["judge"] is None else {}
        allowed = [*own, *_names(LiteLLMJudge), *_names(Limits)]
        problems += unknown("method_params", given, [name for name in allowed if name != "model" or model is None])
        problems += cls.usual.problems(own["prompt"]) if own["prompt"] is not None else []
        built: dict[str, Any] = {}
        problems += caught(
            lambda: built.update(limits=Limits(**limits)), lambda: built.update(judge=_judge(own["judge"], judge))
        )
        problems += whole_number("repeats", own["repeats"], 1)
        problems += _uncertain_cost(**built)
        together(problems)
        return cls(
            **built,
            template=cls.usual if own["prompt"] is None else cls.usual.with_task(own["prompt"]),
            repeats=int(own["repeats"]),
        )

    @property
    def params(self) -> dict[str, Any]:
        """The options that make this."""
        return {
            "judge": self.judge,
            "prompt": self.template.task,
            "repeats": self.repeats,
            **self.limits.params,
        }

    @property
    def provenance(self) -> dict[str, Any]:
        """All that changes an answer."""
        asked = {"judge": identity_of(self.judge), "prompt": self.template.digest}
        return {"name": "llm", **asked, "repeats": self.repeats}

    def bind(self, wrap: Callable[[Any], Any]) -> Self:
        """Return the same with its judge wrapped."""
        return replace(self, judge=wrap(self._asker))

    def ask(self, data: Sequence[Mapping[str, Any]]) -> list[list[Verdict]]:
        """Return for each of `data`, what stands in one prompt, as many verdicts as there are repeats."""
        found = self._ask((item, sample) for item in data for sample in range(self.repeats))
        return [found[start : start + self.repeats] for start in range(0, len(found), self.repeats)]

    def ask_once(self, data: Sequence[Mapping[str, Any]], sample: int) -> list[Verdict]:
        """Return for each of `data` the verdict of one of the repeats."""
        return self._ask((item, sample) for item in data)

    def _ask(self, samples: Iterable[tuple[Mapping[str, Any], int]]) -> list[Verdict]:
        return verdicts(self._asker, [self.template.fill(item, sample) for item, sample in samples])

    @property
    def _asker(self) -> Asker:
        asked: Any = self.judge
        return JudgeSession(asked, self.limits) if hasattr(asked, "complete") else asked


@dataclass(frozen=True, kw_only=True)
class JudgedRelevance(Judging):
    """A scorer: what a judge says of each question and context."""

    low: ClassVar[float] = 0.0
    usual: ClassVar[Template] = RELEVANCE

    def __call__(self, questions: pa.DictionaryArray, contexts: pa.DictionaryArray) -> PairScores:
        """Return the mean of the scores that the judge gave a pair; nan where it could not say, or did not answer."""
        indices = np.stack([texts.indices.to_numpy() for texts in (questions, contexts)], axis=1)
        distinct, places = np.unique(indices, axis=0, return_inverse=True)
        asked, read = questions.dictionary.to_pylist(), contexts.dictionary.to_pylist()
        judged = self.ask([{"question": asked[q], "context": read[c]} for q, c in distinct])
        scores = np.array([[_score(one) for one in found] for found in judged], np.float64).reshape(-1, self.repeats)
        shown = [next((one for one in found if _score(one) is None), found[0]) for found in judged]
        at = pa.array(places.ravel())
        return PairScores(
            scores.mean(axis=1)[at],
            reasons=pa.array([_reason(one) for one in shown], pa.string()).take(at),
            failures=pa.array([_failure(one) for one in shown], pa.string()).take(at),
            repeats=scores[at].T if self.repeats > 1 else None,
        )


@dataclass(frozen=True, kw_only=True)
class JudgedEntities(Judging):
    """An extractor: the entities that a judge lists; those of a row's contexts in one call.

    Attributes:
        sample: Which of the repeats it gives.
    """

    sample: int = 0
    joins_contexts: ClassVar[bool] = True
    usual: ClassVar[Template] = ENTITIES

    @property
    def samples(self) -> list[Self]:
        """One extractor per repeat."""
        return [replace(self, sample=sample) for sample in range(self.repeats)]

    def identity(self) -> Mapping[str, Any]:
        """Return all that changes an answer."""
        return self.provenance

    def extract(self, texts: Sequence[str]) -> list[Entities]:
        """Return what the judge says each text names; in an estimate a name, so that all is counted that may follow."""
        said = self.ask_once([{"text": text} for text in texts], self.sample)
        return [
            Entities((NOT_ASKED,) if verdict.failure == NOT_ASKED else verdict.value, verdict.failure)
            for verdict in said
        ]


def _score(verdict: Verdict) -> float | None:
    return None if verdict.value is None else verdict.value.score


def _reason(verdict: Verdict) -> str | None:
    return verdict.message if verdict.value is None else verdict.value.reason


def _failure(verdict: Verdict) -> str | None:
    """Return why there is no score; a judge that can't tell is no failure, but leaves a row in part."""
    return PARTIAL if verdict.value is not None and verdict.value.score is None else verdict.failure


def _with_model(params: Mapping[str, Any], model: str | None) -> tuple[dict[str, Any], list[str]]:
    """Return the options but for a model that has an argument of its own, and what is wrong with it."""
    given, problems = dict(params), list[str]()
    if model is None:
        return given, problems
    if "model" in given:
        problems.append("method_params: 'model' is an argument of its own. Give model= to the descriptor.")
        del given["model"]
    if given.get("judge") is not None and model != DEFAULT_MODEL:
        problems.append(f"model: {model!r} can't stand beside judge. Set it on the judge.")
    return given, problems


def _sorted(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the options of the limits, those of the judge, and the others, with their defaults."""
    names = (_names(Limits), _names(LiteLLMJudge))
    own = {"judge": None, "prompt": None, "repeats": 1}
    limits, judge = ({name: value for name, value in params.items() if name in known} for known in names)
    return limits, judge, own | {name: value for name, value in params.items() if name in own}


def _names(kind: type[Limits] | type[LiteLLMJudge]) -> list[str]:
    return [option.name for option in fields(kind) if option.init]


def _judge(given: Any, options: Mapping[str, Any]) -> Judge | Asker:
    if given is None:
        return LiteLLMJudge(**options)
    if options:
        raise OptionError(f"method_params: {', '.join(options)} can't stand beside judge. Set them on the judge.")
    is_asker = hasattr(given, "ask") and not hasattr(given, "complete")  # what a run puts before a judge
    lacking = _lacking(given, "identity", "ask" if is_asker else "complete")
    if lacking:
        raise OptionError(f"judge: {given!r} has no method {lacking[0]!r}; see rag_descriptors.Judge.")
    judge: Judge | Asker = given
    return judge


def _uncertain_cost(limits: Limits | None = None, judge: Judge | Asker | None = None) -> list[str]:
    """Return what is wrong with a limit of cost where no answer has a longest length: nothing, or one text."""
    is_certain = limits is None or limits.max_cost is None or not isinstance(judge, LiteLLMJudge) or judge.max_tokens
    return [] if is_certain else ["max_cost: without a longest answer no cost is certain. Give max_tokens as well."]


def _lacking(judge: object, *methods: str) -> list[str]:
    return [name for name in methods if isclass(judge) or not callable(getattr(judge, name, None))]

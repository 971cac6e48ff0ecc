"""How near does entity recall without a judge come to the recall of the entities that people marked?

Set-ups were chosen on the rows at even positions; the table holds the others. Nothing was chosen on those rows, but the
halves are not independent: 205 of the 225 reported rows hold a sentence that stands in the other half too. The mean
error of the default on them, 0.068, has a 95 % bootstrap interval of 0.053 to 0.085.

For each set-up: the mean error and the rank correlation against the gold recall, and the share of rows with a score.
And how well each way of finding entities finds those that people marked, in encyclopedic and in noisy text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pandas as pd
from common import Line, options, read_traces, report

from rag_descriptors import Cache, ContextEntityRecall, Entities, SpacyExtractor, add_descriptors
from rag_descriptors.matching import Matcher, normalized

SIZES = {"limit": 1_000_000}
NUMBERS_TOO = (
    *("CARDINAL", "DATE", "EVENT", "FAC", "GPE", "LANGUAGE", "LAW", "LOC", "MONEY", "NORP", "ORDINAL", "ORG"),
    *("PERCENT", "PERSON", "PRODUCT", "QUANTITY", "TIME", "WORK_OF_ART"),
)
DETERMINER = re.compile(r"^(the|an?) ")
PARTS = {"chosen on": slice(0, None, 2), "reported": slice(1, None, 2), "all": slice(None)}


@dataclass(frozen=True)
class Words:
    """The least that one could do: every word is an entity."""

    def identity(self) -> Mapping[str, Any]:
        """Return its name."""
        return {"extractor": "words"}

    def extract(self, texts: Sequence[str]) -> list[Entities]:
        """Return the words of each text."""
        return [Entities(tuple(re.findall(r"\w+", text))) for text in texts]


DEFAULT = "names (the default)"
FINDERS = {find: SpacyExtractor(find=find) for find in ("names", "labels")}
SETUPS: Mapping[str, tuple[Any, str]] = {
    DEFAULT: (FINDERS["names"], "normalized"),
    "names, exact": (FINDERS["names"], "exact"),
    "names, mentions": (FINDERS["names"], "mentions"),
    "labels": (FINDERS["labels"], "normalized"),
    "labels, exact": (FINDERS["labels"], "exact"),
    "labels, mentions": (FINDERS["labels"], "mentions"),
    "labels, numbers and dates too": (SpacyExtractor(find="labels", labels=NUMBERS_TOO), "normalized"),
    "all words": (Words(), "normalized"),
}


def main() -> None:
    arguments = options(__doc__, SIZES)
    rows = read_traces("entity_recall_groups").head(arguments.limit)
    with closing(Cache()) as cache:
        scored = {name: recall(rows, *setup, cache) for name, setup in SETUPS.items()}
    parts = {
        part: {name: agreement(scores[at], rows["recall_entities"][at]) for name, scores in scored.items()}
        for part, at in PARTS.items()
    }
    found = {
        f"{name}, {find}": matches(extractor, read_traces(name).head(arguments.limit))
        for name in ("entities_crossner", "entities_wnut17")
        for find, extractor in FINDERS.items()
    }
    report(
        "entity_recall",
        arguments,
        runs={f"mean error, {name}": [figures["error"]] for name, figures in parts["reported"].items()},
        lines=[
            *(recall_line(name, figures) for name, figures in parts["reported"].items()),
            recall_line(f"{DEFAULT}, all {len(rows)} rows", parts["all"][DEFAULT]),
            *(found_line(name, figures) for name, figures in found.items()),
        ],
        parts=parts,
        found=found,
        rows={part: len(rows[at]) for part, at in PARTS.items()},
    )


def recall(rows: pd.DataFrame, extractor: Any, matching: str, cache: Cache) -> "pd.Series[float]":
    descriptor = ContextEntityRecall("reference", "contexts", extractor, matching=matching, alias="score")
    return add_descriptors(rows, descriptor, cache=cache)["score"]


def agreement(scores: "pd.Series[float]", gold: "pd.Series[float]") -> dict[str, float]:
    """Return how near scores come to the gold, over the rows that have one, and the share of those."""
    return {
        "error": float((scores - gold).abs().mean()),
        "correlation": float(scores.corr(gold, method="spearman")),
        "coverage": float(scores.notna().mean()),
    }


def matches(extractor: Any, texts: pd.DataFrame) -> dict[str, float]:
    """Return precision, recall and F1 of the distinct forms of each text, determiners before them left out."""
    answers = extractor.extract(list(dict.fromkeys(texts["text"])))
    said = dict(zip(dict.fromkeys(texts["text"]), answers, strict=True))
    pairs = [
        (forms(said[text].entities or ()), forms(entity["text"] for entity in marked))
        for text, marked in zip(texts["text"], texts["entities"], strict=True)
    ]
    hits = sum(len(ours & gold) for ours, gold in pairs)
    precision, coverage = (hits / sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    return {"precision": precision, "recall": coverage, "f1": 2 * precision * coverage / (precision + coverage)}


def forms(entities: Iterable[str]) -> set[str]:
    keys = Matcher.of(normalized, None).forms(entities)
    return {DETERMINER.sub("", str(key)) for key in keys}


def recall_line(name: str, figures: Mapping[str, float]) -> Line:
    return Line(
        what=f"entity recall, {name}: mean error, rank correlation, coverage",
        ours=" / ".join(f"{figures[key]:.3f}" for key in ("error", "correlation", "coverage")),
    )


def found_line(name: str, figures: Mapping[str, float]) -> Line:
    return Line(
        what=f"entities found, {name}: precision, recall, F1",
        ours=" / ".join(f"{figures[key]:.3f}" for key in ("precision", "recall", "f1")),
    )


if __name__ == "__main__":
    main()

"""What does entity recall by spaCy cost beside spaCy itself?

Distinct passages as contexts, no cache filled, against a bare `nlp.pipe` over the same texts with the same components;
both pipelines are loaded and have read a text before.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import spacy
from common import Line, data_folder, in_turn, options, ratio_line, ratios, report

from rag_descriptors import ContextEntityRecall, add_descriptors
from rag_descriptors.models.find import find_pipeline

SIZES = {"contexts": 300, "rounds": 3}
CONTEXTS_A_ROW = 5
COMPONENTS = ("tok2vec", "tagger", "attribute_ruler", "ner")
REFERENCE = "Ada Lovelace met Charles Babbage in London."


def main() -> None:
    arguments = options(__doc__, SIZES)
    texts = passages(arguments.contexts)
    pipeline = spacy.load(find_pipeline("en_core_web_sm"))
    pipeline.select_pipes(enable=COMPONENTS)
    ways: dict[str, Callable[[list[str]], Any]] = {"ours": recall, "nlp.pipe": partial(read, pipeline)}
    for way in ways.values():
        way([REFERENCE])
    seconds = in_turn({name: partial(seconds_of, way, texts) for name, way in ways.items()}, arguments.rounds)
    speeds = {name: [len(texts) / taken for taken in times] for name, times in seconds.items()}
    report(
        "entity_throughput",
        arguments,
        runs={**speeds, "time, ours / nlp.pipe": ratios(seconds["ours"], seconds["nlp.pipe"])},
        lines=[line(speeds, ratios(seconds["ours"], seconds["nlp.pipe"]))],
        components=COMPONENTS,
    )


def passages(count: int) -> list[str]:
    lines = (data_folder() / "passages_extra.jsonl").read_text("utf-8").splitlines()
    return list(dict.fromkeys(json.loads(row)["text"] for row in lines))[:count]


def recall(texts: list[str]) -> pd.DataFrame:
    rows = [texts[start : start + CONTEXTS_A_ROW] for start in range(0, len(texts), CONTEXTS_A_ROW)]
    table = pd.DataFrame({"reference": [REFERENCE] * len(rows), "contexts": rows})
    return add_descriptors(table, ContextEntityRecall("reference", "contexts", "spacy"), progress=False)


def read(pipeline: Any, texts: list[str]) -> int:
    with pipeline.memory_zone():
        return sum(len(doc.ents) for doc in pipeline.pipe(texts))


def seconds_of(way: Callable[[list[str]], Any], texts: list[str]) -> float:
    start = time.perf_counter()
    way(texts)
    return time.perf_counter() - start


def line(speeds: dict[str, list[float]], ratio: list[float]) -> Line:
    return ratio_line(
        "entity recall by spaCy, distinct contexts, against a bare nlp.pipe",
        ours=speeds["ours"],
        against=speeds["nlp.pipe"],
        ratio=ratio,
        unit="contexts/s",
        says="times the time",
    )


if __name__ == "__main__":
    main()

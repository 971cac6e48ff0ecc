"""The configuration that `rag-descriptors init` writes: made of the declarations that it fills in."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from inspect import getdoc
from textwrap import wrap
from typing import Any

from rag_descriptors.jobs.config import ScoreOptions, option_info
from rag_descriptors.plugins import arguments, load

__all__ = ["template"]

WIDTH = 100
HEAD = """\
# What rag-descriptors computes, and how. Check it, then run it:
#   rag-descriptors check THIS_FILE TRACES
#   rag-descriptors score TRACES -c THIS_FILE -o scored.parquet
# Names and values are those of Python. Take the # from a line such as #alias = "relevance" to set it. Paths are
# relative to the folder you work in.

# One such table a descriptor; rag-descriptors list names those that are installed.
"""
OTHERS = """
# Others: a judge in place of the model, the share of useful sentences, the entities of a right answer that were found.
# Take the # from the lines of one to add it; a judge needs the extra llm, and a key or a server.
# [[descriptors]]
# type = "ContextRelevance"
# input = "question"
# contexts = "contexts"
# method = "llm"
# alias = "judged relevance"
#
# [[descriptors]]
# type = "ContextRelevancy"
# input = "question"
# contexts = "contexts"
#
# [[descriptors]]
# type = "ContextEntityRecall"
# reference = "reference"
# contexts = "contexts"
"""
COLUMNS = """
# Where the files call a column otherwise: the name that the descriptors read = the name in the files.
[columns]
"""
RUN = """
# Options of the command; a flag goes before what stands here.
[run]
"""
GIVEN = {"input": "question", "contexts": "contexts", "output_scores": True, "output_status": True}
EXAMPLES: Mapping[str, Any] = {
    "method_params": {"model": "all-MiniLM-L6-v2"},
    "aggregation_method": "hit",
    "aggregation_method_params": {"threshold": 0.7},
    "alias": "relevance",
    "tests": [{"gte": 0.7}],
}


def template() -> str:
    """Return a configuration that scores `question` and `contexts`, and shows what may be set."""
    lines = [HEAD + "[[descriptors]]", *_descriptor("ContextRelevance"), OTHERS.rstrip("\n")]
    for table, head in (("columns", COLUMNS), ("run", RUN)):
        lines += [head.rstrip("\n"), *_options(table)]
    return "\n".join([*lines, ""])


def _descriptor(name: str) -> Iterator[str]:
    kind = load(name)
    told = _attributes(getdoc(kind) or "")
    yield f"type = {_toml(name)}"
    for argument in arguments(kind).values():
        value = GIVEN.get(argument.name, EXAMPLES.get(argument.name, argument.default))
        if value is not None:
            yield from _entry(argument.name, value, told.get(argument.name, ""), is_set=argument.name in GIVEN)


def _options(table: str) -> Iterator[str]:
    for option in fields(ScoreOptions):
        info = option_info(option)
        if info.table == table:
            yield from _entry(option.name, info.example, info.help, is_set=False)


def _entry(name: str, value: Any, told: str, *, is_set: bool) -> Iterator[str]:
    yield from (f"# {line}" for line in wrap(told, WIDTH))
    yield f"{'' if is_set else '#'}{name} = {_toml(value)}"


def _attributes(doc: str) -> dict[str, str]:
    """Return what a docstring says of each attribute, its first sentence."""
    section = doc.partition("Attributes:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", section, re.MULTILINE)
    return {name: re.split(r"(?<=[.;])\s", " ".join(text.split()))[0].rstrip(";") for name, text in entries}


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_toml(item)}' for name, item in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)

"""A configuration in TOML: the descriptors by their names and arguments in Python, and the options of the command.

    [[descriptors]]
    type = "ContextRelevance"
    input = "question"
    contexts = "contexts"
    tests = [{ gte = 0.7 }]

    [columns]
    question = "user_input"

    [run]
    workers = 2

What an option of the command is, is declared once, in `ScoreOptions`: the flags and the table `[run]` follow from it.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, Field, dataclass, field, fields
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

from rag_descriptors import conditions
from rag_descriptors.base import Descriptor
from rag_descriptors.conditions import KINDS, Condition
from rag_descriptors.errors import OptionError, suggest
from rag_descriptors.options import caught, together, unknown
from rag_descriptors.plugins import installed, make

__all__ = ["Config", "OptionInfo", "ScoreOptions", "merged", "option_info", "read_config", "value_type"]

TABLES = ("descriptors", "columns", "run")
TYPES: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
    Path: ((str,), "a text"),
}


@dataclass(frozen=True)
class OptionInfo:
    """How one option of the command is told.

    Attributes:
        help: What it does, a sentence.
        example: A value for those who have none in mind.
        table: The table of a configuration in which it stands.
        short: A short flag.
        low: The lowest number allowed.
        high: The highest number allowed.
    """

    help: str
    example: Any
    _: KW_ONLY
    table: str = "run"
    short: str | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """What `score` is told beside its inputs and descriptors; each has a flag, and a name in a configuration."""

    output: Annotated[
        Path | None, OptionInfo("The scored file; its ending says the format.", "scored.parquet", short="-o")
    ] = None
    question: Annotated[
        str | None, OptionInfo("The column of questions, if its name is not usual.", "user_input", table="columns")
    ] = None
    contexts: Annotated[
        str | None, OptionInfo("The column of contexts, if its name is not usual.", "retrieved", table="columns")
    ] = None
    preset: Annotated[
        str | None, OptionInfo("The tool that wrote the files, such as ragas; auto finds out which one.", "auto")
    ] = None
    rows: Annotated[
        str, OptionInfo("What becomes a row of a span export: each trace, or each retriever.", "retriever")
    ] = "trace"
    separator: Annotated[
        str | None,
        OptionInfo(r"What stands between contexts that were joined to one text; \n is a line break, \t a tab.", "\n\n"),
    ] = None
    cache: Annotated[
        Path | None, OptionInfo("The cache's file, if not one in the user's cache folder.", "answers.sqlite")
    ] = None
    no_cache: Annotated[bool, OptionInfo("Keep answers for this run only.", True)] = False
    overwrite: Annotated[bool, OptionInfo("Replace score columns that are there already.", True)] = False
    limit: Annotated[int | None, OptionInfo("Only the first rows, this many.", 1000, low=0)] = None
    workers: Annotated[int, OptionInfo("How many processes score.", 2, low=1)] = 1
    dry_run: Annotated[bool, OptionInfo("Only tell what a run would encode and ask, and do neither.", True)] = False
    min_coverage: Annotated[
        float | None,
        OptionInfo("Exit with 5 if a smaller share of the rows is scored; all is written.", 0.95, low=0, high=1),
    ] = None
    summary: Annotated[Path | None, OptionInfo("Write the summary of the run to this JSON file.", "summary.json")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a configuration says.

    Attributes:
        descriptors: What to compute; empty for what is computed when nothing is asked for.
        columns: Columns of the files, by the names that the descriptors read.
        run: Options of the command, by the names of `ScoreOptions`.
        is_whole: Whether `descriptors` are all that it names; others are faulty.
    """

    descriptors: Sequence[Descriptor] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    is_whole: bool = True


def option_info(option: "Field[Any]") -> OptionInfo:
    """Return how an option, a field of `ScoreOptions`, is told."""
    hint = get_type_hints(ScoreOptions, include_extras=True)[option.name]
    info: OptionInfo = hint.__metadata__[0]
    return info


def read_config(path: Path) -> tuple[Config, list[str]]:
    """Return what a configuration says, as far as it is sound, and all that is wrong with it.

    Raises:
        OptionError: There is no such file, it can't be read, or it is no TOML.
    """
    tables = _load(path)
    problems = unknown(str(path), tables, TABLES)
    descriptors: list[Descriptor] = []
    listed = _listed(tables, path, problems)
    is_whole = not problems
    for number, table in enumerate(listed, start=1):
        problems += _prefixed(f"{path}, [[descriptors]] number {number}", caught(partial(_add, descriptors, table)))
    is_whole &= len(descriptors) == len(listed)
    columns = _checked(tables, "columns", path, problems, _wrong_columns)
    run = _checked(tables, "run", path, problems, _wrong_options)
    return Config(descriptors=descriptors, columns=columns, run=run, is_whole=is_whole), problems


def merged(config: Config, given: Mapping[str, Any]) -> tuple[ScoreOptions, Mapping[str, str]]:
    """Return the options and the columns of a configuration; those `given` on the command line go before them.

    Raises:
        OptionError: Two of those that are given contradict each other.
    """
    if given.get("no_cache") and "cache" in given:
        raise OptionError(f"cache {str(given['cache'])!r} can't stand beside no_cache. Leave one of them out.")
    columns = {**config.columns, **{name: given[name] for name in _options("columns") if name in given}}
    values = {
        name: value_type(option)(config.run[name]) for name, option in _options("run").items() if name in config.run
    }
    if "cache" in given:
        values.pop("no_cache", None)
    return ScoreOptions(**{**values, **given}), columns


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise OptionError(f"config {str(path)!r}: there is no such file. rag-descriptors init writes one.") from error
    except OSError as error:
        raise OptionError(
            f"config {str(path)!r} can't be read: {error.strerror}. Look at its name and mode."
        ) from error
    except ValueError as error:
        raise OptionError(f"{path} is no TOML: {error}.") from error


def _listed(tables: Mapping[str, Any], path: Path, problems: list[str]) -> list[Mapping[str, Any]]:
    found = tables.get("descriptors", [])
    if isinstance(found, list) and all(isinstance(table, Mapping) for table in found):
        return found
    problems.append(f"{path}: descriptors is no list of tables. Begin each descriptor with the line [[descriptors]].")
    return []


def _add(descriptors: list[Descriptor], table: Mapping[str, Any]) -> None:
    given = dict(table)
    kind = given.pop("type", None)
    if not isinstance(kind, str):
        raise OptionError(f"type: {kind!r} is not allowed. Give the name of a descriptor.{suggest(kind, installed())}")
    problems: list[str] = []
    if "tests" in given:
        found = given.pop("tests")
        problems = caught(lambda: given.update(tests=_conditions(found)))
    together([*problems, *caught(lambda: descriptors.append(make(kind, given)))])


def _conditions(found: object) -> list[Condition]:
    """Return the conditions that a list such as `[{gte = 0.7}]` stands for."""
    if not isinstance(found, list) or not all(isinstance(test, Mapping) and len(test) == 1 for test in found):
        raise OptionError(f"tests: {found!r} is not allowed. Give a list of conditions such as [{{gte = 0.7}}].")
    named = [item for test in found for item in test.items()]
    made: list[Condition] = []
    steps = [partial(_append_condition, made, name, value) for name, value in named if name in KINDS]
    together([*unknown("tests", [name for name, _ in named], KINDS), *caught(*steps)])
    return made


def _append_condition(made: list[Condition], name: str, value: Any) -> None:
    made.append(getattr(conditions, name)(value))


def _checked(
    tables: Mapping[str, Any],
    name: str,
    path: Path,
    problems: list[str],
    wrong: Callable[[Mapping[str, Any]], dict[str, str]],
) -> dict[str, Any]:
    """Return the sound entries of a table; what is wrong with the others goes to `problems`."""
    table = tables.get(name, {})
    if not isinstance(table, Mapping):
        problems.append(f"{path}: {name} is no table. Write [{name}] on a line of its own, and names below it.")
        return {}
    found = wrong(table)
    problems += _prefixed(f"{path}, [{name}]", found.values())
    return {key: value for key, value in table.items() if key not in found}


def _wrong_columns(table: Mapping[str, Any]) -> dict[str, str]:
    return {
        new: f"{new}: {old!r} is not allowed. Give the name of a column of the files."
        for new, old in table.items()
        if not isinstance(old, str) or not old
    }


def _wrong_options(table: Mapping[str, Any]) -> dict[str, str]:
    allowed = _options("run")
    found = {name: f"{name!r} is unknown.{suggest(name, allowed)}" for name in table if name not in allowed}
    for name in table.keys() & allowed.keys():
        problem = _wrong_value(name, table[name], allowed[name])
        found |= {name: problem} if problem else {}
    return {name: found[name] for name in table if name in found}


def _options(table: str) -> "dict[str, Field[Any]]":
    return {option.name: option for option in fields(ScoreOptions) if option_info(option).table == table}


def value_type(option: "Field[Any]") -> type:
    """Return the type of an option's values, None aside."""
    hint = get_type_hints(ScoreOptions)[option.name]
    kinds: list[type] = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if kinds else hint


def _wrong_value(name: str, value: Any, option: "Field[Any]") -> str:
    kind, info = value_type(option), option_info(option)
    types, wanted = TYPES[kind]
    bounds = [(word, bound) for word, bound in (("from", info.low), ("to", info.high)) if bound is not None]
    is_right = isinstance(value, types) and (kind is bool or not isinstance(value, bool))
    if is_right and bounds:
        is_right = (info.low is None or value >= info.low) and (info.high is None or value <= info.high)
    if is_right:
        return ""
    wanted = " ".join([wanted, *(f"{word} {bound}" for word, bound in bounds)])
    return f"{name}: {value!r} is not allowed. Give {wanted}."


def _prefixed(place: str, problems: Any) -> Iterator[str]:
    for problem in problems:
        yield from (f"{place}: {line}" for line in problem.splitlines())

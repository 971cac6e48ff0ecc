"""Options given as names and values, checked against the declaration that they fill in; all faults at once."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from functools import partial
from numbers import Integral
from typing import Any, TypeVar

from rag_descriptors.errors import OptionError, suggest

__all__ = [
    "build",
    "caught",
    "column_names",
    "flags",
    "keep_copies",
    "mappings",
    "one_of",
    "qualified_name",
    "stable_repr",
    "together",
    "unknown",
    "whole_number",
]

T = TypeVar("T")
SECRET_OPTIONS = ("api_key",)
ADDRESS_SECRETS = re.compile(r"(?<=://)[^/@\s'\"]*@|(?<=\w)\?[^\s'\"]*(?=['\"])")


def build(kind: Callable[..., T], params: Mapping[str, Any] | None, option: str) -> T:
    """Return `kind(**params)`, a dataclass of defaults; `option` is what the caller knows `params` as.

    Raises:
        OptionError: Names are unknown, or the dataclass refuses values; all at once.
    """
    together(mappings(**{option: params}))
    params = params or {}
    allowed = [field.name for field in fields(kind) if field.init]  # type: ignore[arg-type]
    known = {name: value for name, value in params.items() if name in allowed}
    built: list[T] = []
    together([*unknown(option, params, allowed), *caught(lambda: built.append(kind(**known)))])
    return built[0]


def unknown(option: str, names: Iterable[str], allowed: Collection[str]) -> list[str]:
    """Return what is wrong with names of which each must be one of `allowed`; `option` is where they stand."""
    return [f"{option}: {name!r} is unknown.{suggest(name, allowed)}" for name in names if name not in allowed]


def one_of(option: str, value: object, allowed: Iterable[object]) -> list[str]:
    """Return what is wrong with an option that takes one of `allowed`: nothing, or one text."""
    allowed = list(allowed)
    is_allowed = any(type(value) is type(item) and value == item for item in allowed)
    return [] if is_allowed else [f"{option}: {value!r} is unknown.{suggest(value, allowed)}"]


def together(problems: Iterable[str]) -> None:
    """Raise all problems as one error, if there are any."""
    found = list(problems)
    if found:
        raise OptionError("\n".join(found))


def caught(*steps: Callable[[], object]) -> list[str]:
    """Return the messages of the option errors that `steps` raise."""
    problems = []
    for step in steps:
        try:
            step()
        except OptionError as error:
            problems.append(str(error))
    return problems


def column_names(**names: object) -> list[str]:
    """Return what is wrong with options that name columns."""
    return [
        f"{option}: {name!r} is not allowed. Give the name of a column."
        for option, name in names.items()
        if not isinstance(name, str) or not name
    ]


def mappings(**options: object) -> list[str]:
    """Return what is wrong with options that map names to values, or are None."""
    return [
        f"{option}: {value!r} is not allowed. Give a dict from names to values."
        for option, value in options.items()
        if not isinstance(value, Mapping | None)
    ]


def whole_number(option: str, value: object, least: int) -> list[str]:
    """Return what is wrong with an option that takes a whole number, numpy's too: nothing, or one text."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    return [] if is_whole else [f"{option}: {value!r} is not allowed. Give a whole number from {least}."]


def flags(owner: object, *options: str) -> list[str]:
    """Return what is wrong with options that are true or false."""
    return [problem for option in options for problem in one_of(option, getattr(owner, option), (True, False))]


def keep_copies(descriptor: Any) -> None:
    """Let a frozen descriptor hold copies of the dicts, and of the list of tests, that it was made of."""
    for field in fields(descriptor):
        given = getattr(descriptor, field.name)
        if isinstance(given, Mapping):
            object.__setattr__(descriptor, field.name, dict(given))
    if isinstance(descriptor.tests, list):
        object.__setattr__(descriptor, "tests", tuple(descriptor.tests))


def stable_repr(owner: Any) -> str:
    """Return the repr of a dataclass, the same in every process: functions stand there by name, secrets not at all."""
    given = ((field.name, getattr(owner, field.name)) for field in fields(owner))
    shown = (f"{name}={qualified_name(v) if _is_function(v) else _without_secrets(v)}" for name, v in given)
    return f"{type(owner).__name__}({', '.join(shown)})"


def _is_function(value: object) -> bool:
    return hasattr(value, "__qualname__") or isinstance(value, partial)


def _without_secrets(value: object) -> str:
    if not isinstance(value, Mapping):
        return repr(value)
    shown = {name: "***" if name in SECRET_OPTIONS else item for name, item in value.items()}
    return ADDRESS_SECRETS.sub("", repr(shown))


def qualified_name(function: Callable[..., object]) -> str:
    """Return a name of a function that is the same in every process."""
    if isinstance(function, partial):
        given = [*map(repr, function.args), *(f"{name}={value!r}" for name, value in function.keywords.items())]
        return f"functools.partial({', '.join([qualified_name(function.func), *given])})"
    kind = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(kind, "__module__", None) or "builtins"  # str.lower has none
    return f"{module}.{kind.__qualname__}"

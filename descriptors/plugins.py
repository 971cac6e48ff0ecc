"""Descriptors by name: entry points of the group `rag_descriptors`, loaded at the moment of use."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter, signature
from typing import Any

from rag_descriptors.base import Descriptor
from rag_descriptors.errors import DescriptorError, OptionError, suggest
from rag_descriptors.options import caught, together, unknown

__all__ = ["arguments", "installed", "load", "make", "package"]

GROUP = "rag_descriptors"
MEMBERS = ("name", "inputs", "outputs", "compute")


def installed() -> dict[str, list[EntryPoint]]:
    """Return the entry points by name, in order of the names; a name that packages contend for has several."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, package(entry))):
        found.setdefault(entry.name, []).append(entry)
    return found


def load(name: str) -> type[Descriptor]:
    """Return the class that an installed package gives under a name.

    Raises:
        OptionError: No package gives it, several do, or what they give does not load or is no descriptor's class.
    """
    entries = installed()
    if name not in entries:
        raise OptionError(f"the descriptor {name!r} is not installed.{suggest(name, entries)}")
    first, *others = entries[name]
    if others:
        raise OptionError(
            f"the descriptor {name!r} is claimed by {' and by '.join(map(_origin, entries[name]))}. Uninstall all but "
            "one, or give the object itself in Python."
        )
    return _checked(first, _loaded(first))


def make(name: str, given: Mapping[str, Any] | None = None) -> Descriptor:
    """Return the descriptor that an installed package gives under a name, made with the arguments `given`.

    Raises:
        OptionError: It can't be loaded, arguments are missing or unknown, or it refuses their values; all at once.
    """
    kind, given = load(name), given or {}
    takes = arguments(kind)
    missing = [
        argument for argument in takes.values() if argument.default is argument.empty and argument.name not in given
    ]
    problems = [*unknown(name, given, takes), *_told_of_missing(name, [argument.name for argument in missing])]
    sound = {argument: value for argument, value in given.items() if argument in takes}
    if not all(argument.annotation in (str, "str") for argument in missing):
        together(problems)
    sound |= {argument.name: argument.name for argument in missing}  # any text, to have the values beside it checked
    made: list[Descriptor] = []
    together([*problems, *caught(lambda: made.append(_made(kind, name, sound)))])
    return made[0]


def _made(kind: type[Descriptor], name: str, given: Mapping[str, Any]) -> Descriptor:
    try:
        return kind(**given)
    except DescriptorError as error:
        raise OptionError("\n".join(f"{name}: {line}" for line in str(error).splitlines())) from error
    except Exception as error:
        raise OptionError(f"{name} can't be made of these arguments: {error!r}. See what its package says.") from error


def arguments(kind: type[Descriptor]) -> dict[str, Parameter]:
    """Return what a descriptor can be given by name."""
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {name: parameter for name, parameter in signature(kind).parameters.items() if parameter.kind in named}


def package(entry: EntryPoint) -> str:
    """Return the name of the package that an entry point belongs to."""
    return entry.dist.name if entry.dist is not None else ""


def _told_of_missing(name: str, missing: Sequence[str]) -> Iterable[str]:
    if missing:
        shown = ", ".join(f"{argument}=…" for argument in missing)
        yield f"{name} needs {', '.join(missing)}. Give {name}({shown}), or these names in its table of a config."


def _loaded(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except Exception as error:
        raise OptionError(
            f"the descriptor {entry.name!r} of {_origin(entry)} does not load: {error!r}. Install what it needs, or "
            "see what its package says."
        ) from error


def _checked(entry: EntryPoint, found: object) -> type[Descriptor]:
    if not isinstance(found, type):
        raise OptionError(
            f"the descriptor {entry.name!r} of {_origin(entry)} is a {type(found).__name__}, where the class of a "
            "descriptor is expected."
        )
    kind: Any = found
    declared = getattr(kind, "__dataclass_fields__", ())
    missing = [member for member in MEMBERS if not hasattr(kind, member) and member not in declared]
    if missing:
        raise OptionError(
            f"the descriptor {entry.name!r} of {_origin(entry)} is the class {kind.__name__}, which has no "
            f"{', '.join(missing)}; see rag_descriptors.Descriptor."
        )
    return kind  # type: ignore[no-any-return]


def _origin(entry: EntryPoint) -> str:
    return f"{package(entry) or 'a package without a name'} ({entry.value})"

"""Whether descriptors fit a table: all that stands between them, told at once, before any work."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, TypeGuard, get_args

import pyarrow as pa

from rag_descriptors.base import Descriptor
from rag_descriptors.errors import ColumnConflictError, MissingColumnError, PlanError, suggest
from rag_descriptors.options import caught, one_of
from rag_descriptors.plugins import make

__all__ = ["OnConflict", "OnError", "input_schema", "output_fields", "plan"]

OnConflict = Literal["error", "overwrite"]
OnError = Literal["null", "raise"]


def plan(
    descriptors: object, columns: Sequence[object], *, on_conflict: object = "error", on_error: object = "null"
) -> list[Descriptor]:
    """Return the descriptors as a list, once it is certain that they fit a table with these columns.

    Raises:
        MissingColumnError: Columns that descriptors read are not there, or there twice.
        ColumnConflictError: Columns that descriptors write are taken, by the table or by each other.
        PlanError: An option has a wrong value, something is no descriptor, or there are faults of several kinds. All of
            them are in the one message.
    """
    unmade: list[str] = []
    listed = list(descriptors) if isinstance(descriptors, list | tuple) else [descriptors]
    listed = [made for item in listed for made in _made(item, unmade)]
    sound = [item for item in listed if _is_descriptor(item)]
    problems: dict[type[PlanError], list[str]] = {
        PlanError: [
            *unmade,
            *(
                f"{item!r} is no descriptor. Give objects such as ContextRelevance(…), or the name of a plugin."
                for item in listed
                if not _is_descriptor(item)
            ),
            *_unnamed(sound),
            *_differences(sound),
            *one_of("on_conflict", on_conflict, get_args(OnConflict)),
            *one_of("on_error", on_error, get_args(OnError)),
        ],
        MissingColumnError: list(_missing(sound, columns)),
        ColumnConflictError: list(_conflicts(sound, () if on_conflict == "overwrite" else columns)),
    }
    kinds = [kind for kind, texts in problems.items() if texts]
    if kinds:
        kind = kinds[0] if len(kinds) == 1 else PlanError
        raise kind("\n".join(text for texts in problems.values() for text in texts))
    return sound


def input_schema(descriptors: Sequence[Descriptor]) -> pa.Schema:
    """Return the columns that all descriptors read, each once."""
    return pa.schema({field.name: field for descriptor in descriptors for field in descriptor.inputs}.values())


def output_fields(descriptors: Sequence[Descriptor]) -> pa.Schema:
    """Return the columns that all descriptors promise, in order."""
    return pa.schema([field for descriptor in descriptors for field in descriptor.outputs])


def _made(item: object, problems: list[str]) -> list[object]:
    """Return the item, the plugin that it names in its place; none where `problems` then says why."""
    if not isinstance(item, str):
        return [item]
    made: list[object] = []
    problems += caught(lambda: made.append(make(item)))
    return made


def _is_descriptor(item: object) -> TypeGuard[Descriptor]:
    return isinstance(item, Descriptor) and not isinstance(item, type)


def _unnamed(descriptors: Sequence[Descriptor]) -> Iterator[str]:
    for descriptor in descriptors:
        if descriptor.name not in descriptor.outputs.names:
            yield f"{descriptor!r} promises no column {descriptor.name!r}, its name. Add it to its outputs."
        elif descriptor.outputs.field(descriptor.name).type not in (pa.float64(), pa.int64()):
            yield f"{descriptor!r} promises a score column that holds no numbers. Make it with score_field."


def _missing(descriptors: Sequence[Descriptor], columns: Sequence[object]) -> Iterator[str]:
    counts = Counter(columns)
    for name in dict.fromkeys(name for descriptor in descriptors for name in descriptor.inputs.names):
        if counts[name] == 0:
            yield f"column {name!r} is missing.{suggest(name, columns)}"
        elif counts[name] > 1:
            yield f"column {name!r} stands there {counts[name]} times. Rename or drop all but one."


def _differences(descriptors: Sequence[Descriptor]) -> Iterator[str]:
    read = input_schema(descriptors)
    for descriptor in descriptors:
        for field in descriptor.inputs:
            if field.type != read.field(field.name).type:
                other = read.field(field.name).type
                yield f"column {field.name!r} can't be read as {field.type} and as {other} in one call."


def _conflicts(descriptors: Sequence[Descriptor], columns: Sequence[object]) -> Iterator[str]:
    taken = dict.fromkeys(
        columns, "is in the table already. Give another alias, or on_conflict='overwrite' (--overwrite)."
    )
    for descriptor in descriptors:
        for name in descriptor.outputs.names:
            if name in taken:
                yield f"column {name!r} of {type(descriptor).__name__} {taken[name]}"
            taken[name] = "is written twice in one run. Give one of the two another alias."

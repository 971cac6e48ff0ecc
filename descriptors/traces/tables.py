"""Files with one row a trace: columns take our names, and all files together have one schema."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations, starmap
from pathlib import Path
from typing import Any

import pyarrow as pa

from rag_descriptors.errors import FormatError, OptionError
from rag_descriptors.options import together
from rag_descriptors.traces.columns import CONTEXTS, TEXT, is_settled, to_column
from rag_descriptors.traces.contexts import parse_contexts
from rag_descriptors.traces.formats import (
    CSV,
    JSON,
    MIXED,
    as_mixed,
    format_of,
    is_mixed,
    keys_agree,
    parse_mixed,
    told,
    united,
)
from rag_descriptors.traces.presets import KNOWN_COLUMNS, Form, RowForm, find_column

__all__ = ["Cells", "RowName", "Source", "list_cells", "named", "numbered", "read_tables", "unified"]

RowName = Callable[[int], str]


@dataclass(frozen=True)
class Source:
    """A file, the form it has, and our names → the names that these columns have there."""

    file: Path
    form: Form | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def wrapped(self) -> str | None:
        """The key of the object that holds the columns; None where the rows do."""
        return self.form.wrapped if isinstance(self.form, RowForm) else None


@dataclass(frozen=True)
class Cells:
    """A column whose cells are read with the file: as it stands in the files, as it becomes, and how a cell is read."""

    found: pa.Field
    kind: pa.DataType
    read: Callable[[object], Any]


def named(file: Path, form: Form | None, columns: Sequence[str]) -> Source:
    """Return which columns of a file take which of our names.

    Raises:
        OptionError: A name would be there twice.
    """
    if not isinstance(form, RowForm):
        return Source(file, form)
    found = {ours: [name for name in theirs if name in columns] for ours, theirs in form.columns.items()}
    names = {ours: theirs[0] for ours, theirs in found.items() if theirs}
    together(
        f"{file}: the columns {names[ours]!r} and {ours!r} both would be {ours!r}. Rename or drop one of them."
        for ours in names
        if ours in columns and ours not in names.values()
    )
    return Source(file, form, names)


def unified(sources: Sequence[Source], schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns of all files, by our names; cells that have no type in common are JSON where each reads alone.

    Such are objects of JSON files that differ in their keys, and lists in one file that are texts in another.

    Raises:
        FormatError: Columns of one name are of types that don't go together, or are in one file.
    """
    for source, schema in zip(sources, schemas, strict=True):
        _check_names(source.file, schema)
    schemas = [_renamed(source, schema) for source, schema in zip(sources, schemas, strict=True)]
    mixed = {item.name for schema in schemas for item in schema if is_mixed(item)} | _with_other_types(schemas)
    if any(format_of(source.file) is JSON for source in sources):
        mixed |= _with_other_keys(schemas)
    settled = [
        pa.schema([pa.field(item.name, TEXT, metadata=MIXED) if item.name in mixed else item for item in schema])
        for schema in schemas
    ]
    try:
        schema = pa.unify_schemas(settled, promote_options="permissive")
    except pa.ArrowException as error:
        raise FormatError("\n".join(_told_apart(sources, settled)) or str(error)) from error
    return pa.schema([item.with_nullable(True) for item in schema])


def _check_names(file: Path, schema: pa.Schema) -> None:
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        names = ", ".join(map(repr, twice))
        raise FormatError(f"{file}: two columns are called {names}. Rename or drop one.")


def _with_other_types(schemas: Sequence[pa.Schema]) -> set[str]:
    """Return the columns that are lists or objects in one file, and something that is no such list in another."""
    return {
        name
        for name, kinds in _kinds(schemas).items()
        if any(map(pa.types.is_nested, kinds)) and None in starmap(united, combinations(kinds, 2))
    }


def _told_apart(sources: Sequence[Source], schemas: Sequence[pa.Schema]) -> Iterator[str]:
    """Yield, of each column whose types don't go together, which type it has where."""
    for name, kinds in _kinds(schemas).items():
        if None in starmap(united, combinations(kinds, 2)):
            files = "; ".join(
                f"{schema.field(name).type} in {source.file}"
                for source, schema in zip(sources, schemas, strict=True)
                if name in schema.names
            )
            yield f"the types of column {name!r} don't go together: {files}. Convert it in one, or read them apart."


def _renamed(source: Source, schema: pa.Schema) -> pa.Schema:
    ours = {theirs: name for name, theirs in source.names.items()}
    return pa.schema([item.with_name(ours.get(item.name, item.name)) for item in schema])


def _with_other_keys(schemas: Sequence[pa.Schema]) -> set[str]:
    """Return the columns whose objects have other keys in one file than in another."""
    found = _kinds(schemas).items()
    return {name for name, kinds in found if not all(starmap(keys_agree, combinations(kinds, 2)))}


def _kinds(schemas: Sequence[pa.Schema]) -> dict[str, list[pa.DataType]]:
    kinds: dict[str, dict[pa.DataType, None]] = {}
    for item in chain.from_iterable(schemas):
        kinds.setdefault(item.name, {})[item.type] = None
    return {name: [*found] for name, found in kinds.items()}


def list_cells(
    sources: Sequence[Source], schema: pa.Schema, separator: str | None, contexts: Sequence[str] = ()
) -> dict[str, Cells]:
    """Return, by our names, the columns whose cells are lists of a kind that only the preset or the caller can tell.

    Columns of contexts are those of the preset and those that were named; where there are neither, the one that has a
    known name.

    Raises:
        OptionError: A separator was given, and no column of contexts is named or known.
    """
    forms = [(source, source.form) for source in sources if isinstance(source.form, RowForm)]
    lists = {ours for source, form in forms for ours, theirs in source.names.items() if theirs in form.lists}
    cells = {ours: Cells(schema.field(ours), TEXT, _joined) for ours in lists}
    default = next((form.separator for source, form in forms if format_of(source.file) is CSV), None)
    between = (default if separator is None else separator) or ""
    known = ["contexts", "reference_contexts"] if forms else [find_column("contexts", schema.names)]
    columns = [*contexts, *(known if forms or not contexts else ())]
    if separator and schema.names and not contexts and not set(columns) & set(schema.names):
        raise OptionError(
            f"separator: {separator!r} needs a column of contexts. "
            f"Known names are {', '.join(KNOWN_COLUMNS['contexts'])}."
        )
    texts = [schema.field(name) for name in columns if between and name in schema.names]
    split = {
        item.name: Cells(item, CONTEXTS, partial(_split, between)) for item in texts if is_settled(item.type, TEXT)
    }
    return cells | split


def _joined(cell: object) -> str | None:
    return "\n".join(filter(None, parse_contexts(cell) or [])) or None


def _split(separator: str, cell: object) -> list[str | None] | None:
    """Return the contexts of a cell, those of one plain text as they stand between separators."""
    texts = parse_contexts(cell)
    if texts != [cell] or not isinstance(cell, str):
        return texts
    return [text if text.strip() else None for text in cell.split(separator)]


def read_tables(
    sources: Sequence[Source], schema: pa.Schema, cells: Mapping[str, Cells]
) -> Generator[tuple[pa.RecordBatch, RowName], None, None]:
    """Yield the rows of all files in batches that have the columns of the schema, each with what errors call its rows.

    That is their number in their file, and the file where there are several.
    """
    found = pa.schema([cells[item.name].found if item.name in cells else item for item in schema])
    for source in sources:
        first, place = 0, f"{source.file}, row" if len(sources) > 1 else "row"
        theirs = pa.schema([item.with_name(source.names.get(item.name, item.name)) for item in found])
        for batch in format_of(source.file, source.wrapped).batches(source.file, theirs):
            row_name = numbered(place, first)
            conformed = _conform(source.file, batch, theirs, found)
            yield _with_cells(conformed, schema, cells, row_name), row_name
            first += batch.num_rows


def numbered(place: str, first: int) -> RowName:
    """Return what errors call rows of which the first one has a number."""
    return lambda position: f"{place} {first + position}"


def _conform(file: Path, batch: pa.RecordBatch, theirs: pa.Schema, found: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a file as all files have them: nulls where it has none."""
    names = set(batch.schema.names)
    with told(file):
        arrays = [
            _cast(batch.schema.field(item.name), batch[item.name], item)
            if item.name in names
            else pa.nulls(batch.num_rows, item.type)
            for item in theirs
        ]
    return pa.RecordBatch.from_arrays(arrays, schema=found)


def _cast(found: pa.Field, array: pa.Array, wanted: pa.Field) -> pa.Array:
    if is_mixed(wanted) and not is_mixed(found):
        return as_mixed(array.to_pylist())
    return array.cast(wanted.type)


def _with_cells(
    batch: pa.RecordBatch, schema: pa.Schema, cells: Mapping[str, Cells], row_name: RowName
) -> pa.RecordBatch:
    def read(item: pa.Field, array: pa.Array) -> pa.Array:
        if item.name not in cells:
            return array
        values = parse_mixed(array) if is_mixed(cells[item.name].found) else array.to_pylist()
        return to_column(values, item, row_name, cells[item.name].read)

    arrays = [read(item, array) for item, array in zip(schema, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

"""Checking a configuration and its inputs: no model is loaded, no call is made, nothing is written.

Of models, only extractors of entities are looked for: an embedder may be on the hub, which takes a network.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from rag_descriptors.base import Descriptor
from rag_descriptors.errors import DescriptorError, OptionError
from rag_descriptors.jobs.batch import chosen, count_cells, plan_traces, with_inputs
from rag_descriptors.jobs.config import Config, ScoreOptions, merged, read_config
from rag_descriptors.jobs.outputs import check_places
from rag_descriptors.jobs.workers import check_portable
from rag_descriptors.models.identity import identity_of
from rag_descriptors.planning import OnConflict, input_schema
from rag_descriptors.scoring import models_of
from rag_descriptors.traces.columns import CONTEXTS
from rag_descriptors.traces.readers import Traces, open_traces

__all__ = ["Checked", "check", "open_inputs"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a configuration and its inputs hold.

    Attributes:
        files: How many files.
        preset: The tool that wrote the files, if one was named or found.
        rows: How many rows; None where not all of them could be read.
        unused: What could not be used, as counts.
        columns: The columns of the files.
        reads: Of each column that descriptors read, by the name that they read: the column of the files, the type that
            it is read as, and how many cells are missing.
        descriptors: The descriptors, by the names of their score columns.
    """

    files: int
    preset: str | None
    rows: int | None
    unused: Mapping[str, int]
    columns: Sequence[str]
    reads: Mapping[str, Mapping[str, Any]]
    descriptors: Mapping[str, str]


def check(path: Path, inputs: Sequence[str]) -> tuple[Checked | None, list[DescriptorError]]:
    """Return what was found, None where no input could be opened, and all that is wrong."""
    errors: list[DescriptorError] = []
    config, wrong = _tried(lambda: read_config(path), errors) or (None, [])
    errors += [OptionError("\n".join(wrong))] if wrong else []
    said = config or Config()
    options, columns = merged(said, {})
    is_left_open = not said.descriptors and not said.is_whole  # what was meant is not known
    options = replace(options, separator=None) if is_left_open else options
    traces = _tried(lambda: open_inputs(inputs, options, said.descriptors, columns), errors)
    if config is None or traces is None:
        return None, errors
    places = {"output": options.output, "summary": options.summary, "cache": options.cache}
    _tried(lambda: check_places(traces.files, **places), errors)
    found = None if is_left_open else _tried(lambda: chosen(traces, config.descriptors, columns), errors)
    descriptors, columns = found or ([], {})
    if not config.is_whole:  # a column may be for a descriptor that is faulty
        columns = {name: columns[name] for name in input_schema(descriptors).names if name in columns}
    read = with_inputs(traces, descriptors, columns)
    on_conflict: OnConflict = "overwrite" if options.overwrite else "error"
    _tried(lambda: plan_traces(read, descriptors, columns=columns, on_conflict=on_conflict), errors)
    if options.workers > 1:
        _tried(lambda: check_portable(descriptors), errors)
    for descriptor in descriptors:
        _tried(partial(_find_extractors, descriptor), errors)
    return _look(read, descriptors, columns, options.limit, errors), errors


def open_inputs(
    inputs: Sequence[str], options: ScoreOptions, descriptors: Sequence[Descriptor], columns: Mapping[str, str]
) -> Traces:
    """Return the rows of the inputs, read as the options say; the separator is for the contexts that will be read.

    Raises:
        OptionError: An input names no file, or a file of an unknown format; an option does not go with the files.
        FormatError: A file is not what its ending says.
    """
    rows: Any = options.rows  # checked there
    read = [field.name for field in input_schema(descriptors) if field.type == CONTEXTS]
    contexts = [columns.get(name, name) for name in (read if descriptors else columns.keys() & {"contexts"})]
    return open_traces(inputs, options.preset, rows=rows, separator=options.separator, contexts=contexts)


def _find_extractors(descriptor: Descriptor) -> None:
    for model in models_of(descriptor):
        if callable(getattr(model, "extract", None)):
            identity_of(model)


def _tried(step: Callable[[], T], errors: list[DescriptorError]) -> T | None:
    try:
        return step()
    except DescriptorError as error:
        errors.append(error)
        return None


def _look(
    traces: Traces,
    descriptors: Sequence[Descriptor],
    columns: Mapping[str, str],
    limit: int | None,
    errors: list[DescriptorError],
) -> Checked:
    there = [field for field in input_schema(descriptors) if columns.get(field.name, field.name) in traces.schema.names]
    rows, missing = _tried(lambda: count_cells(traces, pa.schema(there), columns, limit), errors) or (None, {})
    reads = {
        field.name: {
            "column": columns.get(field.name, field.name),
            "as": str(field.type),
            "missing": missing.get(field.name),
        }
        for field in there
    }
    return Checked(
        files=len(traces.files),
        preset=traces.preset,
        unused=dict(traces.unused),
        rows=rows,
        columns=traces.schema.names,
        reads=reads,
        descriptors={descriptor.name: repr(descriptor) for descriptor in descriptors},
    )

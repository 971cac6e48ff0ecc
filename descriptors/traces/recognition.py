"""Which tool wrote a file."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rag_descriptors.errors import FormatError, OptionError
from rag_descriptors.traces.formats import format_of
from rag_descriptors.traces.paths import find
from rag_descriptors.traces.presets import PRESETS, Form, RowForm, SpanForm, fits
from rag_descriptors.traces.spans import unwrapped

__all__ = ["forms_of", "recognised"]

LOOKED_AT = 1000
Rows = Sequence[Mapping[str, Any]]


def recognised(files: Sequence[Path]) -> str | None:
    """Return the preset that the first rows of all files fit; None for files without rows and columns.

    Raises:
        OptionError: None fits, or several do; the message names them.
    """
    fitting = {file: _fitting(file, rows) for file in files if any(rows := _first_rows(file))}
    common = set(PRESETS).intersection(*fitting.values())
    if not fitting or len(common) == 1:
        return common.pop() if fitting else None
    told = [f"{file} fits {', '.join(names) or 'none'}" for file, names in fitting.items()]
    raise OptionError(
        f"preset 'auto': {'; '.join(told)}. Name the preset, one of {', '.join(PRESETS)}; or leave it out where the "
        "columns have usual names or are named."
    )


def forms_of(files: Sequence[Path], preset: str | None) -> list[Form | None]:
    """Return the forms of a preset that files have, one each; None without a preset.

    A file without rows and columns has the form of the first that has some.

    Raises:
        OptionError: A file has none of them.
    """
    if preset is None:
        return [None for _ in files]
    forms = [_form(file, preset) for file in files]
    known = [*(form for form in forms if form), *PRESETS[preset]]
    return [form or known[0] for form in forms]


def _form(file: Path, preset: str) -> Form | None:
    rows, forms = _first_rows(file), PRESETS[preset]
    known = [form for form in forms if _fits(file, form, rows)] or [form for form in forms if _may_be(file, form, rows)]
    if any(rows) and not known:
        names = ", ".join(map(repr, dict.fromkeys(chain.from_iterable(rows))))
        raise OptionError(
            f"preset {preset!r} does not fit {file}: it has {names}, and {' or '.join(map(_expected, forms))} is "
            f"expected. It fits {', '.join(_fitting(file, rows)) or 'no preset'}."
        )
    return known[0] if known else None


def _first_rows(file: Path) -> Rows:
    """Return the first rows; of a table without any, one that has its columns."""
    with closing(format_of(file).rows(file)) as rows:
        return list(islice(rows, LOOKED_AT)) or [dict.fromkeys(format_of(file).schema(file).names)]


def _fitting(file: Path, rows: Rows) -> list[str]:
    return [name for name, forms in PRESETS.items() if any(_fits(file, form, rows) for form in forms)]


def _fits(file: Path, form: Form, rows: Rows) -> bool:
    return fits(form, rows if isinstance(form, RowForm) else list(_spans(file, form, rows)))


def _may_be(file: Path, form: Form, rows: Rows) -> bool:
    """Return whether a file that has no mark of a form has at least what can't be done without."""
    if isinstance(form, RowForm):
        names = set(chain.from_iterable(rows))
        return any(name in names for ours in ("question", "contexts") for name in form.columns[ours])
    return any(find(span, form.trace_id) is not None for span in _spans(file, form, rows))


def _spans(file: Path, form: SpanForm, rows: Rows) -> Iterator[Mapping[str, Any]]:
    for number, row in enumerate(rows):
        try:
            yield from islice(unwrapped(row, form), LOOKED_AT)
        except ValueError as error:
            raise FormatError(f"{file}, row {number}: {error}") from error


def _expected(form: Form) -> str:
    return " + ".join(form.marks[0])

"""What the command prints: text on stdout and stderr, as long as somebody reads it."""

import json
import os
import sys
from collections.abc import Mapping
from io import StringIO
from typing import NoReturn, TextIO

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_descriptors.jobs.check import Checked
from rag_descriptors.summary import ColumnSummary, RunSummary
from rag_descriptors.texts import json_value

__all__ = ["leave_quietly", "say", "say_json", "say_table", "show_checked", "show_summary", "tell_of_unused"]

UNUSED = {"documents without text": " (their places among the contexts are null)"}


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print, as long as somebody reads it."""
    try:
        typer.echo(f"{text}{end}", err=err, nl=False)
    except BrokenPipeError:
        _mute(sys.stderr if err else sys.stdout)
    except OSError as error:
        _mute(sys.stderr if err else sys.stdout)
        raise OSError(error.errno, f"what is to be printed can't be: {error.strerror}.") from error


def say_table(table: Table) -> None:
    """Print a table, as wide as what it is shown on."""
    shown, paper = Console(), StringIO()
    if not shown.encoding.startswith("utf"):
        table.box = box.ASCII
    Console(file=paper, width=shown.width, force_terminal=shown.is_terminal).print(table)
    say(paper.getvalue(), end="")


def say_json(value: object) -> None:
    """Print JSON in letters that every encoding has."""
    say(json.dumps(json_value(value)))


def leave_quietly() -> NoReturn:
    """Exit with 0: nobody reads what is printed, which is no fault."""
    _mute(sys.__stdout__ or sys.stdout)
    sys.exit(0)


def _mute(stream: TextIO) -> None:
    """Let nothing more go where it can't, what waits to be printed included."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def show_summary(summary: RunSummary, *, as_json: bool, is_dry: bool) -> None:
    """Print the summary of a run, or of what one would do."""
    if as_json:
        say_json(summary.to_dict())
        return
    table = Table("", box=box.SIMPLE)
    for name in summary.columns:
        table.add_column(Text(name))
    described = [_column_lines(column) for column in summary.columns.values()]
    for line in described[0] if described else ():
        table.add_row(line, *(Text(lines[line]) for lines in described))
    if described:
        say_table(table)
    _show_work(summary, is_dry=is_dry)


def _show_work(summary: RunSummary, *, is_dry: bool) -> None:
    """Tell what was done, or what a run would do."""
    texts, judge = summary.texts, summary.judge
    encoded = "would be encoded" if is_dry else "encoded now"
    say(
        f"{summary.rows} rows in {summary.seconds:.1f} s; "
        f"{texts.distinct} distinct texts, {texts.encoded} {encoded}, {texts.cut} longer than the model reads"
    )
    if judge.prompts:
        cost = "" if judge.cost is None else f", {judge.cost:.4f} dollars"
        calls = (
            f"{judge.calls} calls would be made, {judge.prompt_tokens} tokens would be sent{cost}"
            if is_dry
            else f"{judge.calls} calls, {judge.prompt_tokens} tokens sent, {judge.completion_tokens} received{cost}"
        )
        say(f"{judge.prompts} distinct prompts, {judge.cached} known before; {calls}")


def _column_lines(column: ColumnSummary) -> dict[str, str]:
    """Return what the table says of one score column."""
    coverage = "" if column.coverage is None else f" ({column.coverage:.1%})"
    return {
        "scored": f"{column.n_scored} of {column.n_total} rows{coverage}",
        "mean": _number(column.mean),
        **{f"quantile {share}": _number(column.quantiles.get(share)) for share in ("0.05", "0.5", "0.95")},
        "statuses": ", ".join(f"{count} {status}" for status, count in column.statuses.items()),
    }


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def show_checked(found: Checked) -> None:
    """Print what a configuration and its inputs hold."""
    rows = "rows that can't all be read" if found.rows is None else f"{found.rows} rows"
    wrote = "" if found.preset is None else f", as {found.preset} writes them"
    files = f"{found.files} file{'s' * (found.files != 1)}{wrote}"
    say(f"inputs: {rows} in {files}; columns {', '.join(found.columns)}")
    tell_of_unused(found.unused)
    for name, read in found.reads.items():
        column = "" if read["column"] == name else f"{read['column']} "
        missing = "" if read["missing"] is None else f", {read['missing']} missing"
        say(f"reads {name}: {column}as {read['as']}{missing}")
    for name, descriptor in found.descriptors.items():
        say(f"computes {name}, by {descriptor.partition('(')[0]}")


def tell_of_unused(unused: Mapping[str, int]) -> None:
    """Warn of what could not be used, as counts."""
    if unused:
        counts = ", ".join(f"{count} {what}{UNUSED.get(what, '')}" for what, count in unused.items())
        say(f"warning: not used: {counts}", err=True)

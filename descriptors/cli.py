"""The command `rag-descriptors`: arguments to jobs, errors to exit codes.

Exit codes: 0 done; 2 usage; 3 the data break the contract; 4 execution failed; 130 interrupted; 143 terminated.
"""

import signal
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, NoReturn

import platformdirs
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_descriptors.cache.store import Cache
from rag_descriptors.errors import (
    CellError,
    DescriptorError,
    FormatError,
    MissingColumnError,
    OptionError,
    PlanError,
)
from rag_descriptors.jobs.batch import default_descriptors, score_traces
from rag_descriptors.jobs.outputs import check_place, replacing, to_json
from rag_descriptors.summary import ColumnSummary, RunSummary
from rag_descriptors.traces.readers import open_traces

__all__ = ["app", "main"]

USAGE, DATA, EXECUTION, SIGNAL_EXIT = 2, 3, 4, 128

app = typer.Typer(
    help="Score columns for tables of RAG traces.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

cache_app = typer.Typer(help="Look into the cache, or empty it.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")

CacheOption = Annotated[
    Path | None, typer.Option("--cache", help="The cache's file.  [default: one in the user's cache folder]")
]


@app.command()
def score(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders and globs: Parquet, Arrow, JSONL, JSON, CSV.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The scored file; its ending says the format.")],
    question: Annotated[
        str | None, typer.Option(help="The column of questions, if its name is not a usual one.")
    ] = None,
    contexts: Annotated[
        str | None, typer.Option(help="The column of contexts, if its name is not a usual one.")
    ] = None,
    cache: CacheOption = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep vectors for this run only.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace score columns that are there already.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=0, help="Only the first rows, this many.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Write the summary of the run to this JSON file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Score logged traces: how relevant the contexts of each row are to its question."""
    traces = open_traces(inputs)
    cache = None if no_cache else cache or default_cache()
    if summary is not None:
        check_place("summary", summary)
    _check_distinct(traces.files, {"output": output, "summary": summary, "cache": cache})
    done = score_traces(
        traces,
        output,
        default_descriptors(traces.schema.names, question=question, contexts=contexts),
        cache=cache,
        on_conflict="overwrite" if overwrite else "error",
        limit=limit,
    )
    if summary is not None:
        with replacing(summary) as file:
            file.write(to_json(done.to_dict()).encode())
    _show(done, as_json=as_json)


@app.command("list")
def list_descriptors() -> None:
    """List the descriptors that are installed."""
    table = Table("descriptor", "package", "what it says")
    for entry in sorted(entry_points(group="rag_descriptors"), key=lambda entry: entry.name):
        table.add_row(Text(entry.name), entry.dist.name if entry.dist else "", Text(_first_line(entry)))
    Console().print(table)


@cache_app.command()
def stats(cache: CacheOption = None) -> None:
    """Print what the cache holds, as JSON."""
    with closing(_existing_cache(cache)) as store:
        typer.echo(to_json({"path": str(store.path), **asdict(store.stats())}))


@cache_app.command()
def prune(
    days: Annotated[float, typer.Option(min=0, help="Drop answers older than this.")], cache: CacheOption = None
) -> None:
    """Drop old answers."""
    with closing(_existing_cache(cache)) as store:
        typer.echo(f"{store.prune(days=days)} answers dropped")


@cache_app.command()
def clear(cache: CacheOption = None) -> None:
    """Drop all answers."""
    with closing(_existing_cache(cache)) as store:
        typer.echo(f"{store.clear()} answers dropped")


def main() -> None:
    """Run the command, and exit with its code."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except (DescriptorError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(_exit_code(error))
    except Exception:  # noqa: BLE001 - a fault of our own is shown whole, under the code that says so
        traceback.print_exc()
        sys.exit(EXECUTION)


def default_cache() -> Path:
    """Return the file in the user's cache folder that keeps vectors between runs."""
    return platformdirs.user_cache_path("rag-descriptors") / "answers.sqlite"


def _check_distinct(inputs: Sequence[Path], written: Mapping[str, Path | None]) -> None:
    """Make sure that nothing is written over an input, or over another thing that is written."""
    taken = dict.fromkeys((path.resolve() for path in inputs), "one of the inputs")
    for option, path in written.items():
        if path is not None and path.resolve() in taken:
            raise OptionError(f"{option} {str(path)!r} is {taken[path.resolve()]}. Give another name.")
        if path is not None:
            taken[path.resolve()] = f"the {option} too"


def _existing_cache(path: Path | None) -> Cache:
    path = path or default_cache()
    if not path.is_file():
        raise OptionError(f"cache {str(path)!r}: there is no such file.")
    return Cache(path)


def _exit_code(error: Exception) -> int:
    if isinstance(error, CellError | FormatError | MissingColumnError):
        return DATA
    if isinstance(error, OptionError | PlanError):
        return USAGE
    return EXECUTION


def _stop(number: int, _: object) -> NoReturn:
    typer.echo("stopped: nothing was written, vectors made so far are in the cache; run again to go on", err=True)
    sys.exit(SIGNAL_EXIT + number)


def _show_warning(message: Warning | str, *_: object) -> None:
    typer.echo(f"warning: {message}", err=True)


def _show(summary: RunSummary, *, as_json: bool) -> None:
    if as_json:
        typer.echo(to_json(summary.to_dict()))
        return
    table = Table("", box=box.SIMPLE)
    for name in summary.columns:
        table.add_column(Text(name))
    described = [_column_lines(column) for column in summary.columns.values()]
    for line in described[0]:
        table.add_row(line, *(Text(lines[line]) for lines in described))
    texts = summary.texts
    Console().print(table)
    typer.echo(
        f"{summary.rows} rows in {summary.seconds:.1f} s; "
        f"{texts.distinct} distinct texts, {texts.encoded} encoded now, {texts.cut} longer than the model reads"
    )


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


def _first_line(entry: EntryPoint) -> str:
    try:
        return (entry.load().__doc__ or "").strip().partition("\n")[0]
    except Exception as error:  # noqa: BLE001 - any fault of another's package is told, and hides no other line
        return f"does not load: {error!r}"

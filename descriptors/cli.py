"""The command `rag-descriptors`: arguments to jobs, errors to exit codes.

Exit codes: 0 done; 2 usage or configuration; 3 the data break the contract; 4 execution failed; 5 partial, run again to
go on; 130 interrupted; 143 terminated. 1 is kept for a threshold that failed. That nobody reads what is printed changes
no code.
"""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import Field, asdict, fields
from inspect import Parameter, Signature, signature
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO, TypeVar

import platformdirs
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_descriptors.cache.store import Cache, CacheStats
from rag_descriptors.errors import (
    CellError,
    DescriptorError,
    FormatError,
    MissingColumnError,
    OptionError,
    PlanError,
)
from rag_descriptors.jobs.batch import chosen, estimate_traces, score_traces
from rag_descriptors.jobs.check import Checked, check, check_places, open_inputs
from rag_descriptors.jobs.config import Config, ScoreOptions, merged, option_info, read_config, value_type
from rag_descriptors.jobs.outputs import check_place, replacing, to_json
from rag_descriptors.jobs.template import template
from rag_descriptors.models.calls import BUDGET_EXHAUSTED
from rag_descriptors.options import together
from rag_descriptors.plugins import installed, load, package
from rag_descriptors.summary import ColumnSummary, RunSummary

__all__ = ["app", "main"]

UNUSED = {"documents without text": " (their places among the contexts are null)"}
USAGE, DATA, EXECUTION, PARTIAL, SIGNAL_EXIT = 2, 3, 4, 5, 128

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


InputsArgument = Annotated[
    list[str], typer.Argument(help="Files, folders and globs: Parquet, Arrow, JSONL, JSON, CSV.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Command = TypeVar("Command", bound=Callable[..., None])


def _with_flags(command: Command) -> Command:
    """Give a command a flag for each option of a run, as `ScoreOptions` declares it; None where it is not given."""
    own = [parameter for parameter in signature(command).parameters.values() if parameter.kind != Parameter.VAR_KEYWORD]
    flags = [
        Parameter(
            option.name,
            Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[value_type(option) | None, _flag(option)],
        )
        for option in fields(ScoreOptions)
    ]
    command.__signature__ = Signature([*own, *flags])  # type: ignore[attr-defined]
    return command


def _flag(option: "Field[Any]") -> Any:
    info = option_info(option)
    names = [f"--{option.name.replace('_', '-')}", *([info.short] if info.short else [])]
    default = f"  [default: {option.default}]" if option.default else ""
    return typer.Option(*names, help=info.help + default, min=info.low, max=info.high)


@app.command()
@_with_flags
def score(
    inputs: InputsArgument,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="A configuration; init writes one.")] = None,
    as_json: JsonOption = False,
    **flags: Any,
) -> None:
    """Score logged traces: how relevant the contexts of each row are to its question."""
    found = Config() if config is None else _sound(config)
    given = {name: value for name, value in flags.items() if value is not None}
    if "separator" in given:
        given["separator"] = _typed(given["separator"])
    options, columns = merged(found, given)
    if options.output is None and not options.dry_run:
        raise OptionError("output: there is none. Say where to with -o FILE, or with output under [run] in a config.")
    traces = open_inputs(inputs, options)
    check_places(traces.files, options)
    descriptors, columns = chosen(traces, found.descriptors, columns)
    shared: dict[str, Any] = {
        "columns": columns,
        "cache": None if options.no_cache else options.cache or default_cache(),
        "on_conflict": "overwrite" if options.overwrite else "error",
        "limit": options.limit,
    }
    if options.dry_run or options.output is None:
        done = estimate_traces(traces, descriptors, **shared)
    else:
        done = score_traces(traces, options.output, descriptors, workers=options.workers, **shared)
    with _whole(None if options.dry_run else options.output):
        _write_summary(done, options.summary)
        _tell_of_unused(traces.unused)
        _show(done, as_json=as_json, is_dry=options.dry_run)
    _demand_answers(done, options.min_coverage)
    _demand_coverage(done, options.min_coverage)


def _typed(separator: str) -> str:
    r"""Return a separator as it was meant: a shell passes on the letters \n where a line break was wanted."""
    return separator.replace("\\n", "\n").replace("\\t", "\t")


@contextmanager
def _whole(output: Path | None) -> Iterator[None]:
    """Say in an error that comes after the work that the work is done."""
    try:
        yield
    except OSError as error:
        done = "" if output is None else f" The scored file {output} is whole."
        raise OSError(error.errno, f"{error.strerror}{done}") from error


def _write_summary(summary: RunSummary, path: Path | None) -> None:
    if path is not None:
        with replacing(path) as file:
            file.write(to_json(summary.to_dict()).encode())


@app.command("check")
def check_config(
    config: Annotated[Path, typer.Argument(help="A configuration.")],
    inputs: InputsArgument,
    as_json: JsonOption = False,
) -> None:
    """Check a configuration and its traces, and name all that is wrong; no model, no call, nothing written."""
    found, errors = check(config, inputs)
    if found is not None and as_json:
        _say(to_json(asdict(found)))
    elif found is not None:
        _show_checked(found)
    for error in errors:
        _say(f"error: {error}", err=True)
    if errors:
        raise typer.Exit(min(map(_exit_code, errors)))


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="The file.")] = Path("rag-descriptors.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a configuration to start from, with a comment on everything that may be set."""
    check_place("config", path)
    if path.exists() and not force:
        raise OptionError(f"config {str(path)!r} is there already. Give another name, or --force to replace it.")
    with replacing(path) as file:
        file.write(template().encode())
    _say(f"{path} written", err=True)


@app.command("list")
def list_descriptors() -> None:
    """List the descriptors that are installed."""
    table = Table("descriptor", "package", "what it says")
    for name, entries in installed().items():
        table.add_row(Text(name), ", ".join(map(package, entries)), Text(_first_line(name)))
    _say_table(table)


@cache_app.command()
def stats(cache: CacheOption = None) -> None:
    """Print what the cache holds, as JSON."""
    if cache is None and not default_cache().is_file():
        empty = CacheStats(entries={}, bytes={}, file_bytes=0)
        _say(to_json({"path": str(default_cache()), **asdict(empty)}))
        return
    with closing(_existing_cache(cache)) as store:
        _say(to_json({"path": str(store.path), **asdict(store.stats())}))


@cache_app.command()
def prune(
    days: Annotated[float, typer.Option(min=0, help="Drop answers older than this.")], cache: CacheOption = None
) -> None:
    """Drop old answers."""
    with closing(_existing_cache(cache)) as store:
        _say(f"{store.prune(days=days)} answers dropped")


@cache_app.command()
def clear(cache: CacheOption = None) -> None:
    """Drop all answers."""
    with closing(_existing_cache(cache)) as store:
        _say(f"{store.clear()} answers dropped")


def main() -> None:
    """Run the command, and exit with its code."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except SystemExit as left:
        if not isinstance(left.__context__, BrokenPipeError):
            raise
        _leave_quietly()  # from a help that nobody reads to its end
    except (DescriptorError, OSError) as error:
        _say(f"error: {error}", err=True)
        sys.exit(_exit_code(error))
    except Exception:  # noqa: BLE001 - a fault of our own is shown whole, under the code that says so
        traceback.print_exc()
        sys.exit(EXECUTION)


def default_cache() -> Path:
    """Return the file in the user's cache folder that keeps vectors between runs."""
    return platformdirs.user_cache_path("rag-descriptors") / "answers.sqlite"


def _say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print, as long as somebody reads it."""
    try:
        typer.echo(f"{text}{end}", err=err, nl=False)
    except BrokenPipeError:
        _mute(sys.stderr if err else sys.stdout)
    except OSError as error:
        _mute(sys.stderr if err else sys.stdout)
        raise OSError(error.errno, f"what is to be printed can't be: {error.strerror}.") from error


def _say_table(table: Table) -> None:
    shown, paper = Console(), StringIO()
    Console(file=paper, width=shown.width, force_terminal=shown.is_terminal).print(table)
    _say(paper.getvalue(), end="")


def _mute(stream: TextIO) -> None:
    """Let nothing more go where it can't, what waits to be printed included."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _leave_quietly() -> NoReturn:
    _mute(sys.__stdout__ or sys.stdout)
    sys.exit(0)


def _sound(path: Path) -> Config:
    config, problems = read_config(path)
    together(problems)
    return config


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
    _say("stopped: nothing was written; what was worked out so far is in the cache; run again to go on", err=True)
    sys.exit(SIGNAL_EXIT + number)


def _show_warning(message: Warning | str, *_: object) -> None:
    _say(f"warning: {message}", err=True)


def _show(summary: RunSummary, *, as_json: bool, is_dry: bool) -> None:
    if as_json:
        _say(to_json(summary.to_dict()))
        return
    table = Table("", box=box.SIMPLE)
    for name in summary.columns:
        table.add_column(Text(name))
    described = [_column_lines(column) for column in summary.columns.values()]
    for line in described[0] if described else ():
        table.add_row(line, *(Text(lines[line]) for lines in described))
    if described:
        _say_table(table)
    _show_work(summary, is_dry=is_dry)


def _show_work(summary: RunSummary, *, is_dry: bool) -> None:
    """Tell what was done, or what a run would do."""
    texts, judge = summary.texts, summary.judge
    encoded = "would be encoded" if is_dry else "encoded now"
    _say(
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
        _say(f"{judge.prompts} distinct prompts, {judge.cached} known before; {calls}")


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


def _demand_answers(summary: RunSummary, least: float | None) -> None:
    """Say which prompts have no answer; whoever names a least coverage has said how many may fail, but for a budget."""
    failures = summary.judge.failures
    if failures:
        counts = ", ".join(f"{count} {status}" for status, count in failures.items())
        _say(f"{sum(failures.values())} prompts without an answer: {counts}; run again to ask them", err=True)
    if failures and (least is None or BUDGET_EXHAUSTED in failures):
        raise typer.Exit(PARTIAL)


def _demand_coverage(summary: RunSummary, least: float | None) -> None:
    low = {
        name: column.coverage
        for name, column in summary.columns.items()
        if least is not None and column.coverage is not None and column.coverage < least
    }
    for name, coverage in low.items():
        _say(f"error: {name!r} covers {coverage:.4g} of the rows, less than --min-coverage {least}", err=True)
    if low:
        raise typer.Exit(PARTIAL)


def _show_checked(found: Checked) -> None:
    rows = "rows that can't all be read" if found.rows is None else f"{found.rows} rows"
    wrote = "" if found.preset is None else f", as {found.preset} writes them"
    files = f"{found.files} file{'s' * (found.files != 1)}{wrote}"
    _say(f"inputs: {rows} in {files}; columns {', '.join(found.columns)}")
    _tell_of_unused(found.unused)
    for name, read in found.reads.items():
        column = "" if read["column"] == name else f"{read['column']} "
        missing = "" if read["missing"] is None else f", {read['missing']} missing"
        _say(f"reads {name}: {column}as {read['as']}{missing}")
    for name, descriptor in found.descriptors.items():
        _say(f"computes {name}, by {descriptor.partition('(')[0]}")


def _tell_of_unused(unused: Mapping[str, int]) -> None:
    if unused:
        counts = ", ".join(f"{count} {what}{UNUSED.get(what, '')}" for what, count in unused.items())
        _say(f"warning: not used: {counts}", err=True)


def _first_line(name: str) -> str:
    try:
        return (load(name).__doc__ or "").strip().partition("\n")[0]
    except OptionError as error:
        return str(error)

"""The command `rag-descriptors`: arguments to jobs, errors to exit codes.

Exit codes: 0 done; 2 usage or configuration; 3 the data break the contract; 4 execution failed; 5 partial, run again to
go on; 130 interrupted; 143 terminated. 1 is kept for a threshold that failed. That nobody reads what is printed changes
no code.
"""

import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import Field, asdict, fields
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import platformdirs
import typer
from rich.table import Table
from rich.text import Text

from rag_descriptors.cache.store import Cache, CacheStats
from rag_descriptors.console import leave_quietly, say, say_json, say_table, show_checked, show_summary, tell_of_unused
from rag_descriptors.errors import (
    CellError,
    DescriptorError,
    FormatError,
    MissingColumnError,
    OptionError,
    PlanError,
    ScoringError,
)
from rag_descriptors.jobs.batch import chosen, estimate_traces, score_traces
from rag_descriptors.jobs.check import check, open_inputs
from rag_descriptors.jobs.config import Config, ScoreOptions, merged, option_info, read_config, value_type
from rag_descriptors.jobs.outputs import check_places
from rag_descriptors.jobs.places import check_place, replacing
from rag_descriptors.jobs.template import template
from rag_descriptors.models.calls import BUDGET_EXHAUSTED
from rag_descriptors.options import together
from rag_descriptors.plugins import installed, load, package
from rag_descriptors.summary import RunSummary
from rag_descriptors.texts import to_json

__all__ = ["app", "main"]

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
    traces = open_inputs(inputs, options, found.descriptors, columns)
    check_places(traces.files, output=options.output, summary=options.summary, cache=options.cache)
    descriptors, columns = chosen(traces, found.descriptors, columns)
    shared: dict[str, Any] = {
        "columns": columns,
        "cache": None if options.no_cache else options.cache or default_cache(),
        "on_conflict": "overwrite" if options.overwrite else "error",
        "limit": options.limit,
    }
    with _faults_of_others():
        if options.dry_run or options.output is None:
            done = estimate_traces(traces, descriptors, **shared)
        else:
            done = score_traces(traces, options.output, descriptors, workers=options.workers, **shared)
    with _whole(None if options.dry_run else options.output):
        _write_summary(done, None if options.dry_run else options.summary)
        tell_of_unused(traces.unused)
        show_summary(done, as_json=as_json, is_dry=options.dry_run)
    is_partial = [_lacks_answers(done, options.min_coverage), _lacks_coverage(done, options.min_coverage)]
    if any(is_partial):
        raise typer.Exit(PARTIAL)


def _typed(separator: str) -> str:
    r"""Return a separator as it was meant: a shell passes on the letters \n where a line break was wanted."""
    return separator.replace("\\n", "\n").replace("\\t", "\t")


@contextmanager
def _faults_of_others() -> Iterator[None]:
    """Keep from typer what a model of one's own raised, which it would take for a reader or a user who went away."""
    try:
        yield
    except (BrokenPipeError, EOFError) as error:
        raise ScoringError(f"scoring failed: {error!r}. Nothing was written; answers so far are cached.") from error


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
        say_json(asdict(found))
    elif found is not None:
        show_checked(found)
    for error in errors:
        say(f"error: {error}", err=True)
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
    say(f"{path} written", err=True)


@app.command("list")
def list_descriptors() -> None:
    """List the descriptors that are installed."""
    table = Table("descriptor", "package", "what it says")
    for name, entries in installed().items():
        table.add_row(Text(name), ", ".join(map(package, entries)), Text(_first_line(name)))
    say_table(table)


@cache_app.command()
def stats(cache: CacheOption = None) -> None:
    """Print what the cache holds, as JSON."""
    if cache is None and not default_cache().is_file():
        empty = CacheStats(entries={}, bytes={}, file_bytes=0)
        say_json({"path": str(default_cache()), **asdict(empty)})
        return
    with closing(_existing_cache(cache)) as store:
        say_json({"path": str(store.path), **asdict(store.stats())})


@cache_app.command()
def prune(
    days: Annotated[float, typer.Option(min=0, help="Drop answers older than this.")], cache: CacheOption = None
) -> None:
    """Drop old answers."""
    with closing(_existing_cache(cache)) as store:
        say(f"{store.prune(days=days)} answers dropped")


@cache_app.command()
def clear(cache: CacheOption = None) -> None:
    """Drop all answers."""
    with closing(_existing_cache(cache)) as store:
        say(f"{store.clear()} answers dropped")


def main() -> None:
    """Run the command, and exit with its code."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr; a name that it can't print ends no run
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except SystemExit as left:
        if not isinstance(left.__context__, BrokenPipeError):
            raise
        leave_quietly()  # from a help that nobody reads to its end
    except (DescriptorError, OSError) as error:
        say(f"error: {error}", err=True)
        sys.exit(_exit_code(error))
    except Exception:  # noqa: BLE001 - a fault of our own is shown whole, under the code that says so
        traceback.print_exc()
        sys.exit(EXECUTION)


def default_cache() -> Path:
    """Return the file in the user's cache folder that keeps answers between runs."""
    return platformdirs.user_cache_path("rag-descriptors") / "answers.sqlite"


def _sound(path: Path) -> Config:
    config, problems = read_config(path)
    together(problems)
    return config


def _existing_cache(path: Path | None) -> Cache:
    path = path or default_cache()
    if not path.is_file():
        raise OptionError(f"cache {str(path)!r}: there is no such file. Name one with --cache FILE.")
    return Cache(path)


def _exit_code(error: Exception) -> int:
    if isinstance(error, CellError | FormatError | MissingColumnError):
        return DATA
    if isinstance(error, OptionError | PlanError):
        return USAGE
    return EXECUTION


def _stop(number: int, _: object) -> NoReturn:
    say("stopped: no file is left half-written; run again to go on, with whatever a cache holds by now", err=True)
    sys.exit(SIGNAL_EXIT + number)


def _show_warning(message: Warning | str, *_: object) -> None:
    say(f"warning: {message}", err=True)


def _lacks_answers(summary: RunSummary, least: float | None) -> bool:
    """Say which prompts have no answer; return whether that counts.

    Whoever names a least coverage has said how many may fail, but for a budget.
    """
    failures = summary.judge.failures
    if failures:
        counts = ", ".join(f"{count} {status}" for status, count in failures.items())
        say(f"{sum(failures.values())} prompts without an answer: {counts}; run again to ask them", err=True)
    for status, message in summary.judge.messages.items():
        say(f"{status}, the first time: {message}", err=True)
    return bool(failures) and (least is None or BUDGET_EXHAUSTED in failures)


def _lacks_coverage(summary: RunSummary, least: float | None) -> bool:
    """Say which columns cover too little; return whether any does."""
    low = {
        name: column.coverage
        for name, column in summary.columns.items()
        if least is not None and column.coverage is not None and column.coverage < least
    }
    for name, coverage in low.items():
        say(f"error: {name!r} covers {coverage:.4g} of the rows, less than --min-coverage {least}", err=True)
    return bool(low)


def _first_line(name: str) -> str:
    try:
        return (load(name).__doc__ or "").strip().partition("\n")[0]
    except OptionError as error:
        return str(error)

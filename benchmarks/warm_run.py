"""How far is a warm run, Parquet to Parquet, from the least that it must do?

The command scores a log whose texts are all in the cache. The floor reads the same file, encodes both columns as
dictionaries, gathers random unit vectors, multiplies, takes the mean per row, and writes the same columns and the score
with the same codec. Both are whole processes. Then one more run, untimed, lists every module it imports.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from common import (
    WORKERS,
    Line,
    Runs,
    in_turn,
    options,
    ratio_line,
    ratios,
    report,
    run_process,
    run_warm,
    score_command,
    trace_log,
    warm_cache,
)

SIZES = {"rows": 100_000, "rounds": 5}
NOT_NEEDED = ("torch", "transformers", "sentence_transformers")


def main() -> None:
    arguments = options(__doc__, SIZES)
    source = trace_log(arguments.rows)
    cache = warm_cache(source)
    with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
        scored, least = Path(folder) / "scored.parquet", Path(folder) / "least.parquet"
        command = score_command(source, scored, cache)
        modules = imported_modules(command)
        floor = [sys.executable, str(WORKERS / "warm_floor.py"), str(source), str(least), codec(scored)]
        turns = {"floor": partial(run_process, floor), "ours": partial(run_warm, command)}
        processes = in_turn(turns, arguments.rounds)
    seconds = {name: [process.seconds for process in found] for name, found in processes.items()}
    ratio = ratios(seconds["ours"], seconds["floor"])
    facts = {"modules": len(modules), "not_imported": NOT_NEEDED}
    runs = {**seconds, "ours / floor": ratio}
    report("warm_run", arguments, runs=runs, lines=[ratio_to_floor(arguments.rows, seconds, ratio)], **facts)


def imported_modules(command: Sequence[str]) -> set[str]:
    """Return all modules that a run imports, its child processes included; there must be none that it does not need."""
    listing = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(command, check=True, text=True, capture_output=True, env=listing)
    rows = (line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:"))
    modules = {row[-1].strip() for row in rows}
    needless = sorted({module.partition(".")[0] for module in modules} & set(NOT_NEEDED))
    if needless or "rag_descriptors" not in modules:
        sys.exit(f"{' '.join(command)} imported {len(modules)} modules, among them {needless}.")
    return modules


def codec(path: Path) -> str:
    """Return how a Parquet file is compressed."""
    return pq.ParquetFile(path).metadata.row_group(0).column(0).compression


def ratio_to_floor(rows: int, seconds: Runs, ratio: Sequence[float]) -> Line:
    what = f"{rows} rows of a log, warm, Parquet to Parquet, against the least work"
    ours, floor = seconds["ours"], seconds["floor"]
    return ratio_line(what, ours=ours, against=floor, ratio=ratio, unit="s", says="times the floor")


if __name__ == "__main__":
    main()

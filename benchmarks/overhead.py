"""What do importing the library and its long format cost?

Import: whole processes that import this library, or only the three packages that it stands on. Long format: one score
per context back to a mean and a list per row, by offsets in Arrow, by offsets from pandas to pandas with all that is
between them, and by pandas' explode and groupby.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from common import Line, Runs, in_turn, options, ratio_line, ratios, report, run_process, trace_log

from rag_descriptors.aggregations import aggregation
from rag_descriptors.frame import to_pandas
from rag_descriptors.longframe import LongFrame

SIZES = {"rows": 100_000, "rounds": 5, "imports": 25}
IMPORTS = {"packages": "import pandas, pyarrow, pandera.pandas", "library": "import rag_descriptors"}
BASE = "explode and groupby"
Floats = npt.NDArray[np.float64]


def main() -> None:
    arguments = options(__doc__, SIZES)
    imports = time_imports(arguments.imports)
    formats = time_formats(arguments.rows, arguments.rounds)
    slower = ratios(imports["library"], imports["packages"])
    faster = {f"{name}, times as fast": ratios(formats[BASE], formats[name]) for name in formats if name != BASE}
    import_line = ratio_line(
        "import rag_descriptors against import pandas, pyarrow, pandera.pandas",
        ours=imports["library"],
        against=imports["packages"],
        ratio=slower,
        unit="s",
        says="times the time",
    )
    lines = [import_line, *(format_line(arguments.rows, name, formats) for name in formats if name != BASE)]
    runs = {**imports, "library / packages": slower, **formats, **faster}
    report("overhead", arguments, runs=runs, lines=lines)


def time_imports(runs: int) -> dict[str, list[float]]:
    """Return the seconds of whole processes that import something, in turn."""
    turns = {name: partial(run_process, [sys.executable, "-c", code]) for name, code in IMPORTS.items()}
    return {name: [process.seconds for process in found] for name, found in in_turn(turns, runs).items()}


def time_formats(rows: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way from contexts and their scores to means and lists."""
    column = pd.read_parquet(trace_log(rows, dictionary_mb=64), columns=["contexts"])["contexts"]
    lists = pa.array(column)
    scores = np.random.default_rng(0).random(len(lists.flatten()))
    ways: dict[str, Callable[[], Any]] = {
        BASE: partial(by_groupby, column, scores),
        "offsets, from Arrow to Arrow": partial(by_offsets, lists, scores),
        "offsets, from pandas to pandas": lambda: in_pandas(by_offsets(pa.array(column), scores)),
    }
    (means, _), (expected, _) = ways["offsets, from pandas to pandas"](), ways[BASE]()
    np.testing.assert_allclose(means, expected)
    return in_turn({name: partial(seconds_of, way) for name, way in ways.items()}, rounds)


def by_offsets(contexts: pa.ListArray, scores: Floats) -> tuple[Floats, pa.ListArray]:
    frame = LongFrame.explode(contexts)
    return aggregation("mean")(scores, frame.offsets), frame.regroup(pa.array(scores), frame.is_null)


def in_pandas(scored: tuple[Floats, pa.ListArray]) -> tuple["pd.Series[float]", "pd.Series[Any]"]:
    means, lists = scored
    return pd.Series(means), to_pandas(pa.table({"scores": lists}))["scores"]


def by_groupby(contexts: "pd.Series[Any]", scores: Floats) -> tuple["pd.Series[float]", "pd.Series[Any]"]:
    groups = pd.Series(scores, contexts.explode().index).groupby(level=0)
    return groups.mean(), groups.agg(list)


def seconds_of(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def format_line(rows: int, name: str, seconds: Runs) -> Line:
    return ratio_line(
        f"{rows} rows to long and back, {name}, against pandas {BASE}",
        ours=seconds[name],
        against=seconds[BASE],
        ratio=ratios(seconds[BASE], seconds[name]),
        unit="s",
        says="times as fast",
    )


if __name__ == "__main__":
    main()

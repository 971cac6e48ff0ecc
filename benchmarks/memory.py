"""Does the peak memory of a warm run grow with the number of rows?

The command scores a small and a large log, made alike, whose texts are all in the cache; each run is a whole process.
Where it starts processes of its own, the largest of them counts.
"""

import tempfile
from functools import partial
from pathlib import Path

from common import in_turn, options, ratio_line, ratios, report, run_warm, score_command, trace_log, warm_cache

SIZES = {"small_rows": 100_000, "large_rows": 1_000_000, "rounds": 3}
DICTIONARY_MB = 64


def main() -> None:
    arguments = options(__doc__, SIZES)
    rows = {"small": arguments.small_rows, "large": arguments.large_rows}
    logs = {name: trace_log(count, dictionary_mb=DICTIONARY_MB) for name, count in rows.items()}
    cache = warm_cache(*logs.values())
    with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
        out = Path(folder) / "scored.parquet"
        turns = {name: partial(run_warm, score_command(path, out, cache)) for name, path in logs.items()}
        processes = in_turn(turns, arguments.rounds)
    peaks = {name: [process.peak_mb for process in found] for name, found in processes.items()}
    seconds = {f"{name}, seconds": [process.seconds for process in found] for name, found in processes.items()}
    ratio = ratios(peaks["large"], peaks["small"])
    what = f"peak memory, {rows['large']} rows of a log, warm, against {rows['small']} rows"
    line = ratio_line(what, ours=peaks["large"], against=peaks["small"], ratio=ratio, unit="MB", says="times")
    report("memory", arguments, runs={**peaks, **seconds, "large / small": ratio}, lines=[line])


if __name__ == "__main__":
    main()

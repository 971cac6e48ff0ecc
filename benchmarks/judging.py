"""What does judging cost next to bare litellm calls, and is each pair paid for once?

A server on loopback answers every request after the same time. Clients are processes of their own, warmed up by one
call: this library, which judges pairs of question and context and keeps the verdicts in a file, and
`litellm.acompletion` under a semaphore of the same size, which sends the very same bodies and does nothing with the
answers. CPU is that of the client. The calls for pairs that stand twice, and those of a second run, are counted.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from common import ROOT, WORKERS, Line, in_turn, options, ratio_line, ratios, read_traces, report

sys.path.append(str(ROOT / "tests"))
from judge_server import JudgeServer

SIZES = {"pairs": 2_000, "answer_ms": 50, "rounds": 3}
CONCURRENCIES = (16, 64)
CLIENTS = ("ours", "litellm")
MEASURES = {"seconds": ("s", "time"), "cpu_ms": ("ms CPU a call", "CPU")}
VERDICT = {"verdict": "RELEVANT", "score": 0.75, "reason": "The passage states what the question asks for."}
WARM_UP = 1


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What one client did: seconds without the warm-up, and all that the server was asked."""

    seconds: float
    cpu_seconds: float
    bodies: Sequence[Mapping[str, Any]]
    most_in_flight: int

    @property
    def calls(self) -> int:
        """Count the calls after the warm-up."""
        return len(self.bodies) - WARM_UP

    @property
    def cpu_ms(self) -> float:
        """Return the client's milliseconds of CPU a call."""
        return 1000 * self.cpu_seconds / self.calls


def main() -> None:
    arguments = options(__doc__, SIZES)
    serve = partial(JudgeServer, VERDICT, delay_s=arguments.answer_ms / 1000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = prepare(serve, arguments.pairs, folder)
        runs = in_turn(clients(serve, folder), arguments.rounds)
    differing = {name: run.calls for name, found in runs.items() for run in found if run.calls != arguments.pairs}
    if differing:
        sys.exit(f"{arguments.pairs} pairs are not as many calls: {differing}")
    figures, lines = compare(runs, f"{arguments.pairs} pairs judged, an answer in {arguments.answer_ms} ms")
    lines += [Line(what=f"calls for {what}", ours=str(calls)) for what, calls in counts.items()]
    most = {name: max(run.most_in_flight for run in found) for name, found in runs.items()}
    report("judging", arguments, runs=figures, lines=lines, most_in_flight=most)


def prepare(serve: Callable[[], JudgeServer], pairs: int, folder: Path) -> dict[str, int]:
    """Write the table and the bodies that both clients send; return the calls for repeated pairs and repeated runs."""
    table = pairs_table(pairs)
    table.to_parquet(folder / "pairs.parquet")
    twice = folder / "twice.parquet"
    pd.concat([table, table.iloc[WARM_UP:]]).to_parquet(twice)
    arguments = ("judge_with_ours.py", str(twice), str(folder / "twice.sqlite"), str(max(CONCURRENCIES)))
    with serve() as server:
        first, second = run_client(server, *arguments), run_client(server, *arguments)
    (folder / "bodies.json").write_text(json.dumps(first.bodies))
    return {f"{pairs} pairs that all stand twice": first.calls, "the same once more": len(second.bodies)}


def pairs_table(pairs: int) -> pd.DataFrame:
    """Return one row of one pair, to warm up on, and rows of so many distinct pairs."""
    rows = read_traces("traces_hotpot")[["question", "contexts"]].explode("contexts").drop_duplicates()
    measured = rows[rows["question"] != rows["question"].iloc[0]].head(pairs)
    if len(measured) < pairs:
        sys.exit(f"the traces have {len(measured)} pairs, not {pairs}: give a smaller --pairs")
    return pd.concat([rows.head(WARM_UP), measured]).groupby("question", sort=False, as_index=False).agg(list)


def clients(serve: Callable[[], JudgeServer], folder: Path) -> dict[str, Callable[[], Judged]]:
    """Return both clients at each concurrency."""

    def ours(concurrency: int) -> Judged:
        with serve() as server, tempfile.TemporaryDirectory(dir=folder) as empty:
            table, cache = str(folder / "pairs.parquet"), str(Path(empty) / "verdicts.sqlite")
            return run_client(server, "judge_with_ours.py", table, cache, str(concurrency))

    def litellm(concurrency: int) -> Judged:
        with serve() as server:
            return run_client(server, "judge_with_litellm.py", str(folder / "bodies.json"), str(concurrency))

    ways = zip(CLIENTS, (ours, litellm), strict=True)
    return {case(name, size): partial(way, size) for size, (name, way) in product(CONCURRENCIES, ways)}


def case(client: str, concurrency: int) -> str:
    return f"{client}, {concurrency} at once"


def run_client(server: JudgeServer, worker: str, *arguments: str) -> Judged:
    """Run a client to its end against a server."""
    before = len(server.requests)
    command = [sys.executable, str(WORKERS / worker), server.url, *arguments]
    done = subprocess.run(command, check=False, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    bodies = [request.body for request in server.requests[before:]]
    return Judged(**json.loads(done.stdout.splitlines()[-1]), bodies=bodies, most_in_flight=server.max_in_flight)


def compare(runs: Mapping[str, Sequence[Judged]], what: str) -> tuple[dict[str, list[float]], list[Line]]:
    """Return all figures by name, and the lines of wall time and of CPU at each concurrency."""
    figures: dict[str, list[float]] = {}
    lines = []
    for (measure, (unit, word)), size in product(MEASURES.items(), CONCURRENCIES):
        ours, bare = ([getattr(run, measure) for run in runs[case(name, size)]] for name in CLIENTS)
        ratio = ratios(ours, bare)
        figures |= {f"{case(name, size)}, {unit}": taken for name, taken in zip(CLIENTS, (ours, bare), strict=True)}
        figures[f"{case('ours / litellm', size)}, {unit}"] = ratio
        title = f"{what}, {size} at once, against litellm alone"
        lines.append(ratio_line(title, ours=ours, against=bare, ratio=ratio, unit=unit, says=f"times the {word}"))
    return figures, lines


if __name__ == "__main__":
    main()

"""How fast is ContextRelevance next to Evidently's, and do both give the same scores?

Distinct: labelled traces in which no text repeats, so that nothing can be saved by remembering. Log: a production-like
log, cold; Evidently scores a sample of its rows, and its seconds are scaled by the tokens it reads, every repeat
included, since it encodes every cell. Each run is a process of its own that first scores one row, so that loading the
model is no part of the seconds; Evidently loads it again at each call, which is measured and taken off.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from common import Line, Runs, in_turn, options, ratio_line, ratios, report, trace_log
from scoring import (
    Scored,
    available,
    evidently_versions,
    gap_line,
    largest_gaps,
    score_with_evidently,
    score_with_ours,
    seconds,
    table_tokens,
    write_distinct,
)

SIZES = {"distinct_rows": 200, "sample_rows": 300, "small_rows": 2_000, "large_rows": 100_000, "rounds": 3}
VARIANTS: dict[str, dict[str, Any]] = {
    "torch float32": {"backend": "torch"},
    "onnx float32": {"backend": "onnx"},
    "openvino float32": {"backend": "openvino"},
    "torch bfloat16": {"backend": "torch", "dtype": "bfloat16"},
    "openvino bfloat16": {"backend": "openvino", "dtype": "bfloat16"},
}
PEER = "Evidently 0.7.23"
COLUMNS = ["question", "contexts"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one question came to."""

    runs: Runs
    lines: Sequence[Line]
    facts: Mapping[str, Any] = field(default_factory=dict)


def main() -> None:
    arguments = options(__doc__, SIZES, variants=tuple(VARIANTS), questions=tuple(QUESTIONS))
    variants = available({name: VARIANTS[name] for name in arguments.variants})
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.questions:
            found = QUESTIONS[name](arguments, variants, Path(folder))
            report(
                f"relevance_vs_evidently_{name}",
                arguments,
                runs=found.runs,
                lines=found.lines,
                peer_versions=evidently_versions(),
                **found.facts,
            )


def distinct(arguments: argparse.Namespace, variants: Mapping[str, Any], folder: Path) -> Answer:
    """Compare seconds and scores where every text is new."""
    path = folder / "distinct.parquet"
    table = write_distinct(arguments.distinct_rows, path)
    scorers: dict[str, Callable[[], Scored]] = {PEER: partial(score_with_evidently, path)}
    scorers |= {name: partial(score_with_ours, path, params) for name, params in variants.items()}
    scored = in_turn(scorers, arguments.rounds)
    times, gaps = seconds(scored), largest_gaps(scored, PEER)
    what = f"{len(table)} rows of distinct texts against {PEER}"
    return Answer(
        runs=times | speeds(dict.fromkeys(variants, times[PEER]), times),
        lines=[speed_line(f"{what}, {name}", times[name], times[PEER]) for name in variants]
        + [gap_line(f"{what}, {name}", gap) for name, gap in gaps.items()],
        facts={"largest_score_difference": gaps, "tokens": table_tokens(table), **peer_loads(scored)},
    )


def log(arguments: argparse.Namespace, variants: Mapping[str, Any], folder: Path) -> Answer:
    """Compare seconds on logs, cold; Evidently's are scaled from a sample."""
    logs = {rows: trace_log(rows) for rows in (arguments.small_rows, arguments.large_rows)}
    sample = folder / "sample.parquet"
    pd.read_parquet(logs[arguments.large_rows], columns=COLUMNS).head(arguments.sample_rows).to_parquet(sample)
    cases = {f"{rows} rows of a log, cold, {name}": (rows, name) for rows in logs for name in variants}
    scorers: dict[str, Callable[[], Scored]] = {PEER: partial(score_with_evidently, sample)}
    scorers |= {case: partial(score_with_ours, logs[rows], variants[name]) for case, (rows, name) in cases.items()}
    scored = in_turn(scorers, arguments.rounds)
    times = seconds(scored)
    tokens = {rows: table_tokens(pd.read_parquet(path, columns=COLUMNS)) for rows, path in logs.items()}
    sampled = table_tokens(pd.read_parquet(sample))
    scaled = {case: [taken * tokens[rows] / sampled for taken in times[PEER]] for case, (rows, _) in cases.items()}
    return Answer(
        runs={**times, **{f"{PEER}, scaled, {case}": scaled[case] for case in cases}, **speeds(scaled, times)},
        lines=[speed_line(f"{case}, against {PEER}, scaled", times[case], scaled[case]) for case in cases],
        facts={"tokens": tokens, "sample_tokens": sampled, **peer_loads(scored)},
    )


def peer_loads(scored: Mapping[str, Sequence[Scored]]) -> dict[str, list[float]]:
    """Return the seconds that Evidently's scoring call spent on loading its model, which count for nothing."""
    return {"peer_load_seconds": [run.load_seconds for run in scored[PEER]]}


def speeds(peer: Runs, times: Runs) -> dict[str, list[float]]:
    """Return how many times as fast as the peer each run is, round by round."""
    return {f"{name}, times as fast": ratios(peer[name], times[name]) for name in peer}


def speed_line(what: str, ours: Sequence[float], peer: Sequence[float]) -> Line:
    return ratio_line(what, ours=ours, against=peer, ratio=ratios(peer, ours), unit="s", says="times as fast")


QUESTIONS = {"distinct": distinct, "log": log}

if __name__ == "__main__":
    main()

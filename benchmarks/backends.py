"""How many tokens a second does each backend and dtype read, and how far are its scores from torch float32?

Labelled traces in which no text repeats; each run is a process of its own that has scored one row before.
"""

import tempfile
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import get_args

from common import Line, Runs, in_turn, options, ratio_line, ratios, report
from scoring import available, gap_line, largest_gaps, score_with_ours, seconds, table_tokens, write_distinct

from rag_descriptors.models.embedder import Backend, DType

SIZES = {"rows": 200, "rounds": 3}
VARIANTS = {
    f"{backend} {dtype}": {"backend": backend, "dtype": dtype}
    for backend, dtype in product(get_args(Backend), get_args(DType))
}
BASE = "torch float32"


def main() -> None:
    arguments = options(__doc__, SIZES, variants=tuple(VARIANTS))
    variants = available({name: VARIANTS[name] for name in dict.fromkeys([BASE, *arguments.variants])})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "distinct.parquet"
        tokens = table_tokens(write_distinct(arguments.rows, path))
        scorers = {name: partial(score_with_ours, path, params) for name, params in variants.items()}
        scored = in_turn(scorers, arguments.rounds)
    speeds = {name: [tokens / taken for taken in times] for name, times in seconds(scored).items()}
    gaps = largest_gaps(scored, BASE)
    report(
        "backends",
        arguments,
        runs=speeds,
        lines=[speed_line(name, speeds) for name in speeds]
        + [gap_line(f"{name} against {BASE}", gaps[name]) for name in gaps],
        largest_score_difference=gaps,
        tokens=tokens,
    )


def speed_line(name: str, speeds: Runs) -> Line:
    ours, base = speeds[name], speeds[BASE]
    if name == BASE:
        return Line(what=BASE, ours=f"{median(base):.3g} tokens/s")
    what, ratio = f"{name} against {BASE}", ratios(ours, base)
    return ratio_line(what, ours=ours, against=base, ratio=ratio, unit="tokens/s", says="times as fast")


if __name__ == "__main__":
    main()

"""What workers do alike: warm up, do their work, and say how long that took."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd


def time_scoring(score: Callable[[pd.DataFrame], pd.DataFrame], loads: Sequence[float] = ()) -> None:
    """Score the table argv[1], write each context's score to argv[2], and print the seconds as JSON.

    `loads` grows by the seconds of each loading of a model; what is loaded while scoring is taken off.
    """
    table = pd.read_parquet(sys.argv[1])
    score(table.head(1))
    before = len(loads)
    start = time.perf_counter()
    scored = score(table)
    seconds = time.perf_counter() - start
    np.save(sys.argv[2], np.concatenate(scored["score scores"].to_list()))
    loading = sum(loads[before:])
    print(json.dumps({"seconds": seconds - loading, "load_seconds": loading}))


@contextmanager
def time_calls() -> Iterator[None]:
    """Print the seconds of a block, and those of this process' CPU, as JSON."""
    start, cpu = time.perf_counter(), time.process_time()
    yield
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds}))

"""What both scorers do: read a table, warm up on one row, score it, and say how long that took."""

import json
import sys
import time
from collections.abc import Callable, Sequence

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

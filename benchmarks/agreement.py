"""Does the score separate the contexts that people found relevant from the others?

Within each row that has both labels, the area under the ROC curve of the raw scores; then the mean over rows. Over the
first rows of each file, and over all rows by language.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from common import Line, options, read_traces, report
from sklearn.metrics import roc_auc_score

from rag_descriptors import ContextRelevance, add_descriptors

FILES = ("traces_hotpot", "traces_nq", "traces_xquad")
SIZES = {"first": 200, "limit": 1_000_000}
RELEVANCE = ContextRelevance("question", "contexts", alias="score", output_scores=True)


def main() -> None:
    arguments = options(__doc__, SIZES)
    rows = pd.concat([scored_rows(name, arguments.limit) for name in FILES], ignore_index=True)
    rows["auc"] = [auc(*pair) for pair in zip(rows["labels"], rows["score scores"], strict=True)]
    runs = {**by_file(rows, arguments.first), **by_language(rows)}
    report(
        "agreement",
        arguments,
        runs={name: [float(mean)] for name, (mean, _) in runs.items()},
        lines=[Line(what=f"AUC within a row, {name}", ours=f"{mean:.3f}") for name, (mean, _) in runs.items()],
        rows_with_both_labels={name: count for name, (_, count) in runs.items()},
    )


def scored_rows(name: str, limit: int) -> pd.DataFrame:
    """Return a file's rows with their scores; rows without a language are English."""
    traces = read_traces(name).head(limit)
    languages = traces.get("language", "en")
    return add_descriptors(traces, RELEVANCE).assign(file=name, language=languages, place=range(len(traces)))


def auc(labels: Sequence[int], scores: Sequence[float]) -> float:
    """Return the area under the curve of one row; nan if it has only one label."""
    return float(roc_auc_score(labels, scores)) if len(set(labels)) == 2 else np.nan


def by_file(rows: pd.DataFrame, first: int) -> dict[str, tuple[float, int]]:
    """Return mean and number of rows with both labels, over the first rows of each file."""
    groups = rows[rows["place"] < first].groupby("file")["auc"]
    return {f"{name}, first {first} rows": (group.mean(), int(group.count())) for name, group in groups}


def by_language(rows: pd.DataFrame) -> dict[str, tuple[float, int]]:
    """Return mean and number of rows with both labels, over all rows of each language."""
    groups = rows.groupby("language")["auc"]
    return {f"language {name}": (group.mean(), int(group.count())) for name, group in groups}


if __name__ == "__main__":
    main()

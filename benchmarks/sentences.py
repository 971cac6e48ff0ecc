"""Does the similarity of a sentence tell whether people found that it bears on the question, and from where on?

The threshold is chosen on the items at even places, by F1 over all their sentences, and reported on the others.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from common import Line, options, read_traces, report
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score

from rag_descriptors import ContextRelevance, add_descriptors

FILES = ("sentences_clapnq", "sentences_hotpot")
SIZES = {"limit": 1_000_000}
RELEVANCE = ContextRelevance("question", "sentences", alias="score", output_scores=True)
GRID = np.round(np.arange(0.5, 0.95, 0.01), 2)


def main() -> None:
    arguments = options(__doc__, SIZES)
    items = pd.concat([read_traces(name).head(arguments.limit).assign(file=name) for name in FILES], ignore_index=True)
    items = add_descriptors(items[["file", "question", "sentences", "labels"]], RELEVANCE)
    chosen_on, reported_on = (flat(items.iloc[start::2]) for start in (0, 1))
    best = max(GRID, key=lambda threshold: f1_score(chosen_on[0], chosen_on[1] >= threshold))
    figures = {f"AUC, {name}": auc(*flat(items[items["file"] == name])) for name in FILES}
    for kind, threshold in ((f"threshold {best:g}", best), ("all of them", 0.0)):
        figures |= {f"{name}, {kind}": value for name, value in measures(*reported_on, threshold)}
    report(
        "sentences",
        arguments,
        runs={name: [value] for name, value in figures.items()},
        lines=[Line(what=f"sentences that bear on a question: {name}", ours=f"{v:.3f}") for name, v in figures.items()],
    )


def flat(items: pd.DataFrame) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return labels and scores of all sentences."""
    return np.concatenate([*items["labels"]]), np.concatenate([*items["score scores"]])


def auc(labels: Sequence[int], scores: Sequence[float]) -> float:
    """Return the area under the curve over all sentences of a file."""
    return float(roc_auc_score(labels, scores))


def measures(
    labels: npt.NDArray[np.int64], scores: npt.NDArray[np.float64], threshold: float
) -> list[tuple[str, float]]:
    """Return how well a threshold tells the sentences apart."""
    found = scores >= threshold
    kinds = {"precision": precision_score, "recall": recall_score, "F1": f1_score}
    return [(name, float(measure(labels, found))) for name, measure in kinds.items()]


if __name__ == "__main__":
    main()

"""Score a table with Evidently: score_with_evidently.py TABLE SCORES.

Evidently loads its model at each call; how long that takes is measured apart, and nothing else is touched.
"""

import time
from typing import Any

import pandas as pd
import sentence_transformers
from evidently import DataDefinition, Dataset
from evidently.descriptors import ContextRelevance
from timing import time_scoring

load = sentence_transformers.SentenceTransformer
loads: list[float] = []


def timed_load(*args: Any, **kwargs: Any) -> Any:
    start = time.perf_counter()
    model = load(*args, **kwargs)
    loads.append(time.perf_counter() - start)
    return model


def score(table: pd.DataFrame) -> pd.DataFrame:
    relevance = ContextRelevance("question", "contexts", alias="score", output_scores=True)
    columns = DataDefinition(text_columns=["question"])
    return Dataset.from_pandas(table, data_definition=columns, descriptors=[relevance]).as_dataframe()


sentence_transformers.SentenceTransformer = timed_load
time_scoring(score, loads)

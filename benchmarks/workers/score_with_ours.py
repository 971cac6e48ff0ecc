"""Score a table with rag_descriptors, with no cache: score_with_ours.py TABLE SCORES METHOD_PARAMS."""

import json
import sys

import pandas as pd
from timing import time_scoring

from rag_descriptors import ContextRelevance, add_descriptors

relevance = ContextRelevance(
    "question", "contexts", method_params=json.loads(sys.argv[3]), alias="score", output_scores=True
)


def score(table: pd.DataFrame) -> pd.DataFrame:
    return add_descriptors(table, relevance, progress=False)


time_scoring(score)

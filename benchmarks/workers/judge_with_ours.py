"""Judge a table with rag_descriptors: judge_with_ours.py URL TABLE CACHE CONCURRENCY.

The first row warms up. Every row must get a score.
"""

import sys
from pathlib import Path

import pandas as pd
from timing import time_calls

from rag_descriptors import ContextRelevance, score_frame

url, table, cache, concurrency = sys.argv[1], pd.read_parquet(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
server = {"model": "judge", "provider": "openai", "api_base": url, "max_concurrency": concurrency}
relevance = ContextRelevance("question", "contexts", method="llm", method_params=server, output_scores=True)
score_frame(table.head(1), relevance, cache=cache, progress=False)
with time_calls():
    judged = score_frame(table.iloc[1:], relevance, cache=cache, progress=False)
if judged.frame[relevance.name].isna().any():
    sys.exit(f"rows without a score: {judged.summary.to_dict()}")

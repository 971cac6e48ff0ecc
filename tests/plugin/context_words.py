"""A descriptor of another package: how many words a row's contexts have."""

from dataclasses import dataclass
from math import inf

import pyarrow as pa

from rag_descriptors.schemas import score_field
from rag_descriptors.traces.columns import CONTEXTS


@dataclass(frozen=True)
class ContextWords:
    """How many words the contexts of a row have together; null without contexts."""

    contexts: str = "contexts"
    alias: str | None = None

    @property
    def name(self) -> str:
        return self.alias or f"Words of {self.contexts}"

    @property
    def inputs(self) -> pa.Schema:
        return pa.schema([(self.contexts, CONTEXTS)])

    @property
    def outputs(self) -> pa.Schema:
        return pa.schema([score_field(self.name, 0, inf, pa.int64())])

    def compute(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        rows = columns[self.contexts].to_pylist()
        words = [sum(len(text.split()) for text in row if text) if row else None for row in rows]
        return pa.record_batch([pa.array(words, pa.int64())], schema=self.outputs)

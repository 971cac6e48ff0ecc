"""Contracts that can be imported: what a trace table must hold, and what each output column may hold."""

from rag_descriptors.schemas.scores import (
    STATEMENTS,
    broken_columns,
    condition_field,
    entities_field,
    output_schema,
    reasons_field,
    score_field,
    scores_field,
    statements_field,
    status_field,
    text_field,
)
from rag_descriptors.schemas.traces import trace_schema

__all__ = [
    "STATEMENTS",
    "broken_columns",
    "condition_field",
    "entities_field",
    "output_schema",
    "reasons_field",
    "score_field",
    "scores_field",
    "statements_field",
    "status_field",
    "text_field",
    "trace_schema",
]

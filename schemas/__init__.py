"""Contracts that can be imported: what a trace table must hold, and what each output column may hold."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rag_descriptors.schemas.scores import (
    STATEMENTS,
    broken_columns,
    condition_field,
    entities_field,
    reasons_field,
    score_field,
    scores_field,
    statements_field,
    status_field,
    text_field,
)

if TYPE_CHECKING:
    from rag_descriptors.schemas.frames import output_schema
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

IN_PANDERA = {"output_schema": "frames", "trace_schema": "traces"}


def __getattr__(name: str) -> Any:
    """Import what is made of pandera, which takes longer to import than all else, when it is first asked for."""
    if name not in IN_PANDERA:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{IN_PANDERA[name]}"), name)

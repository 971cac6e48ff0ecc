"""The column names that trace logs use, by what stands in the column."""

from collections.abc import Sequence

__all__ = ["KNOWN_COLUMNS", "find_column"]

KNOWN_COLUMNS = {
    "question": ("question", "user_input", "input", "query", "prompt"),
    "contexts": ("contexts", "retrieved_contexts", "retrieval_context", "retrieved_docs", "documents", "context"),
}


def find_column(kind: str, columns: Sequence[str]) -> str | None:
    """Return the first known name for `kind`, a key of `KNOWN_COLUMNS`, among `columns`; None if there is none."""
    return next((name for name in KNOWN_COLUMNS[kind] if name in columns), None)

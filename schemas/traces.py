"""Trace tables: a question, the contexts retrieved for it, a response, a reference."""

import numpy as np
from pandera.pandas import Check, Column, DataFrameSchema

__all__ = ["trace_schema"]


def trace_schema(*, texts: tuple[str, ...] = ("question",), contexts: str = "contexts") -> DataFrameSchema:
    """Return the schema of a trace table; columns beyond these are welcome.

    `add_descriptors` reads far more than this schema allows (README, "What may stand in the columns"): it is the form
    to aim at when you write traces.

    Args:
        texts: The names of the text columns; a cell is a text or missing.
        contexts: The name of the contexts column; a cell is a list, tuple or array of texts, or missing.
    """
    columns = {name: Column(checks=_each("a text", str), nullable=True) for name in texts}
    return DataFrameSchema({**columns, contexts: Column(checks=_each_context("a list of texts"), nullable=True)})


def _each(name: str, *types: type) -> Check:
    return Check(lambda cell: isinstance(cell, types), element_wise=True, name=name, error=name)


def _each_context(name: str) -> Check:
    def holds(cell: object) -> bool:
        return isinstance(cell, list | tuple | np.ndarray) and all(isinstance(item, str | None) for item in cell)

    return Check(holds, element_wise=True, name=name, error=name)

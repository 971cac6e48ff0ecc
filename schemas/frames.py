"""Output columns in a DataFrame: the pandera column of each field."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
from pandera.pandas import Check, Column, DataFrameSchema

from rag_descriptors.schemas.scores import ENTITIES, STATEMENTS, limits

__all__ = ["output_schema"]


def output_schema(fields: pa.Schema) -> DataFrameSchema:
    """Return the pandera schema of a DataFrame that holds the columns `fields`."""
    return DataFrameSchema({field.name: _column(field) for field in fields}, ordered=True, strict=True)


def _column(field: pa.Field) -> Column:
    dtypes = {pa.float64(): "float64", pa.int64(): "Int64", pa.bool_(): "boolean"}
    return Column(dtypes.get(field.type), checks=_checks(field), nullable=field.nullable)


def _checks(field: pa.Field) -> list[Check]:
    low, high = limits(field)
    in_range = Check.in_range(low, high)
    checks = {
        pa.float64(): in_range,
        pa.int64(): in_range,
        pa.list_(pa.float64()): _each_list(
            f"a list of numbers from {low} to {high}", lambda item: not (item < low or item > high)
        ),
        pa.list_(pa.string()): _each_list("a list of texts", lambda item: item is None or isinstance(item, str)),
        STATEMENTS: _each_list("a list of statements", lambda item: isinstance(item, dict)),
        ENTITIES: _each(f"a dict of lists of texts: {', '.join(ENTITIES.names)}", _is_entities),
        pa.string(): _each("a text", lambda cell: isinstance(cell, str)),
    }
    return [checks[field.type]] if field.type in checks else []


def _is_entities(cell: Any) -> bool:
    if not isinstance(cell, dict) or list(cell) != ENTITIES.names:
        return False
    lists = [value for value in cell.values() if value is not None]
    return all(isinstance(value, list) and all(isinstance(item, str) for item in value) for value in lists)


def _each_list(name: str, holds: Callable[[Any], bool]) -> Check:
    return _each(name, lambda cell: isinstance(cell, list) and all(map(holds, cell)))


def _each(name: str, holds: Callable[[Any], bool]) -> Check:
    def check(cells: "pd.Series[Any]") -> "pd.Series[bool]":
        return cells.map(holds, na_action="ignore").fillna(True).astype(bool)

    return Check(check, name=name, error=name, ignore_na=True)

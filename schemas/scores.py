"""Output columns: each is declared once, as an Arrow field; its pandera column follows from the field.

| field | Arrow | pandas | missing |
|---|---|---|---|
| `score_field` | double, or int64 for hits | float64, or Int64 | nan, or NA |
| `scores_field` | list<double> | object cells of list[float] | None for a list, nan for an item |
| `reasons_field` | list<string> | object cells of list[str] | None |
| `text_field` | string | text | None |
| `statements_field` | list<struct> | object cells of list[dict] | None |
| `entities_field` | struct of four list<string> | object cells of dict[str, list[str]] | None, for a list too |
| `status_field` | string | text | never |
| `condition_field` | bool | boolean | NA |
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "ENTITIES",
    "STATEMENTS",
    "broken_columns",
    "condition_field",
    "entities_field",
    "limits",
    "reasons_field",
    "score_field",
    "scores_field",
    "statements_field",
    "status_field",
    "text_field",
]

RANGE = b"range"
FLOAT = pa.float64()
STATEMENTS = pa.list_(
    pa.struct([("context", pa.int64()), ("statement", pa.string()), ("verdict", pa.string()), ("reason", pa.string())])
)
ENTITIES = pa.struct([(name, pa.list_(pa.string())) for name in ("reference", "contexts", "found", "missing")])


def score_field(name: str, low: float = 0.0, high: float = 1.0, type: pa.DataType = FLOAT) -> pa.Field:
    """Return the field of a score between `low` and `high`, null where nothing could be scored."""
    return pa.field(name, type, metadata={RANGE: f"{low} {high}"})


def scores_field(name: str, low: float = 0.0, high: float = 1.0) -> pa.Field:
    """Return the field of one score per context."""
    return pa.field(name, pa.list_(pa.float64()), metadata={RANGE: f"{low} {high}"})


def reasons_field(name: str) -> pa.Field:
    """Return the field of one reason per context."""
    return pa.field(name, pa.list_(pa.string()))


def text_field(name: str) -> pa.Field:
    """Return the field of one reason per row."""
    return pa.field(name, pa.string())


def statements_field(name: str) -> pa.Field:
    """Return the field of the statements of a row's contexts, each with the place of its context and a verdict."""
    return pa.field(name, STATEMENTS)


def entities_field(name: str) -> pa.Field:
    """Return the field of a row's entities: the reference's, the contexts', those found and those missing."""
    return pa.field(name, ENTITIES)


def status_field(name: str) -> pa.Field:
    """Return the field that says what became of a row."""
    return pa.field(name, pa.string(), nullable=False)


def condition_field(name: str) -> pa.Field:
    """Return the field of a row test."""
    return pa.field(name, pa.bool_())


def limits(field: pa.Field) -> tuple[float, float]:
    """Return the lowest and the highest number that a column may hold."""
    low, high = map(float, (field.metadata or {}).get(RANGE, b"-inf inf").split())
    return low, high


def broken_columns(columns: pa.RecordBatch) -> list[str]:
    """Return what is wrong with computed columns that are Arrow: the checks of `output_schema`, without pandas."""
    return [
        problem
        for field, column in zip(columns.schema, columns.columns, strict=True)
        for problem in _broken(field, column)
    ]


def _broken(field: pa.Field, column: pa.Array) -> Iterator[str]:
    if not field.nullable and column.null_count:
        yield f"column {field.name!r} holds {column.null_count} nulls"
    values = column.flatten() if pa.types.is_list(column.type) else column
    if RANGE in (field.metadata or {}):
        low, high = limits(field)
        found = pc.min_max(values).as_py()
        worst = [value for value in found.values() if value is not None and (value < low or value > high)]
        if worst:
            yield f"column {field.name!r} holds {worst[0]}, which is not in [{low}, {high}]"

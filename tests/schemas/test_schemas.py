import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandera.errors import SchemaError, SchemaErrors

from rag_descriptors import schemas
from rag_descriptors.schemas import (
    broken_columns,
    condition_field,
    entities_field,
    output_schema,
    reasons_field,
    score_field,
    scores_field,
    status_field,
    trace_schema,
)

nan = float("nan")
ENTITIES = {"reference": ["a", "b"], "contexts": ["a"], "found": ["a"], "missing": ["b"]}
FIELDS = pa.schema(
    [
        score_field("cr"),
        score_field("hit", type=pa.int64()),
        scores_field("cr scores", -1.0),
        reasons_field("cr reasons"),
        entities_field("cr entities"),
        status_field("cr status"),
        condition_field("cr: equals 1"),
    ]
)


def outputs(**columns):
    good = {
        "cr": pd.Series([0.0, 1.0, nan]),
        "hit": pd.Series([0, 1, None], dtype="Int64"),
        "cr scores": pd.Series([[-1.0, 1.0, nan], [], None], dtype=object),
        "cr reasons": pd.Series([["r", None], [], None], dtype=object),
        "cr entities": pd.Series([ENTITIES, {**ENTITIES, "contexts": None}, None], dtype=object),
        "cr status": pd.Series(["ok", "ok", "no_contexts"]),
        "cr: equals 1": pd.Series([True, False, None], dtype="boolean"),
    }
    return pd.DataFrame({**good, **columns})


def test_good_columns_pass():
    output_schema(FIELDS).validate(outputs(), lazy=True)
    output_schema(FIELDS).validate(outputs().iloc[:0], lazy=True)


@pytest.mark.parametrize(
    ("name", "cells", "dtype"),
    [
        ("cr", [0.0, 1.1, nan], "float64"),
        ("cr", [-0.1, 1.0, nan], "float64"),
        ("cr", [0, 1, 1], "int64"),
        ("hit", [0, 2, None], "Int64"),
        ("hit", [0.0, 1.0, nan], "float64"),
        ("cr scores", [[-1.5], [], None], object),
        ("cr scores", [["a"], [], None], object),
        ("cr scores", [0.5, [], None], object),
        ("cr scores", [np.array([0.5]), [], None], object),
        ("cr reasons", [[1], [], None], object),
        ("cr reasons", ["r", [], None], object),
        ("cr entities", [{"reference": ["a"]}, None, None], object),
        ("cr entities", [{**ENTITIES, "found": "a"}, None, None], object),
        ("cr entities", [{**ENTITIES, "found": [None]}, None, None], object),
        ("cr entities", [["a"], None, None], object),
        ("cr status", ["ok", None, "ok"], object),
        ("cr status", ["ok", 1, "ok"], object),
        ("cr: equals 1", [True, False, True], "bool"),
    ],
)
def test_bad_columns_do_not(name, cells, dtype):
    with pytest.raises(SchemaErrors):
        output_schema(FIELDS).validate(outputs(**{name: pd.Series(cells, dtype=dtype)}), lazy=True)


ARROW = {
    "cr": [0.0, 1.0, nan],
    "hit": [0, 1, None],
    "cr scores": [[-1.0, 1.0, None, nan], [], None],
    "cr reasons": [["r", None], [], None],
    "cr entities": [ENTITIES, None, None],
    "cr status": ["ok", "ok", "no_contexts"],
    "cr: equals 1": [True, False, None],
}


def arrow(**columns):
    return pa.RecordBatch.from_pydict({**ARROW, **columns}, schema=FIELDS)


def test_good_arrow_columns_pass():
    assert broken_columns(arrow()) == []
    assert broken_columns(arrow().slice(0, 0)) == []
    assert broken_columns(arrow(cr=[None] * 3)) == []


@pytest.mark.parametrize(
    ("name", "cells", "problem"),
    [
        ("cr", [0.0, 1.1, None], "column 'cr' holds 1.1, which is not in [0.0, 1.0]"),
        ("cr", [-0.5, 1.0, nan], "column 'cr' holds -0.5, which is not in [0.0, 1.0]"),
        ("hit", [0, 2, None], "column 'hit' holds 2, which is not in [0.0, 1.0]"),
        ("cr scores", [[0.5], [-1.5], None], "column 'cr scores' holds -1.5, which is not in [-1.0, 1.0]"),
        ("cr status", ["ok", None, None], "column 'cr status' holds 2 nulls"),
    ],
)
def test_bad_arrow_columns_do_not(name, cells, problem):
    assert broken_columns(arrow(**{name: cells})) == [problem]
    assert broken_columns(arrow(**{name: cells}).slice(0, 0)) == []


def test_missing_and_further_columns():
    for table in (outputs().drop(columns="cr"), outputs(more=[1, 2, 3]), outputs()[["hit", "cr", *FIELDS.names[2:]]]):
        with pytest.raises(SchemaErrors):
            output_schema(FIELDS).validate(table, lazy=True)


def test_a_field_of_another_type_is_not_checked():
    fields = pa.schema([pa.field("found", pa.list_(pa.struct([("text", pa.string())])))])
    output_schema(fields).validate(pd.DataFrame({"found": pd.Series([[{"text": "a"}], None], dtype=object)}))


def test_fields_survive_arrow():
    assert score_field("cr", -1.0).metadata == {b"range": b"-1.0 1.0"}
    assert [field.type for field in FIELDS][:3] == [pa.float64(), pa.int64(), pa.list_(pa.float64())]
    assert not FIELDS.field("cr status").nullable


GOOD_CONTEXTS = [["a", None], ("a",), np.array(["a"], object), [], None]


def test_trace_tables():
    contexts = pd.Series(GOOD_CONTEXTS, dtype=object)
    table = pd.DataFrame({"question": ["q", "q", "q", None, nan], "contexts": contexts, "more": range(5)})
    trace_schema().validate(table)
    named = table.rename(columns={"question": "input", "contexts": "docs"}).assign(response="r")
    trace_schema(texts=("input", "response"), contexts="docs").validate(named)


def test_trace_tables_after_parquet(tmp_path):
    pd.DataFrame({"question": ["q", None], "contexts": [["a"], None]}).to_parquet(tmp_path / "t.parquet")
    trace_schema().validate(pd.read_parquet(tmp_path / "t.parquet"))


@pytest.mark.parametrize(
    ("question", "contexts"),
    [("q", "one text"), ("q", [1]), ("q", {"text": "a"}), ("q", [{"text": "a"}]), (1, ["a"]), (["q"], ["a"])],
)
def test_what_is_no_trace_table(question, contexts):
    table = pd.DataFrame({"question": pd.Series([question], dtype=object), "contexts": [contexts]})
    with pytest.raises(SchemaError, match=r"a text|a list of texts"):
        trace_schema().validate(table)


@pytest.mark.parametrize("column", ["question", "contexts"])
def test_a_trace_table_without_a_column(column):
    table = pd.DataFrame({"question": ["q"], "contexts": [["a"]]}).drop(columns=column)
    with pytest.raises(SchemaError, match=f"'{column}' not in dataframe"):
        trace_schema().validate(table)


def test_a_name_that_no_schema_has():
    with pytest.raises(AttributeError, match=r"module 'rag_descriptors\.schemas' has no attribute 'trace_schemas'"):
        schemas.trace_schemas  # noqa: B018 - to look it up is the test

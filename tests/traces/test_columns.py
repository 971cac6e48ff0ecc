import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_descriptors.errors import CellError
from rag_descriptors.traces import columns
from rag_descriptors.traces.columns import CONTEXTS, TEXT, to_column
from rag_descriptors.traces.contexts import parse_contexts, parse_text

TEXTS = ["N", None, "", " ", "E"]
LISTS = [["N", " ", None], None, [], ["E"]]
DOCUMENT = pa.struct([("page_content", pa.string()), ("score", pa.float64())])

TEXT_COLUMNS = {
    "objects": TEXTS,
    "nulls of all kinds": ["N", np.nan, pd.NA, pd.NaT, "E"],
    "bytes": [b"N", None, b"", b" ", "E"],
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "binary": pa.array([b"N", None, b"", b" ", b"E"]),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary of large strings": pa.array(TEXTS, pa.large_string()).dictionary_encode(),
    "chunks": pa.chunked_array([TEXTS[:2], TEXTS[2:]]),
    "chunks of dictionaries": pa.chunked_array([TEXTS[:2], TEXTS[2:]]).dictionary_encode(),
    "slice": pa.array(["cut", *TEXTS, "cut"])[1:-1],
}


def test_more_text_than_arrow_holds(monkeypatch):
    monkeypatch.setattr(columns, "_parse_each", lambda *_: pa.chunked_array([["a"], ["b"]]))
    with pytest.raises(pa.ArrowCapacityError, match="2 cells hold more than 2 GiB of text"):
        to_column(["a", 5], pa.field("q", TEXT))


@pytest.mark.parametrize("cells", TEXT_COLUMNS.values(), ids=TEXT_COLUMNS.keys())
def test_texts(cells):
    column = to_column(cells, pa.field("q", TEXT))
    assert column.type == TEXT
    assert column.to_pylist() == ["N", None, None, None, "E"]


CONTEXT_COLUMNS = {
    "objects": LISTS,
    "arrays and tuples": [np.array(LISTS[0], object), np.nan, (), np.array(["E"])],
    "json": ['["N", " ", null]', "null", "[]", "E"],
    "mixed": [LISTS[0], pd.NA, np.array([]), '["E"]'],
    "documents": [[{"text": "N"}, " ", None], None, [], {"text": "E"}],
    "list": pa.array(LISTS),
    "large_list": pa.array(LISTS, pa.large_list(pa.large_string())),
    "list_view": pa.array(LISTS, pa.list_view(pa.string())),
    "list of dictionaries": pa.array(LISTS, pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "list of string views": pa.array(LISTS, pa.list_(pa.string_view())),
    "list of structs": pa.array(
        [[{"page_content": "N"}, {"page_content": " "}, None], None, [], [{"page_content": "E"}]], pa.list_(DOCUMENT)
    ),
    "json strings": pa.array(['["N", " ", null]', None, "[]", "E"], pa.large_string()),
    "dictionary of json": pa.array(['["N", " ", null]', None, "[]", "E"]).dictionary_encode(),
    "chunks": pa.chunked_array([LISTS[:1], LISTS[1:]], CONTEXTS),
    "slice": pa.array([["cut"], *LISTS, ["cut"]])[1:-1],
    "slice of json": pa.array(["cut", '["N", " ", null]', None, "[]", "E"])[1:],
}


@pytest.mark.parametrize("cells", CONTEXT_COLUMNS.values(), ids=CONTEXT_COLUMNS.keys())
def test_contexts(cells):
    column = to_column(cells, pa.field("c", CONTEXTS))
    assert column.type == CONTEXTS
    assert column.to_pylist() == [["N", None, None], None, [], ["E"]]


def test_lists_of_one_length():
    column = to_column(pa.array([["N", "E"], None], pa.list_(pa.string(), 2)), pa.field("c", CONTEXTS))
    assert column.to_pylist() == [["N", "E"], None]


def test_structs_are_documents():
    cells = pa.array([{"page_content": "N"}, None, {"page_content": None}], DOCUMENT)
    assert to_column(cells, pa.field("c", CONTEXTS)).to_pylist() == [["N"], None, [None]]


@pytest.mark.parametrize("kind", [TEXT, CONTEXTS, pa.int64()])
@pytest.mark.parametrize("cells", [[None, None], pa.nulls(2), pa.array([None, None], pa.string())])
def test_only_nulls(kind, cells):
    column = to_column(cells, pa.field("x", kind))
    assert (column.type, column.to_pylist()) == (kind, [None, None])


@pytest.mark.parametrize("kind", [TEXT, CONTEXTS])
@pytest.mark.parametrize("cells", [[], pa.array([], pa.string()), pa.chunked_array([], pa.string())])
def test_no_rows(kind, cells):
    column = to_column(cells, pa.field("x", kind))
    assert (column.type, len(column)) == (kind, 0)


SURROGATES = ["\ud800", "a\udfff", "\ud83d\ude00", "a\0b"]
CLEANED = ["\ufffd", "a\ufffd", "😀", "a\0b"]


def test_surrogates():
    assert to_column(SURROGATES, pa.field("q", TEXT)).to_pylist() == CLEANED
    assert to_column([SURROGATES], pa.field("c", CONTEXTS)).to_pylist() == [CLEANED]


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        ([1, None], pa.float64(), [1.0, None]),
        (pa.array([1, 2]), pa.int32(), [1, 2]),
        (pa.array(["7"]), pa.int64(), [7]),
        (pa.array(["a"]).dictionary_encode(), pa.large_string(), ["a"]),
    ],
)
def test_other_types_are_cast(cells, kind, expected):
    column = to_column(cells, pa.field("x", kind))
    assert (column.type, column.to_pylist()) == (kind, expected)


@pytest.mark.parametrize("cells", [["a"], [2**70], [object()], pa.array(["a"]), pa.array([[1]])])
def test_other_types_that_cannot_be_cast(cells):
    with pytest.raises(CellError, match="column 'x' can't be read as int64: "):
        to_column(cells, pa.field("x", pa.int64()))


def test_the_message_names_column_rows_and_the_way_out():
    with pytest.raises(CellError) as caught:
        to_column([1, "N", 2, 3, 4, 5], pa.field("q", TEXT), "line {}".format)
    assert str(caught.value).splitlines() == [
        "column 'q' can't be read:",
        *(
            f'  line {row}: found int {cell} where a text is expected. Convert the column with .astype("string").'
            for row, cell in ((0, 1), (2, 2), (3, 3))
        ),
        "  and 2 more of 6 rows",
    ]


def test_rows_are_called_by_position_unless_named():
    with pytest.raises(CellError, match="row 1: found int 3"):
        to_column(pa.array([None, 3]), pa.field("c", CONTEXTS))


CELLS = st.none() | st.text() | st.text(st.characters(categories=["Cs", "Zs", "Cc"]))


@settings(deadline=None)
@given(st.lists(CELLS))
def test_columns_and_cells_agree_on_texts(cells):
    assert to_column(cells, pa.field("q", TEXT)).to_pylist() == [parse_text(cell) for cell in cells]


@settings(deadline=None)
@given(st.lists(st.none() | st.lists(CELLS)))
def test_columns_and_cells_agree_on_lists(cells):
    assert to_column(cells, pa.field("c", CONTEXTS)).to_pylist() == [parse_contexts(cell) for cell in cells]

"""Files of every format and in every state, as rows."""

import json
from contextlib import closing
from itertools import islice
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from rag_descriptors.errors import FormatError
from rag_descriptors.traces import formats, json_rows
from rag_descriptors.traces.readers import is_mixed, open_traces, parse_mixed

MANY = formats.ROWS_AT_ONCE + 1
OBJECTS = [{"x": 1, "y": "z"}, None, {"y": "w", "x": None}]


def rows(*inputs, limit=None):
    return [row for batch in open_traces(inputs).batches(limit) for row in batch.to_pylist()]


def jsonl(*cells):
    return "\n".join(json.dumps({"a": cell}) for cell in cells)


# --- JSON


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        (b'\xef\xbb\xbf{"a": 1}\n', [{"a": 1}]),
        (b'\xef\xbb\xbf\n{"a": 1}', [{"a": 1}]),
        (b'\n  \n{"a": 1}\r\n\r\n{"a": 2}', [{"a": 1}, {"a": 2}]),
        (b'[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        (b'\xef\xbb\xbf [\n  {"a": 1},\n  {"a": 2}\n]\n', [{"a": 1}, {"a": 2}]),
        (b'\n\n[{"a": 1}]\n\n', [{"a": 1}]),
        (b'{"a": "x\\u2028y\\u0085z"}', [{"a": "x\u2028y\x85z"}]),
        ('{"a": "x\u2028y"}\n{"a": "z"}'.encode(), [{"a": "x\u2028y"}, {"a": "z"}]),
        (b'{"a": 1}\n{"b": 2}', [{"a": 1, "b": None}, {"a": None, "b": 2}]),
        (b'{"a": NaN, "b": 1}', [{"a": pytest.approx(float("nan"), nan_ok=True), "b": 1}]),
        (b"", []),
        (b"\n", []),
        (b"[]", []),
    ],
)
@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_json_lines_and_arrays(file, ending, content, expected):
    assert rows(file(f"t.{ending}", content)) == expected


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'{"a": 1}\n{"a": \n{"a": 3}', "line 2: no JSON"),
        (b'{"a": 1}\n\nnot json', "line 3: no JSON"),
        (b'{"a": 1}\n[1, 2]', "line 2: found a list where an object"),
        (b'"text"', "line 1: found a str where an object"),
        (b'{"a": "\xff"}', "line 1: no JSON"),
        (b'{\n  "a": 1\n}', "line 1: no JSON"),  # one object is for .json
        (b'[{"a": 1}, 5]', "item 1: found a int where an object"),
        (b'[{"a": 1}', "item 1: no JSON: Expecting value"),
        (b"[", "item 0: no JSON"),
        (b'[{"a": 1},]', "item 1: no JSON"),
        (b'[,{"a": 1}]', "item 0: no JSON"),
        (b'[{"a": 1} {"a": 2}]', "item 1: no JSON"),
        (b'[{"a": 1}, {"a" 2}, {"a": 3}]', "item 1: no JSON: Expecting ':' delimiter. One object"),
        (b'[{"a": 1}, {"a": "\xff"}]', "item 0, or one behind it: no JSON: 'utf-8' codec"),
        (b"[" * 100_000 + b"]" * 100_000, "item 0: no JSON"),
        (b'[{"a": 1}]\n{"a": 2}', "after the array: no JSON: Extra data"),
        (b'[{"a": 1}]]', "after the array: no JSON: Extra data"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line 1: no JSON"),
    ],
)
def test_a_bad_line_is_named(file, content, place):
    path = file("bad.jsonl", content)
    with pytest.raises(FormatError) as error:
        open_traces([path])
    assert str(error.value).startswith(f"{path}, {place}")


ARRAYS = [
    [],
    [{}],
    [{"a": 12, "b": [-0.5, 1e300, True, None]}, {"a": "]},{", "b": {"c": []}}],
    [{"a": '\\"é\u2028😀'}, {"a": " \\ "}, {"long": "x" * 500}, {"a": 1}],
]


@pytest.mark.parametrize("values", ARRAYS, ids=range(len(ARRAYS)))
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("chars", [1, 2, 3, 7, 64])
def test_arrays_are_read_piece_by_piece(file, monkeypatch, values, indent, chars):
    monkeypatch.setattr(json_rows, "ARRAY_CHARS", chars)
    for is_ascii in (True, False):
        path = file("t.json", f" {json.dumps(values, indent=indent, ensure_ascii=is_ascii)} \r\n")
        assert list(formats.JSON.rows(Path(path))) == values


@pytest.mark.parametrize("chars", [1, 2, 3, 1000])
def test_lone_surrogates_in_pieces_of_arrays(file, monkeypatch, chars):
    monkeypatch.setattr(json_rows, "ARRAY_CHARS", chars)
    path = file("t.json", b'[{"a": "x\xed\xa0\x80y"}, {"a": "\\udc00"}, {"a": "\\ud83d\\ude00"}]')
    assert list(formats.JSON.rows(Path(path))) == [{"a": "x�y"}, {"a": "�"}, {"a": "😀"}]


def test_an_array_is_not_read_whole(file):
    """What is wrong far behind the first items is not met with them."""
    items = ",".join([json.dumps({"a": "x" * 1000})] * 3000)
    with closing(formats.JSON.rows(Path(file("t.json", f"[{items}, not json")))) as found:
        assert list(islice(found, 2000)) == [{"a": "x" * 1000}] * 2000
        with pytest.raises(FormatError, match=r"t\.json, item 3000: no JSON"):
            list(found)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{\n  "a": 1\n}\n', [{"a": 1}]),
        (b'\xef\xbb\xbf\n{"a":\n1}', [{"a": 1}]),
        (b'{"a": [\n1, 2]}', [{"a": [1, 2]}]),
        (b'{"a": 1}\n{"a": 2}', [{"a": 1}, {"a": 2}]),
    ],
)
def test_one_object_over_many_lines(file, content, expected):
    assert rows(file("t.json", content)) == expected


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'{\n  "a": 1\n', "the object: no JSON"),
        (b'{"a": 1\n{"a": 2}', "the object: no JSON"),
        (b'{"a": 1}\n{"a": \n', "line 2: no JSON"),
        (b'"a', "line 1: no JSON"),
    ],
)
def test_a_bad_object_is_named(file, content, place):
    path = file("bad.json", content)
    with pytest.raises(FormatError) as error:
        open_traces([path])
    assert str(error.value).startswith(f"{path}, {place}")


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        ([1, None, 2], "int64", [1, None, 2]),
        ([1, 0.5], "double", [1.0, 0.5]),
        ([None, None], "null", [None, None]),
        ([True, None], "bool", [True, None]),
        ([["x"], [], None, [None]], "list<item: string>", [["x"], [], None, [None]]),
        ([[], []], "list<item: null>", [[], []]),
        (OBJECTS, "struct<x: int64, y: string>", OBJECTS),
        (
            [[{"x": 1}, None], [], None, [{"x": 2}]],
            "list<item: struct<x: int64>>",
            [[{"x": 1}, None], [], None, [{"x": 2}]],
        ),
        ([{"x": 1}, {"y": ["z"]}], "string", ['{"x": 1}', '{"y": ["z"]}']),  # objects with other keys: JSON
        ([{"x": 1}, {"x": 1, "y": None}], "string", ['{"x": 1}', '{"x": 1, "y": null}']),
        ([[{"x": {"y": 1}}], [{"x": {"z": 1}}]], "string", ['[{"x": {"y": 1}}]', '[{"x": {"z": 1}}]']),
        ([{"x": [{"y": 1}]}, {"x": [{}]}], "string", ['{"x": [{"y": 1}]}', '{"x": [{}]}']),
        ([["x"], "y", None], "string", ['["x"]', '"y"', None]),  # several kinds: JSON
        (['["x"]', ["ü"]], "string", [r'"[\"x\"]"', '["ü"]']),
        ([1, "x"], "string", ["1", '"x"']),
        ([{"x": 1}, {"x": "y"}], "string", ['{"x": 1}', '{"x": "y"}']),
        ([{}, {}], "string", ["{}", "{}"]),
        ([{"x": {}}, None], "string", ['{"x": {}}', None]),
        ([[{}]], "string", ["[{}]"]),
        ([2**63, 1], "string", [str(2**63), "1"]),
        ([10**40], "string", [str(10**40)]),
        ([2**63 - 1, -(2**63)], "int64", [2**63 - 1, -(2**63)]),
    ],
)
@pytest.mark.parametrize("is_far", [False, True], ids=["near", "far"])
def test_a_column_has_one_type(file, is_far, cells, kind, expected):
    """The same type whether its values stand together or too far apart to be read at once."""
    fill = [None] * (MANY if is_far else 0)
    path = file("t.jsonl", jsonl(*cells[:1], *fill, *cells[1:]))
    assert str(open_traces([path]).schema.field("a").type) == kind
    found = [row["a"] for row in rows(path)]
    assert found == [*expected[:1], *fill, *expected[1:]]


def test_values_of_several_kinds_come_back(file):
    values = [["x"], "y", 5, None, {"a": {}}, "[1]", 2**70]
    path = file("t.jsonl", jsonl(*values))
    (batch,) = open_traces([path]).batches()
    assert is_mixed(batch.schema.field("a"))
    assert parse_mixed(batch["a"]) == values


def test_cells_that_are_held_as_json_are_strict(file, arrow):
    inputs = [
        file("1.jsonl", '{"a": NaN}\n{"a": [1, Infinity]}\n{"a": {"x": 1e400, "y": 0.5}}'),
        arrow("2.parquet", a=[[0.5, float("nan")]]),
    ]
    assert [row["a"] for row in rows(*inputs)] == [None, "[1, null]", '{"x": null, "y": 0.5}', "[0.5, null]"]


def test_what_the_system_says_stays_as_it_is():
    with pytest.raises(OSError, match="torn out") as raised, formats.told(Path("t.csv")):
        raise OSError(5, "torn out", "t.csv")
    assert (raised.value.errno, raised.value.filename) == (5, "t.csv")


def test_a_text_among_them_that_is_no_json_is_itself():
    assert parse_mixed(pa.array(["{", None])) == ["{", None]


def test_numbers_that_no_type_holds_together_are_one_clear_error(file):
    path = file("t.jsonl", jsonl(2**53 + 1, *[None] * MANY, 0.5))
    with pytest.raises(FormatError, match=r"t\.jsonl can't be read as \.jsonl: Integer value 9007199254740993"):
        rows(path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (r'{"a": "x\ud800y"}', {"a": "x�y"}),
        (r'{"a": "x\uDFFFy"}', {"a": "x�y"}),
        (r'{"a": "\ud83d\ude00"}', {"a": "😀"}),
        (r'{"\udc00": 1}', {"�": 1}),
        (r'{"a": {"\udc00": "\udc00"}}', {"a": {"�": "�"}}),
        (r'{"a": ["\udc00", 1]}', {"a": '["�", 1]'}),
        (b'{"a": "x\xed\xa0\x80y"}', {"a": "x�y"}),
        (r'{"a": "\\ud800"}', {"a": r"\ud800"}),  # an escaped backslash: no surrogate
    ],
)
def test_lone_surrogates_become_the_replacement_character(file, line, expected):
    assert rows(file("t.jsonl", line)) == [expected]


def test_columns_may_appear_late_and_values_stay_where_they_are(file):
    lines = [json.dumps({"n": n, **({"late": f"t{n}"} if n == MANY else {})}) for n in range(MANY + 1)]
    found = rows(file("t.jsonl", "\n".join(lines)))
    assert [row["n"] for row in found] == list(range(MANY + 1))
    assert [row["late"] for row in found] == [None] * MANY + [f"t{MANY}"]


def test_objects_come_back_with_the_keys_they_had(file):
    values = [{"x": 1}, [{"text": "t", "meta": {"n": 1}}, {"text": "u", "meta": {}}], *[None] * MANY, {"y": {"z": "w"}}]
    batches = list(open_traces([file("t.jsonl", jsonl(*values))]).batches())
    assert [value for batch in batches for value in parse_mixed(batch["a"])] == values


def test_objects_of_two_files_come_back_with_the_keys_they_had(file, arrow):
    inputs = [
        file("1.jsonl", jsonl([{"text": "t"}])),
        file("2.jsonl", jsonl([{"text": "u", "id": 1}], [{"text": "v", "id": 2}])),
        arrow("3.parquet", a=[[{"text": "w"}], None]),
    ]
    (first, second, third) = open_traces(inputs).batches()
    assert is_mixed(third.schema.field("a"))
    assert [parse_mixed(batch["a"]) for batch in (first, second, third)] == [
        [[{"text": "t"}]],
        [[{"text": "u", "id": 1}], [{"text": "v", "id": 2}]],
        [[{"text": "w"}], None],
    ]


def test_a_file_without_a_value_hides_no_other_keys(file):
    inputs = [file(f"{n}.jsonl", jsonl(*cells)) for n, cells in enumerate([[None], [{"x": 1}], [{"y": 1}]])]
    assert rows(*inputs) == [{"a": None}, {"a": '{"x": 1}'}, {"a": '{"y": 1}'}]


def test_columns_of_tables_take_the_keys_of_all(arrow):
    inputs = [arrow("1.parquet", a=[{"x": 1}]), arrow("2.parquet", a=[{"x": 2, "y": "z"}])]
    assert rows(*inputs) == [{"a": {"x": 1, "y": None}}, {"a": {"x": 2, "y": "z"}}]


# --- CSV


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('a,b\n1,"x, y"\n', [{"a": "1", "b": "x, y"}]),
        ('a,b\r\n"x\r\ny","say ""hi"""\r\n', [{"a": "x\r\ny", "b": 'say "hi"'}]),
        ("\ufeffa,b\n1,2", [{"a": "1", "b": "2"}]),
        ("a,b\n,NA\n", [{"a": "", "b": "NA"}]),
        ('a\n"[""x|y"", ""z""]"\n', [{"a": '["x|y", "z"]'}]),
        ("a,b\n007,1e3\n", [{"a": "007", "b": "1e3"}]),
        ("a,b\n", []),
        ('a,b\r"x\ry",2\r3,4', [{"a": "x\ry", "b": "2"}, {"a": "3", "b": "4"}]),  # Excel's "CSV (Macintosh)"
        ("a" * 140_000 + "\n1\n", [{"a" * 140_000: "1"}]),
    ],
    ids=range(9),
)
def test_csv_cells_are_texts(file, content, expected):
    path = file("t.csv", content)
    assert rows(path) == expected
    assert set(open_traces([path]).schema.types) == {pa.string()}


@pytest.mark.parametrize(
    ("content", "n"),
    [
        ('a\n"x\ny\nz\n', 6),
        ('a\n"x', 1),
        ('a\n"', 0),
        ('a,b\r1,"x\r2,3\r', 6),
        ('a,b\n1,"', 0),
        ('a,b\n1,"\n', 1),
        ('a,b\r\n1,"x\r\n2,3\r\n', 8),
        ('a,b\n1,"x""y\n', 4),
        ('a,b\n1,"""\n', 2),
        ('a,b\n1,x\n2,"é\n3,y\n', 6),
    ],
)
def test_a_quote_that_is_never_closed_is_an_error(file, content, n):
    path = file("t.csv", content)
    with pytest.raises(
        FormatError, match=rf"t\.csv, the last row: a quote opens a cell of {n} characters and is never"
    ):
        rows(path)


@pytest.mark.parametrize(
    ("content", "last"),
    [
        ('a\n"x\ny"', "x\ny"),
        ('a\n""', ""),
        ('a,b\n1,""""', '"'),
        ('a,b\n1,""""""\n', '""'),
        ('a,b\n1,x"', 'x"'),
        ('a,b\n1,2"3"\n', '2"3"'),
        ('a,b\n1,"x"y', "xy"),
        ('a,b\n1,", """', ', "'),
        ('a,"b"\n1,x\n', "x"),
    ],
)
def test_quotes_that_are_closed(file, content, last):
    assert list(rows(file("t.csv", content))[-1].values())[-1] == last


@pytest.mark.parametrize("n", [1, 3])
def test_a_wide_cell_is_read(file, n):
    wide = "ab\n" * 400_000 * n
    assert rows(file("t.csv", f'a,b\n"{wide}",1\n')) == [{"a": wide, "b": "1"}]


@pytest.mark.parametrize("place", [5, 60_000, 119_999])
def test_the_type_of_a_csv_column_does_not_hang_on_its_first_cells(file, place):
    cells = ["1"] * 120_000
    cells[place] = "text"
    assert [row["a"] for row in rows(file("t.csv", "a\n" + "\n".join(cells)))] == cells


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.csv", b"", "Empty CSV"),
        ("t.csv", b'a,"b\n1,2\n', "Empty CSV"),  # a quote of the first line that is never closed
        ("t.csv", b"a,b", "Empty CSV"),  # Arrow wants the line of names to end
        ("t.csv", b"a,b\n1,2,3\n", "row 0: 3 cells where the header has 2. Quote cells"),
        ("t.csv", b'a,b\n1,2\n"3\n4",5\n6\n', "row 2: 1 cells where the header has 2"),
        (
            "t.csv",
            "a\né\n".encode("latin-1"),
            "t.csv is no UTF-8. Save it as CSV UTF-8, or convert it: iconv -f WINDOWS-1252 -t UTF-8 t.csv > utf8",
        ),
        ("t.csv", b"a,b\r1,2\r3\r", "row 1: 1 cells where the header has 2"),
        ("t.csv", b"a;b\r1;2\r", "one name, 'a;b'. Columns stand between commas"),
        ("t.csv", "é\na\n".encode("latin-1"), "t.csv is no UTF-8"),
        (
            "t.csv",
            "a,b\né,c\n".encode("utf-16"),
            "t.csv is UTF-16. Save it as CSV UTF-8, or convert it: iconv -f UTF-16",
        ),
        ("t.csv", "a,b\né,c\n".encode("utf-16-be").replace(b"\0a", b"\xfe\xff\0a", 1), "t.csv is UTF-16"),
        ("t.csv", b"\xef\xbb\xbfa;b\n1,5;2\n", "one name, 'a;b'. Columns stand between commas, not between ';': save"),
        ("t.csv", b"a b\tc\nd\te", r"not between '\t'"),
        ("t.csv", b"a|b\nd|e", "not between '|'"),
        ("t.parquet", b"", "t.parquet can't be read as .parquet"),
        ("t.parquet", b'{"a": 1}', "t.parquet can't be read as .parquet"),
        ("t.parquet", b"PAR1" + b"x" * 100 + b"PAR1", "t.parquet can't be read as .parquet"),
        ("t.arrow", b"", "t.arrow can't be read as .arrow"),
        ("t.arrow", b"a,b\n1,2\n", "t.arrow can't be read as .arrow"),
        ("t.feather", b"ARROW1\0\0" + b"x" * 100 + b"ARROW1", "t.feather can't be read as .feather"),
    ],
)
def test_a_file_that_is_not_what_its_ending_says(file, name, content, says):
    path = file(name, content)
    with pytest.raises(FormatError) as error:
        rows(path)
    assert path in str(error.value)
    assert says in str(error.value)


def test_of_parquet_no_more_is_held_than_a_row_group(tmp_path):
    path, n_groups = tmp_path / "t.parquet", 40
    schema = pa.schema([("a", pa.list_(pa.string()))])
    with pa.parquet.ParquetWriter(path, schema) as writer:
        for group in range(n_groups):
            cells = [[f"{group} {row} {'x' * 1000}"] for row in range(200)]
            writer.write_batch(pa.record_batch([pa.array(cells)], schema=schema))
    held = [pa.total_allocated_bytes() for _ in open_traces([str(path)]).batches()]
    assert len(held) == n_groups
    assert max(held) - held[0] < 1_000_000  # of the 8 MB in the file


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_damage_inside_a_file_names_it(arrow, name):
    path = Path(arrow(name, a=[f"text {n}" for n in range(2000)]))
    content = bytearray(path.read_bytes())
    content[200:3000] = b"\xff" * 2800
    path.write_bytes(bytes(content))
    with pytest.raises(FormatError, match=name):
        rows(str(path))


# --- Parquet and Arrow


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.feather"])
def test_tables_keep_their_types(arrow, name):
    columns = {
        "texts": pa.array([["x"], [], None]),
        "documents": pa.array([[{"text": "x", "score": 0.5}], None, []]),
        "large": pa.array(["x", None, "y"], pa.large_string()),
        "category": pa.array(["x", None, "x"]).dictionary_encode(),
        "time": pa.array([1, None, 2], pa.timestamp("ns", "UTC")),
        "binary": pa.array([b"\xff", None, b""]),
        "nothing": pa.nulls(3),
    }
    traces = open_traces([arrow(name, **columns)])
    read = pa.Table.from_batches(traces.batches())
    assert read.to_pydict() == {kind: column.to_pylist() for kind, column in columns.items()}
    assert [read.schema.field(kind).type for kind in ("large", "time")] == [
        pa.large_string(),
        pa.timestamp("ns", "UTC"),
    ]


def test_an_arrow_stream_and_compressed_feather(tmp_path):
    table = pa.table({"a": list(range(MANY))})
    with pa.ipc.new_stream(tmp_path / "s.arrow", table.schema) as writer:
        writer.write_table(table)
    pa.feather.write_feather(table, tmp_path / "f.feather", compression="zstd")
    for name in ("s.arrow", "f.feather"):
        batches = list(open_traces([str(tmp_path / name)]).batches())
        assert [batch.num_rows for batch in batches] == [formats.ROWS_AT_ONCE, 1]
        assert pa.Table.from_batches(batches).to_pydict() == table.to_pydict()


def test_what_pandas_writes_is_read(tmp_path):
    frame = pd.DataFrame({"a": ["x", None], "n": [1.5, float("nan")]}, index=[7, 3])
    frame.to_parquet(tmp_path / "t.parquet")
    assert rows(str(tmp_path / "t.parquet")) == [
        {"a": "x", "n": 1.5, "__index_level_0__": 7},
        {"a": None, "n": None, "__index_level_0__": 3},
    ]

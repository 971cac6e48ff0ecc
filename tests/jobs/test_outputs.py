"""Every Arrow type in every format, and what becomes of an output that can't be written."""

import datetime as dt
import json
import subprocess
import sys
from contextlib import contextmanager, suppress
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from rag_descriptors.errors import FormatError, OptionError
from rag_descriptors.jobs import outputs
from rag_descriptors.jobs.outputs import WRITERS, check_places, n_bytes, open_output
from rag_descriptors.jobs.places import check_place
from rag_descriptors.traces.readers import open_traces

ENDINGS = ["parquet", "arrow", "feather", "jsonl", "json", "csv"]
FLAT = pa.array(["x", "y", None])
DAY = dt.datetime(2024, 1, 2, 3, 4, 5)
BYTES = pa.array([b"\xc3\xa9", b"\xff", None])


def written(path, *tables):
    """Write the batches of tables of one schema, and return what a reader finds."""
    with open_output(path, tables[0].schema) as write:
        for table in tables:
            for batch in table.to_batches():
                write(batch)
    return [row for batch in open_traces([str(path)]).batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("column", "in_json", "in_csv"),
    [
        (FLAT, ["x", "y", None], ["x", "y", ""]),
        (FLAT.cast(pa.large_string()), ["x", "y", None], ["x", "y", ""]),
        (FLAT.cast(pa.string_view()), ["x", "y", None], ["x", "y", ""]),
        (FLAT.dictionary_encode(), ["x", "y", None], ["x", "y", ""]),
        (pa.array(['a "b", c', "d\ne", " f "]), ['a "b", c', "d\ne", " f "], ['a "b", c', "d\ne", " f "]),
        (pa.array([1, -(2**63), None]), [1, -(2**63), None], ["1", str(-(2**63)), ""]),
        (pa.array([1, 2, None], pa.uint8()), [1, 2, None], ["1", "2", ""]),
        (pa.array([0.5, float("nan"), None]), [0.5, None, None], ["0.5", "nan", ""]),
        (pa.array([0.5, float("inf"), None], pa.float32()), [0.5, None, None], ["0.5", "inf", ""]),
        (pa.array([np.float16(0.5), np.float16("nan"), None], pa.float16()), [0.5, None, None], ["0.5", "nan", ""]),
        (pa.array([True, False, None]), [True, False, None], ["true", "false", ""]),
        (pa.nulls(3), [None, None, None], ["", "", ""]),
        (pa.array([Decimal("1.50"), None, Decimal("2.25")]), ["1.50", None, "2.25"], ["1.50", "", "2.25"]),
        (pa.array([DAY, None, DAY], pa.timestamp("s")), [str(DAY), None, str(DAY)], [str(DAY), "", str(DAY)]),
        (pa.array([DAY.date()] * 3), ["2024-01-02"] * 3, ["2024-01-02"] * 3),
        (pa.array([DAY.time()] * 3, pa.time32("s")), ["03:04:05"] * 3, ["03:04:05"] * 3),
        (pa.array([dt.timedelta(1)] * 3, pa.duration("s")), ["1 day, 0:00:00"] * 3, ["86400"] * 3),
        (BYTES, ["é", "�", None], ["é", "�", ""]),
        (BYTES.cast(pa.large_binary()), ["é", "�", None], ["é", "�", ""]),
        (BYTES.cast(pa.binary_view()), ["é", "�", None], ["é", "�", ""]),
        (pa.array([b"ab"] * 3, pa.binary(2)), ["ab"] * 3, ["ab"] * 3),
        (pa.array([["x|y", None], [], None]), [["x|y", None], [], None], ['["x|y", null]', "[]", ""]),
        (pa.array([["x"], [], None], pa.large_list(pa.string())), [["x"], [], None], ['["x"]', "[]", ""]),
        (pa.array([[[1.5, float("nan")]], [None], None]), [[[1.5, None]], [None], None], None),
        (pa.array([{"a": 1, "b": ["é"]}] * 3), [{"a": 1, "b": ["é"]}] * 3, ['{"a": 1, "b": ["é"]}'] * 3),
        (pa.array([[{"at": DAY, "text": "x"}]] * 3), [[{"at": str(DAY), "text": "x"}]] * 3, None),
        (pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())), None, ['[["k", 1]]', "[]", ""]),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}'] * 3)), ['{"a": 1}'] * 3, ['{"a": 1}'] * 3),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_each_type_in_each_format(tmp_path, ending, column, in_json, in_csv):
    table = pa.table({"a": column, "b": [1, 2, 3]})
    cells = [row["a"] for row in written(tmp_path / f"t.{ending}", table)]
    expected = {"jsonl": in_json, "json": in_json, "csv": in_csv}.get(ending, column.to_pylist())
    if expected is not None:
        assert str(cells) == str(expected)  # as text: nan equals nan there


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_rows_are_a_valid_file(tmp_path, ending):
    schema = pa.schema([("a", pa.float64()), ("b", pa.list_(pa.float64())), ("c", pa.string())])
    path = tmp_path / f"t.{ending}"
    assert written(path, schema.empty_table()) == []
    names = open_traces([str(path)]).schema.names
    assert names == ([] if ending.startswith("json") else ["a", "b", "c"])


def test_no_rows_keep_their_types(tmp_path):
    schema = pa.schema([("a", pa.float64()), ("b", pa.list_(pa.float64())), ("c", pa.int64())])
    written(tmp_path / "t.parquet", schema.empty_table())
    assert list(pd.read_parquet(tmp_path / "t.parquet").dtypes) == ["float64", "object", "int64"]
    assert pa.parquet.read_schema(tmp_path / "t.parquet").equals(schema)


@pytest.mark.parametrize("ending", ENDINGS)
def test_batches_may_have_dictionaries_of_their_own(tmp_path, ending):
    parts = [pa.table({"a": pa.array(texts).dictionary_encode()}) for texts in (["x", "y"], ["z", "x"])]
    assert [row["a"] for row in written(tmp_path / f"t.{ending}", *parts)] == ["x", "y", "z", "x"]


def test_the_size_of_views_in_an_older_arrow():
    class Older:
        @property
        def nbytes(self):
            raise pa.ArrowTypeError

        def get_total_buffer_size(self):
            return 9

    assert (n_bytes(Older()), n_bytes(pa.record_batch({"a": [1, 2]}))) == (9, 16)


def row_groups(path):
    found = pa.parquet.read_metadata(path)
    return [found.row_group(place).num_rows for place in range(found.num_row_groups)]


@pytest.mark.parametrize(
    ("rows", "n_bytes_", "groups"),
    [
        (65_536, 64 << 20, [20]),
        (8, 64 << 20, [8, 8, 4]),
        (7, 64 << 20, [8, 8, 4]),
        (2, 64 << 20, [2] * 10),
        (1, 64 << 20, [2] * 10),
        (65_536, 48, [6, 6, 6, 2]),  # 16 bytes a batch
    ],
)
def test_row_groups_are_gathered(tmp_path, monkeypatch, rows, n_bytes_, groups):
    monkeypatch.setattr(outputs, "GROUP_ROWS", rows)
    monkeypatch.setattr(outputs, "GROUP_BYTES", n_bytes_)
    path = tmp_path / "t.parquet"
    found = written(path, *(pa.table({"a": [n, n + 1]}) for n in range(0, 20, 2)))
    assert [row["a"] for row in found] == [*range(20)]
    assert row_groups(path) == groups


def test_many_files_are_few_row_groups(tmp_path):
    written(tmp_path / "t.parquet", *[pa.table({"a": range(4096)})] * 17)
    assert row_groups(tmp_path / "t.parquet") == [65_536, 4096]


def test_what_is_given_up_is_not_gathered_to_its_end(tmp_path, monkeypatch):
    groups = []
    monkeypatch.setattr(pa.parquet.ParquetWriter, "write_table", lambda *_: groups.append(1))
    for is_whole, n_groups in ((False, 0), (True, 1)):
        with suppress(KeyError), open_output(tmp_path / "t.parquet", pa.schema({"a": pa.int64()})) as write:
            write(pa.record_batch({"a": [1]}))
            if not is_whole:
                raise KeyError
        assert len(groups) == n_groups


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_json_is_strict(tmp_path, ending):
    table = pa.table({"a": [float("nan"), 1.0], "b": [[1.0, None, float("nan")], None], "c": ["\x00\u2028", "é"]})
    path = tmp_path / f"t.{ending}"
    written(path, table)

    def refuse(name):
        raise AssertionError(name)

    text = path.read_text("utf-8")
    whole = f"[{','.join(text.split(chr(10))[:-1])}]" if ending == "jsonl" else text
    assert json.loads(whole, parse_constant=refuse) == [
        {"a": None, "b": [1.0, None, None], "c": "\x00\u2028"},
        {"a": 1.0, "b": None, "c": "é"},
    ]


@pytest.mark.parametrize(
    ("ending", "column"),
    [
        ("parquet", pa.array([{}, None], pa.struct([]))),
        ("parquet", pa.array([(1, 2, 3)], pa.month_day_nano_interval())),
        ("jsonl", pa.array([2**60], pa.timestamp("us"))),  # beyond Python's years
        ("arrow", pa.array([["x"]], pa.list_(pa.dictionary(pa.int8(), pa.string())))),
    ],
)
def test_what_a_format_cannot_hold_is_one_clear_error(tmp_path, ending, column):
    table = pa.table({"a": column})
    other = table if ending != "arrow" else pa.table({"a": pa.array([["y"]], column.type)})
    with pytest.raises(FormatError, match=rf"t\.{ending} can't be written as \.{ending}: .*another ending"):
        written(tmp_path / f"t.{ending}", table, other)
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_block_is_not_the_outputs(tmp_path):
    with pytest.raises(pa.ArrowInvalid, match="mine"), open_output(tmp_path / "t.csv", pa.schema([])):
        raise pa.ArrowInvalid("mine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("t.txt", "the ending '.txt' is unknown"),
        ("t.jsn", "Did you mean '.json'?"),
        ("t", "the ending '' is unknown"),
        ("no/t.csv", "is not there. Make it first"),
        ("t.csv/t.csv", "is not there. Make it first"),
        ("folder.csv", "is a folder"),
    ],
)
def test_outputs_that_cannot_be_written(tmp_path, name, says):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "t.csv").touch()
    with pytest.raises(OptionError, match=says.replace("?", r"\?")):
        check_places([], output=tmp_path / name)


def test_a_place_is_fine(tmp_path):
    check_place("summary", tmp_path / "t")
    check_places([], output=tmp_path / "t.csv")


@pytest.mark.parametrize("are_there", [False, True])
def test_nothing_stands_over_another_thing(tmp_path, are_there):
    names = {name: tmp_path / name for name in ("in.csv", "out.csv", "other.csv", "s.json", "c.sqlite")}
    for path in names.values() if are_there else [names["in.csv"]]:
        path.touch()
    check_places([names["in.csv"]], output=names["out.csv"], summary=names["s.json"], cache=names["c.sqlite"])
    (tmp_path / "in2.csv").hardlink_to(names["in.csv"])
    (tmp_path / "s2.json").symlink_to(names["s.json"])
    for places, says in [
        ({"output": tmp_path / "in2.csv"}, "output '.*in2.csv' is one of the inputs. Give another name"),
        ({"cache": tmp_path / "in2.csv"}, "cache '.*in2.csv' is one of the inputs"),
        ({"summary": names["s.json"], "cache": tmp_path / "s2.json"}, "cache '.*s2.json' is the summary too"),
        ({"output": names["out.csv"], "summary": names["out.csv"]}, "summary '.*out.csv' is the output too"),
    ]:
        with pytest.raises(OptionError, match=says):
            check_places([names["in.csv"]], **places)


WRITE_MUCH = """
import os, resource, sys
from pathlib import Path
import pyarrow as pa
from rag_descriptors.jobs.outputs import open_output
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
table = pa.table({"a": [os.urandom(50).hex() for _ in range(10_000)]})
try:
    with open_output(Path(sys.argv[1]), table.schema) as write:
        for batch in table.to_batches(1000):
            write(batch)
except OSError as error:
    sys.exit(f"errno {error.errno}: {error.strerror}")
"""


def write_much(path, how):
    command = [sys.executable, "-c", WRITE_MUCH, str(path), how]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30).stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes there")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_cannot_grow_leaves_nothing_behind(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    path.write_text("old")
    assert write_much(path, "limit").startswith(f"errno 27: {path} can't be written: File too large. Nothing of it")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk can't be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_full_disk_leaves_nothing_behind(small_disk, ending):
    path = small_disk / f"t.{ending}"
    path.write_text("old")
    assert write_much(path, "disk") == (
        f"errno 28: {path} can't be written: No space left on device. Nothing of it was written, and a file that was "
        "there before is as it was. Free some space, or give another place, and run again.\n"
    )
    assert (path.read_text(), list(small_disk.iterdir())) == ("old", [path])


def test_the_target_of_a_link_is_replaced(tmp_path):
    (tmp_path / "data").mkdir()
    link, target = tmp_path / "out.csv", tmp_path / "data" / "real.csv"
    link.symlink_to(target)
    for content in ("x", "y"):  # a link that leads nowhere yet, and one to a file
        check_places([], output=link)
        written(link, pa.table({"a": [content]}))
        assert link.is_symlink()
        assert target.read_text() == f'"a"\n"{content}"\n'
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["real.csv"]


def test_a_link_into_a_folder_that_is_not_there(tmp_path):
    (tmp_path / "out.csv").symlink_to(tmp_path / "nowhere" / "real.csv")
    with pytest.raises(OptionError, match=r"the folder '.*nowhere' is not there"):
        check_places([], output=tmp_path / "out.csv")


def test_what_a_closing_file_says_does_not_hide_what_came_first(tmp_path, monkeypatch):
    @contextmanager
    def closing_fails(*_):
        try:
            yield None
        finally:
            raise OSError(28, "full")

    monkeypatch.setitem(WRITERS, ".csv", closing_fails)
    with pytest.raises(KeyError, match="first"), open_output(tmp_path / "t.csv", pa.schema([])):
        raise KeyError("first")
    assert list(tmp_path.iterdir()) == []

"""Several files, and the first rows of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from rag_descriptors.errors import FormatError, OptionError
from rag_descriptors.traces import formats
from rag_descriptors.traces.readers import open_traces

MANY = formats.ROWS_AT_ONCE + 1


def rows(*inputs, limit=None):
    return [row for batch in open_traces(inputs).batches(limit) for row in batch.to_pylist()]


def jsonl(*cells):
    return "\n".join(json.dumps({"a": cell}) for cell in cells)


# --- several files


def test_files_with_different_columns_are_read_one_after_the_other(file, arrow):
    inputs = [
        file("1.jsonl", '{"q": "x", "n": 1}'),
        arrow("2.parquet", q=["y"], c=[["z"]]),
        file("3.csv", "q,t\nw,v\n"),
        arrow("4.arrow", n=[2.5]),
    ]
    assert rows(*inputs) == [
        {"q": "x", "n": 1.0, "c": None, "t": None},
        {"q": "y", "n": None, "c": ["z"], "t": None},
        {"q": "w", "n": None, "c": None, "t": "v"},
        {"q": None, "n": 2.5, "c": None, "t": None},
    ]


def test_a_column_that_another_file_lacks_may_be_null(arrow):
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    traces = open_traces([arrow("1.parquet", strict, a=[1]), arrow("2.parquet", b=["x"])])
    assert all(field.nullable for field in traces.schema)
    assert [row["a"] for batch in traces.batches() for row in batch.to_pylist()] == [1, None]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": [1]}, {"a": ["x"]}),
        ({"a": [["x"]]}, {"a": ["x"]}),
        ({"a": [2**53 + 1]}, {"a": [0.5]}),
        ({"a": [1]}, {"a": pa.array([2**64 - 1], pa.uint64())}),
    ],
)
def test_columns_that_do_not_go_together_are_one_clear_error(arrow, left, right):
    with pytest.raises(FormatError, match=r"[12]\.arrow"):
        rows(arrow("1.arrow", **left), arrow("2.arrow", **right))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_column_that_stands_there_twice_is_a_clear_error(tmp_path, name):
    path = tmp_path / name
    table = pa.table([["x"], ["y"]], names=["a", "a"])
    (pa.csv.write_csv if path.suffix == ".csv" else pa.parquet.write_table)(table, path)
    with pytest.raises(FormatError, match="duplicate"):
        open_traces([str(path)])


def test_folders_and_globs(file, tmp_path):
    for name in ("b/2.jsonl", "b/10.jsonl", "b/notes.txt", "b/.x.jsonl.abc.part", "a.jsonl", "[1].jsonl"):
        file(name, json.dumps({"n": name}))
    (tmp_path / "b" / "empty.parquet").mkdir()  # a folder that is named like a file

    def names(pattern):
        return [row["n"] for row in rows(str(tmp_path / pattern))]

    assert names("") == ["[1].jsonl", "a.jsonl", "b/10.jsonl", "b/2.jsonl"]
    assert names("b") == ["b/10.jsonl", "b/2.jsonl"]
    assert names("b/*l") == ["b/10.jsonl", "b/2.jsonl"]
    assert names("**/*.jsonl") == ["[1].jsonl", "a.jsonl", "b/10.jsonl", "b/2.jsonl"]
    assert names("[1].jsonl") == ["[1].jsonl"]
    assert names("[ab].jsonl") == ["a.jsonl"]
    assert rows(str(tmp_path / "a.jsonl"), str(tmp_path / "a.jsonl")) == [{"n": "a.jsonl"}] * 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing.jsonl", "there is no such file"),
        ("*.csv", "there is no such file"),
        ("folder", "there is no such file"),
        ("notes.txt", "the ending '.txt' is unknown"),
        ("noending", "the ending '' is unknown"),
        ("link.jsonl", "there is no such file"),
    ],
)
def test_inputs_that_name_nothing(file, tmp_path, name, says):
    (tmp_path / "folder").mkdir()
    file("notes.txt")
    file("noending")
    (tmp_path / "link.jsonl").symlink_to("nowhere.jsonl")
    with pytest.raises(OptionError, match=says):
        open_traces([str(tmp_path / name)])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads a file of /proc")
@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet"])
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path, name):
    (tmp_path / name).symlink_to("/proc/self/mem")
    with pytest.raises((FormatError, OSError)) as error:
        rows(str(tmp_path / name))
    assert not isinstance(error.value, UnicodeError)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet", "t.arrow"])
def test_a_file_without_permission_is_named(file, name):
    path = Path(file(name, b"x"))
    path.chmod(0)
    with pytest.raises(OSError, match=name):
        rows(str(path))


# --- limit


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet", "t.arrow"])
@pytest.mark.parametrize(
    ("limit", "n"), [(0, 0), (1, 1), (MANY - 1, MANY - 1), (MANY, MANY), (MANY + 5, MANY + 5), (None, 2 * MANY)]
)
def test_a_limit_counts_over_all_files(file, arrow, name, limit, n):
    cells = [f"t{i}" for i in range(MANY)]
    contents = {"t.jsonl": jsonl(*cells), "t.csv": "a\n" + "\n".join(cells)}
    path = file(name, contents[name]) if name in contents else arrow(name, a=cells)
    assert [row["a"] for row in rows(path, path, limit=limit)] == (cells * 2)[:n]


def test_a_limit_closes_the_file():
    """A reader that stops early leaves no file open: ResourceWarning would be an error here."""
    code = (
        "import sys, warnings; warnings.simplefilter('error')\n"
        "from rag_descriptors.traces.readers import open_traces\n"
        "print(sum(b.num_rows for b in open_traces(sys.argv[1:]).batches(1)))"
    )
    path = Path(__file__).parents[1] / "data" / "traces_mtrag.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=False, capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_batches_are_bounded_and_can_be_read_again(file):
    traces = open_traces([file("t.csv", "a\n" + "x\n" * (2 * MANY))])
    for _ in range(2):
        sizes = [batch.num_rows for batch in traces.batches()]
        assert max(sizes) <= formats.ROWS_AT_ONCE
        assert sum(sizes) == 2 * MANY

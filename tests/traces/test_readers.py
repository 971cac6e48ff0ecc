"""Several files, and the first rows of them."""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

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
    with pytest.raises(FormatError, match=rf"{name}: two columns are called 'a'\. Rename or drop one"):
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


def test_hidden_files_of_folders_are_left_out(file, tmp_path):
    for name in ("b/1.jsonl", "b/_SUCCESS.jsonl", "b/.x.jsonl", "_temporary/2.jsonl", ".git/3.jsonl"):
        file(name, json.dumps({"n": name}))
    assert rows(str(tmp_path)) == [{"n": "b/1.jsonl"}]
    assert rows(str(tmp_path / "_temporary"), str(tmp_path / "b" / "_*")) == [
        {"n": "_temporary/2.jsonl"},
        {"n": "b/_SUCCESS.jsonl"},
    ]


def test_a_file_that_is_named_twice_is_read_once(file, tmp_path, monkeypatch):
    one, two = file("1.jsonl", '{"n": 1}'), file("2.jsonl", '{"n": 2}')
    (tmp_path / "link.jsonl").symlink_to(one)
    monkeypatch.chdir(tmp_path)
    for inputs in ([one, one, two], [str(tmp_path)], [one, str(tmp_path)], ["1.jsonl", one, "*.jsonl"]):
        assert rows(*inputs) == [{"n": 1}, {"n": 2}]


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


@pytest.fixture
def nobody():
    """Be a user who may read nothing of others', and have a folder that all may enter."""
    if os.name != "posix" or not hasattr(os, "geteuid"):
        pytest.skip("modes are POSIX")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        before = os.geteuid()

        @contextmanager
        def become():
            os.seteuid(65534 if before == 0 else before)
            try:
                yield
            finally:
                os.seteuid(before)

        yield Path(folder), become


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet", "t.arrow"])
def test_a_file_without_permission_is_named(nobody, name):
    folder, become = nobody
    (folder / name).write_text("x")
    (folder / name).chmod(0)
    for given in (folder, folder / name, folder / "t.*"):
        with become(), pytest.raises(FormatError, match=rf"/{name} can't be read: Permission denied\. Let yourself"):
            rows(str(given))


def test_a_folder_without_permission_is_named(nobody):
    folder, become = nobody
    (folder / "in").mkdir()
    (folder / "1.jsonl").touch()
    (folder / "in" / "2.jsonl").touch()
    (folder / "in").chmod(0)
    try:
        for given in ("in", "", "in/2.jsonl", "in/*.jsonl"):
            with become(), pytest.raises(FormatError, match=r"/in\S* can't be read: Permission denied"):
                rows(str(folder / given))
    finally:
        (folder / "in").chmod(0o700)


# --- limit


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet", "t.arrow"])
@pytest.mark.parametrize(
    ("limit", "n"), [(0, 0), (1, 1), (MANY - 1, MANY - 1), (MANY, MANY), (MANY + 5, MANY + 5), (None, 2 * MANY)]
)
def test_a_limit_counts_over_all_files(file, arrow, name, limit, n):
    cells = [f"t{i}" for i in range(MANY)]
    contents = {"t.jsonl": jsonl(*cells), "t.csv": "a\n" + "\n".join(cells)}
    first, second = (
        file(f"{place}{name}", contents[name]) if name in contents else arrow(f"{place}{name}", a=cells)
        for place in (1, 2)
    )
    assert [row["a"] for row in rows(first, second, limit=limit)] == (cells * 2)[:n]


@pytest.mark.parametrize("limit", [0, 1, 3, None])
def test_a_limit_counts_the_traces_that_are_read(file, limit):
    """Each of five traces has no question, no response and no retriever."""
    spans = [{"trace_id": f"t{n}", "id": "s", "run_type": "chain"} for n in range(5)]
    traces = open_traces([file("t.jsonl", "\n".join(map(json.dumps, spans)))], "langsmith")
    n = 5 if limit is None else limit
    assert [row["trace_id"] for batch in traces.batches(limit) for row in batch.to_pylist()] == [
        f"t{place}" for place in range(n)
    ]
    missing = ("retriever span", "question", "response")
    assert traces.unused == Counter({f"traces without a {what}": n for what in missing if n})


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

"""The command: exit codes, what stands on stdout and stderr, and what is loaded."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rag_descriptors import Cache, cli
from rag_descriptors.console import tell_of_unused
from rag_descriptors.errors import (
    CacheError,
    CacheWarning,
    CellError,
    ColumnConflictError,
    DescriptorError,
    FormatError,
    MissingColumnError,
    MissingExtraError,
    ModelNotFoundError,
    OptionError,
    PlanError,
    ScoringError,
)

SAMPLE = Path(__file__).parent / "data" / "traces_mtrag.jsonl"
MAIN = "from rag_descriptors.cli import main; main()"


@pytest.fixture
def traces(tmp_path):
    """A small trace file; its rows and columns by keyword."""

    def make(name="in.jsonl", **columns):
        columns = columns or {"question": ["What is red?"], "contexts": [["An apple is red.", "The sky is blue."]]}
        frame = pd.DataFrame(columns)
        path = tmp_path / name
        if path.suffix == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_json(path, orient="records", lines=True)
        return path

    return make


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run `main` in this process: exit code, stdout, stderr. The user's cache folder is an own one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["rag-descriptors", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        captured = capsys.readouterr()
        return exited.value.code, captured.out, captured.err

    return run


@pytest.fixture
def process(tmp_path):
    """Run the command in a process of its own, and say which heavy packages it had loaded at its end."""

    def run(*arguments, cache=None, before=""):
        loaded = tmp_path / "loaded"
        code = (
            f"{before}\nimport atexit, pathlib, sys\n"
            "heavy = {'torch', 'sentence_transformers', 'transformers', 'openvino', 'onnxruntime'}\n"
            f"atexit.register(lambda: pathlib.Path({str(loaded)!r}).write_text(' '.join(heavy & sys.modules.keys())))\n"
            f"{MAIN}"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={**os.environ, "XDG_CACHE_HOME": str(cache or tmp_path / "user"), "COLUMNS": "200"},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done, loaded.read_text().split()

    return run


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A user's cache folder with the vectors of the sample, its summary, and its output."""
    folder = tmp_path_factory.mktemp("filled")
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "score", SAMPLE, "-o", folder / "out.jsonl", "--json"],
        env={**os.environ, "XDG_CACHE_HOME": str(folder)},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout), (folder / "out.jsonl").read_bytes()


def one_message(err):
    """Return stderr, which is one error and no traceback."""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    return err


# --- the whole command, with the real model


@pytest.mark.model
def test_score_prints_one_json_document_and_writes_every_row(filled):
    _, summary, output = filled
    rows = [json.loads(line) for line in output.splitlines()]
    name = "Ranking for question with contexts"
    column = summary["columns"][name]
    assert summary["rows"] == len(rows) == column["n_total"]
    scores = [row[name] for row in rows if row[name] is not None]
    assert (column["n_scored"], column["coverage"]) == (len(scores), len(scores) / len(rows))
    assert column["mean"] == pytest.approx(np.mean(scores))
    assert column["quantiles"]["0.5"] == pytest.approx(np.median(scores))
    assert sum(column["statuses"].values()) == len(rows)
    assert summary["texts"]["encoded"] == summary["texts"]["distinct"] > len(rows)


@pytest.mark.model
def test_a_warm_run_loads_no_model_and_says_the_same(filled, process, tmp_path):
    folder, summary, output = filled
    done, loaded = process("score", SAMPLE, "-o", tmp_path / "again.jsonl", "--json", cache=folder)
    assert (done.returncode, loaded) == (0, [])
    again = json.loads(done.stdout)
    assert again["texts"] == {**summary["texts"], "encoded": 0}
    assert again["columns"] == summary["columns"]
    assert (tmp_path / "again.jsonl").read_bytes() == output


@pytest.mark.model
def test_no_text_of_the_user_is_in_the_cache(filled):
    folder, _, output = filled
    content = b"".join(path.read_bytes() for path in (folder / "rag-descriptors").iterdir() if path.is_file())
    rows = [json.loads(line) for line in output.splitlines()]
    texts = [text for row in rows for text in [row["question"], *row["contexts"]]]
    assert len(content) > 1000
    assert not any(text[:20].encode() in content for text in texts)


@pytest.mark.model
@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_the_users_cache_is_private(filled):
    folder = filled[0] / "rag-descriptors"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "answers.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.model
def test_score_prints_a_table_and_tells_on_stderr_of_texts_that_were_cut(filled, process, tmp_path, traces):
    long = traces(question=["What is red?"], contexts=[["An apple is red. " * 200, "Blue."]])
    done, _ = process("score", long, "-o", tmp_path / "out.csv", "--summary", tmp_path / "s.json", cache=filled[0])
    assert done.returncode == 0
    assert re.search(r"scored\s+1 of 1 rows \(100\.0%\)", done.stdout)
    assert "3 distinct texts, 3 encoded now, 1 longer than the model reads" in done.stdout
    assert done.stderr.startswith("warning: 1 of 3 distinct texts are longer than the model reads")
    assert json.loads((tmp_path / "s.json").read_text())["texts"]["cut"] == 1


@pytest.mark.model
def test_stdout_is_json_even_with_warnings(filled, process, tmp_path, traces):
    cache = tmp_path / "c.sqlite"
    cache.write_text("no cache at all, but a text")
    done, _ = process("score", traces(), "-o", tmp_path / "o.csv", "--json", "--cache", cache, cache=filled[0])
    assert done.returncode == 0
    assert json.loads(done.stdout)["rows"] == 1
    assert done.stderr.startswith("warning: the cache can't be used")
    assert done.stderr.count("\n") == 1


# --- without a model


@pytest.mark.model
def test_rows_without_texts_need_no_model(process, tmp_path, traces):
    path = traces(question=["q", None], contexts=[[], ["c"]])
    done, loaded = process("score", path, "-o", tmp_path / "out.jsonl", "--no-cache", "--json")
    assert (done.returncode, done.stderr, loaded) == (0, "", [])
    (column,) = json.loads(done.stdout)["columns"].values()
    assert (column["mean"], column["coverage"], column["n_scored"], column["n_total"]) == (None, 0.0, 0, 2)
    assert column["statuses"] == {"missing_input": 1, "no_contexts": 1}
    assert not (tmp_path / "user").exists()


@pytest.mark.model
def test_the_summary_is_printed_and_written(command, traces, tmp_path):
    output, summary = tmp_path / "o.csv", tmp_path / "s.json"
    arguments = ["score", traces(question=[None], contexts=[["c"]]), "-o", output, "--summary", summary]
    code, out, err = command(*arguments, "--json")
    assert (code, err) == (0, "")
    assert out == f"{summary.read_text()}\n"
    assert "0 of 1 rows (0.0%)" in command(*arguments, "--overwrite")[1]


@pytest.mark.model
@pytest.mark.parametrize("source", ["csv", "jsonl"])
@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "json", "csv"])
def test_no_rows_are_done(command, tmp_path, source, ending):
    (tmp_path / f"in.{source}").write_text("question,contexts\n" if source == "csv" else "")
    code, out, err = command("score", tmp_path / f"in.{source}", "-o", tmp_path / f"out.{ending}")
    assert (code, err) == (0, "")
    assert "0 of 0 rows" in out
    assert "–" in out
    if ending == "parquet":
        read = pd.read_parquet(tmp_path / "out.parquet")
        assert len(read) == 0
        assert read.columns[-1] == "Ranking for question with contexts status"
        assert read["Ranking for question with contexts"].dtype == "float64"


@pytest.mark.parametrize("text", ["{}", "[{}, {}]", "{}\n{}"])
def test_rows_without_a_key_are_rows(command, tmp_path, stub, text):
    path, output = tmp_path / "in.json", tmp_path / "o.jsonl"
    path.write_text(text)
    n = text.count("{}")
    scored = ("score", path, "-c", stub(), "--no-cache", "--json")
    for arguments in ((*scored, "--dry-run"), (*scored, "-o", output), ("check", stub(), path, "--json")):
        code, out, err = command(*arguments)
        assert (code, json.loads(out)["rows"], err) == (0, n, ""), arguments
    expected = {"question": None, "contexts": None, "cr": None}
    assert [row | expected for row in load(output)] == load(output)
    assert len(load(output)) == n


def test_a_bad_cell_far_down_is_told_before_a_model_loads(process, tmp_path, traces):
    path = traces("in.csv", question=["q"] * 9001, contexts=["[]"] * 9000 + ["['a' 'b']"])
    (tmp_path / "out.csv").write_text("earlier")
    done, loaded = process("score", path, "-o", tmp_path / "out.csv")
    assert (done.returncode, done.stdout, loaded) == (3, "", [])
    assert "column 'contexts' can't be read:\n  row 9000: " in one_message(done.stderr)
    assert (tmp_path / "out.csv").read_text() == "earlier"
    assert {file.name for file in tmp_path.iterdir()} <= {"in.csv", "out.csv", "loaded", "user"}


@pytest.mark.parametrize("arguments", [["--help"], ["score", "--help"], ["list"], ["cache", "--help"]])
def test_help_and_list_load_no_model(process, arguments):
    done, loaded = process(*arguments)
    assert (done.returncode, done.stderr, loaded) == (0, "", [])
    assert done.stdout


@pytest.mark.parametrize("arguments", [[], ["score"], ["nonsense"], ["cache", "prune"], ["score", "x", "-o"]])
def test_wrong_usage_is_2(command, arguments):
    code, _, _ = command(*arguments)
    assert code == 2


USAGE = [
    (["--limit", "-1"], "limit"),
    (["--limit", "x"], "limit"),
    (["--question", "frage"], None),
    (["-o", "out.txt"], "the ending '.txt' is unknown"),
    (["-o", "nowhere/out.csv"], "the folder 'nowhere' is not there"),
    (["-o", "folder.csv"], "is a folder"),
    (["-o", "in.jsonl"], "is one of the inputs"),
    (["--summary", "nowhere/s.json"], "the folder 'nowhere' is not there"),
    (["--summary", "folder.csv"], "is a folder"),
    (["--summary", "out.jsonl"], "is the output too"),
    (["--summary", "in.jsonl"], "is one of the inputs"),
]


@pytest.mark.parametrize(
    ("arguments", "says"), USAGE, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_options_that_cannot_be(command, traces, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    traces()
    before = (tmp_path / "in.jsonl").read_bytes()
    (tmp_path / "folder.csv").mkdir()
    code, out, err = command("score", "in.jsonl", "-o", "out.jsonl", *arguments)
    assert (code, out) == (3 if says is None else 2, "")
    assert says is None or says in err
    assert (tmp_path / "in.jsonl").read_bytes() == before
    assert not (tmp_path / "out.jsonl").exists()


def test_unknown_columns_name_the_way_out(command, traces, tmp_path):
    code, out, err = command("score", traces(frage=["x"], texte=[["y"]]), "-o", tmp_path / "o.csv")
    assert (code, out) == (2, "")
    assert "no column of question is known among 'frage', 'texte'. Name it with --question COLUMN" in one_message(err)
    assert "Name it with --contexts COLUMN" in err


def test_missing_columns_are_3(command, traces, tmp_path):
    code, _, err = command("score", traces(), "-o", tmp_path / "o.csv", "--question", "qestion", "--contexts", "ctx")
    assert code == 3
    assert "column 'qestion' is missing. Did you mean 'question'?" in one_message(err)
    assert "column 'ctx' is missing" in err


@pytest.mark.parametrize(
    ("name", "content", "code", "says"),
    [
        ("missing.jsonl", None, 2, "there is no such file"),
        ("t.txt", "x", 2, "the ending '.txt' is unknown"),
        ("t.jsonl", '{"question": "q"}\n{"question', 3, "t.jsonl, line 2: no JSON"),
        ("t.parquet", "x", 3, "t.parquet can't be read as .parquet"),
        ("t.csv", "question,contexts\na,b,c\n", 3, "row 0: 3 cells where the header has 2"),
        ("t.jsonl", '{"question": 5, "contexts": []}', 3, "row 0: found int 5 where a text is expected"),
        ("t.jsonl", '{"question": "q", "contexts": [{"chunk": "x"}]}', 3, "its keys are 'chunk'"),
    ],
)
def test_inputs_that_cannot_be_read(command, tmp_path, name, content, code, says):
    if content is not None:
        (tmp_path / name).write_text(content)
    found, out, err = command("score", tmp_path / name, "-o", tmp_path / "out.csv")
    assert (found, out) == (code, "")
    assert says in one_message(err)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.model
def test_overwrite(command, traces, tmp_path):
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    assert command("score", traces(question=[None, None], contexts=[["x"], []]), "-o", first)[0] == 0
    code, _, err = command("score", first, "-o", second)
    assert code == 2
    assert "is in the table already" in one_message(err)
    assert command("score", first, "-o", second, "--overwrite")[0] == 0
    assert second.read_bytes() == first.read_bytes()


@pytest.mark.model
def test_a_cache_that_cannot_be_made_is_4(command, traces, tmp_path):
    code, _, err = command("score", traces(), "-o", tmp_path / "o.csv", "--cache", tmp_path / "in.jsonl" / "c.sqlite")
    assert code == 4
    assert "the cache" in one_message(err)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionError("x"), 2),
        (PlanError("x"), 2),
        (ColumnConflictError("x"), 2),
        (MissingColumnError("x"), 3),
        (CellError("x"), 3),
        (FormatError("x"), 3),
        (CacheError("x"), 4),
        (ModelNotFoundError("x"), 4),
        (MissingExtraError("x"), 4),
        (ScoringError("x"), 4),
        (DescriptorError("x"), 4),
        (PermissionError(13, "Permission denied", "x"), 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_error_has_one_exit_code(command, tmp_path, traces, monkeypatch, error, code):
    def fails(*_):
        raise error

    monkeypatch.setattr(cli, "open_inputs", fails)
    assert command("score", traces(), "-o", tmp_path / "o.csv") == (code, "", f"error: {error}\n")


def test_a_fault_of_our_own_is_4_and_shown_whole(command, tmp_path, traces, monkeypatch):
    monkeypatch.setattr(cli, "open_inputs", lambda *_: 1 / 0)
    code, out, err = command("score", traces(), "-o", tmp_path / "o.csv")
    assert (code, out) == (4, "")
    assert "ZeroDivisionError" in err


NO_MODEL = """
import os
os.environ.update(HF_HUB_OFFLINE="1", HF_HOME="/nowhere")
from rag_descriptors.models import find
find.PACKAGE = "no_such_package"
"""


@pytest.mark.model
def test_a_model_that_is_nowhere_is_4(process, traces, tmp_path):
    done, _ = process("score", traces(), "-o", tmp_path / "o.csv", "--no-cache", before=NO_MODEL)
    assert (done.returncode, done.stdout) == (4, "")
    assert "Give model= the path of a folder" in one_message(done.stderr)
    assert not (tmp_path / "o.csv").exists()


# --- list


def test_list(command):
    code, out, err = command("list")
    assert (code, err) == (0, "")
    assert re.search(r"ContextRelevance .*rag-descriptors .*How relevant each context is to the question", out)


def test_list_tells_of_every_package(command, package, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    package("broken", "import no_such_module", Broken="broken:X")
    package("one", "", Twice="one:X")
    package("two", "", Twice="two:X")
    code, out, err = command("list")
    assert (code, err) == (0, "")
    assert re.search(r"Broken .* broken .*does not load: ModuleNotFoundError", out)
    assert re.search(r"Twice .* one, two .*is claimed by one", out)
    assert out.index("Broken") < out.index("ContextRelevance") < out.index("Twice")


# --- cache


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "c.sqlite"
    cache = Cache(path)
    cache.put("vector", {bytes([n]) * 16: b"12345678" for n in range(3)})
    cache.close()
    return path


def test_cache_commands(command, stored):
    code, out, err = command("cache", "stats", "--cache", stored)
    assert (code, err) == (0, "")
    size = stored.stat().st_size
    assert json.loads(out) == {
        "path": str(stored), "entries": {"vector": 3}, "bytes": {"vector": 24}, "file_bytes": size,
    }  # fmt: skip
    assert command("cache", "prune", "--days", "1", "--cache", stored) == (0, "0 answers dropped\n", "")
    assert command("cache", "clear", "--cache", stored) == (0, "3 answers dropped\n", "")
    assert json.loads(command("cache", "stats", "--cache", stored)[1])["entries"] == {}


def test_the_default_cache_is_in_the_users_folder(command, stored, tmp_path):
    assert cli.default_cache() == tmp_path / "user" / "rag-descriptors" / "answers.sqlite"
    code, out, err = command("cache", "stats")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"path": str(cli.default_cache()), "entries": {}, "bytes": {}, "file_bytes": 0}
    for arguments in (["clear"], ["stats", "--cache", tmp_path / "no.sqlite"]):
        code, out, err = command("cache", *arguments)
        assert (code, out) == (2, "")
        assert "there is no such file" in one_message(err)
    assert not (tmp_path / "user").exists()
    cli.default_cache().parent.mkdir(parents=True)
    stored.rename(cli.default_cache())
    assert command("cache", "clear") == (0, "3 answers dropped\n", "")


@pytest.mark.filterwarnings("always::rag_descriptors.errors.CacheWarning")
@pytest.mark.parametrize("arguments", [["stats"], ["clear"], ["prune", "--days", "1"]])
def test_cache_commands_on_a_file_that_is_none(command, stored, arguments):
    stored.write_text("a text of somebody's\n" * 100)
    code, out, err = command("cache", *arguments, "--cache", stored)
    assert (code, out) == (4, "")
    assert f"error: {str(stored)!r} is no cache" in err


@pytest.mark.parametrize("days", ["-1", "x"])
def test_days_are_checked(command, stored, days):
    assert command("cache", "prune", "--days", days, "--cache", stored)[0] == 2


# --- the pieces


def test_warnings_go_to_stderr(capsys):
    cli._show_warning(CacheWarning("damaged"), CacheWarning, "file", 1)
    assert capsys.readouterr() == ("", "warning: damaged\n")


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143)])
def test_signals_have_exit_codes(capsys, number, code):
    with pytest.raises(SystemExit) as exited:
        cli._stop(number, None)
    assert exited.value.code == code
    assert capsys.readouterr().err == STOPPED


STOP_AFTER = """
import os, signal
from rag_descriptors import cli
original = cli.{name}
cli.{name} = lambda *given, **options: (original(*given, **options), os.kill(os.getpid(), signal.SIGINT))[0]
"""
STOPPED = "stopped: no file is left half-written; run again to go on, with whatever a cache holds by now\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_a_stop_after_the_work_says_nothing_untrue(process, traces, stub, tmp_path):
    output = tmp_path / "o.jsonl"
    arguments = ["score", traces(question=["north?"], contexts=[["N"]]), "-c", stub(), "-o", output, "--no-cache"]
    done, _ = process(*arguments, before=STOP_AFTER.format(name="score_traces"))
    assert (done.returncode, done.stderr) == (130, STOPPED)
    assert [row["cr"] for row in load(output)] == [1.0]


def test_the_apps_help_names_every_command():
    out = CliRunner().invoke(cli.app, ["--help"]).output
    assert all(f"\n  {word} " in out for word in ("score", "check", "init", "list", "cache"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cache", "out.parquet"], "cache 'out.parquet' is the output too"),
        (["--cache", "in.jsonl"], "cache 'in.jsonl' is one of the inputs"),
        (["--cache", "s.json", "--summary", "s.json"], "cache 's.json' is the summary too"),
    ],
)
def test_nothing_is_written_over_another_thing(command, traces, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    traces()
    code, out, err = command("score", "in.jsonl", "-o", "out.parquet", *arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.model
def test_column_names_with_brackets_and_endings_in_capitals(command, traces, tmp_path):
    path = traces("in.JSONL", **{"q [/x] [bold]": ["Who?"], "contexts": [["Me."]]})
    code, out, _ = command("score", str(path), "-o", str(tmp_path / "out.CSV"), "--question", "q [/x] [bold]")
    assert code == 0
    assert "Ranking for q [/x] [bold] with contexts" in out


# --- configurations, with the fake encoder of the cases

STUBBED = ["output_scores = true", "output_status = true"]


def load(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_configuration_is_scored(command, traces, stub, tmp_path):
    path = traces(question=["north?", "east?"], contexts=[["N", "E"], ["N"]])
    config = stub("tests = [{ gte = 0.7 }]", run=f"output = '{tmp_path / 'o.jsonl'}'\nlimit = 1\nno_cache = true")
    code, out, err = command("score", path, "-c", config, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["columns"]["cr"]["mean"] == 0.75
    assert load(tmp_path / "o.jsonl") == [
        {"question": "north?", "contexts": ["N", "E"], "cr": 0.75, "cr: greater or equal to 0.7": True}
    ]
    assert not (tmp_path / "user").exists()
    code, _, _ = command("score", path, "-c", config, "--limit", "2", "-o", tmp_path / "two.csv")
    assert code == 0
    assert (tmp_path / "two.csv").read_text().splitlines()[2] == '"east?","[""N""]",0.5,false'


def test_columns_of_other_names(command, traces, stub, tmp_path):
    path = traces(frage=["north?"], funde=[["N"]], question=["east?"])
    config = stub("output_status = true", run="[columns]\nquestion = 'frage'\ncontexts = 'funde'")
    output = tmp_path / "o.jsonl"
    assert command("score", path, "-c", config, "-o", output, "--no-cache")[0] == 0
    assert load(output) == [{"frage": "north?", "funde": ["N"], "question": "east?", "cr": 1.0, "cr status": "ok"}]
    code, _, _ = command("score", path, "-c", config, "-o", output, "--no-cache", "--question", "question")
    assert (code, load(output)[0]["cr"]) == (0, 0.5)
    code, _, err = command("score", path, "-c", config, "-o", output, "--no-cache", "--question", "fragen")
    assert code == 3
    assert "column 'fragen', to be read as 'question', is missing. Did you mean 'frage'?" in one_message(err)


def test_columns_that_nothing_reads(command, traces, stub, tmp_path):
    config = stub(run="[columns]\nquestions = 'question'\nx = 'y'")
    code, _, err = command("score", traces(), "-c", config, "-o", tmp_path / "o.csv")
    assert code == 2
    assert "columns: 'questions' is unknown. Did you mean 'question'?" in one_message(err)
    assert "columns: 'x' is unknown." in err
    assert "column 'y', to be read as 'x', is missing" in err


def test_a_configuration_without_descriptors(command, traces, tmp_path):
    (tmp_path / "c.toml").write_text("[columns]\nquestion = 'frage'\n[run]\noverwrite = true\nlimit = 0")
    path, output = traces(frage=["q"], contexts=[["c"]]), tmp_path / "o.jsonl"
    arguments = ["check", tmp_path / "c.toml", path]
    code, out, err = command(*arguments)
    assert (code, err) == (0, "")
    assert "computes Ranking for frage with contexts, by ContextRelevance" in out
    (tmp_path / "c.toml").write_text("[columns]\nx = 'frage'")
    assert command("check", tmp_path / "c.toml", traces())[0] == 2
    assert not output.exists()


def test_a_wrong_configuration_is_2(command, traces, tmp_path):
    (tmp_path / "c.toml").write_text("[[descriptors]]\ntype = 'Nothing'\n[run]\nlimt = 3\n[colums]\n")
    code, out, err = command("score", traces(), "-c", tmp_path / "c.toml", "-o", tmp_path / "o.csv")
    assert (code, out) == (2, "")
    assert len(one_message(err).splitlines()) == 3
    assert command("score", traces(), "-c", tmp_path / "no.toml", "-o", tmp_path / "o.csv")[0] == 2


def test_an_output_must_be_named(command, traces, stub):
    for arguments in ([], ["-c", stub()]):
        code, out, err = command("score", traces(), *arguments)
        assert (code, out) == (2, "")
        assert "output: there is none. Say where to with -o FILE" in one_message(err)


@pytest.mark.parametrize(
    ("least", "code", "told"),
    [
        (None, 0, ""),
        ("0.3333", 0, ""),
        ("0.5", 5, "error: 'cr' covers 0.3333 of the rows, less than --min-coverage 0.5\n"),
    ],
)
def test_f38_coverage_decides(command, traces, stub, tmp_path, least, code, told):
    path = traces(question=["north?", "north?", None], contexts=[["NE"], [], ["N"]])
    arguments = ["--min-coverage", least] if least else []
    done = command(
        "score", path, "-c", stub(), "-o", tmp_path / "o.jsonl", "--no-cache", "--json", "--summary",
        tmp_path / "s.json", *arguments,
    )  # fmt: skip
    assert (done[0], done[2]) == (code, told)
    column = json.loads(done[1])["columns"]["cr"]
    assert (column["mean"], column["n_scored"], column["n_total"]) == (0.8, 1, 3)
    assert column["coverage"] == pytest.approx(1 / 3)
    assert json.loads((tmp_path / "s.json").read_text())["columns"]["cr"] == column
    assert [row["cr"] for row in load(tmp_path / "o.jsonl")] == [0.8, None, None]


def test_coverage_of_no_rows_is_not_low(command, tmp_path, stub):
    (tmp_path / "in.jsonl").touch()
    done = command("score", tmp_path / "in.jsonl", "-c", stub(), "-o", tmp_path / "o.csv", "--min-coverage", "1")
    assert (done[0], done[2]) == (0, "")


def test_f51_a_row_that_fails_fails_alone(command, traces, stub, tmp_path):
    path = traces(question=["north?"] * 5, contexts=[["N"], ["Z"], ["E"], ["Z", "N"], ["S"]])
    arguments = ["score", path, "-c", stub(*STUBBED), "-o", tmp_path / "o.jsonl", "--no-cache"]
    assert command(*arguments)[0] == 0
    rows = load(tmp_path / "o.jsonl")
    assert [row["cr"] for row in rows] == [1.0, None, 0.5, None, 0.0]
    assert [row["cr status"] for row in rows] == ["ok", "unusable_vector", "ok", "partial", "ok"]
    assert command(*arguments, "--min-coverage", "1")[0] == 5


def test_f10_f58_cells_of_csv_and_json(command, traces, stub, tmp_path):
    pipes = ["ps | grep x", "| a | b |\n|---|---|"]
    path = traces(question=["north?", None], contexts=[pipes, ["N"]])
    for ending in ("csv", "jsonl"):
        output = tmp_path / f"o.{ending}"
        assert command("score", path, "-c", stub(*STUBBED), "-o", output, "--no-cache")[0] == 0
    rows = load(tmp_path / "o.jsonl")
    assert rows[0]["contexts"] == pipes
    assert (rows[1]["cr"], rows[1]["cr scores"]) == (None, None)
    read = pd.read_csv(tmp_path / "o.csv")
    assert json.loads(read["contexts"][0]) == pipes
    assert json.loads(read["cr scores"][0]) == rows[0]["cr scores"]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "json", "csv"])
def test_f12_a_quiet_hour(command, tmp_path, stub, ending):
    (tmp_path / "in.jsonl").touch()
    output = tmp_path / f"o.{ending}"
    code, out, err = command("score", tmp_path / "in.jsonl", "-c", stub(*STUBBED), "-o", output, "--no-cache", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["rows"] == 0
    if ending == "parquet":
        assert list(pd.read_parquet(output).columns) == ["question", "contexts", "cr", "cr scores", "cr status"]


def test_odd_column_names_end_in_what_to_type(command, traces, tmp_path):
    path = traces(frage=["What is red?"], **{"die funde": [["An apple is red.", "The sky is blue."]]})
    code, out, err = command("score", path, "-o", tmp_path / "o.csv")
    assert (code, out) == (2, "")
    assert "By what the columns hold, it may be: --question frage --contexts 'die funde'" in one_message(err)
    assert '[columns]\nquestion = "frage"\ncontexts = "die funde"' in err


def test_odd_column_names_under_a_configuration(command, traces, stub, tmp_path):
    path = traces(frage=["north?", "east ?"], funde=[["N", "N E"], ["E"]])
    arguments = ["score", path, "-c", stub(), "-o", tmp_path / "o.jsonl", "--no-cache"]
    code, out, err = command(*arguments)
    assert (code, out) == (3, "")
    assert "column 'question' is missing" in one_message(err)
    assert "By what the columns hold, it may be: --question frage --contexts funde" in err
    assert command(*arguments, "--question", "frage", "--contexts", "funde")[0] == 0
    code, _, err = command(*arguments, "--question", "frage")
    assert code == 3
    assert "By what the columns hold, it may be: --contexts funde" in err


# --- presets

SPANS = SAMPLE.parent / "presets" / "phoenix_spans.jsonl"


@pytest.mark.parametrize("preset", ["phoenix", "auto"])
def test_exports_of_other_tools(command, stub, tmp_path, preset):
    told = "warning: not used: 1 documents without text (their places among the contexts are null)\n"
    code, _, err = command(
        "score", SPANS, "-c", stub(run=f"preset = '{preset}'\nno_cache = true"), "-o", tmp_path / "o.jsonl"
    )
    assert (code, err) == (0, told)
    assert [row["trace_id"] for row in load(tmp_path / "o.jsonl")] == ["p1", "p2"]
    code, out, err = command("check", stub(run=f"preset = '{preset}'\nrows = 'retriever'"), SPANS)
    assert (code, err) == (0, told)
    assert out.startswith("inputs: 2 rows in 1 file, as phoenix writes them; columns trace_id, span_id, question")


def test_presets_that_are_none(command, stub, tmp_path):
    code, _, err = command(
        "score", SPANS, "-c", stub(), "-o", tmp_path / "o.csv", "--preset", "phenix", "--rows", "span"
    )
    assert code == 2
    assert "preset: 'phenix' is unknown. Did you mean 'phoenix'?" in one_message(err)
    assert "rows: 'span' is unknown" in err


# --- check and init


def test_check_says_what_it_found(command, traces, stub, tmp_path):
    path = traces(frage=["north?", None], contexts=['["N"]', None])
    code, out, err = command("check", stub(run="[columns]\nquestion = 'frage'"), path)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "inputs: 2 rows in 1 file; columns frage, contexts",
        "reads question: frage as string, 1 missing",
        "reads contexts: as list<item: string>, 1 missing",
        "computes cr, by Stub",
    ]
    code, out, _ = command(
        "check", stub(run="[columns]\nquestion = 'frage'"), path, shutil.copy(path, tmp_path / "more.jsonl"), "--json"
    )
    found = json.loads(out)
    assert (code, found["files"], found["rows"]) == (0, 2, 4)
    assert found["reads"]["question"] == {"column": "frage", "as": "string", "missing": 2}
    assert found["descriptors"]["cr"].startswith("Stub(input='question'")


def test_check_names_all_that_is_wrong(command, traces, stub, tmp_path):
    path = traces(question=[5, 6], context=["a", "b"], cr=[1, 2])
    config = stub("[[descriptors]]", "type = 'Nothing'", run="limt = 1\noutput = 'nowhere/o.csv'")
    code, out, err = command("check", config, path)
    assert code == 2
    assert "inputs: rows that can't all be read in 1 file" in out
    for message in (
        "number 2: the descriptor 'Nothing' is not installed",
        "[run]: 'limt' is unknown",
        "the folder 'nowhere' is not there",
        "column 'contexts' is missing. Did you mean 'context'?",
        "column 'cr' of Stub is in the table already",
        "column 'question' can't be read:\n  row 0: found int 5",
    ):
        assert message in err


def test_check_invents_no_fault_from_a_descriptor_that_is_faulty(command, traces, stub):
    wrong = "[[descriptors]]\ntype = 'ContextEntityRecall'\nreference = 'reference'\ncontext = 'contexts'"
    config = stub(wrong, run="[columns]\nreference = 'gold'\nquestion = 'frage'")
    code, out, err = command("check", config, traces(frage=["q"], contexts=[["N"]], gold=["r"]))
    assert (code, "columns:" in err, "reads question: frage" in out) == (2, False, True)
    assert err.count("error: ") == 1


def test_check_looks_on_after_a_mistyped_option(command, traces, tmp_path):
    (tmp_path / "c.toml").write_text("[run]\nlimt = 1\n")
    code, out, err = command("check", tmp_path / "c.toml", traces(question=[5], contexts=["c"]))
    assert (code, "[run]: 'limt' is unknown" in err, "row 0: found int 5" in err) == (2, True, True)
    assert "reads question: as string" in out


def test_check_of_a_separator_whose_descriptor_is_faulty(command, traces, tmp_path):
    (tmp_path / "c.toml").write_text("[[descriptors]]\ntype = 'Nothing'\n[run]\nseparator = ';'\n")
    code, out, err = command("check", tmp_path / "c.toml", traces(x=["y"]))
    assert (code, out, err.count("error: ")) == (2, "inputs: 1 rows in 1 file; columns x\n", 1)


@pytest.mark.parametrize(("workers", "code"), [(1, 0), (2, 2)])
def test_check_refuses_what_workers_cannot_do(command, traces, stub, tmp_path, workers, code):
    judged = "[[descriptors]]\ntype = 'ContextRelevance'\ninput = 'question'\ncontexts = 'contexts'\nmethod = 'llm'"
    config = stub(judged, run=f"workers = {workers}")
    found, _, err = command("check", config, traces())
    assert (found, "asks a judge, whose limits hold within one process" in err) == (code, code == 2)
    if code:
        found = command("score", traces(), "-c", config, "-o", tmp_path / "o.csv", "--no-cache")
        assert found == (code, "", err)


@pytest.mark.parametrize(
    ("columns", "run", "code"),
    [
        ({"question": [5], "contexts": ["c"]}, "", 3),
        ({"question": ["q"], "context": ["c"]}, "", 3),
        ({"question": ["q"], "contexts": ["c"]}, "limt = 1", 2),
        ({"question": ["q"], "contexts": ["c"], "cr": [1]}, "", 2),
        ({"question": ["q"], "contexts": ["c"], "cr": [1]}, "overwrite = true", 0),
        ({"question": ["q", 5], "contexts": ["c", "c"]}, "limit = 1", 0),
    ],
)
def test_exit_codes_of_check(command, traces, stub, columns, run, code):
    assert command("check", stub(run=run), traces(**columns))[0] == code


def test_check_without_a_configuration_or_inputs(command, traces, stub, tmp_path):
    code, out, err = command("check", tmp_path / "no.toml", tmp_path / "no.csv")
    assert (code, out) == (2, "")
    assert "there is no such file. rag-descriptors init writes one" in err
    assert "no.csv': there is no such file" in err
    assert command("check", stub(), tmp_path / "no.csv")[0] == 2
    (tmp_path / "c.toml").write_text("[[descriptors]]\ntype = 'Nothing'\n")
    code, out, _ = command("check", tmp_path / "c.toml", traces(x=["y"]))
    assert (code, out) == (2, "inputs: 1 rows in 1 file; columns x\n")


def test_check_looks_for_no_model(process, tmp_path, stub, traces):
    (tmp_path / "c.toml").write_text(
        "[[descriptors]]\ntype = 'ContextRelevance'\ninput = 'question'\ncontexts = 'contexts'\n"
        "method_params = { model = 'nobody/has-this' }"
    )
    done, loaded = process("check", tmp_path / "c.toml", traces(), before=NO_MODEL)
    assert (done.returncode, done.stderr, loaded) == (0, "", [])
    assert {path.name for path in tmp_path.iterdir()} == {"c.toml", "in.jsonl", "loaded", "packages"}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("{ pipeline = 'no_such' }", "pipeline 'no_such' is no folder, and no installed package carries it"),
        ("{ pipeline = 'p', labels = ['PERSONS'] }", "labels: 'PERSONS' is unknown. Did you mean 'PERSON'?"),
        ("{ pipeline = 'p', labels = ['PERSON'] }", None),
    ],
)
def test_check_looks_for_pipelines_but_loads_none(process, tmp_path, traces, params, message):
    pytest.importorskip("spacy")
    pipeline = tmp_path / "p"
    pipeline.mkdir()
    (pipeline / "config.cfg").touch()
    (pipeline / "meta.json").write_text('{"labels": {"ner": ["PERSON"]}}')
    (tmp_path / "c.toml").write_text(
        "[[descriptors]]\ntype = 'ContextEntityRecall'\nreference = 'question'\ncontexts = 'contexts'\n"
        "method = 'spacy'\nmethod_params = " + params.replace("'p'", repr(str(pipeline)))
    )
    done, loaded = process("check", tmp_path / "c.toml", traces(), before=NO_MODEL)
    assert (done.returncode == 0, loaded) == (message is None, [])
    assert (message or "") in done.stderr


def test_init(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("init") == (0, "", "rag-descriptors.toml written\n")
    code, out, err = command("check", "rag-descriptors.toml", SAMPLE)
    assert (code, err) == (0, "")
    assert "inputs: 30 rows in 1 file" in out
    code, _, err = command("init")
    assert code == 2
    assert "is there already. Give another name, or --force to replace it" in one_message(err)
    (tmp_path / "rag-descriptors.toml").write_text("x")
    assert command("init", "--force")[0] == 0
    assert command("check", "rag-descriptors.toml", SAMPLE)[0] == 0
    assert command("init", "nowhere/c.toml")[0] == 2
    assert command("init", tmp_path)[0] == 2


@pytest.mark.model
@pytest.mark.filterwarnings("default::rag_descriptors.errors.TruncationWarning")
def test_the_written_configuration_scores_as_the_command_does_without(command, tmp_path):
    assert command("init", tmp_path / "c.toml")[0] == 0
    arguments = ["score", SAMPLE, "--limit", "5", "--cache", tmp_path / "c.sqlite"]
    assert command(*arguments, "-o", tmp_path / "1.jsonl")[0] == 0
    assert command(*arguments, "-c", tmp_path / "c.toml", "-o", tmp_path / "2.jsonl")[0] == 0
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()


# --- where what is printed can't go

needs_posix = pytest.mark.skipif(os.name != "posix", reason="pipes and /dev/full are POSIX")


def run_into(stdout, *arguments, stderr=subprocess.PIPE):
    """Run the command with what it prints going to `stdout`; its exit code, and what it told."""
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        env=os.environ,
        check=False,
        stdout=stdout,
        stderr=stderr,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stderr


@pytest.fixture
def unread():
    """A pipe whose reader has left."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


@needs_posix
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_nobody_reads_what_is_printed(unread, traces, stub, tmp_path, as_json):
    path = traces(question=["north?", None], contexts=[["N", "E"], ["N"]])
    arguments = ["score", path, "-c", stub(), "--no-cache", *as_json]
    assert run_into(unread, *arguments, "-o", tmp_path / "o.jsonl") == (0, "")
    assert [row["cr"] for row in load(tmp_path / "o.jsonl")] == [0.75, None]
    low = run_into(unread, *arguments, "-o", tmp_path / "o.jsonl", "--min-coverage", "0.9")
    assert low == (5, "error: 'cr' covers 0.5 of the rows, less than --min-coverage 0.9\n")
    assert run_into(unread, *arguments, "-o", tmp_path / "o.txt", stderr=unread) == (2, None)


@needs_posix
@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["score", "--help"]])
def test_nobody_reads_a_list_or_a_help(unread, arguments):
    assert run_into(unread, *arguments) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_what_is_printed_finds_no_room(traces, stub, tmp_path):
    path, output = traces(question=["north?"], contexts=[["N", "E"]]), tmp_path / "o.jsonl"
    with Path("/dev/full").open("w") as full:
        code, err = run_into(full, "score", path, "-c", stub(), "--no-cache", "-o", output)
        assert (code, len(load(output))) == (4, 1)
        assert one_message(err) == (
            "error: [Errno 28] what is to be printed can't be: No space left on device. "
            f"The scored file {output} is whole.\n"
        )
        dry = run_into(full, "score", path, "-c", stub(), "--no-cache", "--dry-run")
        assert dry == (4, "error: [Errno 28] what is to be printed can't be: No space left on device.\n")


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes there")
def test_a_summary_that_finds_no_room_says_that_the_scores_stand(traces, stub, tmp_path):
    path, output = traces(question=["north?"], contexts=[["N"]]), tmp_path / "o.jsonl"
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300)); {MAIN}"
    arguments = ["score", path, "-c", stub(), "--no-cache", "-o", output, "--summary", tmp_path / "s.json"]
    done = subprocess.run(
        [sys.executable, "-c", limited, *map(str, arguments)], check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, len(load(output)), (tmp_path / "s.json").exists()) == (4, 1, False)
    assert f"{tmp_path / 's.json'} can't be written: File too large. Nothing of it was written" in done.stderr
    assert f"and run again. The scored file {output} is whole.\n" in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_stdout_of_any_encoding(traces, stub, tmp_path, encoding):
    path = traces(question=["north?"], contexts=[["N", "E"]])
    for arguments in (
        ["list"],
        ["score", path, "-c", stub("alias = '東京'"), "--no-cache", "-o", tmp_path / "o.jsonl"],
    ):
        for more in ([], ["--json"]) if arguments[0] == "score" else ([],):
            done = subprocess.run(
                [sys.executable, "-c", MAIN, *map(str, [*arguments, *more])],
                env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "200"},
                check=False,
                capture_output=True,
                timeout=120,
            )
            assert (done.returncode, done.stderr) == (0, b"")
            out = done.stdout.decode(encoding)
            assert ("─" in out or "━" in out) is (encoding == "utf-8" and not more)
            if more:
                assert list(json.loads(out)["columns"]) == ["東京"]
    assert load(tmp_path / "o.jsonl")[0]["東京"] == 0.75


def test_stdout_may_be_any_object_that_is_written_to(monkeypatch):
    paper = io.StringIO()
    monkeypatch.setattr(sys, "stdout", paper)
    monkeypatch.setattr(sys, "argv", ["rag-descriptors", "list"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as exited:
        cli.main()
    assert (exited.value.code, "ContextRelevance" in paper.getvalue()) == (0, True)


@pytest.mark.parametrize("error", [BrokenPipeError(32, "the service is gone"), EOFError("nothing came")])
def test_what_a_model_of_ones_own_raises_is_no_reader_that_left(command, traces, stub, tmp_path, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(cli, "score_traces", fails)
    code, out, err = command("score", traces(), "-c", stub(), "-o", tmp_path / "o.csv", "--no-cache")
    assert (code, out) == (4, "")
    assert type(error).__name__ in one_message(err)


def test_a_cache_and_none_contradict_each_other(command, traces, stub, tmp_path):
    arguments = ["score", traces(), "-o", tmp_path / "o.csv"]
    code, _, err = command(*arguments, "-c", stub(), "--cache", tmp_path / "c", "--no-cache")
    assert (code, "can't stand beside no_cache" in one_message(err)) == (2, True)
    assert command(*arguments, "-c", stub(run="cache = 'c'"), "--no-cache")[0] == 0
    assert command(*arguments, "-c", stub(run="no_cache = true"), "--cache", tmp_path / "c")[0] == 0
    assert (tmp_path / "c").exists()


def test_a_dry_run_tells_what_would_be_done(command, traces, stub):
    code, out, err = command("score", traces(), "-c", stub(), "--dry-run", "--no-cache")
    assert (code, err) == (0, "")
    assert "3 distinct texts, 3 would be encoded, " in out


def test_a_dry_run_writes_nothing(command, traces, stub, tmp_path):
    path, output, summary = (
        traces(question=["north?"], contexts=[["N", "E"]]),
        tmp_path / "o.jsonl",
        tmp_path / "s.json",
    )
    arguments = ["score", path, "-c", stub(), "-o", output, "--summary", summary]
    there = sorted(tmp_path.rglob("*"))
    code, out, err = command(*arguments, "--dry-run")
    assert (code, err) == (0, "")
    assert "3 distinct texts, 3 would be encoded, " in out
    assert sorted(tmp_path.rglob("*")) == there
    assert command(*arguments)[0] == 0
    before = {file: file.read_bytes() for file in (output, summary)}
    assert "3 distinct texts, 0 would be encoded, " in command(*arguments, "--dry-run")[1]
    assert {file: file.read_bytes() for file in (output, summary)} == before


def test_a_separator_may_be_typed_in_a_shell(command, stub, tmp_path):
    (tmp_path / "in.csv").write_text('question,contexts\nnorth?,"N\n\nE"\neast?,"N\t\n"\n')
    for typed, counts in ((r"\n\n", [2, 1]), (r"\t\n", [1, 2])):
        output = tmp_path / "o.jsonl"
        arguments = ["score", tmp_path / "in.csv", "-c", stub(), "-o", output, "--no-cache", "--separator", typed]
        assert command(*arguments)[0] == 0
        assert [len(row["contexts"]) for row in load(output)] == counts


SPLIT = [
    ("", ["--contexts", "retrieved"]),
    ("[columns]\ncontexts = 'retrieved'", []),
    ("[[descriptors]]\ntype = 'Stub'\ninput = 'question'\ncontexts = 'retrieved'\nalias = 'cr'", []),
]


@pytest.mark.parametrize("others", ["question", "question,context"])
@pytest.mark.parametrize(("config", "flags"), SPLIT, ids=["flag", "columns", "descriptor"])
def test_a_separator_is_for_the_contexts_that_are_scored(command, stub, tmp_path, others, config, flags):
    path, output = tmp_path / "in.csv", tmp_path / "o.jsonl"
    path.write_text(f"{others},retrieved\n{','.join(['north?', 'a b'][: others.count(',') + 1])},N E\n")
    written = stub()
    written.write_text(config if config.startswith("[[") else f"{written.read_text()}\n{config}")
    arguments = ["score", path, "-c", written, "-o", output, "--no-cache", "--separator", " ", *flags]
    assert command(*arguments)[::2] == (0, "")
    (row,) = load(output)
    assert (row["retrieved"], row["cr"]) == (["N", "E"], 0.75)
    assert row.get("context", "a b") == "a b"


@pytest.mark.model
def test_a_separator_for_a_column_that_is_named_without_a_configuration(command, tmp_path):
    (tmp_path / "in.csv").write_text("question,retrieved\n,N E\n")
    output = tmp_path / "o.jsonl"
    arguments = ["score", tmp_path / "in.csv", "-o", output, "--no-cache", "--separator", " "]
    assert command(*arguments, "--contexts", "retrieved")[::2] == (0, "")
    assert load(output)[0]["retrieved"] == ["N", "E"]
    code, _, err = command(*arguments)
    assert code == 2
    assert "separator: ' ' needs a column of contexts" in one_message(err)


def test_check_splits_as_score_does(command, stub, tmp_path):
    (tmp_path / "in.csv").write_text("question,retrieved\nnorth?,N E\n")
    config = stub(run="separator = ' '\n[columns]\ncontexts = 'retrieved'")
    code, out, err = command("check", config, tmp_path / "in.csv")
    assert (code, err) == (0, "")
    assert "reads contexts: retrieved as list<item: string>, 0 missing" in out


def test_what_could_not_be_used_says_what_stands_there(capsys):
    tell_of_unused({"documents without text": 2, "spans seen twice": 1})
    assert capsys.readouterr().err == (
        "warning: not used: 2 documents without text (their places among the contexts are null), 1 spans seen twice\n"
    )

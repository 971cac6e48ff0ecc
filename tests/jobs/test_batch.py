"""Trace files in, scored files out, with the fake encoder of the cases."""

import json
import os
import time
from contextlib import closing
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from rag_descriptors import Cache, ContextRelevance
from rag_descriptors.errors import CellError, ColumnConflictError, MissingColumnError, OptionError, ScoringError
from rag_descriptors.jobs import batch
from rag_descriptors.jobs.batch import default_descriptors, estimate_traces, score_traces
from rag_descriptors.jobs.config import read_config
from rag_descriptors.testing import FakeEmbedder
from rag_descriptors.traces import formats, readers
from rag_descriptors.traces.readers import Traces, open_traces

SAMPLE = Path(__file__).parents[1] / "data" / "traces_mtrag.jsonl"
FORMATS = ["parquet", "arrow", "stream.arrow", "feather", "jsonl", "json", "csv"]
PIPES = ["ps | grep x", "| a | b |\n|---|---|"]
CASES = [("north?", ["N", "E"]), ("north?", []), ("north?", None), (None, ["N"]), ("east?", ["", "E", None])]
MEANS = [0.75, None, None, None, 1.0]
SCORES = [[1.0, 0.5], [], None, None, [None, 1.0, None]]
STATUSES = ["ok", "no_contexts", "no_contexts", "missing_input", "ok"]


def save(path, table):
    """Write a table in the format of the ending, with the means of others where there are any."""
    frame = table.to_pandas()
    if path.name.endswith("stream.arrow"):
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    elif path.suffix in (".arrow", ".feather"):
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        lists = [field.name for field in table.schema if pa.types.is_nested(field.type)]
        for name in lists:
            frame[name] = [None if cell is None else json.dumps(cell) for cell in table[name].to_pylist()]
        frame.to_csv(path, index=False)
    else:
        rows = [json.dumps(row) for row in table.to_pylist()]
        path.write_text("\n".join(rows) if path.suffix == ".jsonl" else f"[{','.join(rows)}]")
    return path


def load(path):
    return [row for batch in open_traces([str(path)]).batches() for row in batch.to_pylist()]


def cell(value):
    """Return what a cell of CSV means: JSON, or a text; empty is missing."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value or None


@pytest.fixture
def score(relevance, tmp_path):
    """Score files into `out.{ending}`; return its rows."""

    def run(*inputs, ending="parquet", **options):
        output = tmp_path / f"out.{ending}"
        descriptor = options.pop("descriptor", None) or relevance(output_scores=True, output_status=True)
        score_traces(open_traces([str(path) for path in inputs]), output, [descriptor], **options)
        return load(output)

    return run


@pytest.fixture
def cases():
    questions, contexts = zip(*CASES, strict=True)
    return pa.table({
        "id": [1, 2, 3, 4, 5],
        "question": pa.array(questions),
        "contexts": pa.array(contexts, pa.list_(pa.string())),
    })  # fmt: skip


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("ending", ["parquet", "arrow", "feather", "jsonl", "json", "csv"])
def test_every_format_into_every_other(score, cases, tmp_path, source, ending):
    rows = score(save(tmp_path / f"in.{source}", cases), ending=ending)
    read = [{name: cell(value) for name, value in row.items()} for row in rows]
    assert [list(row) for row in read] == [["id", "question", "contexts", "cr", "cr scores", "cr status"]] * 5
    assert [int(row["id"]) for row in read] == [1, 2, 3, 4, 5]
    assert [row["question"] for row in read] == [question for question, _ in CASES]
    assert [cell(row["contexts"]) for row in read] == [contexts for _, contexts in CASES]
    assert [row["cr"] for row in read] == MEANS
    assert [row["cr scores"] for row in read] == SCORES
    assert [row["cr status"] for row in read] == STATUSES


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "json", "csv"])
def test_a_scored_file_can_be_scored_again(score, cases, tmp_path, ending):
    first = score(save(tmp_path / "in.parquet", cases), ending=ending)
    (tmp_path / f"out.{ending}").rename(tmp_path / f"again.{ending}")
    with pytest.raises(ColumnConflictError, match="'cr scores' of ContextRelevance is in the table already"):
        score(tmp_path / f"again.{ending}", ending=ending)
    assert score(tmp_path / f"again.{ending}", ending=ending, on_conflict="overwrite") == first


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json"])
def test_f10_contexts_with_the_delimiter_stay_what_they_are(score, tmp_path, ending):
    source = save(tmp_path / f"in.{ending}", pa.table({"question": ["a,b\n"], "contexts": [PIPES]}))
    (row,) = score(source, ending=ending)
    assert cell(row["contexts"]) == PIPES
    assert row["question"] == "a,b\n"


@pytest.mark.parametrize("source", ["csv", "parquet", "jsonl"])
def test_f01_contexts_as_json_text(score, tmp_path, source):
    table = pa.table({"question": ["north?", "north?"], "contexts": ['["N", "E"]', "[{'text': 'NE'}]"]})
    rows = score(save(tmp_path / f"in.{source}", table))
    assert [row["cr scores"] for row in rows] == [[1.0, 0.5], [0.8]]
    assert [row["contexts"] for row in rows] == table["contexts"].to_pylist()  # as they came


def test_f04_what_pandas_writes_and_reads_back(score, tmp_path):
    frame = pd.DataFrame({"question": ["north?"] * 3, "contexts": [["N", "E"], [], None]})
    frame.to_parquet(tmp_path / "in.parquet")
    again = pd.read_parquet(tmp_path / "in.parquet")
    assert isinstance(again["contexts"][0], np.ndarray)
    again.to_parquet(tmp_path / "again.parquet")
    for name in ("in.parquet", "again.parquet"):
        assert [row["cr"] for row in score(tmp_path / name)] == [0.75, None, None]


@pytest.mark.parametrize(
    "contexts",
    [
        pa.array([[{"text": "N", "score": 0.1}, {"text": "E", "score": None}], None]),
        pa.array([["N", "E"], None], pa.large_list(pa.large_string())),
        pa.array([["N", "E"], None], pa.list_view(pa.string())),
        pa.array([["N", "E"], None], pa.list_(pa.string(), 2)),
        pa.array([["N", "E"], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.array(['["N", "E"]', None]).dictionary_encode(),
        pa.array(['["N", "E"]', None], pa.string_view()),
        pa.array([b'["N", "E"]', None]),
        pa.array([[b"N", b"E"], None]),
    ],
    ids=lambda array: str(array.type),
)
def test_contexts_of_every_arrow_type(score, tmp_path, contexts):
    questions = pa.array(["north?", "north?"]).dictionary_encode()
    rows = score(save(tmp_path / "in.arrow", pa.table({"question": questions, "contexts": contexts})), ending="arrow")
    assert [row["cr scores"] for row in rows] == [[1.0, 0.5], None]
    assert [row["contexts"] for row in rows] == contexts.to_pylist()


def test_the_callers_own_columns_are_untouched(score, tmp_path):
    own = {
        "nan": pa.array([float("nan"), None]),
        "category": pa.array(["x", None]).dictionary_encode(),
        "large": pa.array(["x", None], pa.large_string()),
        "when": pa.array([1, None], pa.timestamp("ns", "Europe/Berlin")),
        "price": pa.array([Decimal("1.50"), None]),
        "binary": pa.array([b"\xff", None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "nested": pa.array([[[1], None], None]),
        "struct": pa.array([{"a": [1.5]}, None]),
        "small": pa.array([1, None], pa.int8()),
        "nothing": pa.nulls(2),
    }
    table = pa.table({"question": ["north?"] * 2, "contexts": [["N"], ["E"]], **own})
    score(save(tmp_path / "in.parquet", table))
    scored = pa.parquet.read_table(tmp_path / "out.parquet")
    for name, column in own.items():
        assert str(scored[name].to_pylist()) == str(column.to_pylist())
        assert scored.schema.field(name).type == pa.parquet.read_schema(tmp_path / "in.parquet").field(name).type


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_f12_no_rows(score, cases, tmp_path, source, ending):
    assert score(save(tmp_path / f"in.{source}", cases.slice(0, 0)), ending=ending) == []
    if ending == "parquet":
        read = pd.read_parquet(tmp_path / "out.parquet")
        assert list(read.columns[-3:]) == ["cr", "cr scores", "cr status"]
        fields = pa.parquet.read_schema(tmp_path / "out.parquet")
        assert fields.field("cr").type == pa.float64()
        assert fields.field("cr scores").type.value_type == pa.float64()


def test_f12_no_rows_of_hits(score, relevance, tmp_path):
    (tmp_path / "in.jsonl").touch()
    descriptor = relevance(aggregation_method="hit")
    assert score(tmp_path / "in.jsonl", descriptor=descriptor) == []
    assert pa.parquet.read_schema(tmp_path / "out.parquet").field("cr").type == pa.int64()
    assert pd.read_parquet(tmp_path / "out.parquet")["cr"].dtype == "int64"


def test_plain_pandas_reads_what_was_written(score, cases, tmp_path):
    score(save(tmp_path / "in.jsonl", cases))
    read = pd.read_parquet(tmp_path / "out.parquet")
    assert read["cr"].dtype == "float64"
    assert read["cr"].fillna(-1).tolist() == [0.75, -1, -1, -1, 1.0]
    assert read["cr scores"][0].tolist() == [1.0, 0.5]
    assert read["cr scores"][2] is None
    assert np.isnan(read["cr scores"][4]).tolist() == [True, False, True]


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_f58_missing_scores_are_null_in_json(score, cases, tmp_path, ending):
    table = cases.append_column("mine", pa.array([float("nan"), 1.0, None, float("inf"), 2.0]))
    score(save(tmp_path / "in.parquet", table), ending=ending)
    text = (tmp_path / f"out.{ending}").read_text("utf-8")
    assert not any(word in text for word in ("NaN", "Infinity"))
    assert '"mine": null, "cr": 0.75' in text
    assert '"cr": null, "cr scores": []' in text
    assert '"cr": 1.0, "cr scores": [null, 1.0, null]' in text


def test_many_rows_in_many_files_and_batches(score, embedder, tmp_path):
    n = readers.ROWS_AT_ONCE + 2
    rows = [{"n": i, "question": "north?" if i % 2 else "east?", "contexts": ["N", "NE"][: i % 3]} for i in range(n)]
    for name in ("1.jsonl", "2.jsonl"):
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    scored = score(tmp_path / "1.jsonl", tmp_path / "2.jsonl")
    means = {(0, 1): 0.5, (0, 2): 0.7, (1, 1): 1.0, (1, 2): 0.9}
    assert [row["n"] for row in scored] == [*range(n), *range(n)]
    assert [row["cr"] for row in scored] == [pytest.approx(means.get((i % 2, i % 3))) for i in range(n)] * 2
    assert sorted(embedder.texts) == ["N", "NE", "east?", "north?"]  # each text once, over all batches


@pytest.mark.parametrize(("limit", "n"), [(0, 0), (1, 1), (7, 7), (None, 10)])
def test_a_limit_counts_over_all_files(score, cases, tmp_path, limit, n):
    first, second = save(tmp_path / "1.csv", cases), save(tmp_path / "2.csv", cases)
    assert len(score(first, second, limit=limit)) == n


def test_the_sample_keeps_its_rows(score, tmp_path):
    rows = [json.loads(line) for line in SAMPLE.read_text("utf-8").splitlines()]
    scored = score(SAMPLE, ending="jsonl")
    assert [{name: row[name] for name in rows[0]} for row in scored] == rows
    assert [row["cr status"] for row in scored] == ["ok" if row["contexts"] else "no_contexts" for row in rows]


# --- what goes wrong


@pytest.mark.parametrize("source", ["csv", "jsonl", "parquet"])
def test_a_bad_cell_far_down_is_told_before_anything_is_encoded(score, embedder, tmp_path, source):
    contexts = ['["N"]'] * 9000 + ["['N' 'E']"]
    path = save(tmp_path / f"in.{source}", pa.table({"question": ["north?"] * 9001, "contexts": contexts}))
    with pytest.raises(CellError, match=r"column 'contexts' can't be read:\s+row 9000: .*Save lists as JSON"):
        score(path)
    assert embedder.texts == []
    assert list(tmp_path.iterdir()) == [path]
    assert len(score(path, limit=9000)) == 9000  # the bad cell is not among the first rows


def test_an_earlier_output_is_untouched_by_a_failed_run(score, cases, relevance, tmp_path):
    def fails(questions, contexts):
        raise RuntimeError("the scorer is down")

    path = save(tmp_path / "in.csv", cases)
    output = tmp_path / "out.parquet"
    output.write_bytes(b"an earlier output")
    with pytest.raises(ValueError, match="the scorer is down"):
        score(path, descriptor=relevance(method=fails))
    assert output.read_bytes() == b"an earlier output"
    assert sorted(tmp_path.iterdir()) == [path, output]


@pytest.mark.parametrize("name", ["in.jsonl", "link.jsonl", "other.jsonl"])
def test_an_output_must_not_be_an_input(cases, relevance, tmp_path, name):
    path = save(tmp_path / "in.jsonl", cases)
    (tmp_path / "link.jsonl").symlink_to(path)
    (tmp_path / "other.jsonl").hardlink_to(path)
    before = path.read_bytes()
    with pytest.raises(OptionError, match="is one of the inputs"):
        score_traces(open_traces([str(path)]), tmp_path / name, [relevance()])
    assert path.read_bytes() == before


def test_an_output_in_a_folder_of_inputs_is_not_read_by_its_own_run(cases, relevance, tmp_path):
    save(tmp_path / "in.jsonl", cases)
    output = tmp_path / "out.jsonl"
    assert score_traces(open_traces([str(tmp_path)]), output, [relevance()]).rows == 5
    with pytest.raises(OptionError, match="is one of the inputs"):
        score_traces(open_traces([str(tmp_path)]), output, [relevance()])


def test_missing_columns(cases, relevance, tmp_path):
    path = save(tmp_path / "in.parquet", cases.rename_columns(["id", "question", "context"]))
    with pytest.raises(MissingColumnError, match=r"column 'contexts' is missing\. Did you mean 'context'"):
        score_traces(open_traces([str(path)]), tmp_path / "out.csv", [relevance()])


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        (["question", "contexts"], {}, ("question", "contexts")),
        (["user_input", "retrieved_contexts", "x"], {}, ("user_input", "retrieved_contexts")),
        (["q", "contexts"], {"question": "q"}, ("q", "contexts")),
        (["query", "docs"], {"contexts": "docs"}, ("query", "docs")),
        ([], {}, ("question", "contexts")),
        ([], {"question": "q", "contexts": "c"}, ("q", "c")),
        (["x"], {"question": "q", "contexts": "c"}, ("q", "c")),  # planning tells that they are missing
    ],
)
def test_default_descriptors(columns, options, expected):
    (descriptor,) = default_descriptors(named(columns), **options)
    assert descriptor == ContextRelevance(*expected, output_scores=True, output_status=True)


def named(columns):
    """Traces that have these columns, and no row."""
    return Traces([], pa.schema([(name, pa.string()) for name in columns]), [])


def test_unknown_columns_name_the_way_out():
    with pytest.raises(OptionError) as error:
        default_descriptors(named(["frage", "texte"]))
    first, second = str(error.value).splitlines()
    assert "no column of question is known among 'frage', 'texte'. Name it with --question COLUMN" in first
    assert "no column of contexts is known among 'frage', 'texte'. Name it with --contexts COLUMN" in second


# --- the cache


def test_a_cache_is_filled_and_used(score, cases, embedder, tmp_path):
    path, store = save(tmp_path / "in.csv", cases), tmp_path / "store" / "c.sqlite"
    first = score(path, cache=store)
    assert sorted(embedder.texts) == ["E", "N", "east?", "north?"]
    embedder.texts.clear()
    assert score(path, cache=store) == first
    with closing(Cache(store)) as cache:
        assert score(path, cache=cache) == first
        assert cache.stats().entries == {"vector": 4}  # a cache that was given is left open
    assert embedder.texts == []


def test_values_of_several_kinds_keep_what_they_are(score, tmp_path):
    lines = ['{"question": "q", "contexts": ["a"], "id": 1}', '{"question": "r", "contexts": "b", "id": "x"}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    score(tmp_path / "in.jsonl", ending="jsonl")
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["contexts"], first["id"], second["contexts"], second["id"]) == (["a"], 1, "b", "x")
    assert first["cr status"] == second["cr status"] == "ok"


def test_a_number_among_the_questions(score, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"question": "q", "contexts": ["a"]}\n{"question": 5, "contexts": ["a"]}')
    with pytest.raises(CellError, match=r"column 'question' can't be read:\n  row 1: found int 5"):
        score(tmp_path / "in.jsonl")
    assert not (tmp_path / "out.parquet").exists()


def test_what_a_killed_run_left_is_removed_after_a_day(score, cases, tmp_path):
    for name, age in ((".out.parquet.old.part", 2), (".out.parquet.new.part", 0), (".other.parquet.old.part", 2)):
        (tmp_path / name).touch()
        written = time.time() - age * 86_400
        os.utime(tmp_path / name, (written, written))
    score(save(tmp_path / "in.parquet", cases))
    assert sorted(path.name for path in tmp_path.glob(".*.part")) == [
        ".other.parquet.old.part",
        ".out.parquet.new.part",
    ]


def test_columns_of_a_file_are_checked_too(score, tmp_path, relevance):
    class Broken(ContextRelevance):
        def compute(self, columns):
            computed = super().compute(columns)
            return pa.RecordBatch.from_arrays([pa.array([5.0]), *computed.columns[1:]], schema=computed.schema)

    descriptor = Broken("question", "contexts", method_params={"embedder": FakeEmbedder()}, alias="cr")
    (tmp_path / "in.jsonl").write_text('{"question": "q", "contexts": ["a"]}')
    with pytest.raises(ScoringError, match=r"break their schema: .*5\.0"):
        score(tmp_path / "in.jsonl", descriptor=descriptor)
    assert not (tmp_path / "out.parquet").exists()


# --- workers, provenance, sizes


def test_what_workers_cannot_do_is_told_before_cells_are_read(relevance, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"question": "q", "contexts": "[\'N\' \'E\']"}')
    descriptor = relevance(method=lambda q, c: [1.0] * len(q))
    traces, output = open_traces([str(tmp_path / "in.jsonl")]), tmp_path / "out.csv"
    with pytest.raises(OptionError, match=r"workers: .* can't be sent to another process"):
        score_traces(traces, output, [descriptor], workers=2)
    with pytest.raises(CellError):
        score_traces(traces, output, [descriptor])
    assert not output.exists()


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_workers_write_the_same_file(cases, stub, tmp_path, ending):
    config, problems = read_config(stub("output_scores = true"))
    assert problems == []
    big = pa.concat_tables([cases] * 2000)
    path = save(tmp_path / "in.parquet", big)
    one = score_traces(open_traces([str(path)]), tmp_path / f"1.{ending}", config.descriptors)
    two = score_traces(open_traces([str(path)]), tmp_path / f"2.{ending}", config.descriptors, workers=2)
    assert (tmp_path / f"1.{ending}").read_bytes() == (tmp_path / f"2.{ending}").read_bytes()
    assert two.columns == one.columns
    assert (two.rows, two.texts.distinct, two.texts.cut) == (10_000, 4, 0)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_what_columns_were_made_with_stands_in_the_file(score, cases, tmp_path, relevance, ending):
    path = save(tmp_path / "in.parquet", cases)
    output = tmp_path / f"out.{ending}"
    summary = score_traces(open_traces([str(path)]), output, [relevance(), relevance(alias="other")])
    schema = pa.parquet.read_schema(output) if ending == "parquet" else pa.ipc.open_file(output).schema
    made = json.loads(schema.metadata[b"rag_descriptors"])
    assert made["cr"]["fingerprint"] == summary.columns["cr"].fingerprint
    assert {name: value for name, value in made["cr"].items() if name != "fingerprint"} == json.loads(
        json.dumps(summary.columns["cr"].provenance)
    )
    assert list(made) == ["cr", "other"]


def test_duckdb_reads_what_was_written(score, cases, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    score(save(tmp_path / "in.jsonl", cases))
    score(save(tmp_path / "in.jsonl", cases), ending="csv")
    query = 'SELECT id, cr, "cr scores", "cr status" FROM \'{}\' ORDER BY id'
    rows = duckdb.sql(query.format(tmp_path / "out.parquet")).fetchall()
    assert rows == list(zip([1, 2, 3, 4, 5], MEANS, SCORES, STATUSES, strict=True))
    rows = duckdb.sql(query.format(tmp_path / "out.csv")).fetchall()
    assert [row[1] for row in rows] == MEANS
    assert json.loads(rows[4][2]) == SCORES[4]


def test_batches_are_bounded_in_bytes(score, cases, tmp_path, monkeypatch):
    path = save(tmp_path / "in.parquet", cases)
    expected = score(path)
    seen = []
    monkeypatch.setattr(batch, "BYTES_AT_ONCE", 1)
    original = batch.select
    monkeypatch.setattr(batch, "select", lambda rows, *more: seen.append(rows.num_rows) or original(rows, *more))
    assert score(path) == expected
    assert seen == [1] * 5


def test_small_files_are_scored_together(relevance, tmp_path, monkeypatch):
    for n in range(60):
        rows = [{"question": "north?", "contexts": ["N"], "n": 2 * n + place} for place in range(2)]
        save(tmp_path / f"{n:02}.parquet", pa.Table.from_pylist(rows))
    seen = []
    original = batch.select
    monkeypatch.setattr(batch, "select", lambda rows, *more: seen.append(rows.num_rows) or original(rows, *more))
    monkeypatch.setattr(batch, "GATHERED_ROWS", 50)
    traces = open_traces([str(tmp_path)])
    summary = score_traces(traces, tmp_path / "out.jsonl", [relevance()])
    assert (seen, summary.rows) == ([50, 50, 20], 120)
    assert [row["n"] for row in load(tmp_path / "out.jsonl")] == list(range(120))
    seen.clear()
    monkeypatch.setattr(batch, "GATHERED_BYTES", 1)
    estimate_traces(traces, [relevance()])
    assert seen == [2] * 60


def test_batches_that_cannot_be_joined_are_scored_apart(relevance, tmp_path):
    kind = pa.dictionary(pa.int8(), pa.string())
    for n in range(2):
        texts = pa.array([f"{n} {place}" for place in range(100)]).dictionary_encode().cast(kind)
        table = pa.table({"question": ["north?"] * 100, "contexts": [["N"]] * 100, "kind": texts})
        with pa.ipc.new_file(tmp_path / f"{n}.arrow", table.schema) as writer:
            writer.write_table(table)
    output = tmp_path / "out" / "out.jsonl"
    output.parent.mkdir()
    assert score_traces(open_traces([str(tmp_path)]), output, [relevance()]).rows == 200
    assert [row["kind"] for row in load(output)][::100] == ["0 0", "1 0"]


def test_nan_is_missing_in_files(tmp_path, relevance):
    class Nan(ContextRelevance):
        def compute(self, columns):
            computed = super().compute(columns)
            return computed.set_column(0, computed.schema.field(0), pa.array([0.5, float("nan")]))

    (tmp_path / "in.jsonl").write_text('{"question": "q", "contexts": ["a"]}\n' * 2)
    descriptor = Nan("question", "contexts", method_params={"embedder": FakeEmbedder()}, alias="cr")
    summary = score_traces(open_traces([str(tmp_path / "in.jsonl")]), tmp_path / "out.parquet", [descriptor])
    assert pa.parquet.read_table(tmp_path / "out.parquet")["cr"].to_pylist() == [0.5, None]
    assert (summary.columns["cr"].n_scored, summary.columns["cr"].mean) == (1, 0.5)


def test_all_columns_with_bad_cells_are_named(score, tmp_path):
    rows = [{"question": 5 if n == 3 else "q", "contexts": "['N' 'E']" if n > 4000 else "[]"} for n in range(9000)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(CellError) as error:
        score(tmp_path / "in.jsonl")
    assert "column 'question' can't be read:\n  row 3: " in str(error.value)
    assert "column 'contexts' can't be read:\n  row 4001: " in str(error.value)


@pytest.mark.parametrize("bytes_at_once", [batch.BYTES_AT_ONCE, 1])
def test_of_several_files_the_one_with_the_bad_cell_is_named(relevance, tmp_path, monkeypatch, bytes_at_once):
    monkeypatch.setattr(batch, "BYTES_AT_ONCE", bytes_at_once)
    monkeypatch.setattr(formats, "ROWS_AT_ONCE", 40)
    for name, bad in (("1.jsonl", None), ("2.jsonl", 50)):
        rows = [{"question": 5 if n == bad else "q", "contexts": []} for n in range(60)]
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
    both = open_traces([str(tmp_path / name) for name in ("1.jsonl", "2.jsonl")])
    alone, output = open_traces([str(tmp_path / "2.jsonl")]), tmp_path / "out.csv"
    for traces, place in ((both, f"{tmp_path / '2.jsonl'}, row 50"), (alone, "row 50")):
        for run in (estimate_traces, partial(score_traces, output=output)):
            with pytest.raises(CellError) as error:
                run(traces, descriptors=[relevance()])
            assert str(error.value).startswith(f"column 'question' can't be read:\n  {place}: found int 5 where")
    assert estimate_traces(both, [relevance()], limit=110).rows == 110


def test_renamed_columns_without_rows(relevance, tmp_path):
    (tmp_path / "in.jsonl").touch()
    traces = open_traces([str(tmp_path / "in.jsonl")])
    score_traces(traces, tmp_path / "out.parquet", [relevance()], columns={"question": "frage"})
    assert pa.parquet.read_schema(tmp_path / "out.parquet").names == ["frage", "contexts", "cr"]

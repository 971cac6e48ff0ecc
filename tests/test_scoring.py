import sqlite3
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rag_descriptors import Cache, ContextRelevance, add_descriptors
from rag_descriptors.errors import CacheError, CellError, ModelNotFoundError, PlanError, ScoringError, TruncationWarning
from rag_descriptors.planning import input_schema, plan
from rag_descriptors.schemas import score_field, status_field
from rag_descriptors.scoring import Run, describe, models_of, score_batches, summarise
from rag_descriptors.summary import Account
from rag_descriptors.testing import FakeEmbedder
from rag_descriptors.traces.columns import CONTEXTS, TEXT

INPUT = pa.schema([("question", TEXT), ("contexts", CONTEXTS)])


QUESTION = pa.schema([("question", TEXT)])
SCORE = pa.schema([score_field("given")])


@dataclass(frozen=True)
class Given:
    """A descriptor that promises and computes what it is told to."""

    computed: object
    outputs: pa.Schema = SCORE
    inputs: pa.Schema = QUESTION
    name: str = "given"
    seen: list = field(default_factory=list, compare=False)

    def compute(self, columns):
        self.seen.append(columns)
        return self.computed


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


TRACES = pd.DataFrame({"question": ["a", None], "n": [1, 2]})


def test_a_plugin_gets_its_inputs_as_arrow():
    plugin = Given(batch(given=[0.5, None]))
    assert add_descriptors(TRACES, plugin)["given"].tolist() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert plugin.seen[0].schema == plugin.inputs
    assert plugin.seen[0].to_pydict() == {"question": ["a", None]}


def test_a_plugin_may_read_other_types():
    plugin = Given(batch(given=[0.5, 1.0]), inputs=pa.schema([("n", pa.float64())]))
    assert add_descriptors(TRACES, plugin)["given"].tolist() == [0.5, 1.0]
    assert plugin.seen[0].to_pydict() == {"n": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("computed", "message"),
    [
        (batch(given=[0.5]), "for 2 rows and computed 1 rows"),
        (batch(given=[0.5, 1.0, 1.0]), "computed 3 rows"),
        (batch(other=[0.5, 1.0]), r"promised \['given'\] for 2 rows and computed 2 rows of other: double"),
        (batch(given=[1, 0]), "computed 2 rows of given: int64"),
        ({"given": [0.5, 1.0]}, "computed a dict. It must return a pyarrow.RecordBatch"),
        (None, "computed a NoneType"),
        (batch(given=[0.5, 1.5]), r"break their schema: .*in_range\(0.0, 1.0\).*1.5.*Run check_descriptor"),
    ],
)
def test_a_plugin_that_breaks_its_promise(computed, message):
    with pytest.raises(ScoringError, match=message):
        add_descriptors(TRACES, Given(computed))


def test_a_plugin_whose_score_is_no_number():
    with pytest.raises(PlanError, match=r"promises a score column that holds no numbers\. Make it with score_field"):
        add_descriptors(TRACES, Given(None, pa.schema([("given", pa.string())])))


def test_a_plugin_without_its_score_column():
    with pytest.raises(PlanError, match=r"promises no column 'other', its name\. Add it to its outputs"):
        add_descriptors(TRACES, Given(batch(given=[0.5, 1.0]), name="other"))


class Nameless:
    inputs = outputs = pa.schema([])


@pytest.mark.parametrize("item", [ContextRelevance, None, 3, np.array([1, 2]), TRACES, Nameless()])
def test_what_is_no_descriptor(relevance, item):
    for given in (item, [relevance(), item]):
        with pytest.raises(PlanError, match=r"is no descriptor\. Give objects such as ContextRelevance"):
            plan(given, ["question", "contexts"])


def test_plan_lists_descriptors(relevance):
    one, other = relevance(), relevance(alias="other")
    columns = ["question", "contexts"]
    assert plan(one, columns) == [one]
    assert plan((one, other), columns) == plan([one, other], columns) == [one, other]
    assert plan([], columns) == []


def test_a_column_read_as_two_types(relevance):
    plugin = Given(None, inputs=pa.schema([("contexts", TEXT)]))
    with pytest.raises(PlanError, match=r"column 'contexts' can't be read as .*string.* and as .* in one call"):
        plan([relevance(), plugin], ["question", "contexts"])


def test_input_schema_names_each_column_once(relevance):
    schema = input_schema([relevance(), relevance(alias="other"), Given(None)])
    assert schema == INPUT


def test_batches_are_scored_with_one_cache_and_one_account(relevance, embedder):
    with Run([relevance(output_status=True)]) as run:
        outputs = [
            run.score(pa.RecordBatch.from_pydict({"question": ["north?"], "contexts": [contexts]}, schema=INPUT))
            for contexts in (["N"], ["N", "E"], None)
        ]
        summary = run.summary()
    assert [output.to_pydict()["cr"] for output in outputs] == [[1.0], [0.75], [None]]
    assert all(output.schema == run.outputs for output in outputs)
    assert embedder.texts == ["north?", "N", "E"]
    assert (summary.rows, summary.texts.distinct, summary.texts.encoded) == (3, 3, 3)
    assert summary.columns["cr"].statuses == {"no_contexts": 1, "ok": 2}


STATUS = status_field("given status")


@pytest.mark.parametrize(
    ("computed", "outputs", "statuses"),
    [
        (batch(given=[0.5, None]), SCORE, {"not_scored": 1, "ok": 1}),
        (batch(**{"given": [0.5, None], "given status": ["ok", "odd"]}), SCORE, {"odd": 1, "ok": 1}),
        (
            batch(**{"given": [0.5, None], "given status": ["ok", "odd"]}),
            pa.schema([score_field("given"), STATUS]),
            {"odd": 1, "ok": 1},
        ),
    ],
)
def test_statuses_of_plugins(computed, outputs, statuses):
    with Run([Given(computed, outputs)]) as run:
        run.score(batch(question=["a", "b"]))
        assert run.summary().columns["given"].statuses == statuses


def test_on_error_raise_for_plugins():
    with pytest.raises(ScoringError, match="'given': 1 rows failed, the first, row 1, with status 'not_scored'"):
        add_descriptors(TRACES, Given(batch(given=[0.5, None])), on_error="raise")


def test_provenance_of_plugins():
    plugin = Given(batch(given=[0.5, 1.0]))
    with Run([plugin]) as run:
        provenance = run.summary().columns["given"].provenance
    assert {key: provenance[key] for key in ("descriptor", "options")} == {
        "descriptor": "Given",
        "options": repr(plugin),
    }


def test_a_cache_of_the_callers_stays_open(relevance, table, embedder, tmp_path):
    cache = Cache(tmp_path / "cache.sqlite")
    for _ in range(2):
        add_descriptors(table(("north?", ["N"])), relevance(), cache=cache)
    assert embedder.texts == ["north?", "N"]
    assert cache.stats().entries == {"vector": 2}
    cache.close()


def test_a_cache_by_path(relevance, table, embedder, tmp_path):
    for path in (tmp_path / "cache.sqlite", str(tmp_path / "cache.sqlite")):
        add_descriptors(table(("north?", ["N"])), relevance(), cache=path)
    assert embedder.texts == ["north?", "N"]
    with sqlite3.connect(tmp_path / "cache.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM answer").fetchone() == (2,)
    connection.close()


def test_without_a_cache_nothing_is_kept(relevance, table, embedder):
    for _ in range(2):
        add_descriptors(table(("north?", ["N"])), relevance())
    assert embedder.texts == ["north?", "N"] * 2


def test_a_cache_that_cannot_be_opened(relevance, table, embedder, tmp_path):
    with pytest.raises(CacheError, match="can't be used"):
        add_descriptors(table(("north?", ["N"])), relevance(), cache=tmp_path)
    assert embedder.texts == []


class Lost(FakeEmbedder):
    def identity(self, role):
        raise ModelNotFoundError("model 'lost' is nowhere")


def test_a_lost_model_is_reported_before_a_cache_is_made(relevance, table, tmp_path):
    with pytest.raises(ModelNotFoundError, match="model 'lost' is nowhere"):
        add_descriptors(table(), relevance(method_params={"embedder": Lost()}), cache=tmp_path / "cache.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_one_warning_for_all_that_was_cut(relevance, table):
    embedder = FakeEmbedder(max_tokens=1)
    descriptors = [relevance(method_params={"embedder": embedder}, alias=alias) for alias in ("a", "b")]
    with pytest.warns(TruncationWarning) as caught:
        add_descriptors(table(("one two", ["three four", "five"]), ("one two", ["six seven"])), descriptors)
    assert [str(warning.message).split(" are longer")[0] for warning in caught] == ["3 of 4 distinct texts"]


def test_batches_of_any_engine(relevance, embedder):
    raw = [
        pa.RecordBatch.from_pydict({"contexts": ['["N", "E"]'], "more": [1], "question": ["north?"]}),
        pa.RecordBatch.from_pydict({"contexts": ["N"], "more": [2], "question": [" "]}),
    ]
    results = list(score_batches(iter(raw), [relevance(output_status=True)]))
    assert [batch.to_pydict() for batch, _ in results] == [
        {"cr": [0.75], "cr status": ["ok"]},
        {"cr": [None], "cr status": ["missing_input"]},
    ]
    assert [(account.rows, account.texts.distinct) for _, account in results] == [(1, 3), (1, 0)]
    total = Account()
    for _, account in results:
        total.merge(account)
    summary = summarise(total, describe([relevance()]), 0)
    assert (summary.rows, summary.columns["cr"].mean, summary.columns["cr"].n_total) == (2, 0.75, 2)
    assert summary.columns["cr"].statuses == {"missing_input": 1, "ok": 1}


def test_rows_of_later_batches_are_named_by_their_place(relevance):
    raw = [pa.RecordBatch.from_pydict({"contexts": [cell] * 2, "question": ["q"] * 2}) for cell in ("[]", "['N' 'E']")]
    with pytest.raises(CellError, match=r"column 'contexts' can't be read:\n  row 2: .*\n  row 3: "):
        list(score_batches(iter(raw), [relevance()]))


def test_no_batches_of_any_engine(relevance):
    assert list(score_batches(iter(()), [relevance()])) == []


def test_columns_are_checked_without_pandas():
    with pytest.raises(ScoringError, match=r"break their schema: column 'given' holds 1.5, .*Run check_descriptor"):
        list(score_batches(iter([batch(question=["a", "b"])]), [Given(batch(given=[0.5, 1.5]))]))


def test_nan_is_a_missing_score():
    with Run([Given(batch(given=[0.5, float("nan")]))]) as run:
        assert run.score(batch(question=["a", "b"])).to_pydict() == {"given": [0.5, None]}
        assert run.summary().columns["given"].statuses == {"not_scored": 1, "ok": 1}


def test_the_models_of_a_descriptor(relevance, embedder):
    assert models_of(relevance()) == [embedder]
    assert models_of(Given(None)) == []


def test_plugins_by_name_fit_a_table(package):
    package("given", GIVEN, Given="given:Given")
    (planned,) = plan(["Given"], ["question"])
    assert planned.name == "given"
    scored = add_descriptors(TRACES, ["Given"])
    assert scored["given"].tolist() == [1.0, 1.0]
    assert add_descriptors(TRACES, "Given").equals(scored)


GIVEN = """
from dataclasses import dataclass
import pyarrow as pa
from rag_descriptors.schemas import score_field

@dataclass(frozen=True)
class Given:
    name: str = "given"
    inputs = pa.schema([("question", pa.string())])
    outputs = pa.schema([score_field("given")])

    def compute(self, columns):
        return pa.record_batch([pa.array([1.0] * columns.num_rows)], schema=self.outputs)
"""

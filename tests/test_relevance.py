import inspect
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_descriptors import ContextRelevance, HitAggregation, add_descriptors, score_frame
from rag_descriptors.conditions import gte, is_in
from rag_descriptors.errors import OptionError, ScoringError
from rag_descriptors.testing import FakeEmbedder, check_descriptor

nan = float("nan")


def ones(questions, contexts):
    return [1.0 for _ in questions]


def test_the_signature_is_evidentlys():
    parameters = inspect.signature(ContextRelevance).parameters
    assert [name for name, item in parameters.items() if item.kind is not item.KEYWORD_ONLY] == [
        "input",
        "contexts",
        "method",
        "method_params",
        "aggregation_method",
        "aggregation_method_params",
        "output_scores",
        "alias",
        "tests",
    ]
    assert parameters["method"].default == "semantic_similarity"


def test_names_of_columns():
    plain = ContextRelevance("question", "docs")
    assert plain.name == "Ranking for question with docs"
    assert plain.inputs == pa.schema([("question", pa.string()), ("docs", pa.list_(pa.string()))])
    full = ContextRelevance(
        "question",
        "docs",
        alias="cr",
        output_scores=True,
        output_reasons=True,
        output_status=True,
        tests=[gte(0.7), is_in([1])],
    )
    assert full.outputs.names == [
        "cr",
        "cr scores",
        "cr reasons",
        "cr status",
        "cr: greater or equal to 0.7",
        "cr in list (1,)",
    ]


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        (
            {"method": "semantic_similarty"},
            ["method: 'semantic_similarty' is unknown. Did you mean 'semantic_similarity'?"],
        ),
        ({"method": None}, ["method: None is unknown"]),
        ({"method": ones, "method_params": {"a": 1}}, ["method_params: a: a callable takes none."]),
        ({"method_params": {"modle": "m"}}, ["method_params: 'modle' is unknown. Did you mean 'model'?"]),
        ({"method_params": ["model"]}, ["method_params: ['model'] is not allowed. Give a dict"]),
        ({"method_params": {"similarity": "dot"}}, ["similarity: 'dot' is unknown. Allowed: 'normalized_cosine'"]),
        ({"method_params": {"embedder": 1}}, ["embedder: 1 has no method 'embed'", "no method 'identity'"]),
        ({"method_params": {"batch_size": 0}}, ["batch_size: 0 is not allowed. Give a whole number from 1."]),
        (
            {"method_params": {"embedder": FakeEmbedder(), "model": "m"}},
            ["method_params: model can't stand beside embedder"],
        ),
        ({"input": ""}, ["input: '' is not allowed. Give the name of a column."]),
        ({"contexts": 3, "alias": ""}, ["contexts: 3 is not", "alias: '' is not"]),
        ({"tests": gte(0.7)}, ["tests: Condition(kind='gte', value=0.7) is no list. Give conditions in one"]),
        ({"tests": [0.7]}, ["tests: 0.7 is no condition. Give those of rag_descriptors.conditions"]),
        ({"output_scores": "yes"}, ["output_scores: 'yes' is unknown"]),
        (
            {"method": "x", "aggregation_method": "y", "input": None, "skip_failed_contexts": 2},
            ["input: None", "skip_failed_contexts: 2", "method: 'x'", "aggregation_method: 'y'"],
        ),
    ],
)
def test_wrong_options_are_all_named_at_once(options, messages):
    with pytest.raises(OptionError) as caught:
        ContextRelevance(**{"input": "q", "contexts": "c", **options})
    assert all(message in str(caught.value) for message in messages)
    assert len(str(caught.value).splitlines()) == len(messages)


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        (None, None, [0.75, 0.9]),
        ("mean", None, [0.75, 0.9]),
        ("hit", None, [1, 1]),
        ("hit_share", {"threshold": 0.9}, [0.5, 1.0]),
        ("max", None, [1.0, 0.9]),
        ("min", None, [0.5, 0.9]),
        (np.median, None, [0.75, 0.9]),
        (HitAggregation(0.95), None, [1, 0]),
    ],
)
def test_aggregations(relevance, table, method, params, expected):
    descriptor = relevance(aggregation_method=method, aggregation_method_params=params)
    assert add_descriptors(table(("north?", ["N", "E"]), ("east?", ["NE"])), descriptor)["cr"].tolist() == expected


ROWS = {
    "null contexts": (("north?", None), None, None, "no_contexts"),
    "no contexts": (("north?", []), None, [], "no_contexts"),
    "blank contexts": (("north?", ["", None]), None, [nan, nan], "no_contexts"),
    "blanks among others": (("north?", ["N", " ", "E"]), 0.75, [1.0, nan, 0.5], "ok"),
    "no question": ((None, ["N"]), None, None, "missing_input"),
    "neither": ((" ", None), None, None, "missing_input"),
    "one failed": (("north?", ["N", "Z"]), None, [1.0, nan], "partial"),
    "all failed": (("north?", ["Z", "Z"]), None, None, "unusable_vector"),
    "failed and blank": (("north?", ["Z", ""]), None, None, "unusable_vector"),
    "the same context twice": (("north?", ["NE", "NE"]), 0.8, [0.8, 0.8], "ok"),
    "one text": (("north?", "NE"), 0.8, [0.8], "ok"),
}


@pytest.mark.parametrize(("row", "score", "scores", "status"), ROWS.values(), ids=ROWS.keys())
def test_missing_is_not_zero(relevance, table, row, score, scores, status):
    scored = add_descriptors(table(row), relevance(output_scores=True, output_reasons=True, output_status=True))
    assert scored["cr"].tolist() == pytest.approx([nan if score is None else score], nan_ok=True, abs=0)
    found = scored["cr scores"][0]
    assert found == (None if scores is None else pytest.approx(scores, nan_ok=True, abs=0))
    was_asked = row[1] is not None and status != "missing_input"
    assert scored["cr reasons"][0] == (
        [None] * len([row[1]] if isinstance(row[1], str) else row[1]) if was_asked else None
    )
    assert scored["cr status"].tolist() == [status]


def test_a_question_that_fails(relevance, table):
    embedder = FakeEmbedder(vectors={"q": (nan, 0), "c": (1, 0)})
    descriptor = relevance(method_params={"embedder": embedder}, output_status=True)
    assert add_descriptors(table(("q", ["c"])), descriptor)["cr status"].tolist() == ["unusable_vector"]


def test_tests_are_nullable(relevance, table):
    scored = add_descriptors(table(("north?", ["N"]), ("north?", ["E"]), (None, ["N"])), relevance(tests=[gte(0.7)]))
    column = scored["cr: greater or equal to 0.7"]
    assert column.dtype == "boolean"
    assert column.tolist() == [True, False, pd.NA]


def test_cosine(relevance, table):
    descriptor = relevance(method_params={"similarity": "cosine"}, output_scores=True)
    scored = add_descriptors(table(("north?", ["N", "NE", "E", "S"]), ("north?", ["S"])), descriptor)
    assert scored["cr scores"].tolist() == [[1.0, 0.6, 0.0, -1.0], [-1.0]]
    assert scored["cr"].tolist() == [0.15, -1.0]


def lengths(questions, contexts):
    assert isinstance(questions, list)
    return np.array([len(question) / len(context) for question, context in zip(questions, contexts, strict=True)])


def test_a_callable_gets_the_pairs_that_are_there(relevance, table):
    traces = table(("ab", ["abcd", None, "ab"]), ("", ["a"]), ("a", ["abcd"]), ("a", []))
    scored = add_descriptors(traces, relevance(method=lengths, output_scores=True))
    assert scored["cr"].tolist() == pytest.approx([0.75, nan, 0.25, nan], nan_ok=True)


def test_a_callable_is_not_called_for_nothing(relevance, table):
    scored = add_descriptors(table(("a", []), (None, ["b"])), relevance(method=lambda *pairs: 1 / 0))
    assert scored["cr"].isna().all()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda questions, contexts: 1 / 0, r"failed on 2 pairs: ZeroDivisionError"),
        (lambda questions, contexts: ["x", "y"], r"failed on 2 pairs: ValueError"),
        (lambda questions, contexts: [1.0], r"gave shape \(1,\) for 2 pairs. It must return one number"),
        (lambda questions, contexts: None, r"gave shape \(\) for 2 pairs"),
        (lambda questions, contexts: [[1.0], [0.5]], r"gave shape \(2, 1\) for 2 pairs"),
        (lambda questions, contexts: [0.5, 1.5], r"gave the score 1.5 for 2 pairs"),
        (lambda questions, contexts: [-0.5, float("inf")], r"gave the score -0.5"),
        (lambda questions, contexts: [0.5, float("inf")], r"gave the score inf"),
    ],
)
def test_a_callable_that_breaks_its_contract(relevance, table, method, message):
    with pytest.raises(ScoringError, match=message):
        add_descriptors(table(("q", ["a", "b"])), relevance(method=method))


def test_an_aggregation_of_ones_own_may_return_any_number(relevance, table):
    scored = add_descriptors(table(("q", ["a", "b"])), relevance(method=ones, aggregation_method=sum))
    assert scored["cr"].tolist() == [2.0]


def test_a_value_object(relevance):
    descriptor = relevance(tests=[gte(0.7)], aggregation_method="hit")
    assert descriptor == relevance(tests=(gte(0.7),), aggregation_method="hit")
    assert hash(descriptor) == hash(relevance(tests=(gte(0.7),), aggregation_method="hit"))
    assert descriptor != relevance(aggregation_method="hit")
    assert pickle.loads(pickle.dumps(descriptor)) == descriptor
    with pytest.raises(AttributeError):
        descriptor.alias = "other"


def test_it_does_not_change_with_what_it_was_made_of():
    params, conditions = {"similarity": "cosine"}, [gte(0.7)]
    descriptor = ContextRelevance("q", "c", method_params=params, tests=conditions)
    params["similarity"] = "normalized_cosine"
    conditions.clear()
    assert descriptor.method_params == {"similarity": "cosine"}
    assert descriptor.tests == (gte(0.7),)


@pytest.mark.parametrize("function", [ones, np.max, partial(max, default=0), "min"])
def test_repr(function):
    shown = repr(ContextRelevance("q", "c", method=ones, aggregation_method=function))
    assert shown.startswith(f"ContextRelevance(input='q', contexts='c', method={__name__}.ones, method_params=None,")
    assert " at 0x" not in shown


def test_provenance(relevance, embedder):
    provenance = relevance(method_params={"similarity": "cosine"}, aggregation_method="hit").provenance
    identity = dict(embedder.identity("query"))
    assert provenance == {
        "descriptor": "ContextRelevance",
        "version": 1,
        "method": {
            "name": "semantic_similarity",
            "similarity": "cosine",
            "long_context": "truncate",
            "query": identity,
            "document": identity,
        },
        "aggregation": "HitAggregation(threshold=0.8)",
        "skip_failed_contexts": False,
    }
    assert relevance(method=ones).provenance["method"] == {"name": f"{__name__}.ones"}


def test_the_fingerprint_changes_with_the_values_only(relevance, table):
    def fingerprint(**options):
        return score_frame(table(), relevance(**options)).summary.columns[options.get("alias", "cr")].fingerprint

    same = [fingerprint(), fingerprint(alias="other"), fingerprint(output_scores=True, tests=[gte(0.5)])]
    other = [
        fingerprint(aggregation_method="hit"),
        fingerprint(aggregation_method="hit", aggregation_method_params={"threshold": 0.5}),
        fingerprint(method_params={"similarity": "cosine"}),
        fingerprint(skip_failed_contexts=True),
        fingerprint(method=ones),
    ]
    assert len({*same}) == 1
    assert len({*same, *other}) == 6


TEXTS = st.none() | st.sampled_from(["", " ", "red", "red apples", "blue sky", "\ud800"]) | st.text(max_size=8)
CONTEXTS = st.none() | st.lists(TEXTS, max_size=5)
FRAMES = st.lists(st.tuples(TEXTS, CONTEXTS), min_size=2, max_size=6)
OPTIONS = st.fixed_dictionaries(
    {
        "aggregation_method": st.sampled_from(["mean", "hit", "hit_share", "max", "min"]),
        "skip_failed_contexts": st.booleans(),
    }
)


@settings(max_examples=25, deadline=None)
@given(FRAMES, OPTIONS)
def test_the_contract(rows, options):
    embedder = FakeEmbedder(vectors={"red": [0.0] * 256})
    descriptor = ContextRelevance(
        "question",
        "contexts",
        method_params={"embedder": embedder},
        output_scores=True,
        output_reasons=True,
        output_status=True,
        tests=[gte(0.5)],
        **options,
    )
    questions, contexts = zip(*rows, strict=True)
    columns = {"question": pd.Series(questions, dtype=object), "contexts": pd.Series(contexts, dtype=object)}
    check_descriptor(descriptor, pd.DataFrame(columns))


def test_an_aggregation_of_ones_own_gets_scores_of_its_own(relevance, table):
    def best(scores):
        scores.sort()
        return scores[-1]

    scored = add_descriptors(table(("north?", ["N", "E"])), relevance(aggregation_method=best, output_scores=True))
    assert scored["cr"].tolist() == [1.0]
    assert scored["cr scores"].tolist() == [[1.0, 0.5]]


@pytest.mark.parametrize("params", [{"revision": 5}, {"device": 5}])
def test_places_are_texts(relevance, params):
    with pytest.raises(OptionError, match=r"is not allowed\. Give a text, or None"):
        ContextRelevance("question", "contexts", method_params=params)


@pytest.mark.parametrize("value", [np.True_, 1.0, 1, "yes"])
def test_flags_are_true_or_false(relevance, value):
    with pytest.raises(OptionError, match="output_scores"):
        relevance(output_scores=value)

import pickle
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest

from rag_descriptors import ContextRelevancy, JudgeError, add_descriptors, score_frame
from rag_descriptors.conditions import gte
from rag_descriptors.errors import OptionError
from rag_descriptors.testing import FakeEmbedder, FakeJudge

YES, NO = {"verdict": "yes"}, {"verdict": "no"}


def said(*verdicts):
    return {"verdicts": list(verdicts)}


def relevancy(judge, **options):
    judge = judge if isinstance(judge, FakeJudge) else FakeJudge(judge)
    params = {"judge": judge, **options.pop("method_params", {})}
    return ContextRelevancy("question", "contexts", method_params=params, **{"alias": "cry", **options})


def table(*rows):
    return pd.DataFrame({"question": [row[0] for row in rows], "contexts": [row[1] for row in rows]})


@pytest.mark.parametrize(
    ("verdicts", "options", "expected"),
    [
        ([YES, YES, YES, NO, NO], {}, 0.6),
        ([YES, YES, YES, NO, NO], {"scale": 100}, 60.0),
        ([YES] * 3, {"scale": 0.1}, 0.1),
        ([YES] * 7 + [NO] * 93, {"scale": 100}, 7.0),
        ([YES, *[NO] * 7], {"decimals": 2}, 0.13),
        ([YES, *[NO] * 7], {}, 0.125),
        ([YES, NO, NO], {"decimals": 0}, 0.0),
        ([YES, NO], {"decimals": 0}, 1.0),
        ([YES], {"scale": 0.125, "decimals": 2}, 0.13),
        ([NO], {}, 0.0),
        ([], {}, 0.0),
    ],
)
def test_the_share_of_statements(verdicts, options, expected):
    scored = add_descriptors(table(("q?", ["c"])), relevancy([said(*verdicts)], **options))
    assert scored["cry"].tolist() == [expected]


def test_a_row_is_one_call():
    judge = FakeJudge([said(YES)])
    traces = table(("q?", ["a", "b", None]), ("q?", ["a", "b", ""]), (None, ["a"]), ("q?", []), ("q?", None))
    scored = add_descriptors(traces, relevancy(judge, output_status=True, output_statements=True))
    assert len(judge.prompts) == 1
    assert scored["cry"].tolist() == pytest.approx([1.0, 1.0, np.nan, np.nan, np.nan], nan_ok=True)
    assert scored["cry status"].tolist() == ["ok", "ok", "missing_input", "no_contexts", "no_contexts"]
    assert scored["cry statements"].tolist()[2:] == [None, None, None]
    assert scored["cry reason"].isna().tolist() == [False, False, True, True, True]


def test_a_response_helps_to_understand():
    judge = FakeJudge([said(YES)])
    traces = table(("q?", ["a"]), ("q?", ["a"])).assign(response=["r!", None])
    add_descriptors(traces, relevancy(judge, output="response"))
    assert ["\nr!\n</response" in prompt.user for prompt in judge.prompts] == [True, False]


def test_a_row_that_fails():
    failing = JudgeError("filtered", status="content_filtered")
    judge = FakeJudge(lambda prompt: said(YES) if "\na\n" in prompt.user else failing)
    options = {"output_status": True, "output_statements": True, "tests": [gte(0.5)]}
    scored = add_descriptors(table(("q?", ["a"]), ("q?", ["b"])), relevancy(judge, **options))
    assert scored["cry status"].tolist() == ["ok", "content_filtered"]
    assert scored["cry reason"].tolist()[1] == "filtered"
    assert scored["cry statements"].tolist()[1] is None
    assert scored["cry: greater or equal to 0.5"].tolist() == [True, pd.NA]


def test_reasons_name_what_was_counted():
    statements = [
        {"context": 1, "statement": "A.", "verdict": "no", "reason": "x"},
        {"statement": "B.", "verdict": "yes"},
        {"verdict": "yes", "reason": "y"},
        {"verdict": "no"},
    ]
    scored = add_descriptors(table(("q?", [None, "c"])), relevancy([said(*statements)], output_statements=True))
    assert scored["cry reason"].item() == (
        "2 of 4 statements bear on the question. Yes: “B.”; (y). No: “A.” (x); a statement without words."
    )
    assert scored["cry statements"].item()[0] == {"context": 1, "statement": "A.", "verdict": "no", "reason": "x"}
    assert scored["cry statements"].item()[1]["context"] is None


def test_repeats():
    judge = FakeJudge([said(YES, NO), said(YES), said(NO)])
    params = {"repeats": 3, "max_concurrency": 1}
    scored = add_descriptors(
        table(("q?", ["c"]), ("q?", [])), relevancy(judge, method_params=params, output_statements=True)
    )
    assert scored["cry"].tolist() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert scored["cry spread"].tolist() == pytest.approx([1.0, np.nan], nan_ok=True)
    assert len(scored["cry statements"][0]) == 2


def test_a_repeat_that_states_nothing_is_not_the_one_that_is_shown():
    judge = FakeJudge([said(), said(YES, NO)])
    asked = relevancy(
        judge, method_params={"repeats": 2, "max_concurrency": 1}, output_statements=True, output_status=True
    )
    scored = table(("q?", ["c"])).pipe(add_descriptors, asked)
    assert (scored["cry"].item(), scored["cry spread"].item(), scored["cry status"].item()) == (0.25, 0.5, "ok")
    assert scored["cry reason"].item().startswith("1 of 2 statements bear on the question.")
    assert len(scored["cry statements"].item()) == 2


def test_zero_rows():
    judge = FakeJudge([said(YES)])
    scored = score_frame(table(("q?", ["c"])).iloc[:0], relevancy(judge, output_statements=True, output_status=True))
    assert list(scored.frame)[2:] == ["cry", "cry reason", "cry statements", "cry status"]
    assert scored.frame["cry"].dtype == float
    assert judge.prompts == []


@pytest.fixture
def similar():
    pytest.importorskip("sentencex")
    vectors = {"q?": (1, 0), "Yes it is.": (1, 0), "No.": (0, 1), "So so!": (0.6, 0.8)}
    embedder = FakeEmbedder(vectors=vectors)

    def make(**options):
        params = {"embedder": embedder, **options.pop("method_params", {})}
        options = {"alias": "cry", "output_statements": True, "output_status": True, **options}
        return ContextRelevancy("question", "contexts", method="semantic_similarity", method_params=params, **options)

    return make


def test_sentences_are_statements(similar):
    scored = add_descriptors(table(("q?", ["Yes it is. No.", None, "So so!"]), (None, ["No."]), ("q?", [])), similar())
    assert scored["cry"].tolist() == pytest.approx([2 / 3, np.nan, np.nan], nan_ok=True)
    assert scored["cry status"].tolist() == ["ok", "missing_input", "no_contexts"]
    assert [(held["context"], held["statement"], held["verdict"]) for held in scored["cry statements"][0]] == [
        (0, "Yes it is.", "yes"),
        (0, "No.", "no"),
        (2, "So so!", "yes"),
    ]
    assert scored["cry reason"][0] == (
        "2 of 3 statements bear on the question. Yes: “Yes it is.”; “So so!”. No: “No.”."
    )


@pytest.mark.parametrize(("threshold", "expected"), [(0.5, 1.0), (0.8, 2 / 3), (0.81, 1 / 3), (1, 1 / 3)])
def test_threshold(similar, threshold, expected):
    scored = add_descriptors(table(("q?", ["Yes it is. No. So so!"])), similar(method_params={"threshold": threshold}))
    assert scored["cry"].item() == expected


def test_a_threshold_of_numpy(similar):
    scored = add_descriptors(
        table(("q?", ["Yes it is. No."])), similar(method_params={"threshold": np.float64(0.9)}, output_reason=True)
    )
    assert scored["cry reason"].item() == "1 of 2 statements bear on the question. Yes: “Yes it is.”. No: “No.”."


def test_a_sentence_that_can_t_be_scored(similar):
    embedder = FakeEmbedder(vectors={"q?": (1, 0), "Z.": (0, 0), "Yes it is.": (1, 0)})
    scored = add_descriptors(
        table(("q?", ["Yes it is. Z."]), ("q?", ["Z."])), similar(method_params={"embedder": embedder})
    )
    assert scored["cry"].isna().tolist() == [True, True]
    assert scored["cry status"].tolist() == ["partial", "unusable_vector"]
    assert scored["cry statements"].tolist() == [None, None]


def test_null_contexts(similar):
    scored = add_descriptors(table(("q?", ["Yes it is."]), ("q?", None)), similar())
    assert scored["cry status"].tolist() == ["ok", "no_contexts"]


def test_other_languages(similar):
    embedder = FakeEmbedder()
    scored = add_descriptors(
        table(("你好", ["你好。世界！"])), similar(method_params={"embedder": embedder, "language": "zh"})
    )
    assert [held["statement"] for held in scored["cry statements"].item()] == ["你好。", "世界！"]


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"scale": 0}, ["scale: 0 is not allowed"]),
        ({"scale": True}, ["scale: True"]),
        ({"scale": float("inf")}, ["scale: inf"]),
        ({"decimals": -1}, ["decimals: -1"]),
        ({"decimals": 2.0}, ["decimals: 2.0"]),
        (
            {"method": "x", "output": "", "output_reason": 1},
            ["method: 'x' is unknown", "output: ''", "output_reason: 1"],
        ),
        ({"tests": [1]}, ["tests: 1 is no condition"]),
        ({"method_params": {"model": "m"}}, ["method_params: 'model' is an argument of its own"]),
        ({"model": "m", "method_params": {"judge": FakeJudge([""])}}, ["model: 'm' can't stand beside judge"]),
        ({"model": "m", "method": "semantic_similarity"}, ["model: 'm' is a judge's"]),
        ({"method": "semantic_similarity", "method_params": {"threshold": 2}}, ["threshold: 2"]),
        ({"method": "semantic_similarity", "method_params": {"language": ""}}, ["language: ''"]),
        ({"method": "semantic_similarity", "method_params": {"scale": 1}}, ["method_params: 'scale' is unknown"]),
        (
            {"method": "semantic_similarity", "method_params": {"treshold": 1}},
            ["Did you mean 'threshold'?", "'language'"],
        ),
        (
            {
                "method": "semantic_similarity",
                "model": "m",
                "method_params": {"threshold": 2, "lang": "de", "dtype": 1},
            },
            ["model: 'm' is a judge's", "threshold: 2", "'lang' is unknown", "dtype: 1"],
        ),
        ({"method_params": {"model": "m", "timeout": 0}}, ["is an argument of its own", "timeout: 0"]),
        (
            {"method_params": {"max_cost": 1.0}},
            ["max_cost: without a longest answer no cost is certain. Give max_tokens"],
        ),
        ({"method_params": 1}, ["method_params: 1 is not allowed"]),
    ],
)
def test_wrong_options_are_all_named_at_once(options, problems):
    with pytest.raises(OptionError) as caught:
        ContextRelevancy("q", "c", **options)
    assert all(problem in str(caught.value) for problem in problems)


def test_value_objects():
    made = ContextRelevancy("q", "c", None, "m", 100, method_params={"api_key": "sk-planted-0123456789"})
    assert made == pickle.loads(pickle.dumps(made))
    assert hash(made) == hash(ContextRelevancy("q", "c"))
    assert made.name == "Relevancy of c to q"
    assert "planted" not in repr(made)
    assert made.inputs.names == ["q", "c"]
    assert ContextRelevancy("q", "c", "r").inputs.names == ["q", "c", "r"]
    assert made.provenance["method"]["judge"]["model"] == "m"


def test_a_judge_that_is_none_is_the_models():
    made = ContextRelevancy("q", "c", model="m", method_params={"judge": None})
    assert made.provenance["method"]["judge"]["model"] == "m"


def test_a_misspelt_option_is_not_led_to_one_that_is_refused():
    with pytest.raises(OptionError) as caught:
        ContextRelevancy("q", "c", method_params={"modle": "m"})
    assert "'model'" not in str(caught.value)


def test_the_fingerprint_of_sentences(similar):
    assert similar().provenance["method"]["sentencex"] == version("sentencex")
    assert similar().provenance["method"]["threshold"] == 0.74
    assert similar(method_params={"language": "de"}).provenance != similar().provenance

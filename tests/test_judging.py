import json
import pickle

import pandas as pd
import pyarrow as pa
import pytest

from rag_descriptors import ContextRelevance, ContextRelevancy, JudgeError, LiteLLMJudge, add_descriptors, score_frame
from rag_descriptors.errors import OptionError, ScoringError
from rag_descriptors.testing import FakeJudge, check_descriptor

KEY = "sk-planted-0123456789"


def said(prompt):
    """Judge a context by the number it ends in, over ten."""
    return {"score": int(prompt.user.split("</context")[0].rstrip()[-1]) / 10, "reason": "r"}


def judged(judge, **options):
    params = {"judge": judge, **options.pop("method_params", {})}
    return ContextRelevance("question", "contexts", "llm", params, **{"alias": "cr", **options})


@pytest.fixture
def traces():
    return pd.DataFrame({"question": ["a", "b", "a", None], "contexts": [["x1", "x2"], ["x3"], ["x2", "x4"], ["x5"]]})


@pytest.mark.parametrize("aggregation", ["mean", "hit", "min"])
def test_it_keeps_the_contract(traces, aggregation):
    check_descriptor(
        judged(FakeJudge(said), aggregation_method=aggregation, output_scores=True, output_reasons=True), traces
    )


def test_relevancy_keeps_the_contract(traces):
    replies = {"verdicts": [{"verdict": "yes"}, {"verdict": "no"}]}
    judge = FakeJudge([replies])
    check_descriptor(
        ContextRelevancy("question", "contexts", method_params={"judge": judge}, output_statements=True), traces
    )


def test_each_pair_is_asked_once(traces):
    judge = FakeJudge(said)
    scored = score_frame(traces, judged(judge, output_scores=True, output_reasons=True))
    assert scored.frame["cr scores"].tolist()[:3] == [[0.1, 0.2], [0.3], [0.2, 0.4]]
    assert scored.frame["cr reasons"].tolist()[:3] == [["r", "r"], ["r"], ["r", "r"]]
    assert len(judge.prompts) == 4
    assert scored.summary.judge.prompts == 4


def test_two_descriptors_share_what_they_ask(traces):
    judge = FakeJudge(said)
    score_frame(traces, [judged(judge), judged(judge, alias="best", aggregation_method="max")])
    assert len(judge.prompts) == 4


def test_compute_alone():
    columns = ContextRelevance("question", "contexts", "llm", {"judge": FakeJudge(said)}, alias="cr")
    batch = pa.record_batch({"question": pa.array(["a"]), "contexts": pa.array([["x1"]])})
    assert columns.compute(batch)["cr"].to_pylist() == [0.1]


def test_repeats():
    scores = iter([0.2, 0.6, 0.4, 0.4])
    judge = FakeJudge(lambda _: {"score": next(scores)})
    traces = pd.DataFrame({"question": ["a"], "contexts": [["x", "y"]]})
    params = {"repeats": 2, "max_concurrency": 1}
    scored = add_descriptors(traces, judged(judge, method_params=params, output_scores=True))
    assert scored["cr scores"].item() == pytest.approx([0.4, 0.4])
    assert scored["cr"].item() == pytest.approx(0.4)
    assert scored["cr spread"].item() == pytest.approx(0.5 - 0.3)


def test_a_repeat_that_fails_fails_the_pair():
    judge = FakeJudge([{"score": 0.2}, JudgeError("filtered", status="content_filtered")])
    traces = pd.DataFrame({"question": ["a"], "contexts": [["x"]]})
    params = {"repeats": 2, "max_concurrency": 1}
    scored = add_descriptors(traces, judged(judge, method_params=params, output_status=True, output_reasons=True))
    assert (scored["cr"].isna().item(), scored["cr spread"].isna().item()) == (True, True)
    assert scored["cr status"].item() == "content_filtered"
    assert scored["cr reasons"].item() == ["filtered"]


def test_on_error_raise(traces):
    judge = FakeJudge([{"score": 0.5}, JudgeError("filtered", status="content_filtered")])
    with pytest.raises(ScoringError, match="rows failed"):
        add_descriptors(traces, judged(judge, method_params={"max_concurrency": 1}), on_error="raise")


@pytest.mark.parametrize(
    ("params", "problems"),
    [
        ({"modle": "m"}, ["method_params: 'modle' is unknown. Did you mean 'model'?"]),
        ({"threshold": 0.7}, ["method_params: 'threshold' is unknown"]),
        ({"judge": FakeJudge(["x"]), "model": "m"}, ["method_params: model can't stand beside judge"]),
        ({"judge": 1}, ["judge: 1 has no method 'identity'"]),
        ({"judge": FakeJudge}, ["has no method 'identity'"]),
        ({"prompt": "{question}", "repeats": 0, "timeout": 0}, ["{context} must stand", "repeats: 0", "timeout: 0"]),
        ({"max_tokens": 0, "repeats": True}, ["max_tokens: 0", "repeats: True"]),
        (["model"], ["method_params: ['model'] is not allowed. Give a dict"]),
    ],
)
def test_wrong_options_are_all_named_at_once(params, problems):
    with pytest.raises(OptionError) as caught:
        ContextRelevance("q", "c", "llm", params)
    assert all(problem in str(caught.value) for problem in problems)


def test_value_objects():
    params = {"model": "m", "api_key": KEY, "api_base": f"http://u:{KEY}@localhost/v1?key={KEY}", "repeats": 2}
    relevance = ContextRelevance("q", "c", "llm", params)
    assert relevance == pickle.loads(pickle.dumps(relevance))
    assert KEY not in repr(relevance)
    assert "'api_key': '***'" in repr(relevance)
    assert KEY not in json.dumps(relevance.provenance)
    assert relevance.provenance["method"]["judge"]["api_base"] == "http://localhost/v1"
    assert relevance.outputs.names == ["Ranking for q with c", "Ranking for q with c spread"]


def test_the_fingerprint_tells_prompts_and_models_apart():
    def prints(**params):
        return json.dumps(ContextRelevance("q", "c", "llm", params).provenance)

    variants = [{}, {"model": "m"}, {"prompt": "{question}{context}"}, {"temperature": 1}, {"repeats": 2}]
    assert len({prints(**params) for params in variants}) == 5
    assert prints(timeout=3, max_calls=9, prices={"input": 1, "output": 1}) == prints()


def test_a_judge_of_ones_own_may_be_any_object():
    judge = LiteLLMJudge(model="m")
    assert ContextRelevance("q", "c", "llm", {"judge": judge}).provenance["method"]["judge"]["model"] == "m"

import asyncio
import json
import os
import pickle
import signal
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rag_descriptors import (
    Completion,
    ContextRelevance,
    ContextRelevancy,
    JudgeError,
    LiteLLMJudge,
    add_descriptors,
    ascore_frame,
    score_frame,
)
from rag_descriptors.errors import JudgeWarning, ModelError, OptionError, ScoringError
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


def test_a_repeat_that_cannot_tell_leaves_the_row_in_part():
    judge = FakeJudge([{"score": 0.8}, {"verdict": "UNKNOWN", "score": None, "reason": "too vague"}, {"score": 0.8}])
    traces = pd.DataFrame({"question": ["a"], "contexts": [["x"]]})
    params = {"repeats": 3, "max_concurrency": 1}
    scored = add_descriptors(traces, judged(judge, method_params=params, output_status=True, output_reasons=True))
    assert (scored["cr"].isna().item(), scored["cr status"].item()) == (True, "partial")
    assert scored["cr reasons"].item() == ["too vague"]


def test_what_comes_after_an_awaited_run_is_judged(traces):
    judge = FakeJudge(said)

    async def score_twice():
        await ascore_frame(traces, judged(judge))
        return add_descriptors(traces, judged(judge))

    assert asyncio.run(score_twice())["cr"].notna().sum() == 3
    assert len(judge.prompts) == 8


def test_an_estimate_counts_what_two_descriptors_share_once(traces):
    both = [judged(FakeJudge(said)), judged(FakeJudge(said), alias="other", aggregation_method="hit")]
    estimate = score_frame(traces, both, estimate=True).summary.judge
    done = score_frame(traces, both).summary.judge
    assert (estimate.calls, estimate.prompts) == (done.calls, done.prompts) == (4, 4)
    alone = score_frame(traces, both[0], estimate=True).summary.judge
    assert estimate.prompt_tokens == alone.prompt_tokens


def test_an_estimate_raises_nothing(traces):
    judge = FakeJudge(said)
    estimate = score_frame(traces, judged(judge), estimate=True, on_error="raise").summary
    assert (estimate.judge.calls, judge.prompts) == (4, [])


def test_on_error_raise(traces):
    judge = FakeJudge([{"score": 0.5}, JudgeError("filtered", status="content_filtered")])
    with pytest.raises(ScoringError, match=r"rows failed.* with status 'partial'\. content_filtered: filtered"):
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
        (
            {"temprature": 1, "max_calls": -2, "max_tokens": 0},
            ["'temprature' is unknown", "max_calls: -2", "max_tokens: 0"],
        ),
        ({"max_tokens": 0, "repeats": True}, ["max_tokens: 0", "repeats: True"]),
        (["model"], ["method_params: ['model'] is not allowed. Give a dict"]),
    ],
)
def test_wrong_options_are_all_named_at_once(params, problems):
    with pytest.raises(OptionError) as caught:
        ContextRelevance("q", "c", "llm", params)
    assert all(problem in str(caught.value) for problem in problems)


def test_value_objects():
    params = {"model": "m", "api_key": KEY, "api_base": "http://localhost/v1", "repeats": 2}
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


def test_numbers_of_numpy():
    params = {"max_calls": np.int64(5), "timeout": np.float64(3), "repeats": np.int64(2), "max_tokens": 9}
    made = ContextRelevance("q", "c", "llm", params)
    assert made.outputs.names == ["Ranking for q with c", "Ranking for q with c spread"]
    assert json.dumps(made.provenance) == json.dumps(
        ContextRelevance("q", "c", "llm", {"repeats": 2, "max_tokens": 9}).provenance
    )


class Odd(FakeJudge):
    """A judge that breaks its contract in the way that is its reply."""

    async def complete(self, prompt):
        if isinstance(self.replies, BaseException):
            raise self.replies
        return self.replies


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("a text", "the judge gave 'a text'. It must return a Completion of a text."),
        (None, "the judge gave None"),
        (Completion(b"{}"), "It must return a Completion of a text"),
        (Completion(None), "It must return a Completion of a text"),
        (asyncio.CancelledError(), "Odd failed: CancelledError()"),
        (SystemExit(3), "Odd failed: SystemExit(3)"),
        (TimeoutError("mine"), "Odd failed: TimeoutError('mine')"),
    ],
)
def test_a_judge_that_breaks_its_contract(reply, told):
    traces = pd.DataFrame({"question": ["a"], "contexts": [["x1"]]})
    for _ in range(2):
        scored = add_descriptors(traces, judged(Odd(reply), output_status=True, output_reasons=True))
        assert scored["cr status"].item() == "judge_error"
        assert told in scored["cr reasons"].item()[0]
    assert add_descriptors(traces, judged(FakeJudge(said)))["cr"].item() == 0.1  # others are asked as before


def test_a_judge_without_an_identity():
    class Nameless(FakeJudge):
        def identity(self):
            return None

    with pytest.raises(ModelError, match=r"is None: it is a NoneType\. It must be a dict"):
        add_descriptors(pd.DataFrame({"question": ["a"], "contexts": [["x1"]]}), judged(Nameless(said)))


def test_a_judge_may_have_a_method_ask_of_its_own(traces):
    class Asking(FakeJudge):
        def ask(self):
            raise AssertionError

    assert add_descriptors(traces, judged(Asking(said)))["cr"].notna().sum() == 3


@pytest.mark.parametrize("text", ['{"score": 0.5, "reason": "half \\ud83d"}', "prose \ud83d", '{"score": "\ud83d"}'])
def test_lone_surrogates_in_answers_cost_no_row(tmp_path, text):
    judge = FakeJudge(lambda prompt: text if "x1" in prompt.user else {"score": 1.0, "reason": "r"})
    traces = pd.DataFrame({"question": ["a", "b"], "contexts": [["x1"], ["x2"]]})
    for _ in range(2):
        scored = add_descriptors(traces, judged(judge, output_reasons=True), cache=tmp_path / "cache")
        assert scored["cr"].tolist()[1] == 1.0
        assert "\ufffd" in scored["cr reasons"][0][0]


def test_a_task_with_a_lone_surrogate(traces):
    judge = FakeJudge(said)
    add_descriptors(traces, judged(judge, method_params={"prompt": "half \ud83d {question}{context}"}))
    assert judge.prompts[0].user.startswith("half \ufffd ")


def test_secrets_are_taken_out_of_what_a_judge_of_ones_own_raises(traces):
    good = FakeJudge(said)
    bad = FakeJudge([JudgeError("GET http://host/?key=abcdefgh failed", remedy="stop")], "bad")
    both = [judged(good), judged(bad, alias="other", output_reasons=True)]
    with pytest.warns(JudgeWarning, match=r"key=\*\*\* failed") as told:
        scored = score_frame(traces, both)
    assert "abcdefgh" not in f"{scored.frame.to_dict()}{scored.summary}{[str(one.message) for one in told]}"
    with pytest.raises(JudgeError, match=r"key=\*\*\* failed") as raised:
        score_frame(traces, judged(bad))
    assert "abcdefgh" not in str(raised.value)


def test_what_is_paid_for_is_kept_when_the_next_judge_fails(traces):
    good, bad = FakeJudge(said), FakeJudge([JudgeError("wrong key", remedy="stop")], "bad")
    both = [judged(good), judged(bad, alias="other", output_status=True)]
    with pytest.warns(JudgeWarning, match="wrong key Finished rows are kept"):
        scored = score_frame(traces, both)
    assert scored.frame["cr"].notna().sum() == 3
    assert scored.frame["other status"].tolist() == ["judge_error"] * 3 + ["missing_input"]
    assert scored.summary.judge.failures == {"judge_error": 4}
    assert len(bad.prompts) == 1


def test_a_budget_that_can_t_be_kept_is_told_of_before_anything_is_paid_for(traces, tmp_path):
    good, other = FakeJudge(said), FakeJudge(said, "other")
    both = [judged(good), judged(other, alias="other", method_params={"max_cost": 1.0})]
    for estimate in (True, False):
        with pytest.raises(JudgeError, match=r"max_cost: .* can't tell what a call may cost"):
            score_frame(traces, both, cache=tmp_path / "cache", estimate=estimate)
        kept = [path.name for path in tmp_path.iterdir()]
        assert kept == ["cache"] * (not estimate), "the cache is left open"
    assert good.prompts == other.prompts == []


def test_who_no_longer_waits_pays_no_more():
    class Slow(FakeJudge):
        async def complete(self, prompt):
            self.prompts.append(prompt)
            await asyncio.sleep(0.05)
            return Completion('{"score": 0.5}')

    judge = Slow([])
    traces = pd.DataFrame({"question": ["a"] * 400, "contexts": [[f"x{n}"] for n in range(400)]})

    async def cancelled():
        task = asyncio.create_task(ascore_frame(traces, judged(judge, method_params={"max_concurrency": 2})))
        while len(judge.prompts) < 5:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(1)
        return len(judge.prompts)

    n_calls = asyncio.run(cancelled())
    assert n_calls < 60
    time.sleep(0.5)
    assert len(judge.prompts) == n_calls


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_asks_too(traces):
    add_descriptors(traces, judged(FakeJudge(said)))
    child = os.fork()
    if child == 0:
        os._exit(0 if add_descriptors(traces, judged(FakeJudge(said)))["cr"].notna().sum() == 3 else 1)
    for _ in range(200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
    assert done == child
    assert status == 0

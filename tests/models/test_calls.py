import asyncio
import os
import threading
import time

import pytest

from rag_descriptors import Completion, JudgeError, Usage
from rag_descriptors.errors import DescriptorError, JudgeWarning, MissingExtraError
from rag_descriptors.models import calls
from rag_descriptors.models.calls import INTERRUPTED, STOP, JudgeSession, event_loop
from rag_descriptors.models.judge import Answer, Prompt
from rag_descriptors.models.limits import Limits
from rag_descriptors.testing import FakeJudge


def prompts(*texts):
    return [Prompt("s", text, {}, dict) for text in texts]


def answers(session, *texts):
    found = dict(session.ask(prompts(*texts)))
    return [found[place] for place in range(len(texts))]


def session(replies, **limits):
    judge = replies if hasattr(replies, "complete") else FakeJudge(replies)
    return JudgeSession(judge, Limits(**limits))


def by_text(**replies):
    return lambda prompt: replies[prompt.user]


def test_each_answer_has_its_place():
    class Slow:
        def identity(self):
            return {}

        async def complete(self, prompt):
            await asyncio.sleep(0.2 if prompt.user == "b" else 0)
            return Completion(prompt.user.upper(), Usage(prompt_tokens=1))

    came = list(session(Slow()).ask(prompts("a", "b", "c", "d")))
    assert [place for place, _ in came][-1] == 1
    assert {place: answer.text for place, answer in came} == {0: "A", 1: "B", 2: "C", 3: "D"}
    assert came[0][1] == Answer(text="A", usage=Usage(prompt_tokens=1), calls=1)


def test_nothing_to_ask():
    assert list(session(["x"]).ask([])) == []


def test_it_works_within_a_running_loop():
    async def ask():
        return answers(session(["x"]), "a")

    assert asyncio.run(ask())[0].text == "x"


def test_all_calls_of_a_process_are_made_on_one_loop():
    for _ in range(3):
        answers(session(["x"]), "a")
    assert [thread.name for thread in threading.enumerate()].count("judge") == 1
    assert event_loop(os.getpid()).is_running()


@pytest.mark.parametrize("status", ["rate_limited", "judge_error"])
def test_tries(status, monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    error = JudgeError("busy", status=status, remedy="retry", retry_after=7)
    later = JudgeError("busy", status=status, remedy="retry", retry_after=11)
    answer = answers(session([error, later, "x"]), "a")[0]
    assert (answer.text, answer.calls) == ("x", 3)
    assert [wait for wait in waits if type(wait) is int] == [7, 11]


def test_waits_grow_where_the_judge_names_none(monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    error = JudgeError("busy", remedy="retry")
    answer = answers(session(by_text(a="x", b=error), max_retries=4), "a", "b")[1]
    assert (answer.failure, answer.message, answer.calls) == ("judge_error", "busy", 5)
    assert len(waits) == 4
    assert all(0.25 * 2**n <= wait <= 0.5 * 2**n for n, wait in enumerate(waits))


def test_again_is_no_try_and_does_not_wait():
    answer = answers(session([JudgeError("how?", remedy="again")] * 3 + ["x"], max_retries=0), "a")[0]
    assert (answer.text, answer.calls) == ("x", 4)


def test_an_answer_that_failed_was_answered():
    spent = Usage(completion_tokens=9)
    found = answers(session([Completion("ended early", spent, failure="truncated")]), *"abcdef")
    assert {(a.failure, a.message, a.usage) for a in found} == {("truncated", "ended early", spent)}


def test_whatever_a_judge_raises_fails_its_prompt_alone():
    found = answers(session(by_text(a="x", b=ZeroDivisionError("b"), c="y")), "a", "b", "c")
    assert [answer.text for answer in found] == ["x", None, "y"]
    assert found[1].failure == "judge_error"
    assert "ZeroDivisionError('b')" in found[1].message


def test_a_timeout():
    class Hanging:
        def identity(self):
            return {}

        async def complete(self, prompt):
            if prompt.user == "b":
                await asyncio.sleep(60)
            return Completion("x")

    started = time.monotonic()
    found = answers(session(Hanging(), timeout=0.1, max_retries=1), "a", "b")
    assert (found[1].failure, found[1].message, found[1].calls) == ("timeout", "no answer within 0.1 s", 2)
    assert time.monotonic() - started < 30


def test_stop_raises_where_nothing_was_answered():
    judge = FakeJudge([JudgeError("wrong key", remedy="stop")])
    with pytest.raises(JudgeError, match="wrong key"):
        answers(session(judge), *"abcdef")
    assert len(judge.prompts) == 1


def test_a_session_that_was_stopped_stays_so():
    judge = FakeJudge(by_text(a="x", b=JudgeError("wrong key", remedy="stop")))
    asking = session(judge, max_concurrency=1)
    with pytest.warns(JudgeWarning, match="the judge stopped answering: wrong key"):
        found = answers(asking, "a", "b", "c")
    assert [answer.failure for answer in found] == [None, "judge_error", "judge_error"]
    assert found[2].message == "wrong key"
    assert answers(asking, "d")[0].failure == "judge_error"  # and warns no more
    assert len(judge.prompts) == 2


@pytest.mark.parametrize(("retries", "calls"), [(0, 12), (3, 12)])
def test_hopeless(retries, calls, monkeypatch):
    judge = FakeJudge([JudgeError("no", remedy="retry", retry_after=0)])
    with pytest.raises(JudgeError, match="no"):
        answers(session(judge, max_concurrency=1, max_retries=retries), *"abcdefghijklmnop")
    assert len(judge.prompts) == calls


def test_rows_that_fail_at_the_top_do_not_stop_the_others():
    judge = FakeJudge(lambda prompt: JudgeError("bad image") if prompt.user in "abcde" else "x")
    found = answers(session(judge, max_concurrency=1), *"abcdefgh")
    assert [answer.text for answer in found] == [None] * 5 + ["x"] * 3


def test_an_interrupted_service():
    judge = FakeJudge(lambda prompt: "x" if prompt.user == "0" else JudgeError("gone"))
    texts = [str(number) for number in range(INTERRUPTED[0] + 20)]
    with pytest.warns(JudgeWarning, match="gone"):
        found = answers(session(judge, max_concurrency=1), *texts)
    assert len(judge.prompts) == INTERRUPTED[0] + 1
    assert [answer.failure for answer in found] == [None] + ["judge_error"] * (len(texts) - 1)


def test_refusals_are_no_sign_of_an_interruption():
    judge = FakeJudge([JudgeError("too long", status="context_too_long")])
    found = answers(session(judge, max_concurrency=1), *"abcdef")
    assert [answer.failure for answer in found] == ["context_too_long"] * 6


def test_max_calls():
    judge = FakeJudge(["x"])
    asking = session(judge, max_calls=4)
    found = answers(asking, *"abcdef")
    assert len(judge.prompts) == 4
    assert [answer.failure for answer in found].count("budget_exhausted") == 2
    assert found[-1].message == "the budget is spent: 4 calls made, 0.0000 dollars paid. Run again to go on."
    assert answers(asking, "g")[0].failure == "budget_exhausted"


def test_tries_are_calls():
    judge = FakeJudge([JudgeError("busy", remedy="retry", retry_after=0)])
    found = answers(session(judge, max_calls=2), "a")
    assert (found[0].failure, found[0].calls, len(judge.prompts)) == ("budget_exhausted", 2, 2)


def test_what_asks_to_be_put_otherwise_for_ever_is_given_up():
    judge = FakeJudge([JudgeError("otherwise", remedy="again")])
    found = answers(session(judge), "a")
    assert (found[0].failure, found[0].calls, len(judge.prompts)) == ("judge_error", 9, 9)


def test_a_missing_package_ends_the_run():
    judge = FakeJudge([MissingExtraError("no litellm here")])
    with pytest.raises(MissingExtraError, match="no litellm here"):
        answers(session(judge), "a", "b")
    assert len(judge.prompts) == 1


def test_a_wait_of_no_time_is_a_wait_all_the_same(monkeypatch):
    monkeypatch.setattr(calls, "FIRST_WAIT_S", 0.4)
    begun = []

    def busy_once(prompt):
        begun.append(time.monotonic())
        return "x" if len(begun) > 1 else JudgeError("busy", status="rate_limited", remedy="retry", retry_after=0)

    assert answers(session(FakeJudge(busy_once)), "a")[0].text == "x"
    assert begun[1] - begun[0] >= 0.2


def test_secrets_are_taken_out_of_what_judges_raise():
    judge = FakeJudge([ValueError("GET http://host/?key=abcdef failed"), JudgeError("Bearer abcdef is no key")])
    found = answers(session(judge, max_concurrency=1), "a", "b")
    assert [answer.message for answer in found] == [
        "FakeJudge failed: ValueError('GET http://host/?key=*** failed')",
        "Bearer *** is no key",
    ]


class Priced(FakeJudge):
    def most_cost(self, prompt):
        return 1.0


@pytest.mark.parametrize(("cost", "calls"), [(0.25, 9), (1.0, 3), (None, 3)])
def test_max_cost(cost, calls):
    judge = Priced([Completion("x", Usage(cost=cost))])
    found = answers(session(judge, max_cost=3.0), *"abcdefghijkl")
    assert len(judge.prompts) == calls
    assert [answer.failure for answer in found].count("budget_exhausted") == 12 - calls


def test_a_call_that_is_turned_away_costs_nothing():
    busy = JudgeError("busy", status="rate_limited", remedy="retry", retry_after=0)
    judge = Priced([busy, JudgeError("otherwise", remedy="again"), Completion("x", Usage(cost=1.0))])
    assert answers(session(judge, max_cost=1.0), "a")[0].text == "x"


def test_max_cost_of_a_judge_that_tells_none():
    with pytest.raises(JudgeError, match="can't tell what a call may cost"):
        answers(session(["x"], max_cost=1), "a")


def test_others_wait_while_the_judge_wants_a_pause():
    class Busy:
        def __init__(self):
            self.begun = []

        def identity(self):
            return {}

        async def complete(self, prompt):
            self.begun.append((prompt.user, time.monotonic()))
            if [text for text, _ in self.begun] == ["a", "b"]:
                raise JudgeError("busy", status="rate_limited", remedy="retry", retry_after=0.4)
            return Completion("x")

    judge = Busy()
    answers(session(judge, max_concurrency=1), "a", "b", "c")
    assert [text for text, _ in judge.begun] == ["a", "b", "b", "c"]
    assert judge.begun[2][1] - judge.begun[1][1] >= 0.4


def test_who_no_longer_waits_is_told_so():
    class Hanging:
        def identity(self):
            return {}

        async def complete(self, prompt):
            await asyncio.sleep(60)

    stop = threading.Event()
    token = STOP.set(stop)
    threading.Timer(0.6, stop.set).start()
    try:
        with pytest.raises(DescriptorError, match="nobody waits for the scores any more"):
            answers(session(Hanging()), "a")
    finally:
        STOP.reset(token)


def test_calls_end_with_the_asker():
    cancelled = threading.Event()

    class Hanging:
        def identity(self):
            return {}

        async def complete(self, prompt):
            if prompt.user == "a":
                return Completion("x")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

    asking = session(Hanging()).ask(prompts("a", "b"))
    assert next(asking)[1].text == "x"
    time.sleep(0.2)
    asking.close()
    assert cancelled.wait(10)


def test_repr_and_identity():
    asking = session(FakeJudge(["x"], name="n"))
    assert "n" in repr(asking)
    assert asking.identity() == {"model": "n"}

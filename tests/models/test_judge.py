from rag_descriptors.errors import JudgeError
from rag_descriptors.models.calls import JudgeSession
from rag_descriptors.models.judge import Asker, Judge, Prompt, Verdict, verdicts
from rag_descriptors.models.limits import Limits
from rag_descriptors.models.llm import LiteLLMJudge
from rag_descriptors.testing import FakeJudge


def ask(judge, *texts, read=lambda reply: reply["a"]):
    prompts = [Prompt("s", text, {}, read) for text in texts]
    return verdicts(JudgeSession(judge, Limits(max_concurrency=1)), prompts)


def test_equal_prompts_are_asked_once():
    judge = FakeJudge(lambda prompt: {"a": prompt.user.upper()})
    assert ask(judge, "x", "y", "x") == [Verdict(value="X"), Verdict(value="Y"), Verdict(value="X")]
    assert [prompt.user for prompt in judge.prompts] == ["x", "y"]


def test_a_reply_of_many_levels_is_one_that_cannot_be_read():
    deep = '{"a": ' + "[" * 5000 + "]" * 5000 + "}"
    (verdict,) = ask(FakeJudge([deep]), "x")
    assert verdict.failure == "unparseable"


def test_what_cannot_be_followed_cannot_be_read():
    def read(reply):
        raise RecursionError("too deep")

    (verdict,) = ask(FakeJudge([{"a": 1}]), "x", read=read)
    assert (verdict.failure, verdict.message) == ("unparseable", "too deep")


def test_nothing_to_ask():
    assert ask(FakeJudge(["x"])) == []


def test_an_unreadable_answer_is_asked_for_once_more():
    judge = FakeJudge(["prose", {"a": 1}])
    assert ask(judge, "x") == [Verdict(value=1)]


def test_and_then_no_more():
    judge = FakeJudge(["prose"])
    (verdict,) = ask(judge, "x")
    assert (verdict.failure, verdict.message) == ("unparseable", "the reply holds no JSON object: prose")
    assert len(judge.prompts) == 2


def test_other_failures_are_not_asked_for_again():
    judge = FakeJudge([JudgeError("filtered", status="content_filtered")])
    assert ask(judge, "x") == [Verdict(failure="content_filtered", message="filtered")]
    assert len(judge.prompts) == 1


def test_seams():
    assert isinstance(JudgeSession(FakeJudge(["x"]), Limits()), Asker)
    judges: list[Judge] = [FakeJudge(["x"]), LiteLLMJudge()]
    assert not any(isinstance(judge, Asker) for judge in judges)

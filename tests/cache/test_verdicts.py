from contextlib import ExitStack, closing

import pytest

from rag_descriptors import Cache, Completion, JudgeError, Usage
from rag_descriptors.cache.meters import JudgeMeter
from rag_descriptors.cache.verdicts import CachedJudge, UnusedJudge
from rag_descriptors.errors import CacheWarning
from rag_descriptors.models.calls import JudgeSession
from rag_descriptors.models.judge import Prompt, verdicts
from rag_descriptors.models.limits import Limits
from rag_descriptors.models.replies import a_number
from rag_descriptors.progress import Progress
from rag_descriptors.testing import FakeJudge


@pytest.fixture
def store(tmp_path):
    cache = Cache(tmp_path / "cache")
    yield cache
    cache.close()


def prompts(*texts, **fields):
    return [Prompt(**{"system": "s", "user": text, "schema": {}, "read": dict, **fields}) for text in texts]


@pytest.fixture
def meters():
    """Make meters that are closed after the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(JudgeMeter()))


@pytest.fixture
def cached(meters):
    """Put a cache before a judge."""

    def put(judge, store, meter=None):
        session = JudgeSession(judge, Limits(max_concurrency=1))
        return CachedJudge(session, store, meter or meters(), Progress("prompts", show=False))

    return put


def values(asker, *texts, **fields):
    return [verdict.value for verdict in verdicts(asker, prompts(*texts, **fields))]


def test_an_answer_is_asked_for_once_ever(store, meters, cached):
    judge, meter = FakeJudge(lambda prompt: {"a": prompt.user}), meters()
    asker = cached(judge, store, meter)
    assert asker.identity() == {"model": "fake"}
    assert values(asker, "x", "y") == [{"a": "x"}, {"a": "y"}]
    assert values(asker, "y", "z") == [{"a": "y"}, {"a": "z"}]
    assert [prompt.user for prompt in judge.prompts] == ["x", "y", "z"]
    assert (meter.prompts, meter.cached, meter.calls) == (3, 0, 3)
    later = meters()
    assert values(cached(judge, store, later), "z", "x") == [{"a": "z"}, {"a": "x"}]
    assert (later.prompts, later.cached, later.calls, len(judge.prompts)) == (2, 2, 0, 3)


@pytest.mark.parametrize("fields", [{"system": "t"}, {"schema": {"type": "object"}}, {"sample": 1}])
def test_what_changes_the_answer_changes_the_key(store, fields, cached):
    judge = FakeJudge([{"a": 1}])
    values(cached(judge, store), "x")
    values(cached(judge, store), "x", **fields)
    assert len(judge.prompts) == 2


def test_another_judge_is_asked_anew(store, cached):
    first, second = FakeJudge([{"a": 1}], "first"), FakeJudge([{"a": 2}], "second")
    assert values(cached(first, store), "x") == [{"a": 1}]
    assert values(cached(second, store), "x") == [{"a": 2}]


@pytest.mark.parametrize(
    "failing", ["prose", Completion("cut", failure="truncated"), JudgeError("no", status="refused")]
)
def test_failures_are_not_kept(store, failing, meters, cached):
    judge, meter = FakeJudge([failing, failing, {"a": 1}]), meters()
    asked = [values(cached(judge, store, meter), "x") for _ in range(3)]
    assert [{"a": 1}] in asked
    assert meter.failures == {}
    assert store.stats().entries == {"verdict": 1}


def test_what_answers_cost_and_saved(store, meters, cached):
    judge = FakeJudge([Completion('{"a": 1}', Usage(prompt_tokens=10, completion_tokens=2, cost=0.5))])
    meter, later = meters(), meters()
    values(cached(judge, store, meter), "x", "y")
    values(cached(judge, store, later), "x", "x", "y")
    values(cached(judge, store, later), "x")
    assert (meter.prompt_tokens, meter.completion_tokens, meter.cost, meter.saved) == (20, 4, 1.0, None)
    assert (later.prompt_tokens, later.completion_tokens, later.cost, later.saved) == (0, 0, None, 1.0)
    assert later.prompts == later.cached == 2


def test_failures_are_counted_once_each(store, meters, cached):
    judge, meter = FakeJudge(["prose"]), meters()
    values(cached(judge, store, meter), "x", "y", "x")
    assert (meter.failures, meter.prompts, meter.calls) == ({"unparseable": 2}, 2, 4)
    assert meter.messages == {"unparseable": "the reply holds no JSON object: prose"}


def test_an_answer_that_a_later_release_cannot_read_is_asked_for_again(store, meters, cached):
    def read_b(reply):
        return a_number(reply, "b", 0, 1)

    assert values(cached(FakeJudge([{"a": 1}]), store), "x") == [{"a": 1}]
    judge, meter = FakeJudge([{"b": 1}]), meters()
    assert values(cached(judge, store, meter), "x", read=read_b) == [1.0]
    assert (meter.cached, meter.calls) == (0, 1)
    assert values(cached(judge, store, meter), "x", read=read_b) == [1.0]
    assert len(judge.prompts) == 1


@pytest.mark.parametrize("entry", [b"", b"[]", b"{}", b'{"text": "{}", "other": 1}', b"\xff"])
def test_a_damaged_entry_is_asked_for_again(store, entry, cached):
    judge = FakeJudge([{"a": 1}])
    values(cached(judge, store), "x")
    (key,) = (row[0] for row in store._connected().execute("SELECT key FROM answer"))
    store.put("verdict", {key: entry})
    with pytest.warns(CacheWarning, match="hold no answers"):
        assert values(cached(judge, store), "x") == [{"a": 1}]
    assert len(judge.prompts) == 2


def test_answers_are_kept_as_they_come(store, cached):
    asking = cached(FakeJudge([{"a": 1}]), store).ask(prompts("x", "y", "z"))
    assert [store.stats().entries["verdict"] for _ in asking] == [1, 2, 3]


def test_texts_are_not_kept(store, tmp_path, cached):
    values(cached(FakeJudge([{"a": 1}]), store), "the secret question")
    store.close()
    assert all(b"secret question" not in file.read_bytes() for file in tmp_path.iterdir())


def test_an_unused_judge_says_what_it_would_take(store, meters, cached):
    judge, meter = FakeJudge([{"a": 1}]), meters()
    values(cached(judge, store), "x")
    session = UnusedJudge(JudgeSession(judge, Limits()))
    asker = CachedJudge(session, store, meter, Progress("prompts", show=False))
    for _ in range(2):
        assert values(asker, "x", "yyyy", "é") == [{"a": 1}, None, None]
    assert (meter.calls, meter.cached, meter.prompts, meter.failures) == (2, 1, 3, {})
    assert meter.prompt_tokens == 2 + 1  # "s" and "yyyy" are 5 bytes, "s" and "é" 3: a quarter each, rounded up
    assert len(judge.prompts) == 1

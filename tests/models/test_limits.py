import asyncio

import pytest

from rag_descriptors.errors import OptionError
from rag_descriptors.models.judge import Prompt
from rag_descriptors.models.limits import Budget, Limits, Pace
from rag_descriptors.testing import FakeJudge


def prompts(*texts):
    return [Prompt("s", text, {}, dict) for text in texts]


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"max_concurrency": 0}, "max_concurrency: 0"),
        ({"max_concurrency": None}, "max_concurrency: None"),
        ({"max_concurrency": True}, "max_concurrency: True"),
        ({"max_retries": -1}, "max_retries: -1"),
        ({"timeout": 0}, "timeout: 0"),
        ({"timeout": None}, "timeout: None"),
        ({"timeout": float("nan")}, "timeout: nan"),
        ({"max_calls": 1.5}, "max_calls: 1.5"),
        ({"max_cost": -1, "requests_per_minute": "9"}, "requests_per_minute: '9'(.|\n)*max_cost: -1"),
    ],
)
def test_wrong_limits(limits, problem):
    with pytest.raises(OptionError, match=problem):
        Limits(**limits)


def test_limits_by_name():
    assert Limits(**Limits(max_calls=3).params) == Limits(max_calls=3)


class Priced(FakeJudge):
    def most_cost(self, prompt):
        return 1.0


class PricedByText(FakeJudge):
    def most_cost(self, prompt):
        return float(prompt.user or 0)


def test_a_budget_waits_for_no_call_that_is_done():
    """0.1 + 0.2 - 0.1 - 0.2 is a little more than 0."""

    async def reserve():
        budget = Budget(PricedByText([]), Limits(max_cost=0.35))
        small, large, another = prompts("0.1", "0.2", "0.1")
        reserved = [await budget.reserve(prompt) for prompt in (small, large)]
        for cost in reserved:
            budget.settle(cost, cost)
        return await asyncio.wait_for(budget.reserve(another), 30)

    assert asyncio.run(reserve()) is None


def test_what_waited_for_money_does_not_pass_the_limit_of_calls():
    async def reserve():
        budget = Budget(Priced([]), Limits(max_cost=2.0, max_calls=2))
        first, second, third, fourth = prompts(*"abcd")
        reserved = [await budget.reserve(first), await budget.reserve(second)]
        waiting = [asyncio.create_task(budget.reserve(prompt)) for prompt in (third, fourth)]
        await asyncio.sleep(0)
        for cost in reserved:
            budget.settle(cost, 0.0)
        return reserved, await asyncio.gather(*waiting)

    assert asyncio.run(reserve()) == ([1.0, 1.0], [None, None])


def test_the_pace_grows_to_the_most_and_comes_down():
    async def rooms():
        pace = Pace(Limits(max_concurrency=8))
        seen = [pace.room]
        for _ in range(10):
            pace.answered()
        seen.append(pace.room)
        pace.pushed_back(await pace.turn(), 0)
        seen.append(pace.room)
        for _ in range(4):
            pace.answered()
        seen.append(pace.room)
        for _ in range(9):
            pace.pushed_back(await pace.turn(), 0)
        return [*seen, pace.room]

    assert asyncio.run(rooms()) == [1, 8, 4, 4, 1]


def test_calls_that_are_turned_away_together_count_once():
    async def rooms():
        pace = Pace(Limits(max_concurrency=16))
        for _ in range(16):
            pace.answered()
        begun = [await pace.turn() for _ in range(16)]
        for turn in begun:
            pace.pushed_back(turn, 0)
        return pace.room

    assert asyncio.run(rooms()) == 8

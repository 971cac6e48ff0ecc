"""How a judge may be called: the limits that are set, and the pace and the budget that keep them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import inf
from typing import Any

from rag_descriptors.errors import JudgeError
from rag_descriptors.models.judge import Judge, Prompt
from rag_descriptors.options import together, whole_number

__all__ = ["Budget", "Limits", "Pace"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How a judge is called. Each limit holds for one descriptor in one run; two descriptors have one each.

    Attributes:
        max_concurrency: The most calls at once. A run begins with one, and comes down where the judge asks for it.
        requests_per_minute: The most calls begun in a minute; None for no such limit.
        max_retries: How often a call is tried again after a 429, a 5xx, a timeout or a lost connection.
        timeout: Seconds until a call counts as failed.
        max_calls: The most calls, tries included; prompts beyond it are `budget_exhausted`.
        max_cost: The most US dollars, likewise; no call is begun that might pass it.

    Raises:
        OptionError: A value is not allowed.
    """

    max_concurrency: int = 16
    requests_per_minute: float | None = None
    max_retries: int = 3
    timeout: float = 60
    max_calls: int | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        together([*self._problems()])

    def _problems(self) -> Iterator[str]:
        for option, least in (("max_concurrency", 1), ("max_retries", 0), ("max_calls", 0)):
            value = getattr(self, option)
            if value is not None or option != "max_calls":
                yield from whole_number(option, value, least)
        for option in ("requests_per_minute", "timeout", "max_cost"):
            value = getattr(self, option)
            if (value is not None or option == "timeout") and not _is_positive(value):
                yield f"{option}: {value!r} is not allowed. Give a number above 0."

    @property
    def params(self) -> dict[str, Any]:
        """The limits by name."""
        return {limit.name: getattr(self, limit.name) for limit in fields(self)}


class Pace:
    """How many calls go on at once, and when the next may begin.

    One at first, and one more for every answer, so that a wrong key costs one call; half as many when the judge asks
    for less, and from then on one more for every round of answers. Calls that the judge turns away together count as
    one: it has not seen the new pace yet.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.max_concurrency
        self._gap = 60 / limits.requests_per_minute if limits.requests_per_minute else 0.0
        self._room = 1.0
        self._times_pushed_back = 0
        self._next = 0.0

    @property
    def room(self) -> int:
        """How many calls may go on at once."""
        return int(self._room)

    def answered(self) -> None:
        """Take an answer into account."""
        self._room = min(self._room + (1 / self._room if self._times_pushed_back else 1), self._most)

    def pushed_back(self, began: int, wait: float) -> None:
        """Take into account that the judge turned a call away, and wants none for `wait` seconds.

        `began` is what `turn` returned before the call.
        """
        if began == self._times_pushed_back:
            self._room = max(self._room / 2, 1)
            self._times_pushed_back += 1
        self._next = max(self._next, asyncio.get_running_loop().time() + wait)

    async def turn(self) -> int:
        """Wait until the next call may begin; return how often the judge had asked for less by then."""
        now = asyncio.get_running_loop().time()
        begin = max(self._next, now)
        self._next = begin + self._gap
        if begin > now:
            await asyncio.sleep(begin - now)
        return self._times_pushed_back


class Budget:
    """What calls were made and paid for, and whether there is room for another."""

    def __init__(self, judge: Judge, limits: Limits) -> None:
        self._judge = judge
        self._limits = limits
        self._calls = self._open = 0
        self._spent = self._reserved = 0.0
        self._settled = asyncio.Event()
        if limits.max_cost is not None:
            self._most(Prompt("", "", {}, dict))  # fails before anything is paid for

    @property
    def message(self) -> str:
        """Why there is no room."""
        return f"the budget is spent: {self._calls} calls made, {self._spent:.4f} dollars paid. Run again to go on."

    async def reserve(self, prompt: Prompt) -> float | None:
        """Return the most that a call may cost, and count it as begun; None if it might pass a limit.

        Raises:
            JudgeError: There is a limit of cost, and no call's cost is known beforehand.
        """
        most = self._most(prompt) if self._limits.max_cost is not None else 0.0
        while self._open and self._exceeds(most):  # what is open may turn out to cost less
            self._settled.clear()
            await self._settled.wait()
        if self._exceeds(most) or self._calls == self._limits.max_calls:
            return None
        self._calls += 1
        self._open += 1
        self._reserved += most
        return most

    def settle(self, reserved: float, cost: float | None) -> None:
        """Count a call as done; a call that told no cost counts as it was reserved."""
        self._open -= 1
        self._reserved = self._reserved - reserved if self._open else 0.0
        self._spent += reserved if cost is None else cost
        self._settled.set()

    def _exceeds(self, more: float) -> bool:
        return self._spent + self._reserved + more > (inf if self._limits.max_cost is None else self._limits.max_cost)

    def _most(self, prompt: Prompt) -> float:
        most_cost = getattr(self._judge, "most_cost", None)
        if most_cost is None:
            raise JudgeError(f"max_cost: {self._judge!r} can't tell what a call may cost.", remedy="stop")
        return float(most_cost(prompt))


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf

"""Many calls to a judge at once: paced, retried, within a budget, and stopped where no call can succeed."""

import asyncio
import os
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from rag_descriptors.errors import DescriptorError, JudgeError, JudgeWarning
from rag_descriptors.models.judge import Answer, Completion, Judge, Prompt
from rag_descriptors.models.limits import Budget, Limits, Pace
from rag_descriptors.texts import redacted

__all__ = ["JudgeSession", "check_wanted"]

BUDGET_EXHAUSTED = "budget_exhausted"
UNANSWERED = ("judge_error", "rate_limited", "timeout")
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 600.0
HOPELESS = (3, 12)  # prompts and calls in a row without an answer, where there never was one
INTERRUPTED = (50, 50)  # the same, where there was one
STOP: ContextVar[Event | None] = ContextVar("STOP", default=None)  # set by who no longer waits for the answers
LOOK_S = 0.25
MOST_AGAIN = 8  # calls for one prompt that a judge asks to be put otherwise; from then on they count as tries


class JudgeSession:
    """The calls of one descriptor in one run.

    What was learnt of the judge, its pace, what was spent, whether it answers at all, holds for all prompts to come.
    """

    def __init__(self, judge: Judge, limits: Limits) -> None:
        self._judge = judge
        self._limits = limits
        self._budget = Budget(judge, limits)
        self._pace = Pace(limits)
        self._stopped: JudgeError | None = None
        self._was_answered = self._was_told = False
        self._unanswered = (0, 0)

    def __repr__(self) -> str:
        return repr(self._judge)

    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the judge itself."""
        return self._judge.identity()

    def ask(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, Answer]]:
        """Yield the place of each prompt and its answer, as they come; calls go on while the caller works.

        Raises:
            JudgeError: No call can succeed, and none ever did.
        """
        arrived: SimpleQueue[tuple[int, Answer] | BaseException] = SimpleQueue()
        asking = asyncio.run_coroutine_threadsafe(self._ask_all(prompts, arrived.put), event_loop(os.getpid()))
        try:
            for _ in prompts:
                came = _next(arrived)
                if isinstance(came, BaseException):
                    raise came
                yield came
            self._warn()
        finally:
            asking.cancel()

    async def _ask_all(
        self, prompts: Sequence[Prompt], put: Callable[[tuple[int, Answer] | BaseException], None]
    ) -> None:
        waiting = deque(enumerate(prompts))
        calls: set[asyncio.Task[tuple[int, Answer]]] = set()
        try:
            while waiting or calls:
                while waiting and len(calls) < self._pace.room:
                    calls.add(asyncio.create_task(self._answer(*waiting.popleft())))
                done, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                for call in done:
                    put(call.result())
        except Exception as error:  # noqa: BLE001 - raised again in the thread that asked
            put(error)
        finally:
            for call in calls:
                call.cancel()

    async def _answer(self, place: int, prompt: Prompt) -> tuple[int, Answer]:
        n_calls = n_tries = 0
        while self._stopped is None:
            reserved = await self._budget.reserve(prompt)
            if reserved is None:
                return place, Answer(failure=BUDGET_EXHAUSTED, message=self._budget.message, calls=n_calls)
            n_calls += 1
            began = await self._pace.turn()
            try:
                completion = await self._call(prompt)
            except JudgeError as error:
                self._budget.settle(reserved, 0.0 if _is_free(error) else None)
                is_try = error.remedy != "again" or n_calls > MOST_AGAIN
                n_tries += is_try
                if is_try and not await self._wait(error, n_tries, began):
                    return place, replace(self._give_up(error, n_calls), calls=n_calls)
            else:
                self._budget.settle(reserved, completion.usage.cost)
                return place, replace(self._accept(completion), calls=n_calls)
        return place, Answer(failure=self._stopped.status, message=str(self._stopped), calls=n_calls)

    async def _call(self, prompt: Prompt) -> Completion:
        limit = asyncio.timeout(self._limits.timeout)
        try:
            completion = self._judge.complete(prompt)
            async with limit:
                return _checked(await completion)
        except DescriptorError as error:  # which says itself what to do
            error.args = (redacted(str(error)),)
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise  # by us
            if limit.expired():
                problem = JudgeError(f"no answer within {self._limits.timeout:g} s", status="timeout", remedy="retry")
            else:  # whatever a judge raises, each prompt fails alone
                problem = JudgeError(redacted(f"{type(self._judge).__name__} failed: {error!r}"))
            raise problem from error

    async def _wait(self, error: JudgeError, n_tries: int, began: int) -> bool:
        """Wait until a call that began at this pace may be tried again; return whether it may."""
        backoff = FIRST_WAIT_S * 2 ** (n_tries - 1) * random.uniform(0.5, 1)  # noqa: S311 - no secret
        wait = max(backoff, error.retry_after or 0)
        is_worth_it = error.remedy == "retry" and wait <= LONGEST_WAIT_S
        if is_worth_it and error.status != "timeout":
            self._pace.pushed_back(began, error.retry_after or 0)
        if not is_worth_it or n_tries > self._limits.max_retries:
            return False
        await asyncio.sleep(wait)
        return True

    def _accept(self, completion: Completion) -> Answer:
        self._was_answered, self._unanswered = True, (0, 0)
        self._pace.answered()
        if completion.failure is not None:
            return Answer(failure=completion.failure, message=completion.text, usage=completion.usage)
        return Answer(text=completion.text, usage=completion.usage)

    def _give_up(self, error: JudgeError, n_calls: int) -> Answer:
        """Return the answer of a prompt that has none; stop where no other prompt can have one."""
        n_prompts, n_before = self._unanswered
        self._unanswered = (n_prompts + 1, n_before + n_calls) if error.status in UNANSWERED else (0, 0)
        least = INTERRUPTED if self._was_answered else HOPELESS
        if error.remedy == "stop" or all(n >= m for n, m in zip(self._unanswered, least, strict=True)):
            self._stopped = self._stopped or error
            if not self._was_answered:
                raise error
        return Answer(failure=error.status, message=str(error))

    def _warn(self) -> None:
        if self._stopped is not None and not self._was_told:
            self._was_told = True
            warnings.warn(
                f"the judge stopped answering: {self._stopped} Finished rows are kept, the others are missing; "
                "run again to go on.",
                JudgeWarning,
                stacklevel=3,
            )


def _next(arrived: "SimpleQueue[tuple[int, Answer] | BaseException]") -> tuple[int, Answer] | BaseException:
    """Wait for what comes next, as long as somebody waits for the answers."""
    is_watched = STOP.get() is not None
    while True:
        check_wanted()
        try:
            return arrived.get(timeout=LOOK_S if is_watched else None)
        except Empty:
            continue


def check_wanted() -> None:
    """Make sure that somebody waits for the answers.

    Raises:
        DescriptorError: Nobody does, see `STOP`.
    """
    stop = STOP.get()
    if stop is not None and stop.is_set():
        raise DescriptorError("nobody waits for the scores any more.")


def _is_free(error: JudgeError) -> bool:
    """Return whether a call was turned away before anything was made that costs."""
    return error.remedy in ("again", "stop") or error.status == "rate_limited"


def _checked(completion: object) -> Completion:
    if not isinstance(completion, Completion) or not isinstance(completion.text, str):
        raise JudgeError(f"the judge gave {completion!r}. It must return a Completion of a text.")
    return completion


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@lru_cache
def event_loop(_process: int) -> asyncio.AbstractEventLoop:
    """Return the loop, in a thread of its own, on which all calls of a process are made; a fork has another one."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="judge", daemon=True).start()
    return loop

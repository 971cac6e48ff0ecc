"""The fake encoder of the cases, and short ways to a descriptor over it and to a table."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from judge_server import JudgeServer

from rag_descriptors import ContextRelevance
from rag_descriptors.testing import FakeEmbedder

VECTORS = {
    "north?": (1, 0),
    "east?": (0, 1),
    "N": (1, 0),
    "NE": (0.6, 0.8),
    "E": (0, 1),
    "S": (-1, 0),
    "Z": (0, 0),
}
REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def embedder() -> FakeEmbedder:
    """Against `north?`: N 1.0, NE 0.8, E 0.5, S 0.0; against `east?`: N 0.5, NE 0.9, E 1.0; Z is a zero vector."""
    return FakeEmbedder(vectors=VECTORS)


@pytest.fixture
def relevance(embedder: FakeEmbedder) -> Callable[..., ContextRelevance]:
    """Make a ContextRelevance called `cr` over columns `question` and `contexts`, with the fake encoder."""

    def make(**options: Any) -> ContextRelevance:
        params = {"embedder": embedder} if isinstance(options.get("method", ""), str) else {}
        params |= options.pop("method_params", {})
        return ContextRelevance("question", "contexts", method_params=params, **{"alias": "cr", **options})

    return make


@pytest.fixture
def table() -> Callable[..., pd.DataFrame]:
    """Make a table of (question, contexts) rows."""

    def make(*rows: tuple[object, object], index: Any = None) -> pd.DataFrame:
        questions, contexts = zip(*rows, strict=True) if rows else ((), ())
        columns = {
            "question": pd.Series(questions, dtype=object),
            "contexts": pd.Series(contexts, dtype=object),
        }
        frame = pd.DataFrame(columns)
        return frame if index is None else frame.set_axis(index)

    return make


@pytest.fixture
def data() -> Callable[[str], Path]:
    """Find a data file: in the folder of labelled traces where there is one, else in `tests/data`."""

    def find(name: str) -> Path:
        shared = Path(os.environ.get("RAG_DESCRIPTORS_DATA", REPOSITORY.parent / "shared" / "data"))
        return shared / name if (shared / name).exists() else REPOSITORY / "tests" / "data" / name

    return find


@pytest.fixture
def judge_server() -> Iterator[Callable[..., JudgeServer]]:
    """Start a server of answers, `judge_server(answer, delay_s=..., refuses=...)`; it closes after the test."""
    with ExitStack() as stack:
        yield lambda answer, **options: stack.enter_context(JudgeServer(answer, **options))

"""The fake encoder of the cases, and short ways to a descriptor over it and to a table."""

import os
import sys
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
def package(tmp_path, monkeypatch) -> Callable[..., Path]:
    """Install a package in a folder of its own: the code of its module, and its descriptors by name."""

    def install(name: str, code: str, **descriptors: str) -> Path:
        folder = tmp_path / "packages"
        about = folder / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{descriptor} = {value}" for descriptor, value in descriptors.items()]
        (about / "entry_points.txt").write_text("\n".join(["[rag_descriptors]", *lines, ""]))
        (folder / f"{name}.py").write_text(code)
        sys.modules.pop(name, None)  # another test's
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        return folder

    return install


STUB = f"""
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rag_descriptors import ContextRelevance
from rag_descriptors.testing import FakeEmbedder


@dataclass(frozen=True)
class Logged(FakeEmbedder):
    log: str | None = None
    seconds: float = 0.0

    def embed(self, texts, role):
        time.sleep(self.seconds)
        if self.log is not None:
            with Path(self.log).open("a") as log:
                log.writelines(f"{{os.getpid()}} {{text}}\\n" for text in texts)
        return super().embed(texts, role)


@dataclass(frozen=True, eq=False)
class Stub(ContextRelevance):
    '''ContextRelevance with the fake encoder of the cases; a log gets what is encoded, and by which process.'''

    log: str | None = None
    seconds: float = 0.0

    def __post_init__(self):
        if self.method_params is None:
            embedder = Logged(vectors={VECTORS}, log=self.log, seconds=self.seconds)
            object.__setattr__(self, "method_params", {{"embedder": embedder}})
        super().__post_init__()
"""


@pytest.fixture
def stub(package, tmp_path) -> Callable[..., Path]:
    """Write a configuration of one ContextRelevance called `cr` with the fake encoder, which workers can load too."""
    package("stub", STUB, Stub="stub:Stub")

    def write(*lines: str, name: str = "stub.toml", run: str = "") -> Path:
        table = ["type = 'Stub'", "input = 'question'", "contexts = 'contexts'"]
        table += [] if any(line.startswith("alias") for line in lines) else ["alias = 'cr'"]
        path = tmp_path / name
        path.write_text("\n".join(["[[descriptors]]", *table, *lines, "[run]", run, ""]))
        return path

    return write


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

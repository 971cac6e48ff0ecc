import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import rag_descriptors

HEAVY = {
    "huggingface_hub",
    "litellm",
    "pyspark",
    "sentence_transformers",
    "spacy",
    "tokenizers",
    "torch",
    "transformers",
}


def loaded(code):
    script = f"{code}\nimport sys; print(sorted(sys.modules))"
    command = [sys.executable, "-W", "error", "-c", script]
    folder = Path(__file__).parents[1]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    return set(ast.literal_eval(run.stdout))


CONSTRUCT = """
from rag_descriptors import ContextEntityRecall, ContextRelevance, SentenceTransformerEmbedder
repr(ContextEntityRecall("reference", "contexts", "spacy").outputs)
repr(ContextRelevance("question", "contexts", method_params={"batch_size": 8}).outputs)
"""


@pytest.mark.parametrize(
    "code", ["import rag_descriptors", "import rag_descriptors.testing, rag_descriptors.schemas", CONSTRUCT]
)
def test_nothing_heavy_is_loaded(code):
    modules = loaded(code)
    assert "rag_descriptors" in modules
    assert modules & {*HEAVY, "descriptors", "schemas"} == set()


def test_files_need_no_pandera():
    modules = loaded("import rag_descriptors.cli, rag_descriptors.schemas")
    assert "rag_descriptors.schemas.scores" in modules
    assert modules & {"pandera", "pydantic"} == set()


def test_public_names():
    public = {name for name, item in vars(rag_descriptors).items() if name[0] != "_" and not is_module(item)}
    assert sorted(public) == rag_descriptors.__all__


def is_module(item):
    return isinstance(item, type(sys))


@pytest.mark.parametrize(
    "module",
    [
        "aggregations",
        "base",
        "conditions",
        "entity_recall",
        "errors",
        "frame",
        "judging",
        "jobs.batch",
        "jobs.check",
        "jobs.config",
        "jobs.guess",
        "jobs.outputs",
        "jobs.places",
        "jobs.template",
        "jobs.workers",
        "longframe",
        "matching",
        "models.calls",
        "models.embedder",
        "models.entities",
        "models.find",
        "models.identity",
        "models.judge",
        "models.limits",
        "models.llm",
        "models.names",
        "models.prompts",
        "models.replies",
        "options",
        "planning",
        "plugins",
        "progress",
        "relevance",
        "relevancy",
        "schemas",
        "scoring",
        "similarity",
        "statements",
        "summary",
        "testing",
        "texts",
        "traces.columns",
        "traces.contexts",
        "traces.formats",
        "traces.json_rows",
        "traces.paths",
        "traces.pivot",
        "traces.readers",
        "traces.recognition",
        "traces.spans",
        "traces.tables",
    ],
)
def test_all_names_what_is_there(module):
    loaded = import_module(f"rag_descriptors.{module}")
    assert list(loaded.__all__) == sorted(loaded.__all__)
    assert all(hasattr(loaded, name) for name in loaded.__all__)

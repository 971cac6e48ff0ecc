"""The import arrows of the architecture: who may know whom."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
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
BOTTOM = {"errors", "options", "texts"}
DATA = BOTTOM | {"longframe", "aggregations", "conditions", "schemas", "traces"}
MODELS = BOTTOM | {"models", "progress"}
CORE = DATA | {"base", "models"}
RUN = CORE | {"summary", "progress", "cache", "planning", "scoring"}

# A part and all that it may import; a folder is one part, and may import itself.
ARROWS = {
    "errors": set(),
    "texts": set(),
    "longframe": {"errors"},
    "progress": {"errors"},
    "options": {"errors"},
    "summary": {"errors"},
    "schemas": set(),
    "aggregations": BOTTOM,
    "conditions": BOTTOM | {"schemas"},
    "matching": BOTTOM,
    "traces": BOTTOM | {"longframe"},
    "models": MODELS,
    "cache": MODELS,
    "base": DATA,
    "similarity": CORE,
    "judging": CORE,
    "statements": CORE | {"similarity", "judging"},
    "relevance": CORE | {"similarity", "judging"},
    "relevancy": CORE | {"statements"},
    "entity_recall": CORE | {"matching", "judging"},
    "plugins": BOTTOM | {"base"},
    "planning": BOTTOM | {"base", "plugins"},
    "scoring": RUN,
    "frame": RUN,
    "testing": RUN | {"frame", "plugins"},
}
FREE = {"__init__", "cli", "console", "jobs"}  # they stand on top; nobody below may import them


def part(module):
    return module.split(".")[1] if "." in module else "__init__"


def modules():
    for folder, package in (("descriptors", "rag_descriptors"), ("schemas", "rag_descriptors.schemas")):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            names = path.relative_to(REPOSITORY / folder).with_suffix("").parts
            yield ".".join([package, *names]).removesuffix(".__init__"), path


MODULES = dict(modules())


def imports(path, *, everywhere):
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree) if everywhere else top_level(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (full_name(node.module, alias.name) for alias in node.names)


def full_name(module, name):
    return f"{module}.{name}" if f"{module}.{name}" in MODULES else module


def top_level(node):
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from top_level(child)


def ours(path):
    return {name for name in imports(path, everywhere=True) if name.split(".")[0] == "rag_descriptors"}


@pytest.mark.parametrize("module", MODULES)
def test_arrows(module):
    name = part(module)
    if name not in FREE:
        assert name in ARROWS, f"give {name} its arrows"
        assert {part(imported) for imported in ours(MODULES[module])} <= ARROWS[name] | {name}


def test_the_table_names_what_is_there():
    assert set(ARROWS) <= {part(module) for module in MODULES}


@pytest.mark.parametrize("module", MODULES)
def test_heavy_packages_are_imported_where_they_are_needed(module):
    roots = {name.split(".")[0] for name in imports(MODULES[module], everywhere=False)}
    assert roots & HEAVY == set()
    assert roots & {"descriptors", "schemas"} == set()


def test_no_cycles():
    graph = {module: ours(path) - {module} for module, path in MODULES.items()}
    assert set(TopologicalSorter(graph).static_order()) >= set(MODULES)


def test_only_the_top_knows_a_built_in():
    for module, path in MODULES.items():
        for built_in in ("relevance", "relevancy", "entity_recall"):
            if part(module) not in FREE | {built_in}:
                assert f"rag_descriptors.{built_in}" not in ours(path)


@pytest.mark.parametrize(
    ("package", "parts"),
    [
        ("pandas", {"frame", "schemas", "testing", "traces"}),
        ("pandera", {"frame", "schemas"}),
        ("sqlite3", {"cache", "traces"}),
        ("tqdm", {"progress"}),
        ("asyncio", {"frame", "models"}),
    ],
)
def test_who_knows_a_package(package, parts):
    knowing = {
        part(module)
        for module, path in MODULES.items()
        if package in {name.split(".")[0] for name in imports(path, everywhere=True)}
    }
    assert knowing - FREE == parts

"""README's blocks and the examples of docstrings run, and say the truth."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import rag_descriptors

pytestmark = pytest.mark.filterwarnings("ignore::rag_descriptors.errors.TruncationWarning")
ROOT = Path(__file__).parent.parent
MODULES = [module.name for module in pkgutil.walk_packages(rag_descriptors.__path__, "rag_descriptors.")]


@pytest.mark.model
def test_readme_blocks_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 5
    assert failed == 0


@pytest.mark.model
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_readme_draws_the_tree_that_is_there():
    drawn = (ROOT / "README.md").read_text("utf-8")
    for folder in ("descriptors", "schemas"):
        for file in (ROOT / folder).rglob("*.py"):
            named = file.name if file.name != "__init__.py" else f"{file.parent.name}/"
            assert named in drawn or folder == "schemas", f"{file} is not in README's tree"

"""README's blocks and the examples of docstrings run, and say the truth."""

import doctest
import importlib
import pkgutil
import re
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
    tree = re.search(r"\n```\n(descriptors/ .*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    drawn, folder = set(), ""
    for line in tree[1].split("schemas/ ")[0].splitlines()[1:]:
        if named := re.match(r"  (\w+/) ", line):
            folder = named[1]
        elif not line.startswith("    "):
            folder = ""
        drawn |= {f"{folder}{name}" for name in re.findall(r"\w+\.py", line)}
    there = {path.relative_to(ROOT / "descriptors").as_posix() for path in (ROOT / "descriptors").rglob("*.py")}
    assert drawn == {path for path in there if not path.endswith("__init__.py")}

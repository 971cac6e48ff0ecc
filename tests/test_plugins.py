"""Descriptors by name: real packages, the one in tests/plugin and those that a test writes."""

import pickle
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd
import pytest

from rag_descriptors import ContextRelevance, add_descriptors
from rag_descriptors.errors import OptionError, PlanError
from rag_descriptors.planning import plan
from rag_descriptors.plugins import arguments, installed, load, make, package
from rag_descriptors.testing import check_descriptor

TRACES = pd.DataFrame({"question": ["q", "q", "q"], "contexts": [["two words", "three more words"], [], None]})
PLUGIN = Path(__file__).parent / "plugin"
CODE = """
from dataclasses import dataclass
import pyarrow as pa
from rag_descriptors.schemas import score_field

number = 5

@dataclass(frozen=True)
class Constant:
    value: float
    name: str = "constant"
    inputs = pa.schema([("question", pa.string())])

    @property
    def outputs(self):
        return pa.schema([score_field(self.name, 0, 9)])

    def __post_init__(self):
        if not isinstance(self.value, float):
            raise TypeError("value must be a float")

    def compute(self, columns):
        return pa.record_batch([pa.array([self.value] * columns.num_rows)], schema=self.outputs)

class Lacking:
    name = "x"
    def compute(self, columns): ...
"""


def is_installed():
    try:
        return version("context-words") == "1.0"
    except PackageNotFoundError:
        return False


needs_plugin = pytest.mark.skipif(not is_installed(), reason="pip install ./tests/plugin")


@needs_plugin
def test_a_package_of_others():
    scored = add_descriptors(TRACES, "ContextWords")
    assert scored["Words of contexts"].tolist() == [5, pd.NA, pd.NA]
    assert scored["Words of contexts"].dtype == "Int64"
    descriptor = make("ContextWords", {"alias": "words"})
    check_descriptor(descriptor, TRACES)
    assert pickle.loads(pickle.dumps(descriptor)) == descriptor
    both = add_descriptors(TRACES, ["ContextWords", descriptor])
    assert both["words"].tolist() == both["Words of contexts"].tolist()


@needs_plugin
def test_the_package_of_others_is_listed():
    (entry,) = installed()["ContextWords"]
    assert (package(entry), entry.value) == ("context-words", "context_words:ContextWords")


def test_built_ins_are_plugins_too():
    assert load("ContextRelevance") is ContextRelevance
    assert list(arguments(ContextRelevance))[:3] == ["input", "contexts", "method"]
    given = {"input": "q", "contexts": "c", "alias": "a"}
    assert make("ContextRelevance", given) == ContextRelevance("q", "c", alias="a")


def test_a_name_that_nobody_gives():
    with pytest.raises(OptionError, match=r"'ContextRelevence' is not installed. Did you mean 'ContextRelevance'\?"):
        load("ContextRelevence")


def test_a_name_that_two_packages_give(package):
    package("one", CODE, Constant="one:Constant")
    package("two", CODE, Constant="two:Constant")
    assert len(installed()["Constant"]) == 2
    message = r"'Constant' is claimed by one \(one:Constant\) and by two \(two:Constant\). Uninstall all but one"
    with pytest.raises(OptionError, match=message):
        load("Constant")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("broken:X", r"\(broken:X\) does not load: ModuleNotFoundError.*no_such_module.*Install what it needs"),
        ("plain:Nothing", r"does not load: AttributeError"),
        ("plain:number", "is a int, where the class of a descriptor is expected"),
        ("plain:Lacking", "is the class Lacking, which has no inputs, outputs; see rag_descriptors.Descriptor"),
    ],
)
def test_what_packages_may_do_wrong(package, value, message):
    name = value.partition(":")[0]
    package(name, "import no_such_module" if name == "broken" else CODE, X=value)
    with pytest.raises(OptionError, match=rf"^the descriptor 'X' of {name} .*{message}"):
        load("X")


def test_arguments_of_plugins(package):
    package("plain", CODE, Constant="plain:Constant")
    made = make("Constant", {"value": 0.5})
    assert add_descriptors(TRACES, made)["constant"].tolist() == [0.5] * 3
    with pytest.raises(OptionError, match=r"^Constant needs value\. Give Constant\(value=…\), or these names in its"):
        make("Constant")
    with pytest.raises(OptionError) as error:
        make("Constant", {"values": 1.0})
    assert [line.partition(".")[0] for line in str(error.value).splitlines()] == [
        "Constant: 'values' is unknown",
        "Constant needs value",
    ]
    with pytest.raises(OptionError, match=r"Constant can't be made of these arguments: TypeError\('value must be a fl"):
        make("Constant", {"value": 1})


def test_all_arguments_are_checked_at_once():
    with pytest.raises(OptionError) as error:
        make("ContextRelevance", {"contexts": "c", "aggregation_method": "meen", "aliass": "a"})
    first, second, third = str(error.value).splitlines()
    assert "'aliass' is unknown. Did you mean 'alias'" in first
    assert "ContextRelevance needs input." in second
    assert "'meen' is unknown. Did you mean 'mean'" in third


def test_names_in_a_plan(relevance):
    with pytest.raises(PlanError) as error:
        plan(["ContextRelevance", "Nothing", relevance(), 5], ["question"])
    messages = str(error.value).splitlines()
    assert "ContextRelevance needs input, contexts." in messages[0]
    assert "the descriptor 'Nothing' is not installed" in messages[1]
    assert "5 is no descriptor" in messages[2]
    assert "column 'contexts' is missing" in messages[3]


def test_what_the_readme_shows_is_the_package():
    readme = (PLUGIN.parents[1] / "README.md").read_text("utf-8")
    for name in ("context_words.py", "pyproject.toml"):
        assert (PLUGIN / name).read_text("utf-8") in readme

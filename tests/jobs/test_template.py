"""The configuration that `init` writes."""

import re
import tomllib

from rag_descriptors import ContextRelevance
from rag_descriptors.jobs.config import ScoreOptions, read_config
from rag_descriptors.jobs.template import _descriptor, template


def test_it_says_what_the_command_does_without_one(tmp_path):
    (tmp_path / "c.toml").write_text(template(), "utf-8")
    config, problems = read_config(tmp_path / "c.toml")
    assert problems == []
    assert config.descriptors == [ContextRelevance("question", "contexts", output_scores=True, output_status=True)]
    assert (config.columns, config.run) == ({}, {})


def test_every_line_that_may_be_set_is_right(tmp_path):
    (tmp_path / "c.toml").write_text(re.sub(r"^#(?! )", "", template(), flags=re.MULTILINE), "utf-8")
    config, problems = read_config(tmp_path / "c.toml")
    assert problems == []
    (descriptor,) = config.descriptors
    assert (descriptor.alias, descriptor.aggregation_method, descriptor.tests[0].value) == ("relevance", "hit", 0.7)
    assert config.columns.keys() | config.run.keys() == set(ScoreOptions.__dataclass_fields__)


def test_every_line_is_told_of():
    lines = template().splitlines()
    for line, before in zip(lines[1:], lines, strict=False):
        if re.match(r"#?\w+ = ", line) and not line.startswith("type"):
            assert before.startswith("# "), line
    assert tomllib.loads(template())
    assert max(map(len, lines)) <= 120


def test_arguments_without_a_value_to_show_are_left_out():
    lines = "\n".join(_descriptor("ContextRelevancy"))
    assert '#model = "gpt-4o-mini"' in lines
    assert "null" not in lines
    assert tomllib.loads(lines) == {
        "type": "ContextRelevancy",
        "input": "question",
        "contexts": "contexts",
        "output_status": True,
    }


def test_the_other_descriptors_are_there_as_comments(tmp_path):
    examples = re.findall(r"^(?:# (?:\[\[descriptors|\w+ = ).*\n)+", template(), re.MULTILINE)
    (tmp_path / "c.toml").write_text(re.sub("^# ", "", "".join(examples), flags=re.MULTILINE), "utf-8")
    config, problems = read_config(tmp_path / "c.toml")
    assert problems == []
    assert [type(descriptor).__name__ for descriptor in config.descriptors] == [
        "ContextRelevance",
        "ContextRelevancy",
        "ContextEntityRecall",
    ]
    assert config.descriptors[0].method == "llm"

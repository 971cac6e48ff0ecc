"""Configurations in TOML: what they give, and everything that is wrong with them at once."""

from dataclasses import fields
from pathlib import Path

import pytest

from rag_descriptors import ContextRelevance
from rag_descriptors.conditions import gte, is_in
from rag_descriptors.errors import OptionError
from rag_descriptors.jobs.config import Config, ScoreOptions, merged, option_info, read_config, value_type

WHOLE = """
[[descriptors]]
type = "ContextRelevance"
input = "question"
contexts = "contexts"
method_params = { similarity = "cosine", batch_size = 8 }
aggregation_method = "hit"
aggregation_method_params = { threshold = 0.7 }
tests = [{ gte = 0.7 }, { is_in = [0, 1] }]
alias = "relevance"

[[descriptors]]
type = "ContextRelevance"
input = "question"
contexts = "contexts"

[columns]
question = "user_input"

[run]
output = "out.csv"
workers = 2
min_coverage = 1
no_cache = true
"""


@pytest.fixture
def config(tmp_path):
    """Write a configuration and read it: what it gives, and the problems without the file's name."""

    def read(text):
        path = tmp_path / "c.toml"
        path.write_text(text, "utf-8")
        found, problems = read_config(path)
        assert all(problem.startswith(str(path)) for problem in problems)
        return found, [problem.removeprefix(str(path)).lstrip(",: ") for problem in problems]

    return read


def test_a_whole_configuration(config):
    found, problems = config(WHOLE)
    assert problems == []
    assert found.descriptors == [
        ContextRelevance(
            "question",
            "contexts",
            method_params={"similarity": "cosine", "batch_size": 8},
            aggregation_method="hit",
            aggregation_method_params={"threshold": 0.7},
            tests=[gte(0.7), is_in([0, 1])],
            alias="relevance",
        ),
        ContextRelevance("question", "contexts"),
    ]
    assert found.columns == {"question": "user_input"}
    assert found.run == {"output": "out.csv", "workers": 2, "min_coverage": 1, "no_cache": True}


def test_an_empty_configuration(config):
    assert config("") == (Config(descriptors=[]), [])


def test_flags_go_before_the_configuration(config):
    found, _ = config(WHOLE)
    options, columns = merged(found, {})
    assert options == ScoreOptions(output=Path("out.csv"), workers=2, min_coverage=1.0, no_cache=True)
    assert type(options.min_coverage) is float
    assert columns == {"question": "user_input"}
    given = {"workers": 1, "cache": Path("c.sqlite"), "question": "q", "limit": 3}
    options, columns = merged(found, given)
    assert (options.workers, options.cache, options.no_cache, options.limit) == (1, Path("c.sqlite"), False, 3)
    assert options.output == Path("out.csv")
    assert columns == {"question": "q"}


def test_three_mistakes_are_three_messages(config):
    found, problems = config("""
[[descriptors]]
type = "ContextRelavance"
[run]
limt = 3
workers = "two"
""")
    assert found == Config(descriptors=[], is_whole=False)
    assert [problem.partition(" Allowed")[0] for problem in problems] == [
        "[[descriptors]] number 1: the descriptor 'ContextRelavance' is not installed. "
        "Did you mean 'ContextRelevance'?",
        "[run]: 'limt' is unknown. Did you mean 'limit'?",
        "[run]: workers: 'two' is not allowed. Give a whole number from 1.",
    ]


def test_what_is_sound_is_kept(config):
    text = (
        '[columns]\nquestion = "q"\ncontexts = 1\n[run]\nlimit = 3\nx = 1\n[[descriptors]]\ntype = "ContextRelevance"\n'
    )
    found, problems = config(f'{text}input = "i"\ncontexts = "c"\n[[descriptors]]\n')
    assert (found.columns, found.run) == ({"question": "q"}, {"limit": 3})
    assert found.descriptors == [ContextRelevance("i", "c")]
    assert len(problems) == 3


RELEVANCE = '[[descriptors]]\ntype = "ContextRelevance"\ninput = "q"\ncontexts = "c"\n'


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("[descriptor]", ["'descriptor' is unknown. Did you mean 'descriptors'?"]),
        ("[descriptors]\ntype = 'X'", ["descriptors is no list of tables. Begin each descriptor with the line [[desc"]),
        ("descriptors = [1]", ["descriptors is no list of tables"]),
        ("columns = 1", ["columns is no table. Write [columns] on a line of its own"]),
        ("run = []", ["run is no table. Write [run]"]),
        ("[[descriptors]]\ninput = 'q'", ["[[descriptors]] number 1: type: None is not allowed. Give the name of a"]),
        ("[[descriptors]]\ntype = 3", ["[[descriptors]] number 1: type: 3 is not allowed"]),
        (
            "[columns]\nquestion = ''",
            ["[columns]: question: '' is not allowed. Give the name of a column of the files."],
        ),
        (
            f'{RELEVANCE}methods = "x"\nmethod_params = {{ similarity = "cos" }}\naggregation_method = "meen"',
            [
                "[[descriptors]] number 1: ContextRelevance: 'methods' is unknown. Did you mean 'method'?",
                "[[descriptors]] number 1: ContextRelevance: similarity: 'cos' is unknown. Did you mean 'cosine'?",
                "[[descriptors]] number 1: ContextRelevance: aggregation_method: 'meen' is unknown.",
            ],
        ),
        (f"{RELEVANCE}tests = 0.7", ["[[descriptors]] number 1: tests: 0.7 is not allowed. Give a list of conditions"]),
        (f"{RELEVANCE}tests = [{{ gte = 0.7, lte = 1 }}]", ["[[descriptors]] number 1: tests: [{"]),
        (
            f'{RELEVANCE}tests = [{{ gtee = 0.7 }}, {{ gte = "a" }}]\nalias = ""',
            [
                "[[descriptors]] number 1: tests: 'gtee' is unknown. Did you mean 'gte'?",
                "[[descriptors]] number 1: condition: 'a' is no number.",
                "[[descriptors]] number 1: ContextRelevance: alias: '' is not allowed.",
            ],
        ),
        ("[run]\nno_cache = 1", ["[run]: no_cache: 1 is not allowed. Give true or false."]),
        ("[run]\nlimit = true", ["[run]: limit: True is not allowed. Give a whole number from 0."]),
        ("[run]\nlimit = 1.0", ["[run]: limit: 1.0 is not allowed."]),
        ("[run]\noutput = 1", ["[run]: output: 1 is not allowed. Give a text."]),
        ("[run]\nmin_coverage = 1.1", ["[run]: min_coverage: 1.1 is not allowed. Give a number from 0 to 1."]),
        ("[run]\nmin_coverage = nan", ["[run]: min_coverage: nan is not allowed."]),
        ("[run]\nquestion = 'q'", ["[run]: 'question' is unknown."]),
    ],
)
def test_what_is_wrong(config, text, messages):
    _, problems = config(text)
    assert len(problems) == len(messages)
    for problem, message in zip(problems, messages, strict=True):
        assert problem.startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file. rag-descriptors init writes one"),
        (b"[run", "is no TOML: "),
        (b"a = '\xff'", "is no TOML: "),
    ],
)
def test_what_is_no_configuration(tmp_path, content, message):
    if content is not None:
        (tmp_path / "c.toml").write_bytes(content)
    with pytest.raises(OptionError, match=message):
        read_config(tmp_path / "c.toml")


def test_a_folder_is_no_configuration(tmp_path):
    with pytest.raises(OptionError, match="there is no such file"):
        read_config(tmp_path)


def test_a_configuration_that_cannot_be_read(tmp_path, monkeypatch):
    """As root no mode keeps anybody from reading, so what the system says is said here."""

    def refuses(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuses)
    with pytest.raises(
        OptionError, match=r"config '.*c\.toml' can't be read: Permission denied\. Look at its name and mode"
    ):
        read_config(tmp_path / "c.toml")


def test_a_byte_order_mark_is_no_part_of_a_configuration(tmp_path):
    (tmp_path / "c.toml").write_text("[run]\nlimit = 3\n", "utf-8-sig")
    assert read_config(tmp_path / "c.toml") == (Config(descriptors=[], run={"limit": 3}), [])


def test_every_option_is_declared_whole():
    for option in fields(ScoreOptions):
        info = option_info(option)
        assert info.help.endswith(".")
        assert isinstance(value_type(option)(info.example), value_type(option))

import pytest

from rag_descriptors.errors import ReplyError
from rag_descriptors.models.replies import a_list, a_number, a_text, a_word, parse_reply


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        ' \n{"a": 1}\n',
        '```json\n{"a": 1}\n```',
        '```\n{"a": 1}\n```',
        'Sure! {"a": 1} Hope it helps.',
        'The set {x} holds: {"a": 1}',
        '{"a": 1} {"a": 1}',
        '<think>{"a": 2} or {b}?</think>{"a": 1}',
        '<reasoning>\nso\n</reasoning>\n\n{"a": 1}',
        'it is {"a": 2}, I think</think>{"a": 1}',
        '{ "a" : 1 }',
        'Set {} aside. {"a": 1}',
        '<think>{"a": 2}</think> {"a": 1}',
        '[{"a": 1}]',
    ],
)
def test_one_object(text):
    assert parse_reply(text) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON object"),
        ("yes", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('{"a": 1} {"a": 2}', "2 JSON objects that differ"),
        ('{"a": 1} {"a": true}', "2 JSON objects that differ"),
        ('{"a": 1', "broken JSON"),
        ('{"a": [{"b": 1}, {"b"', "broken JSON"),
        ('{"a": {"b": 1}', "broken JSON"),
        ("{'a': 1}", "no JSON object"),
        ('{"a": NaN}', "NaN, which is no JSON"),
        ('{"a": -Infinity}', "-Infinity, which is no JSON"),
        ('{"a": 1, "a": 2}', "two things of 'a': 1, 2"),
        ('<think>{"a": 1}', "reasoning and no answer"),
        ("<think>so</think>", "no JSON object"),
        ('{"a": ' * 100_000, "broken JSON"),
    ],
)
def test_anything_else_is_an_error(text, problem):
    with pytest.raises(ReplyError, match=problem) as caught:
        parse_reply(text)
    assert len(str(caught.value)) < 400


def test_what_stands_within_an_answer_is_left_alone():
    text = '{"reason": "<think> and ``` and \\u007bx\\u007d", "a": {"b": [1]}}'
    assert parse_reply(text) == {"reason": "<think> and ``` and {x}", "a": {"b": [1]}}


@pytest.mark.parametrize(("value", "expected"), [(0, 0.0), (1, 1.0), (0.25, 0.25), ("0.7", 0.7), (" 1 ", 1.0)])
def test_a_number(value, expected):
    assert a_number({"score": value}, "score", 0, 1) == expected


@pytest.mark.parametrize("value", [None, True, False, "", "high", 1.7, -1, 90, "nan", "inf", [0.5], 10**400])
def test_no_number(value):
    with pytest.raises(ReplyError, match=r"score: .* is no number from 0 to 1"):
        a_number({"score": value}, "score", 0, 1)


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "YES!",
        " yes\n",
        "Yes.",
        '"yes"',
        "**yes**",
        "(yes)",
        "“yes”",
        "yes。",
        "- yes",
        "`yes`",
        "yes\u00a0",
        "«Yes»",
    ],
)
def test_a_word(value):
    assert a_word({"verdict": value}, "verdict", ("yes", "no")) == "yes"


@pytest.mark.parametrize("value", ["yes-ish", "maybe", "", None, True, 1, "yes, no", "y"])
def test_no_word(value):
    with pytest.raises(ReplyError, match=r"verdict: .* is none of yes, no"):
        a_word({"verdict": value}, "verdict", ("yes", "no"))


def test_a_list():
    assert a_list({"a": ["b", "c"]}, "a", str) == ["b", "c"]
    assert a_list({"a": []}, "a", str) == []


@pytest.mark.parametrize("value", [None, "b", {"b": 1}, ["b", 1], [None]])
def test_no_list(value):
    with pytest.raises(ReplyError, match=r"a: .* is no list of str"):
        a_list({"a": value}, "a", str)


@pytest.mark.parametrize(
    ("value", "expected"), [("b", "b"), (" b ", "b"), ("", None), (" ", None), (None, None), (1, None)]
)
def test_a_text(value, expected):
    assert a_text({"a": value}, "a") == expected


def test_texts_may_hold_line_breaks_and_ends_of_reasoning():
    assert parse_reply('{"a": "one\ntwo\t</think> three"}') == {"a": "one\ntwo\t</think> three"}


def test_what_was_thought_is_not_said():
    with pytest.raises(ReplyError, match="no JSON object"):
        parse_reply('it is {"a": 1}</think>')


def test_lone_surrogates_are_replaced():
    assert parse_reply('{"a\\ud83d": ["b\\ud83d", {"c": "\\ud83d\\ude00"}], "n": 1}') == {
        "a\ufffd": ["b\ufffd", {"c": "\U0001f600"}],
        "n": 1,
    }

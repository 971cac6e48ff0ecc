import json

import pytest

from rag_descriptors.traces.paths import ABSENT, answer_text, find, lookup, plain, question_text

DEEP = 200


@pytest.mark.parametrize(
    ("value", "path", "found"),
    [
        ({"a": 1}, "a", 1),
        ({"a": None}, "a", None),
        ({"a": 1}, "b", ABSENT),
        ({"a.b": 1, "a": {"b": 2}}, "a.b", 1),
        ({"a": {"b": 2}}, "a.b", 2),
        ({"a": {"b.c": 3}}, "a.b.c", 3),
        ({"a.b": {"c": 3}}, "a.b.c", 3),
        ({"a": {"x": 1}, "a.b": {"c": 3}}, "a.b.c", 3),
        ({"a": '{"b": 2}'}, "a.b", 2),
        ({"a": "{'b': None}"}, "a.b", None),
        ({"a": "{b"}, "a.b", ABSENT),
        ({"a": "['x' 'y']"}, "a.b", ABSENT),
        ({"a": "b"}, "a.b", ABSENT),
        ({"a": 5}, "a.b", ABSENT),
        ('{"a": 1}', "a", 1),
        ("{1: 2}", "a.b", ABSENT),
        ({"a": [{"name": "x", "v": 1}, {"name": "y", "v": 2}, 5]}, "a.y.v", 2),
        ({"a": [{"assessment_name": "x", "v": 1}]}, "a.x.v", 1),
        ({"a": [{"v": 1}]}, "a.x.v", ABSENT),
        ({"d.0.x.y": 1, "d.0.z": 2, "d.10.z": 4, "d.2.z": 3}, "d", [{"x.y": 1, "z": 2}, {"z": 3}, {"z": 4}]),
        ({"a": {"d.0.z": 1, "d.x.z": 2, "d.1": 3, 5: 6}}, "a.d", [{"z": 1}]),
    ],
)
def test_lookup(value, path, found):
    assert lookup(value, path) == found


@pytest.mark.parametrize(
    ("value", "paths", "found"),
    [
        ({"a": None, "b": "", "c": float("nan"), "d": 0}, ["a", "b", "c", "x", "d"], 0),
        ({"a": [], "b": 1}, ["a", "b"], []),
        ({"a": 1}, [], None),
        ({"a": None}, ["a"], None),
    ],
)
def test_the_first_path_that_holds_anything(value, paths, found):
    assert find(value, paths) == found


@pytest.mark.parametrize(
    ("attributes", "found"),
    [
        ([{"key": "a", "value": {"stringValue": "x"}}], {"a": "x"}),
        (
            [{"key": "a", "value": {"intValue": "5"}}, {"key": "b", "value": {"boolValue": False}}],
            {"a": "5", "b": False},
        ),
        ([{"key": "a", "value": {"arrayValue": {"values": [{"stringValue": "x"}]}}}], {"a": ["x"]}),
        ([{"key": "a", "value": {"array_value": {}}}], {"a": []}),
        ([{"key": "a", "value": {"arrayValue": None}}], {"a": []}),
        (
            [{"key": "a", "value": {"kvlistValue": {"values": [{"key": "b", "value": {"doubleValue": 0.5}}]}}}],
            {"a": {"b": 0.5}},
        ),
        ([{"key": "a"}, {"value": 1}, 5], {"a": None}),
        ([{"key": "a", "value": {}}], {"a": {}}),
        ([], {}),
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', '{"a": 1}'),
        (None, None),
    ],
)
def test_attributes_of_otlp(attributes, found):
    assert plain(attributes) == found


QUESTIONS = [
    ("What?", "What?"),
    (" What? \n", " What? \n"),
    ('"What?"', "What?"),
    ('"What" is it?', '"What" is it?'),
    ("[1] says what?", "[1] says what?"),
    ("[1, 2]", "[1, 2]"),
    ("{what}", "{what}"),
    ("", None),
    ("  ", None),
    (None, None),
    (5, None),
    (["What?"], "What?"),
    ({"question": "What?", "k": 3}, "What?"),
    ('{"question": "What?"}', "What?"),
    ("{'question': 'What?', 'history': None}", "What?"),
    ({"input": {"query": "What?"}}, "What?"),
    ({"user_question": "What?"}, "What?"),
    ({"a": "x", "b": "y"}, None),
    ('{"a": "x", "b": "y"}', None),
    ({"question": None, "query": "What?"}, "What?"),
    ({}, None),
    ([], None),
    (
        [
            {"role": "user", "content": "Hm?"},
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": "What?"},
        ],
        "What?",
    ),
    ({"messages": [{"role": "user", "content": "What?"}, {"role": "tool", "content": "x"}]}, "What?"),
    ([{"role": "system", "content": "Be short."}], None),
    ([{"type": "human", "content": "What?"}], "What?"),
    ([[{"type": "human", "content": "What?"}]], "What?"),
    ([{"lc": 1, "type": "constructor", "kwargs": {"type": "human", "content": "What?"}}], "What?"),
    ([{"role": "user", "parts": [{"type": "text", "content": "What?"}]}], "What?"),
    (
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}],
            }
        ],
        "a\nb",
    ),
    ([{"message.role": "user", "message.content": "What?"}], "What?"),
    (
        {
            "messages.0.message.role": "user",
            "messages.0.message.contents.0.message_content.type": "text",
            "messages.0.message.contents.0.message_content.text": "What",
            "messages.0.message.contents.1.message_content.type": "image",
            "messages.0.message.contents.1.message_content.image.image.url": "http://host/x.png",
            "messages.0.message.contents.2.message_content.type": "text",
            "messages.0.message.contents.2.message_content.text": "is it?",
        },
        "What\nis it?",
    ),
    ([{"type": "HumanMessage", "content": "What?"}, {"type": "AIMessageChunk", "content": "A."}], "What?"),
    ([{"role": "USER", "content": [{"type": "input_text", "text": "What?"}, {"type": "input_image"}]}], "What?"),
    ([{"type": "constructor", "kwargs": {"content": "What?"}}], "What?"),
    ([{"role": "assistant", "content": "A."}], None),
    (
        [
            {"role": "user", "content": "What?"},
            {"role": "user", "content": [{"type": "tool_result", "content": "x"}]},
        ],
        "What?",
    ),
]


@pytest.mark.parametrize(("value", "text"), QUESTIONS, ids=[str(n) for n in range(len(QUESTIONS))])
def test_questions(value, text):
    assert question_text(value) == text


DUMPED = {"lc": 1, "type": "constructor", "id": ["AIMessage"], "kwargs": {"content": "B.", "type": "ai"}}
LLM_RESULT = {"generations": [[{"text": "A.", "type": "ChatGeneration", "message": DUMPED}]], "type": "LLMResult"}
RESPONSES = [
    {"type": "reasoning", "summary": []},
    {"type": "message", "content": [{"type": "output_text", "text": "A."}, {"type": "output_text", "text": "B."}]},
]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("A.", "A."),
        ({"answer": "A.", "context": []}, "A."),
        ({"output": {"content": "A."}}, "A."),
        ({"choices": [{"message": {"role": "assistant", "content": "A."}}]}, "A."),
        ({"generations": [[{"text": "A."}]]}, "A."),
        ([{"role": "assistant", "content": "A."}, {"role": "user", "content": "Thanks."}], "A."),
        ([{"type": "ai", "content": "A."}], "A."),
        ({"documents": ["x"], "k": 3}, None),
        (LLM_RESULT, "A."),
        ({"generations": [[{"text": "A.", "type": "ChatGenerationChunk"}]]}, "A."),
        ({"generations": [[{"text": "", "type": "ChatGeneration", "message": DUMPED}]]}, "B."),
        ([{"type": "AIMessageChunk", "content": "A."}, {"type": "ToolMessageChunk", "content": "x"}], "A."),
        ({"output": RESPONSES}, "A.\nB."),
        *(([{"role": role, "content": "x"}], None) for role in ("user", "system", "developer", "tool", "function")),
        *(([{"type": kind, "content": "x"}], None) for kind in ("reasoning", "thinking", "blob", "tool_call_response")),
        ([{"type": "function_call_output", "output": "x"}], None),
    ],
)
def test_answers(value, text):
    assert answer_text(value) == text


def test_deep_values_have_no_text():
    value = "What?"
    for _ in range(DEEP):
        value = [value]
    assert question_text(value) is None
    assert question_text("[" * 100_000) == "[" * 100_000


@pytest.mark.parametrize("text", ['{"question": ', "[", '"', "{'a': 1", "{**x}", "['a' 'b']"])
def test_texts_that_spell_no_value_are_the_question(text):
    assert question_text(text) == text


def test_json_in_json():
    assert question_text(json.dumps(json.dumps({"question": "What?"}))) == "What?"

import json
import re

import pytest

from rag_descriptors.errors import ReplyError
from rag_descriptors.models.prompts import ENTITIES, RELEVANCE, STATEMENTS, Statement

PAIR = {"question": "q?", "context": "c"}
TEMPLATES = {
    "relevance": (RELEVANCE, PAIR),
    "statements": (STATEMENTS, {"question": "q?", "response": "r", "contexts": ["c", "d"]}),
    "entities": (ENTITIES, {"text": "t"}),
}


@pytest.mark.parametrize(("template", "data"), TEMPLATES.values(), ids=TEMPLATES)
def test_system_and_user(template, data):
    prompt = template.fill(data)
    held = re.search(r"^\{.*\}$", prompt.system, re.MULTILINE)[0]
    assert json.loads(held) == dict(prompt.schema) == dict(template.schema)
    assert prompt.messages == [
        {"role": "system", "content": prompt.system},
        {"role": "user", "content": prompt.user},
    ]
    assert not re.search(r"\{(question|context|contexts|response|text)\}", prompt.user)


def test_data_stand_between_markers():
    prompt = RELEVANCE.fill(PAIR)
    code = re.search(r"<question (\w{16})>", prompt.user)[1]
    assert f"<question {code}>\nq?\n</question {code}>\n<context {code}>\nc\n</context {code}>" in prompt.user


def test_several_texts_are_numbered():
    prompt = STATEMENTS.fill({"question": "q?", "contexts": ["c", "d"]})
    code = re.search(r"<question (\w{16})>", prompt.user)[1]
    assert f"<context 1 {code}>\nc\n</context 1 {code}>\n<context 2 {code}>\nd\n</context 2 {code}>" in prompt.user
    assert "response" not in prompt.user


def test_markers_are_of_the_data():
    users = [RELEVANCE.fill({"question": "q?", "context": text}).user for text in ("c", "d", "c")]
    codes = [re.search(r"<context (\w+)>", user)[1] for user in users]
    assert codes[0] == codes[2] != codes[1]


def test_no_data_are_told_in_the_system_message():
    assert RELEVANCE.fill(PAIR).system == RELEVANCE.fill({"question": "other", "context": "text"}).system


def test_the_digest_tells_prompts_apart():
    assert len({RELEVANCE.digest, STATEMENTS.digest, RELEVANCE.with_task("{question} {context}").digest}) == 3


def test_a_task_of_ones_own():
    prompt = RELEVANCE.with_task('{context} or {question}: {"score": {}} {x} 100% $HOME {{question}}').fill(
        {"question": "{context}", "context": "{question}"}
    )
    assert len(re.findall(r"<context", prompt.user)) == 1
    assert prompt.user.count("\n{context}\n") == 2  # the data, at both places of the question
    assert prompt.user.count("\n{question}\n") == 1
    assert '{"score": {}} {x} 100% $HOME {<question' in prompt.user


@pytest.mark.parametrize(
    ("task", "problems"),
    [
        ("{question} {context}", []),
        ("{question}", ["prompt: {context} must stand in it."]),
        ("", ["prompt: {question} and {context} must stand in it."]),
        (1, ["prompt: a int is not allowed. Give a text, or None."]),
    ],
)
def test_problems_of_a_task(task, problems):
    assert RELEVANCE.problems(task) == problems


def test_a_response_may_be_left_out():
    assert STATEMENTS.problems("{question} {contexts}") == []


def test_samples_have_keys_of_their_own():
    assert RELEVANCE.fill(PAIR).key == RELEVANCE.fill(PAIR, 0).key != RELEVANCE.fill(PAIR, 1).key


def test_statements():
    read = STATEMENTS.fill({"question": "q?", "contexts": ["c", "d"]}).read
    said = {"context": 2, "statement": " s ", "verdict": "Yes", "reason": "r"}
    assert read({"verdicts": [said, {"verdict": "no"}]}) == [
        Statement(2, "s", True, "r"),
        Statement(None, None, False, None),
    ]


@pytest.mark.parametrize("context", [0, 3, 1.5, "b", None, True])
def test_a_statement_of_no_context(context):
    read = STATEMENTS.fill({"question": "q?", "contexts": ["c", "d"]}).read
    with pytest.raises(ReplyError, match="context"):
        read({"verdicts": [{"context": context, "verdict": "yes"}]})


def test_entities():
    read = ENTITIES.fill({"text": "t"}).read
    assert read({"entities": ["Paris", " Rome ", "Paris", ""]}) == ("Paris", "Rome")
    with pytest.raises(ReplyError):
        read({"entities": [1]})

import json
import warnings
from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rag_descriptors.traces.contexts import parse_contexts, parse_text

nan = float("nan")
DEEP = 100_000
NULLS = [None, nan, pd.NA, pd.NaT, np.float32("nan"), np.float64("nan"), np.datetime64("NaT", "ns"), Decimal("NaN")]


@dataclass
class Document:
    page_content: object
    metadata: object = None


class Broken:
    def __repr__(self):
        raise RuntimeError("no repr")


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


LISTS = [
    (["N", "E"], ["N", "E"]),
    (("N", "E"), ["N", "E"]),
    ([], []),
    ((), []),
    (np.array(["N", "E"]), ["N", "E"]),
    (np.array(["N", None, nan], object), ["N", None, None]),
    (np.array([b"N"]), ["N"]),
    (np.array("N"), ["N"]),
    (np.array(None), None),
    (np.array([["N", 0.9], ["E", 0.5]], object), ["N", "E"]),
    (pd.Series(["N", None]), ["N", None]),
    (pd.Index(["N"]), ["N"]),
    (pd.array(["N", None], dtype="string"), ["N", None]),
    (["N", "", " \n", *NULLS], ["N", None, None, *[None] * len(NULLS)]),
    ([b"N", np.str_("E")], ["N", "E"]),
    (["null", "nan"], ["null", "nan"]),
]


@pytest.mark.parametrize(("cell", "texts"), LISTS)
def test_lists(cell, texts):
    assert parse_contexts(cell) == texts


DOCUMENTS = [
    ({"page_content": "N", "text": "E"}, "N"),
    ({"content": "N", "text": "E"}, "N"),
    ({"text": "N", "context": "E"}, "N"),
    ({"document.content": "N", "document": "E"}, "N"),
    ({"document": "N"}, "N"),
    ({"document": {"content": "N"}}, "N"),
    ({"document": SimpleNamespace(content="N")}, "N"),
    ({"document": {"id": 1}, "context": "N"}, "N"),
    ({"document": None, "context": "N"}, "N"),
    ({"node": {"text": "N"}, "score": 0.5}, "N"),
    (SimpleNamespace(node=SimpleNamespace(text="N")), "N"),
    ({"context": "N"}, "N"),
    ({"node": {"text_resource": {"text": "N"}}, "score": 0.5}, "N"),
    ({"node": {"text": None, "text_resource": {"text": "N"}}}, "N"),
    ({"text_resource": {"text": "N"}}, "N"),
    ({"text_resource": None}, None),
    ({"lc": 1, "type": "constructor", "id": ["Document"], "kwargs": {"page_content": "N", "metadata": {}}}, "N"),
    ({"content": "N", "meta": {"content": "E"}, "score": 0.5, "page": 1}, "N"),
    (Document("N"), "N"),
    ({"page_content": None, "text": "N"}, "N"),
    ({"page_content": 1, "text": "N"}, "N"),
    ({"text": None}, None),
    ({"text": nan}, None),
    ({"text": " "}, None),
    (("N", 0.9), "N"),
    (["N", 1], "N"),
    (("N", nan), "N"),
    (("N", np.float32(0.9)), "N"),
    ((Document("N"), 0.9), "N"),
    (({"text": "N"}, 0.9), "N"),
    ((None, 0.9), None),
]


@pytest.mark.parametrize(("document", "text"), DOCUMENTS)
def test_documents(document, text):
    assert parse_contexts([document, "E"]) == [text, "E"]


@pytest.mark.parametrize("cell", [{"page_content": "N"}, Document("N"), '{"page_content": "N"}', "{'text': 'N'}"])
def test_one_document(cell):
    assert parse_contexts(cell) == ["N"]


@pytest.mark.parametrize("cell", [*NULLS, "", "  ", "null", " null\n", "None", "nan", "NaN", b"", b"null"])
def test_missing(cell):
    assert parse_contexts(cell) is None


STRINGS = [
    ("N", ["N"]),
    (" N \n", [" N \n"]),
    (b"N", ["N"]),
    ('["N", "E"]', ["N", "E"]),
    (' ["N"]\n', ["N"]),
    (b'["N"]', ["N"]),
    ("[]", []),
    ("()", []),
    ("['N', \"E's\"]", ["N", "E's"]),
    ("('N', 'E')", ["N", "E"]),
    ("['N', nan]", ["N", None]),
    ('["N", NaN, null, ""]', ["N", None, None, None]),
    ("[None, 'N']", [None, "N"]),
    ("[nan]", [None]),
    ("[NaN, NaN]", [None, None]),
    ("[null]", [None]),
    ("[b'N']", ["N"]),
    (r"['N\d']", [r"N\d"]),
    ("['N',\n 'E']", ["N", "E"]),
    ("['N',  # note\n 'E']", ["N", "E"]),
    ('[{"text": "N", "score": 0.5}, {"page_content": "E"}]', ["N", "E"]),
    ("[{'text': 'N'}]", ["N"]),
    ('[["N", 0.9], ["E", 0.5]]', ["N", "E"]),
    ("[('N', 0.9)]", ["N"]),
    ('["\\ud83d\\ude00", "\\ud800"]', ["😀", "\ufffd"]),
    ('["a\\u0000b"]', ["a\0b"]),
    ('{"id": 1}', ['{"id": 1}']),
    ("{}", ["{}"]),
    ("{'N', 'E'}", ["{'N', 'E'}"]),
    ("[1]", ["[1]"]),
    ("[1, 2.5]", ["[1, 2.5]"]),
    ("[1] Smith, 2019", ["[1] Smith, 2019"]),
    ("[[1]](https://example.org) says", ["[[1]](https://example.org) says"]),
    ("[link](https://example.org)", ["[link](https://example.org)"]),
    ("[...(cut)] and so on", ["[...(cut)] and so on"]),
    ("(see below)", ["(see below)"]),
    ("{{template}}", ["{{template}}"]),
    ("1" * 5000, ["1" * 5000]),
    (f"[{'1' * 5000}]", [f"[{'1' * 5000}]"]),
    ("N " * 1_000_000, ["N " * 1_000_000]),
    ("array(['N'])", ["array(['N'])"]),
]


@pytest.mark.parametrize(("cell", "texts"), STRINGS, ids=[f"{cell!r:.40}" for cell, _ in STRINGS])
def test_strings(cell, texts):
    assert parse_contexts(cell) == texts


UNREADABLE = [
    "['N' 'E']",
    "['N'\n 'E']",
    "['N' None]",
    "[None 'N']",
    "[nan 'N' 'E']",
    "['N' 'E' ... 'S']",
    "[['N' 'E']\n ['S' 'N']]",
    "[\"it's\" 'N']",
    "['N', 'E",
    '["N", "E',
    '["N"',
    '[{"text": "N"}, {"te',
    "[['N', 0.9], ['E'",
    "[('N', 0.9), ('E'",
    "[Document(page_content='N')]",
    "[documents.Document(page_content='N')]",
    "[array(['N'], dtype=object)]",
    "['N\0']",
    "['N', __import__('os')]",
]


@pytest.mark.parametrize("cell", UNREADABLE)
def test_texts_of_lists_that_cannot_be_read_back(cell):
    with pytest.raises(ValueError, match=r"(?s)text of a list that can't be read back: .* Save lists as JSON"):
        parse_contexts(cell)


def contexts_or_message(cell):
    try:
        return parse_contexts(cell)
    except ValueError as error:
        return str(error)


OPENINGS = {
    "lists": ("[", "]"),
    "documents": ('[{"text":', "1}]"),
    "dicts": ('{"a":', "1}"),
    "tuples": ("(", ")"),
    "python": ("[{'text':", "}]"),
}


@pytest.mark.parametrize("depth", [10, 300, 900, 980, DEEP])
@pytest.mark.parametrize(("opening", "closing"), OPENINGS.values(), ids=OPENINGS.keys())
def test_deep_nesting_is_a_text_or_an_error(opening, closing, depth):
    cell = opening * depth + closing * depth
    found = contexts_or_message(cell)
    assert found in ([cell], []) or found.startswith("found ")


@pytest.mark.parametrize("middle", ["-" * DEEP, "1" + "+1" * DEEP, "a" + ".a" * DEEP, "not " * DEEP])
def test_deep_expressions_are_texts(middle):
    assert parse_contexts(f"[{middle}]") == [f"[{middle}]"]


NO_CONTEXTS = [
    (3, "found int 3 where a context is expected"),
    (0.5, "found float 0.5"),
    (True, "found bool True"),
    ([1, 2], "found int 1"),
    (["N", 0.5], "found float 0.5"),
    ({"N"}, "found set {'N'}"),
    ([["N", "E"]], r"found list \['N', 'E'\] where a context is expected. Each row takes a list"),
    ([("N", "E", 0.5)], "found tuple"),
    ([np.array(["N"])], "found ndarray"),
    (np.array([["N", "E"]]), "found list"),
    (nested(DEEP), r"found list \[\[\["),
    ([{"body": "N", "id": 1}], "without a known text key; its keys are 'body', 'id'. The text is looked for under"),
    ([{}], "found dict {} without a known text key. The text"),
    ([object()], "found object <object object"),
    ([Broken()], "found Broken <Broken instance"),
    (len, "found builtin_function_or_method"),
    ([Document(1)], "found a document whose 'page_content' holds int 1. It must hold a text."),
    ([{"node": {"id_": 1}}], r"without a known text key; its keys are 'node'"),
    ([{"lc": 1, "kwargs": {"content": "N"}}], r"without a known text key; its keys are 'lc', 'kwargs'"),
    ([{"document": {"id": 1}}], r"found dict {'document': \.*.*without a known text key; its keys are 'document'"),
    ('["N", 0.5]', "found float 0.5"),
    ('[["N", "E"]]', "found list"),
    ('[{"id": 1}]', "its keys are 'id'"),
]


@pytest.mark.parametrize(("cell", "message"), NO_CONTEXTS, ids=[str(i) for i in range(len(NO_CONTEXTS))])
def test_no_contexts(cell, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_contexts(cell)
    assert len(str(caught.value)) < 500


TEXTS = [
    ("N", "N"),
    (" N ", " N "),
    (np.str_("N"), "N"),
    (b"N", "N"),
    (b"\xff", "\ufffd"),
    ("nan", "nan"),
    ("None", "None"),
    ("a\0b", "a\0b"),
    ("\ud800", "\ufffd"),
    ("a\udfffb", "a\ufffdb"),
    ("\ud83d\ude00", "😀"),
    ("😀", "😀"),
    ("", None),
    (" \t\r\n\x1c\x85\xa0\u2003\u3000", None),
    ("\u200b", "\u200b"),
    *((null, None) for null in NULLS),
]


@pytest.mark.parametrize(("cell", "text"), TEXTS)
def test_text(cell, text):
    assert parse_text(cell) == text
    assert parse_contexts([cell]) == [text]


@pytest.mark.parametrize(
    "cell", [1, 0.5, True, ["N"], {"text": "N"}, object(), nested(DEEP), Broken()], ids=lambda cell: type(cell).__name__
)
def test_no_text(cell):
    with pytest.raises(ValueError, match=r"where a text is expected\. Convert the column with \.astype\("):
        parse_text(cell)


JSON_LIKE = st.text(st.sampled_from("[](){}'\"\\,: \n\r\f\0#abNone1.-\ud800")) | st.text()


@given(JSON_LIKE | JSON_LIKE.map("[{}]".format) | JSON_LIKE.map("['{}".format))
@example("['\\N{x}']")
@example("['a'\\\n'b']")
def test_any_text_is_read_or_refused(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = parse_contexts(text)
        except ValueError:
            return
    assert found is None or all(item is None or (item.strip() and pa.scalar(item).as_py() == item) for item in found)


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"))))
def test_json_and_python_read_back_what_was_written(contexts):
    expected = [text if text and text.strip() else None for text in contexts]
    assert parse_contexts(json.dumps(contexts)) == expected
    assert parse_contexts(contexts) == expected
    assert parse_contexts(repr(contexts)) == expected

import inspect
import pickle
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_descriptors import ContextEntityRecall, Entities, JudgeError, add_descriptors, score_frame
from rag_descriptors.conditions import gte
from rag_descriptors.errors import ExtractorWarning, ModelError, OptionError, ScoringError
from rag_descriptors.testing import FakeJudge, check_descriptor

nan = float("nan")


@dataclass(frozen=True)
class Listed:
    """Takes a text for a list of entities between semicolons; `failures` maps texts to statuses."""

    failures: dict[str, str] = field(default_factory=dict)
    joins_contexts: bool = False
    texts: list[str] = field(default_factory=list, compare=False, repr=False)

    def identity(self):
        return {"extractor": "listed", "failures": dict(self.failures)}

    def extract(self, texts):
        self.texts.extend(texts)
        return [self._answer(text) for text in texts]

    def _answer(self, text):
        if text in self.failures:
            return Entities(None, self.failures[text])
        return Entities(tuple(item.strip() for item in text.replace("\n\n", ";").split(";") if item[:1] != "-"))


@pytest.fixture
def recall():
    """Make a ContextEntityRecall called `er` over columns `reference` and `contexts`."""

    def make(extractor=None, **options):
        options = {"alias": "er", "output_entities": True, "output_status": True, **options}
        return ContextEntityRecall("reference", "contexts", extractor or Listed(), **options)

    return make


def table(*rows):
    references, contexts = zip(*rows, strict=True) if rows else ((), ())
    columns = {"reference": pd.Series(references, dtype=object), "contexts": pd.Series(contexts, dtype=object)}
    return pd.DataFrame(columns)


def scores(descriptor, *rows):
    found = add_descriptors(table(*rows), descriptor)["er"]
    assert found.dtype == "float64"
    return [None if np.isnan(score) else score for score in found]


def statuses(descriptor, *rows):
    return add_descriptors(table(*rows), descriptor)["er status"].tolist()


# --- cases from the field


def test_f24_full_recall_is_one(recall):
    rows = [("Paris; Louvre; Seine", ["Louvre; Paris", "Seine"]), ("Paris; Louvre; Seine", ["Louvre; Paris"])]
    assert scores(recall(), *rows) == [1.0, 0.6666666666666666]
    assert add_descriptors(table(*rows), recall(tests=[gte(1.0)])).iloc[:, -1].tolist() == [True, False]


def test_f25_an_entity_counts_once(recall):
    assert scores(recall(), ("Paris; Paris; Rome", ["Paris"])) == [0.5]


@pytest.mark.parametrize(("reference", "context"), [("Paris", "paris"), ("World's Fair", "world’s fair ")])
def test_f26_case_and_edges(recall, reference, context):
    scored = add_descriptors(table((reference, [context])), recall())
    assert scored["er"].tolist() == [1.0]
    assert scored["er entities"][0] == {
        "reference": [reference],
        "contexts": [context.strip()],
        "found": [reference],
        "missing": [],
    }
    assert scores(recall(matching="exact"), (reference, [context])) == [0.0]


@pytest.mark.parametrize(
    ("reference", "context", "score"),
    [
        ("Zürich", "Zu\u0308rich", 1.0),
        ("Straße", "STRASSE", 1.0),
        ("ＡＢＣ", "ABC", 1.0),
        ("Köln", "Koln", 0.0),
        ("東京; 大阪", "東京", 0.5),
        ("Москва; Київ", "МОСКВА; київ", 1.0),
        ("القاهرة; دمشق", "القاهرة", 0.5),
    ],
)
def test_f27_unicode(recall, reference, context, score):
    assert scores(recall(), (reference, [context])) == [score]


@pytest.mark.parametrize("status", ["judge_error", "unparseable"])
@pytest.mark.parametrize("joins", [True, False])
def test_f29_a_failed_extraction_is_not_zero(recall, status, joins):
    extractor = Listed(failures={"prose": status}, joins_contexts=joins)
    scored = add_descriptors(table(("Paris", ["prose"]), ("Paris", ["-"])), recall(extractor))
    assert scored["er"].tolist() == [pytest.approx(nan, nan_ok=True), 0.0]
    assert scored["er status"].tolist() == [status, "ok"]
    assert scored["er entities"][0] == {"reference": ["Paris"], "contexts": None, "found": None, "missing": None}
    with pytest.raises(ScoringError, match=f"status '{status}'"):
        add_descriptors(table(("Paris", ["prose"])), recall(extractor), on_error="raise")


def test_f30_a_reference_without_entities(recall):
    extractor = Listed()
    scored = add_descriptors(table(("- It depends.", ["Paris"]), ("...", ["Paris"])), recall(extractor))
    assert scored["er"].isna().all()
    assert scored["er status"].tolist() == ["no_reference_entities"] * 2
    assert scored["er entities"][0] == {"reference": [], "contexts": None, "found": None, "missing": None}
    assert extractor.texts == ["- It depends.", "..."]


@pytest.mark.parametrize("contexts", [[], ["", None, " "]])
def test_f31_nothing_was_retrieved(recall, contexts):
    extractor = Listed()
    scored = add_descriptors(table(("Paris", contexts)), recall(extractor))
    assert scored["er"].tolist() == [0.0]
    assert scored["er status"].tolist() == ["no_contexts"]
    assert scored["er entities"][0] == {"reference": ["Paris"], "contexts": [], "found": [], "missing": ["Paris"]}
    assert extractor.texts == ["Paris"]


@pytest.mark.parametrize("reference", [None, nan, "", " "])
def test_f15_a_missing_reference(recall, reference):
    extractor = Listed()
    scored = add_descriptors(table((reference, ["Paris"])), recall(extractor))
    assert scored["er"].isna().all()
    assert scored["er status"].tolist() == ["missing_reference"]
    assert scored["er entities"].tolist() == [None]
    assert extractor.texts == []


# --- what is missing


def test_null_contexts(recall):
    extractor = Listed()
    rows = [("Paris", None), (None, None)]
    assert scores(recall(extractor), *rows) == [None, None]
    assert statuses(recall(extractor), *rows) == ["no_contexts", "missing_reference"]
    assert extractor.texts == []


def test_no_reference_entities_and_no_contexts(recall):
    assert statuses(recall(), ("-", []), ("-", None)) == ["no_reference_entities", "no_contexts"]


def test_a_failed_reference(recall):
    extractor = Listed(failures={"prose": "timeout"})
    assert scores(recall(extractor), ("prose", ["Paris"]), ("prose", [])) == [None, None]
    assert statuses(recall(extractor), ("prose", ["Paris"]), ("prose", [])) == ["timeout", "timeout"]
    assert "Paris" not in extractor.texts


def test_one_failed_context_among_others(recall):
    extractor = Listed(failures={"prose": "timeout"})
    assert scores(recall(extractor), ("Paris", ["Paris", "prose"])) == [None]
    assert statuses(recall(extractor), ("Paris", ["Paris", "prose"])) == ["timeout"]


def test_blanks_among_contexts(recall):
    assert scores(recall(), ("Paris; Rome", ["", None, "Paris", "  "])) == [0.5]


def test_entities_are_shown_in_the_order_of_their_texts(recall):
    row = ("Rome; Paris; ROME", ["Seine; paris", "OSLO", "Paris; Oslo", "OSLO"])
    assert add_descriptors(table(row), recall())["er entities"][0] == {
        "reference": ["Rome", "Paris"],
        "contexts": ["Seine", "paris", "OSLO"],
        "found": ["Paris"],
        "missing": ["Rome"],
    }


def test_rows_of_none_are_without_fault(recall):
    rows = [(None, ["Paris"]), ("-", ["Paris"]), ("Paris", []), ("Paris", None)]
    assert len(add_descriptors(table(*rows), recall(), on_error="raise")) == 4


def test_no_rows(recall):
    scored = add_descriptors(table(), recall(tests=[gte(0.5)]))
    assert scored.columns.tolist()[2:] == ["er", "er entities", "er status", "er: greater or equal to 0.5"]
    assert scored["er"].dtype == "float64"
    assert len(scored) == 0


# --- matching


@pytest.mark.parametrize("matching", ["normalized", "exact"])
def test_no_entity_matches_a_part_of_one(recall, matching):
    rows = [("York", ["New York"]), ("New York", ["York"]), ("Paris", ["Parisian"]), ("New York", ["New", "York"])]
    assert scores(recall(matching=matching), *rows) == [0.0] * 4


def test_mentions(recall):
    extractor = Listed()
    rows = [("Paris; Rome; York", ["The Louvre is in PARIS.", "Romeo left New York."]), ("Paris", ["Parisian"])]
    scored = add_descriptors(table(*rows), recall(extractor, matching="mentions"))
    assert scored["er"].tolist() == [2 / 3, 0.0]
    assert scored["er entities"][0] == {
        "reference": ["Paris", "Rome", "York"],
        "contexts": None,
        "found": ["Paris", "York"],
        "missing": ["Rome"],
    }
    assert extractor.texts == ["Paris; Rome; York", "Paris"]
    assert scores(recall(matching="mentions"), ("Paris", [])) == [0.0]


def first_word(form):
    return form.split()[0]


def test_a_key_of_ones_own(recall):
    rows = [("Franklin Roosevelt; Paris", ["Franklin D. Roosevelt", "paris"])]
    assert scores(recall(matching=first_word), *rows) == [0.5]
    assert recall(matching=first_word).provenance["matching"] == f"{__name__}.first_word"


def test_a_key_that_fails(recall):
    with pytest.raises(ScoringError, match="failed on 'Paris'"):
        add_descriptors(table(("Paris", ["Rome"])), recall(matching=lambda form: form.x))


def test_aliases(recall):
    row = ("FDR; Paris", ["Franklin D. Roosevelt; City of Light"])
    assert scores(recall(), row) == [0.0]
    aliases = {"FDR": "Franklin D. Roosevelt", "city of light": "Paris"}
    scored = add_descriptors(table(row), recall(aliases=aliases))
    assert scored["er"].tolist() == [1.0]
    assert scored["er entities"][0]["found"] == ["FDR", "Paris"]
    assert scores(recall(aliases=aliases, matching="exact"), row) == [0.5]
    assert scores(recall(aliases=aliases, matching="mentions"), row) == [1.0]


# --- what is read


def test_each_text_is_read_once(recall):
    extractor = Listed()
    rows = [("Paris", ["a", "b"]), ("Paris", ["b", "a", "b"]), ("Rome", ["c", "Paris"]), ("-", ["d"]), (None, ["e"])]
    summary = score_frame(table(*rows), recall(extractor)).summary
    assert extractor.texts == ["Paris", "Rome", "-", "a", "b", "c"]
    assert (summary.texts.distinct, summary.texts.encoded) == (6, 6)


def test_the_contexts_of_a_row_may_be_read_as_one_text(recall):
    extractor = Listed(joins_contexts=True)
    rows = [("a; c", ["b", "a"]), ("a", ["a", None, "b", "a"]), ("a", ["b"]), ("a", [])]
    scored = add_descriptors(table(*rows), recall(extractor))
    assert scored["er"].tolist() == [0.5, 1.0, 0.0, 0.0]
    assert extractor.texts == ["a; c", "a", "a\n\nb", "b"]
    assert scores(recall(extractor, matching="mentions"), ("a", ["b", "a"])) == [1.0]


@dataclass(frozen=True)
class Asking:
    """An extractor around another model, which alone is to be wrapped."""

    model: Any

    def identity(self):
        return self.model.identity()

    def extract(self, texts):
        return self.model.extract(texts)

    def bind(self, wrap):
        return replace(self, model=wrap(self.model))


def test_an_extractor_may_bind_what_it_is_made_of(recall, tmp_path):
    descriptor = recall(Asking(Listed()))
    bound = descriptor.bind(lambda model: (model, "wrapped"))
    assert bound.method == Asking((Listed(), "wrapped"))
    listed = Listed()
    for _ in range(2):
        assert scores(recall(Asking(listed)), ("a", ["a"])) == [1.0]
        add_descriptors(table(("b", ["c"])), recall(Asking(listed)), cache=tmp_path / "cache")
    assert listed.texts == ["a", "b", "c", "a"]


def test_nothing_is_read_twice_with_a_cache(recall, tmp_path):
    rows = table(("Paris; Rome", ["Paris", "Oslo"]))
    for expected in (["Paris; Rome", "Paris", "Oslo"], []):
        extractor = Listed()
        assert add_descriptors(rows, recall(extractor), cache=tmp_path / "cache")["er"].tolist() == [0.5]
        assert extractor.texts == expected


def test_matching_and_aliases_are_no_part_of_the_cache_key(recall, tmp_path):
    extractor = Listed()
    for options in ({}, {"matching": "exact"}, {"aliases": {"Oslo": "Paris"}, "alias": "other"}):
        add_descriptors(table(("Paris", ["Oslo"])), recall(extractor, **options), cache=tmp_path / "cache")
    assert extractor.texts == ["Paris", "Oslo"]


# --- the value object


def test_the_signature():
    parameters = inspect.signature(ContextEntityRecall).parameters
    assert [name for name, item in parameters.items() if item.kind is not item.KEYWORD_ONLY] == [
        "reference",
        "contexts",
        "method",
        "method_params",
        "model",
        "matching",
        "alias",
        "tests",
    ]
    assert [parameters[name].default for name in ("method", "model", "matching")] == [
        "llm",
        "gpt-4o-mini",
        "normalized",
    ]


def test_names_of_columns():
    plain = ContextEntityRecall("reference", "docs", "spacy")
    assert plain.name == "Entity recall of reference in docs"
    assert plain.inputs == pa.schema([("reference", pa.string()), ("docs", pa.list_(pa.string()))])
    assert plain.outputs.names == [plain.name]


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({"method": "spcy"}, ["method: 'spcy' is unknown. Did you mean 'spacy'?"]),
        ({"method": None}, ["method: None is none of 'llm', 'spacy', no EntityExtractor, and no function"]),
        ({"method": Listed}, ["is none of 'llm', 'spacy', no EntityExtractor"]),
        (
            {"method": Listed(), "method_params": {"api_key": "k"}},
            ["an extractor has options of its own"],
        ),
        ({"method_params": {"finds": "names"}}, ["method_params: 'finds' is unknown. Did you mean 'find'?"]),
        ({"method_params": {"find": "all"}}, ["find: 'all' is unknown. Allowed: 'names', 'labels'."]),
        ({"method_params": {"pipelin": "x", "find": "z"}}, ["'pipelin' is unknown", "find: 'z' is unknown"]),
        ({"method_params": {"finds": 1}, "model": "m"}, ["model: 'm' is the judge's", "'finds' is unknown"]),
        ({"method_params": ["find"]}, ["method_params: ['find'] is not allowed. Give a dict"]),
        ({"matching": "fuzzy"}, ["matching: 'fuzzy' is unknown. Allowed: 'normalized', 'exact', 'mentions'."]),
        ({"aliases": {"FDR": 1}}, ["aliases: {'FDR': 1} is not allowed. Give a dict from forms to canonical forms"]),
        ({"aliases": [("a", "b")]}, ["aliases: [('a', 'b')] is not allowed"]),
        ({"aliases": {"a": "b", "b": "a"}}, ["aliases: 'a' leads back to itself"]),
        (
            {"matching": lambda form: 1 / 0, "aliases": {"a": "b"}, "output_status": 1},
            ["It must return a key", "output_status: 1"],
        ),
        ({"model": ""}, ["model: '' is not allowed. Give a name such as 'gpt-4o-mini'."]),
        ({"reference": "", "alias": 3}, ["reference: '' is not", "alias: 3 is not"]),
        ({"tests": gte(0.7)}, ["tests: Condition(kind='gte', value=0.7) is no list."]),
        ({"tests": [0.7]}, ["tests: 0.7 is no condition."]),
        ({"output_entities": 1}, ["output_entities: 1 is unknown"]),
        ({"method": "x", "matching": "y", "contexts": None}, ["contexts: None", "method: 'x'", "matching: 'y'"]),
    ],
)
def test_wrong_options_are_all_named_at_once(options, messages):
    with pytest.raises(OptionError) as caught:
        ContextEntityRecall(**{"reference": "r", "contexts": "c", "method": "spacy", **options})
    assert all(message in str(caught.value) for message in messages)
    assert len(str(caught.value).splitlines()) == len(messages)


def named(*texts):
    """A judge that finds those of `texts` that stand in what it is asked about."""
    return FakeJudge(partial(_named, texts))


def _named(texts, prompt):
    return {"entities": [text for text in texts if text in prompt.user]}


def judged(judge, **options):
    params = {"judge": judge, "max_concurrency": 1, **options.pop("method_params", {})}
    return ContextEntityRecall("reference", "contexts", method_params=params, **{"alias": "cer", **options})


def test_a_judge_is_asked_of_each_reference_and_each_set_of_contexts():
    judge = named("Paris", "Rome", "Oslo")
    rows = [
        ("Paris, Rome", ["Rome.", "Oslo."]),
        ("Paris, Rome", ["Oslo.", "Rome.", "Rome.", None]),  # the same set
        ("Oslo", ["Rome.", "Oslo."]),
        ("It depends.", ["Paris."]),  # no entities: its contexts are not read
        ("Paris", []),
        ("Paris", None),
        (None, ["Paris."]),
    ]
    traces = pd.DataFrame(rows, columns=["reference", "contexts"])
    scored = add_descriptors(traces, judged(judge, output_entities=True, output_status=True))
    assert scored["cer"].tolist() == pytest.approx([0.5, 0.5, 1.0, nan, 0.0, nan, nan], nan_ok=True)
    assert scored["cer status"].tolist() == [
        *("ok", "ok", "ok", "no_reference_entities", "no_contexts", "no_contexts", "missing_reference")
    ]
    assert scored["cer entities"][0] == {
        "reference": ["Paris", "Rome"],
        "contexts": ["Rome", "Oslo"],
        "found": ["Rome"],
        "missing": ["Paris"],
    }
    assert len(judge.prompts) == 4 + 1
    assert "Oslo.\n\nRome." in judge.prompts[-1].user


@pytest.mark.parametrize(("failing", "status"), [("prose", "unparseable"), (JudgeError("no"), "judge_error")])
def test_f29_a_judge_that_fails(failing, status):
    judge = FakeJudge(lambda prompt: failing if "Louvre" in prompt.user else {"entities": ["Paris"]})
    traces = pd.DataFrame({"reference": ["Paris", "Paris"], "contexts": [["Louvre"], ["Paris"]]})
    scored = add_descriptors(traces, judged(judge, output_status=True))
    assert scored["cer"].tolist() == pytest.approx([nan, 1.0], nan_ok=True)
    assert scored["cer status"].tolist() == [status, "ok"]


def test_a_judge_is_asked_several_times():
    replies = iter([["Paris"], ["Paris"], ["Paris", "Rome"], ["Paris"]])
    judge = FakeJudge(lambda _: {"entities": next(replies)})
    traces = pd.DataFrame({"reference": ["r"], "contexts": [["c"]]})
    scored = add_descriptors(traces, judged(judge, method_params={"repeats": 2}))
    assert scored["cer"].tolist() == [0.75]
    assert scored["cer spread"].tolist() == [0.5]


def test_what_a_judge_said_is_known(tmp_path):
    traces = pd.DataFrame({"reference": ["Paris", "Rome"], "contexts": [["Paris"], ["Oslo", "Rome"]]})
    first, second = named("Paris", "Rome"), named("Paris", "Rome")
    estimate = score_frame(traces, judged(first), cache=tmp_path / "cache", estimate=True).summary.judge
    score_frame(traces, judged(first), cache=tmp_path / "cache")
    again = score_frame(traces, judged(second), cache=tmp_path / "cache")
    assert estimate.calls == 3
    assert (len(first.prompts), len(second.prompts)) == (3, 0)  # "Paris" is a reference and a context
    assert again.frame[judged(second).name].tolist() == [1.0, 1.0]


def test_a_judge_keeps_the_contract():
    traces = pd.DataFrame({"reference": ["Paris", "Rome"], "contexts": [["Paris"], ["Oslo"]]})
    check_descriptor(judged(named("Paris", "Rome", "Oslo"), output_entities=True, output_status=True), traces)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method_params": {"model": "m"}}, "method_params: 'model' is an argument of its own"),
        ({"method_params": {"prompt": "x"}}, "prompt: {text} must stand in it"),
        ({"method_params": {"labels": ["ORG"]}}, "method_params: 'labels' is unknown"),
        ({"model": "m", "method_params": {"judge": FakeJudge(["x"])}}, "model: 'm' can't stand beside judge"),
    ],
)
def test_wrong_options_of_a_judge(options, message):
    with pytest.raises(OptionError) as caught:
        ContextEntityRecall("reference", "contexts", **options)
    assert message in str(caught.value)


def capitals(texts):
    """Takes capitalised words for entities; can't read a question."""
    return [None if "?" in text else [word for word in text.split() if word[0].isupper()] for text in texts]


def test_a_function_from_texts_to_entities(recall):
    rows = [("Paris and Rome", ["in Rome", "or Oslo"]), ("Paris?", ["Paris"]), ("Paris", ["Rome?"]), ("no", ["Rome"])]
    scored = add_descriptors(table(*rows), recall(capitals))
    assert scored["er"].fillna(-1).tolist() == [0.5, -1, -1, -1]
    assert scored["er status"].tolist() == ["ok", "not_extracted", "not_extracted", "no_reference_entities"]
    assert scored["er entities"][0]["missing"] == ["Paris"]
    check_descriptor(recall(capitals), table(*rows))
    columns = score_frame(table(*rows), recall(capitals)).summary.columns
    assert columns["er"].provenance["method"] == {"extractor": f"{__name__}.capitals"}
    assert " at 0x" not in repr(recall(capitals))


def test_a_function_is_not_asked_of_what_it_may_not_say_again(recall, tmp_path):
    for words, score in ((["Rome"], 1.0), ([], None)):
        found = add_descriptors(
            table(("a", ["b"])), recall(lambda texts, w=words: [w] * len(texts)), cache=tmp_path / "c"
        )
        assert found["er"].fillna(-1).tolist() == [-1 if score is None else score]


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (None, "gave None for 1 texts. It must return a list of one list of entities per text"),
        ("a", "gave 'a' for 1 texts"),
        ([], "gave 0 answers for 1 texts"),
        (["a"], "gave 'a' for 1 texts"),
        ([[1]], r"gave \[1\] for 1 texts"),
        ([{"a": "b"}], r"gave \{'a': 'b'\} for 1 texts"),
        ([["a"], ["b"]], "gave 2 answers for 1 texts"),
    ],
)
def test_a_function_that_breaks_its_contract(recall, answers, found):
    with pytest.raises(ModelError, match=found):
        add_descriptors(table(("a", ["b"])), recall(lambda texts: answers))


def test_a_function_that_raises(recall):
    def failing(texts):
        if any("bad" in text for text in texts):
            raise ConnectionError
        return [[text] for text in texts]

    with pytest.warns(ExtractorWarning, match="ConnectionError"):
        scored = add_descriptors(table(("a", ["a"]), ("b", ["bad"]), ("bad", ["a"])), recall(failing))
    assert scored["er"].fillna(-1).tolist() == [1.0, -1, -1]
    assert scored["er status"].tolist() == ["ok", "extractor_error", "extractor_error"]


def test_an_identity_that_is_none_ends_the_run_at_its_start(recall):
    class Odd(Listed):
        def identity(self):
            return "odd"

    odd = Odd()
    with pytest.raises(ModelError, match=r"is 'odd': it is a str\. It must be a dict from names to JSON values"):
        add_descriptors(table(("a", ["a"])), recall(odd))
    assert odd.texts == []


@pytest.mark.parametrize(
    ("matching", "score"), [(lambda form: 0, 1.0), (lambda form: "", 1.0), (lambda form: None, None)]
)
def test_false_keys_of_a_function(recall, matching, score):
    assert scores(recall(matching=matching), ("Paris", ["Rome"])) == [score]


@pytest.mark.parametrize("method", ["spacy", Listed(), capitals])
def test_a_model_where_no_judge_is_asked(method):
    with pytest.raises(OptionError, match=r"^model: 'mistral' is the judge's, and no judge is asked\. Leave it out\.$"):
        ContextEntityRecall("reference", "contexts", method, model="mistral")


def test_a_value_object(recall):
    extractor = Listed()
    descriptor = recall(extractor, tests=[gte(0.7)], aliases={"a": "b"})
    assert descriptor == recall(extractor, tests=(gte(0.7),), aliases={"a": "b"})
    assert hash(descriptor) == hash(recall(extractor, tests=(gte(0.7),), aliases={"a": "b"}))
    assert descriptor != recall(extractor, matching="exact")
    assert pickle.loads(pickle.dumps(descriptor)) == descriptor
    assert " at 0x" not in repr(recall(matching=first_word))
    with pytest.raises(AttributeError):
        descriptor.alias = "other"


def test_it_does_not_change_with_what_it_was_made_of(recall):
    aliases, conditions = {"a": "b"}, [gte(0.7)]
    descriptor = recall(aliases=aliases, tests=conditions)
    aliases.clear()
    conditions.clear()
    assert descriptor.aliases == {"a": "b"}
    assert descriptor.tests == (gte(0.7),)


def test_the_fingerprint_changes_with_the_values_only(recall):
    def fingerprint(**options):
        return score_frame(table(), recall(**options)).summary.columns[options.get("alias", "er")].fingerprint

    same = [fingerprint(), fingerprint(alias="other"), fingerprint(output_entities=False, tests=[gte(0.5)])]
    other = [
        fingerprint(matching="exact"),
        fingerprint(aliases={"a": "b"}),
        fingerprint(extractor=Listed(failures={"a": "b"})),
    ]
    assert len({*same}) == 1
    assert len({*same, *other}) == 4


def test_tests_are_nullable(recall):
    scored = add_descriptors(table(("a", ["a"]), ("a", ["b"]), (None, ["a"])), recall(tests=[gte(0.7)]))
    assert scored["er: greater or equal to 0.7"].tolist() == [True, False, pd.NA]


TEXTS = st.none() | st.sampled_from(["", " ", "a", "a; b", "B; c", "-", "bad", "\ud800"]) | st.text(max_size=8)
CONTEXTS = st.none() | st.lists(TEXTS, max_size=5)
FRAMES = st.lists(st.tuples(TEXTS, CONTEXTS), min_size=2, max_size=6)
MATCHINGS = st.sampled_from(["normalized", "exact", "mentions", str.lower])


@settings(max_examples=25, deadline=None)
@given(FRAMES, MATCHINGS, st.booleans())
def test_the_contract(rows, matching, joins):
    descriptor = ContextEntityRecall(
        "reference",
        "contexts",
        Listed(failures={"bad": "timeout"}, joins_contexts=joins),
        matching=matching,
        output_entities=True,
        output_status=True,
        tests=[gte(0.5)],
    )
    check_descriptor(descriptor, table(*rows))

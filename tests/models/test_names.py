"""The rules, over texts that are parsed by hand; they need spaCy, but no pipeline."""

import pytest

from rag_descriptors.models.names import labelled, names, written

spacy = pytest.importorskip("spacy")

KINDS = {"I": "PRON", "They": "PRON", "The": "DET", "In": "ADP", "Only": "ADV", "If": "SCONJ"}


def parse(text, *entities, kinds=KINDS):
    """Return a document: capitalised words are proper nouns but for `kinds`; `entities` are (words, label)."""
    doc = spacy.blank("en")(text)
    for token in doc:
        token.pos_ = kinds.get(token.text, "PROPN" if token.text[0].isupper() else "X")
    spans = [doc.char_span(text.index(words), text.index(words) + len(words), label) for words, label in entities]
    doc.set_ents(spans)
    return doc


def counts(label):
    return label != "DATE"


def found(text, *entities, **kinds):
    doc = parse(text, *entities, **kinds)
    return list(written(doc, names(doc, counts)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("they met Ada Lovelace in London", ["Ada Lovelace", "London"]),
        ("the Bank of England lent it", ["Bank of England"]),
        ("seen by Ludwig van Beethoven and Oscar de la Renta", ["Ludwig van Beethoven", "Oscar de la Renta"]),
        ("near Stratford-upon-Avon, in Baden-Baden", ["Stratford", "Avon", "Baden-Baden"]),
        ("from Dallas - Fort Worth", ["Dallas", "Fort Worth"]),
        ("in the middle of the night", []),
        ("made of Iron, of", ["Iron"]),
        ("the mRNA of an iPhone", ["mRNA", "iPhone"]),
        ("the Beatles, the Beatles and The Beatles", ["Beatles"]),
        ("so I said", []),
        ("", []),
        ("東京は日本の首都です", []),
    ],
)
def test_runs_of_capitalised_words(text, expected):
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Only Paris is left.", ["Paris"]),
        ("Paris is left.", ["Paris"]),
        ("a city. Only Paris is. “Only Rome!” (Only Oslo)", ["Paris", "Rome", "Oslo"]),
        ("a list\n\nOnly Rome", ["Rome"]),
        ("“Only a word", []),
        ("the song Only You is left", ["Only You"]),
    ],
)
def test_the_start_of_a_sentence(text, expected):
    assert found(text) == expected


@pytest.mark.parametrize(
    "opening",
    [
        *("- ", "* ", "+ ", "– ", "• ", "> ", "# ", "## ", "1) ", "a) ", "(b) ", "1. ", "(", "“", '"', "'", "«"),
        *("a list\n- ", "a list\n  12) ", "an end. - ", "an end. 2) ", "a list • one • ", "an end.” "),
        *("he said: ", 'he said: "', "he said: “", 'he said "', "he said “", "he said ‘", "he said '", "he said («"),
    ],
)
def test_a_capital_where_a_sentence_may_begin_is_no_name(opening):
    assert found(f"{opening}If it rains in Paris") == ["Paris"]
    assert found(f"{opening}Rome rains") == ["Rome"]


@pytest.mark.parametrize(
    "before",
    [
        "the song ",
        "rain - ",
        "rain (",
        "the (1995) ",
        "the 5 ",
        'a "quoted" ',
        "a 'quoted' ",
        "a “quoted” ",
        "a, ",
        "a; ",
    ],
)
def test_a_capital_within_a_sentence_is_a_name(before):
    assert found(f"{before}If falls") == ["If"]


def test_numbers_count_where_they_are_asked_for():
    doc = parse("in 1984 the 3 of - 12 %")
    assert written(doc, [(1, 2), (3, 4), (5, 6), (6, 8)]) == ()
    assert written(doc, [(1, 2), (3, 4), (5, 6), (6, 8)], numbers=True) == ("1984", "3", "12")


def test_the_pipeline_says_where_two_names_meet():
    text = "with Jawaharlal Nehru of India and the Bank of England"
    assert found(text) == ["Jawaharlal Nehru of India", "Bank of England"]
    entities = [("Jawaharlal Nehru", "PERSON"), ("India", "GPE"), ("the Bank of England", "ORG")]
    assert found(text, *entities) == ["Jawaharlal Nehru", "India", "Bank of England"]


def test_capitals_of_a_date_do_not_count():
    assert found("in May 1968 and in Paris", ("May 1968", "DATE")) == ["Paris"]
    assert found("in May Day Parade", ("May", "DATE")) == ["May Day Parade"]


def test_numbers_that_belong_to_a_name():
    assert found("the 2014 Commonwealth Games", ("2014 Commonwealth Games", "EVENT")) == ["2014 Commonwealth Games"]
    assert found("the crew of Apollo 11 landed", ("Apollo 11", "PRODUCT")) == ["Apollo 11"]
    assert found("in 2014 Fonsi sang 11 songs", ("2014", "DATE")) == ["Fonsi"]
    assert found("in 2014 Fonsi sang") == ["Fonsi"]


def test_what_else_the_pipeline_labels():
    text = "the band de la soul of Paris in 1968"
    entities = [("the band de la soul", "ORG"), ("Paris", "GPE"), ("1968", "DATE")]
    assert found(text, *entities) == ["band de la soul", "Paris"]
    doc = parse(text, *entities)
    assert written(doc, labelled(doc, counts)) == ("band de la soul", "Paris")


def test_outer_words_are_left_out():
    doc = parse("the , Byrne 's , a an 42 !")
    assert written(doc, [(0, 5), (0, 2), (5, 8), (8, 9)]) == ("Byrne",)

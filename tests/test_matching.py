import pytest

from rag_descriptors.errors import OptionError, ScoringError
from rag_descriptors.matching import KEYS, Matcher, Mentions, exact, normalized


def matcher(aliases=None, key=normalized):
    return Matcher.of(key, aliases)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Paris", "paris"),
        ("World's Fair", "world’s fair "),
        ("O‘Brien", "O`Brien"),
        ("“Faust”", '"faust"'),
        ("«Faust»", "Faust"),
        ("Zürich", "Zu\u0308rich"),
        ("Straße", "STRASSE"),
        ("ＡＢＣ", "abc"),
        ("New\u00a0York\n City", "new york city"),
        (" (Paris), ", "paris"),
        ("Yahoo!", "Yahoo"),
        ("МОСКВА", "Москва"),
        ("東京。", "東京"),
        ("ﬁnland", "Finland"),
        ("Ὀδυσσεύς", "ὈΔΥΣΣΕΎΣ"),
    ],
)
def test_accidents_of_writing(left, right):
    assert normalized(left) == normalized(right) != ""


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Koln", "Köln"),
        ("C#", "C"),
        ("C++", "C"),
        ("York", "New York"),
        ("Paris", "Parisian"),
        ("Москва", "Moskva"),
        ("US", "U.S"),
        ("東京", "京都"),
        ("Catch-22", "Catch 22"),
    ],
)
def test_distinct_words_stay_distinct(left, right):
    assert normalized(left) != normalized(right)


@pytest.mark.parametrize("form", ["", " ", "...", "« »", "—"])
def test_what_names_nothing(form):
    assert normalized(form) == ""
    assert matcher().forms([form, "Paris"]) == {"paris": "Paris"}


@pytest.mark.parametrize("key", [0, 0.0, False, "", ()])
def test_a_false_key_is_a_key(key):
    assert matcher(key=lambda form: key).forms(["Paris", "Rome"]) == {key: "Paris"}


def test_a_form_without_a_key_names_nothing():
    only_long = {"Paris": "paris"}.get
    assert matcher(key=only_long).forms(["Paris", "Rome", ""]) == {"paris": "Paris"}
    assert matcher({"Rome": "Paris", "Oslo": "Rome"}, key=only_long).forms(["Rome", "Oslo"]) == {}
    assert matcher({"Paris": "Rome"}, key=only_long).forms(["Paris"]) == {}
    assert matcher({"Paris": "..."}).forms(["Paris", "Rome"]) == {"rome": "Rome"}


@pytest.mark.parametrize("key", [exact, len, normalized])
def test_a_blank_form_names_nothing(key):
    assert matcher(key=key).forms(["", " ", "\n"]) == {}


def test_the_first_form_is_shown():
    assert matcher().forms(["PARIS", "Rome", "Paris"]) == {"paris": "PARIS", "rome": "Rome"}
    assert matcher(key=exact).forms(["PARIS", "Paris"]) == {"PARIS": "PARIS", "Paris": "Paris"}
    assert matcher(key=len).forms(["PARIS", "Rome", "Seine"]) == {5: "PARIS", 4: "Rome"}


def test_aliases():
    given = matcher({"FDR": "Franklin D. Roosevelt", "Roosevelt": "fdr", "Paris": "paris"})
    assert given.forms(["F.D.R", "fdr", "Roosevelt."]) == {"f.d.r": "F.D.R", "franklin d. roosevelt": "fdr"}
    assert given.spellings("franklin d. roosevelt") == {"franklin d. roosevelt", "fdr", "roosevelt"}
    assert given.spellings("paris") == {"paris"}


def test_aliases_in_a_circle():
    with pytest.raises(OptionError, match=r"aliases: 'us' leads back to itself\. Map each form to one canonical form"):
        matcher({"US": "USA", "USA": "us"})


@pytest.mark.parametrize("key", [lambda form: [form], lambda form: 1 / 0])
def test_a_key_that_is_none(key):
    with pytest.raises(ScoringError, match=r"failed on 'Paris': .*It must return a key"):
        matcher(key=key).forms(["Paris"])


@pytest.mark.parametrize(
    ("form", "text", "is_there"),
    [
        ("Paris", "He left PARIS.", True),
        ("Paris", "a Parisian", False),
        ("Paris", "Paris2024", False),
        ("Paris", "Parisian Paris", True),
        ("Boyzone", "Boyzone’s song", True),
        ("Knowing Me, Knowing You", "their “Knowing Me,\nKnowing You”", True),
        ("York", "New York", True),
        ("C++", "written in C++ and Rust", True),
        ("a.b", "axb", False),
        ("Straße", "die STRASSE", True),
        ("Zürich", "Zu\u0308rich", True),
        ("Москва", "город Москва.", True),
        ("दिल", "दिल्ली में", False),
        ("दिल", "मेरा दिल।", True),
        ("हिन्द", "हिन्दी", False),
        ("कि", "कि", True),
        ("क", "कि", False),
        ("کتاب", "کتاب\u200cها", False),
        ("Q", "Q\u0303", False),
        ("C", "written in C++", False),
        ("C", "written in C#", False),
        ("C", "written in C++, C# and C.", True),
        ("C", "C", True),
        ("C+", "C++", False),
        ("C#", "in C#.", True),
        ("AT", "AT&T", False),
        ("AT&T", "of AT&T, Inc.", True),
        ("Rome", "Paris & Rome", True),
        ("Paris", "#Paris", False),
        ("Paris", "snake_Paris", False),
        ("Paris", "<b>Paris</b>", True),
        ("Paris", "|Paris|Rome|", True),
        ("aa", "aaa aa", True),
    ],
)
def test_mentions_are_whole_words(form, text, is_there):
    assert (normalized(form) in Mentions(text, matcher())) is is_there


def test_mentions_by_another_name():
    given = matcher({"FDR": "Franklin D. Roosevelt"})
    (key,) = given.forms(["Franklin D. Roosevelt"])
    assert key in Mentions("It was FDR who said so.", given)
    assert key not in Mentions("It was Franklin who said so.", given)


def test_an_alias_that_names_nothing_is_mentioned_nowhere():
    given = matcher({"!!!": "Paris"})
    (key,) = given.forms(["Paris"])
    assert key not in Mentions("No! Not there.", given)


def test_the_ways_that_have_names():
    assert list(KEYS) == ["normalized", "exact", "mentions"]

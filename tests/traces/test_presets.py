import pytest

from rag_descriptors.traces.presets import KNOWN_COLUMNS, find_column


@pytest.mark.parametrize(
    ("kind", "columns", "found"),
    [
        ("question", ["contexts", "question"], "question"),
        ("question", ["query", "user_input"], "user_input"),  # the order of the known names decides
        ("question", ["Question"], None),
        ("question", [], None),
        ("contexts", ["context", "retrieved_docs"], "retrieved_docs"),
        ("contexts", ["documents", 7], "documents"),
    ],
)
def test_the_first_known_name_is_found(kind, columns, found):
    assert find_column(kind, columns) == found


@pytest.mark.parametrize("kind", KNOWN_COLUMNS)
def test_each_known_name_is_found_alone(kind):
    assert [find_column(kind, ["x", name]) for name in KNOWN_COLUMNS[kind]] == list(KNOWN_COLUMNS[kind])

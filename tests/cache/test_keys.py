import pytest

from rag_descriptors.cache.keys import digest

nan = float("nan")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("a", "b"), ("ab",)),
        (("a", "bc"), ("ab", "c")),
        (("a", ""), ("", "a")),
        (("a",), ("a", "")),
        (("1:a",), ("a",)),
        (("é",), ("e\u0301",)),
    ],
)
def test_fields_of_a_digest_do_not_run_together(left, right):
    assert digest(*left) != digest(*right)
    assert digest(*left) == digest(*left)
    assert len(digest(*left)) == 16

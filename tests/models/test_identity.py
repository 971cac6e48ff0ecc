import pytest

from rag_descriptors.errors import ModelError
from rag_descriptors.models.identity import identity_key, identity_of


class Model:
    def __init__(self, identity):
        self.given = identity

    def identity(self, *role):
        return {**self.given, "role": role[0]} if role else self.given

    def __repr__(self):
        return "Model()"


def test_an_identity_does_not_depend_on_the_order_of_its_names():
    assert identity_of(Model({"b": 1, "a": [None, "x"]}), "query") == {"b": 1, "a": [None, "x"], "role": "query"}
    assert identity_key(Model({"b": 1, "a": None})) == identity_key(Model({"a": None, "b": 1})) == '{"a": null, "b": 1}'


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (None, r"the identity of Model\(\) is None: it is a NoneType\. It must be a dict from names to JSON values"),
        ("name", r"is 'name': it is a str\."),
        ([("a", 1)], r"it is a list\."),
        ({"a": object}, r"is \{'a': <class 'object'>\}: Object of type type is not JSON serializable\."),
        ({"a": 1, 2: 3}, r"'<' not supported"),
    ],
)
def test_an_identity_that_is_none(identity, message):
    with pytest.raises(ModelError, match=message):
        identity_key(Model(identity))

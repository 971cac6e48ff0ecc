from dataclasses import dataclass, field
from functools import partial

import pytest

from rag_descriptors.errors import OptionError
from rag_descriptors.options import (
    build,
    caught,
    column_names,
    flags,
    mappings,
    one_of,
    qualified_name,
    stable_repr,
    together,
    unknown,
)


@dataclass(frozen=True)
class Settings:
    size: object = 1
    made: int = field(default=0, init=False)

    def __post_init__(self):
        together(["size: -1 is not allowed."] * (self.size == -1))


@pytest.mark.parametrize(("params", "size"), [(None, 1), ({}, 1), ({"size": 0}, 0)])
def test_build(params, size):
    assert build(Settings, params, "params") == Settings(size)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"sise": 1}, "params: 'sise' is unknown. Did you mean 'size'? Allowed: 'size'."),
        ({"made": 1}, "params: 'made' is unknown. Allowed: 'size'."),
        ({"a": 1, 2: 3}, "params: 'a' is unknown. Allowed: 'size'.\nparams: 2 is unknown. Allowed: 'size'."),
        (
            {"sise": 1, "size": -1},
            "params: 'sise' is unknown. Did you mean 'size'? Allowed: 'size'.\nsize: -1 is not allowed.",
        ),
        ({"size": -1}, "size: -1 is not allowed."),
        ("size", "params: 'size' is not allowed. Give a dict from names to values."),
        ([], "params: [] is not allowed. Give a dict from names to values."),
    ],
)
def test_build_refuses(params, message):
    with pytest.raises(OptionError) as error:
        build(Settings, params, "params")
    assert str(error.value) == message


def refuse():
    raise OptionError("no")


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        (unknown("o", ["a"], ["a", "b"]), []),
        (one_of("o", "a", ("a", "b")), []),
        (one_of("o", "A", ("a", "b")), ["o: 'A' is unknown. Allowed: 'a', 'b'."]),
        (column_names(input="q", contexts=""), ["contexts: '' is not allowed. Give the name of a column."]),
        (column_names(input=None), ["input: None is not allowed. Give the name of a column."]),
        (flags(Settings(True), "size"), []),
        (flags(Settings("yes"), "size"), ["size: 'yes' is unknown. Allowed: True, False."]),
        (mappings(a=None, b={}, c=[]), ["c: [] is not allowed. Give a dict from names to values."]),
        (caught(lambda: 1, refuse, refuse), ["no", "no"]),
    ],
)
def test_problems(problems, expected):
    assert problems == expected


def test_together():
    together([])
    with pytest.raises(OptionError, match=r"^first\nsecond$"):
        together(["first", "second"])


class Callable:
    def __call__(self):
        return 1

    def method(self):
        return 1


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (len, "builtins.len"),
        (str.lower, "builtins.str.lower"),
        (refuse, f"{__name__}.refuse"),
        (Callable, f"{__name__}.Callable"),
        (Callable(), f"{__name__}.Callable"),
        (Callable().method, f"{__name__}.Callable.method"),
        (partial(refuse, 1, key="a"), f"functools.partial({__name__}.refuse, 1, key='a')"),
    ],
)
def test_qualified_name(function, name):
    assert qualified_name(function) == name


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ("x", "Settings(size='x', made=0)"),
        (len, "Settings(size=builtins.len, made=0)"),
        (partial(refuse, 1), f"Settings(size=functools.partial({__name__}.refuse, 1), made=0)"),
    ],
)
def test_stable_repr(size, shown):
    assert stable_repr(Settings(size)) == shown

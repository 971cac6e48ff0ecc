import inspect
import pickle

import pytest

from rag_descriptors import errors

KINDS = {
    errors.DescriptorError: (),
    errors.OptionError: (),
    errors.PlanError: (),
    errors.MissingColumnError: (errors.PlanError, KeyError),
    errors.ColumnConflictError: (errors.PlanError,),
    errors.CellError: (TypeError,),
    errors.CacheError: (OSError,),
    errors.FormatError: (),
    errors.ModelError: (RuntimeError,),
    errors.ModelNotFoundError: (errors.ModelError, LookupError),
    errors.MissingExtraError: (errors.ModelError, ImportError),
    errors.JudgeError: (errors.ModelError,),
    errors.ReplyError: (),
    errors.ScoringError: (RuntimeError,),
    errors.WorkerError: (RuntimeError,),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tree(kind):
    assert all(issubclass(kind, parent) for parent in (errors.DescriptorError, ValueError, *KINDS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_message_and_pickling(kind):
    error = kind("column 'a' is missing.\nAllowed: 'b'.")
    assert str(error) == "column 'a' is missing.\nAllowed: 'b'."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_all_are_exported():
    defined = {name for name, item in vars(errors).items() if inspect.isclass(item) and issubclass(item, Exception)}
    assert defined | {"CacheWarning", "ExtractorWarning", "JudgeWarning", "TruncationWarning"} == set(errors.__all__)
    assert {kind.__name__ for kind in KINDS} == {name for name in errors.__all__ if name.endswith("Error")}


@pytest.mark.parametrize(
    "kind", [errors.CacheWarning, errors.ExtractorWarning, errors.JudgeWarning, errors.TruncationWarning]
)
def test_warnings(kind):
    assert issubclass(kind, UserWarning)


@pytest.mark.parametrize(
    ("name", "allowed", "expected"),
    [
        ("contxts", ["question", "contexts"], " Did you mean 'contexts'? Allowed: 'question', 'contexts'."),
        ("axb", ["axby", "axbz", "zzz"], " Did you mean 'axbz' or 'axby'? Allowed: 'axby', 'axbz', 'zzz'."),
        ("axby", ["axb", "axbyz"], " Did you mean 'axbyz'? Allowed: 'axb', 'axbyz'."),
        ("zzz", ["question"], " Allowed: 'question'."),
        ("zzz", [], " Allowed: none."),
        (0, [0.0, 1], " Allowed: 0.0, 1."),
    ],
)
def test_suggest(name, allowed, expected):
    assert errors.suggest(name, allowed) == expected

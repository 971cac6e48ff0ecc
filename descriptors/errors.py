"""Every error and warning of the library.

    DescriptorError (ValueError)
    ├── OptionError                          an option that no descriptor, model or command takes
    ├── PlanError                            all that stands between descriptors and a table
    │   ├── MissingColumnError (KeyError)
    │   └── ColumnConflictError
    ├── CellError (TypeError)                a cell that holds no text, or no contexts
    ├── CacheError (OSError)                 a cache file that can't be made or opened
    ├── FormatError                          a file that is not what its ending says
    ├── ModelError (RuntimeError)            a model that does not load or answer
    │   ├── ModelNotFoundError (LookupError)
    │   ├── MissingExtraError (ImportError)
    │   └── JudgeError                       a call to a judge that was not answered
    ├── ReplyError                           an answer of a judge that can't be read
    ├── ScoringError (RuntimeError)          a method, aggregation or descriptor that breaks its contract
    └── WorkerError (RuntimeError)           a worker process that died

    CacheWarning (UserWarning)               a damaged cache; answers are worked out again
    ExtractorWarning (UserWarning)           an extractor of entities that failed on texts; rows are missing
    JudgeWarning (UserWarning)               a judge that stopped answering; rows are missing
    TruncationWarning (UserWarning)          texts that a model read only in part

A message says what is wrong, the value seen, and what to do.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from typing import Literal

__all__ = [
    "CacheError",
    "CacheWarning",
    "CellError",
    "ColumnConflictError",
    "DescriptorError",
    "ExtractorWarning",
    "FormatError",
    "JudgeError",
    "JudgeWarning",
    "MissingColumnError",
    "MissingExtraError",
    "ModelError",
    "ModelNotFoundError",
    "OptionError",
    "PlanError",
    "ReplyError",
    "ScoringError",
    "TruncationWarning",
    "WorkerError",
]

Remedy = Literal["retry", "again", "none", "stop"]


class DescriptorError(ValueError):
    """The base of every error raised on purpose."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError would show the message's repr


class OptionError(DescriptorError):
    """An option has a name or a value that is not allowed."""


class PlanError(DescriptorError):
    """Descriptors and table do not fit; the message lists every problem, and no work was done."""


class MissingColumnError(PlanError, KeyError):
    """Descriptors need columns that the table does not have."""


class ColumnConflictError(PlanError):
    """Descriptors would write columns that are already taken."""


class CellError(DescriptorError, TypeError):
    """Cells of a column can't be read as text, or as contexts."""


class CacheError(DescriptorError, OSError):
    """A cache file can't be made or opened."""


class FormatError(DescriptorError):
    """A file can't be read as, or written to, the format that its name ends in."""


class ModelError(DescriptorError, RuntimeError):
    """A model can't be loaded, or gave something unusable."""


class ModelNotFoundError(ModelError, LookupError):
    """A model is in none of the places where it was looked for."""


class MissingExtraError(ModelError, ImportError):
    """An optional package is not installed."""


class JudgeError(ModelError):
    """A judge did not answer a call.

    Attributes:
        status: What the row's status is to be if no further try is made.
        retry_after: Seconds to wait before the next try, where the judge named them.
        remedy: `"retry"`: another try may help, later; `"again"`: one at once, for the judge has learnt how to ask;
            `"none"`: none helps this prompt; `"stop"`: none helps any prompt.
    """

    def __init__(
        self, message: str, *, status: str = "judge_error", remedy: Remedy = "none", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.remedy = remedy
        self.retry_after = retry_after


class ReplyError(DescriptorError):
    """A judge's answer can't be read; the message says what stood there."""


class ScoringError(DescriptorError, RuntimeError):
    """A scoring method, an aggregation or a descriptor broke its contract, or a row failed under on_error='raise'."""


class WorkerError(DescriptorError, RuntimeError):
    """A worker process of a run died."""


class CacheWarning(UserWarning):
    """A cache is damaged or can't be used; answers are worked out again."""


class ExtractorWarning(UserWarning):
    """An extractor of entities failed on texts; the rows that need them are missing."""


class JudgeWarning(UserWarning):
    """A judge stopped answering; finished rows are kept, the others are missing."""


class TruncationWarning(UserWarning):
    """A model read only the beginning of some texts."""


def suggest(name: object, allowed: Iterable[object]) -> str:
    """Return the end of a message about an unknown name: the closest matches if any, and all that is allowed."""
    items = {str(item): item for item in allowed}
    close = get_close_matches(str(name), items, n=2)
    alike = [match for match in close if _likeness(name, match) == _likeness(name, close[0])]
    hint = f" Did you mean {' or '.join(repr(items[match]) for match in alike)}?" if close else ""
    return f"{hint} Allowed: {', '.join(map(repr, items.values())) or 'none'}."


def _likeness(name: object, match: str) -> float:
    return SequenceMatcher(None, match, str(name)).ratio()

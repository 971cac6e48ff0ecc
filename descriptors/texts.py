"""Texts as UTF-8 can hold them: the one rule of what becomes of lone surrogates."""

from typing import Any

__all__ = ["scrub"]


def scrub(value: Any) -> Any:
    """Return `value`, a text or JSON value, with every lone surrogate replaced by U+FFFD."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [scrub(item) for item in value]
    if isinstance(value, dict):
        return {scrub(key): scrub(item) for key, item in value.items()}
    return value

"""Texts as they may leave: one rule for lone surrogates, which UTF-8 can't hold, one for secrets, one for JSON."""

import json
import math
import os
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["json_value", "masked", "redacted", "scrub", "to_json"]

SECRET_NAME = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
SECRET_FORM = re.compile(r"sk-[\w-]{8,}|(?<=Bearer )\S+|(?<=[?&]key=)[^&\s'\"]+")
SHORTEST_SECRET = 8  # characters; of a shorter one texts would be full


def redacted(text: str) -> str:
    """Return a text without the secrets of the environment, and what looks like one."""
    known = {value for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) >= SHORTEST_SECRET}
    return SECRET_FORM.sub("***", masked(text, known))


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets, of which one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def scrub(value: Any) -> Any:
    """Return `value`, a text or JSON value, with every lone surrogate replaced by U+FFFD."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [scrub(item) for item in value]
    if isinstance(value, dict):
        return {scrub(key): scrub(item) for key, item in value.items()}
    return value


def to_json(value: object) -> str:
    """Return strict JSON: nan and infinity as null, what JSON has no form for as text."""
    return json.dumps(json_value(value), ensure_ascii=False, allow_nan=False)


def json_value(value: Any) -> Any:
    """Return `value` as `to_json` writes it, as an object of Python."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(json_value(key)): json_value(item) for key, item in value.items()}
    return value if isinstance(value, str | int | None) else str(value)

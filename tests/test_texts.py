from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from rag_descriptors.texts import redacted, to_json

KEY = "sk-planted-0123456789"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no secret", "no secret"),
        (f"wrong key {KEY}.", "wrong key ***."),
        ("Bearer abc.def", "Bearer ***"),
        ("http://host/v1?key=abcdef&x=1", "http://host/v1?key=***&x=1"),
        ("from-the-environment", "***"),
        ("short", "short"),
    ],
)
def test_redacted(monkeypatch, text, expected):
    monkeypatch.setenv("SOME_API_KEY", "from-the-environment")
    monkeypatch.setenv("OTHER_API_KEY", "short")
    assert redacted(text) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": float("nan"), "b": (1, float("-inf"))}, '{"a": null, "b": [1, null]}'),
        (
            [np.int64(1), np.float32(0.5), np.float64("nan"), np.bool_(True), np.float32("nan")],
            "[1, 0.5, null, true, null]",
        ),
        (np.array([[1.0, np.nan]]), "[[1.0, null]]"),
        ({1: "é", None: b"\xff"}, '{"1": "é", "None": "�"}'),
        ([Decimal("0.10"), Path("x"), True, None], '["0.10", "x", true, null]'),
        (2**70, str(2**70)),
    ],
)
def test_to_json(value, text):
    assert to_json(value) == text

"""Looking into what tools log: values under dotted names, and the text of an input or an output.

A name may be one key (`"context.trace_id"`), keys inside each other, or both mixed; objects may be JSON texts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from rag_descriptors.traces.contexts import NOT_DATA, is_missing, parse_literal

__all__ = ["ABSENT", "answer_text", "find", "lookup", "opened", "plain", "question_text"]

ABSENT = object()
NAMES = ("assessment_name", "name", "key")
INDEXED = re.compile(r"(\d{1,9})\.(.+)")
ROLES = ("role", "kwargs.type", "message.role", "type", "message_content.type")
ASKING, ANSWERING = frozenset({"user", "human"}), frozenset({"assistant", "ai", "model"})
# what neither asks nor answers, besides all that begins with `tool` or `function`
NEITHER = frozenset({"system", "developer", "reasoning", "thinking", "blob"})
PARTS = frozenset({"text", "input_text", "output_text"})
MESSAGE_KEYS = (
    *("content", "message.content", "text", "parts", "kwargs", "message", "messages"),
    *("message.contents", "message_content.text"),  # OpenInference's, of messages that hold more than a text
)
QUESTION_KEYS = ("question", "user_input", "query", "query_str", "input", "inputs", "prompt", *MESSAGE_KEYS)
ANSWER_KEYS = ("answer", "response", "output", "outputs", "result", "choices", "generations", *MESSAGE_KEYS)
DEPTH = 32


def find(value: object, paths: Iterable[str]) -> Any:
    """Return what stands under the first of `paths` that holds anything but a null or an empty text; else None."""
    for path in paths:
        found = lookup(value, path)
        if found is not ABSENT and not is_missing(found) and found != "":
            return found
    return None


def lookup(value: object, path: str) -> Any:
    """Return what stands under a dotted path, `ABSENT` if nothing does.

    In a list of named objects, such as MLflow's assessments, a name stands for the object that bears it. Keys that end
    in numbers, such as OpenInference's `documents.0.document.content`, are gathered into a list of objects.
    """
    mapping = value if isinstance(value, dict) else _mapping(value)
    if path in mapping:
        return mapping[path]
    for head, rest in _splits(path):
        if head in mapping:
            found = lookup(mapping[head], rest)
            if found is not ABSENT:
                return found
    return _gathered(mapping, f"{path}.") or ABSENT


def _mapping(value: object) -> Mapping[str, Any]:
    value = opened(value)
    if isinstance(value, list):
        named = (item for item in value if isinstance(item, Mapping))
        return {str(find(item, NAMES)): item for item in named if find(item, NAMES) is not None}
    return value if isinstance(value, Mapping) else {}


@cache
def _splits(path: str) -> list[tuple[str, str]]:
    """Return a path's beginnings and ends at each of its dots."""
    return [(path[:place], path[place + 1 :]) for place, letter in enumerate(path) if letter == "."]


def _gathered(mapping: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    items: dict[int, dict[str, Any]] = {}
    for key in [key for key in mapping if isinstance(key, str) and key.startswith(prefix)]:
        found, value = INDEXED.fullmatch(key[len(prefix) :]), mapping[key]
        if found:
            items.setdefault(int(found[1]), {})[found[2]] = value
    return [items[number] for number in sorted(items)]


def opened(value: Any) -> Any:
    """Return the JSON value, or the list or dict of Python, that a text spells; what spells none as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[", '"')):
        return value
    try:
        inner = parse_literal(value.strip())
    except ValueError:
        return value
    return value if inner is NOT_DATA else inner


def plain(attributes: object) -> object:
    """Return OTLP attributes, a list of keys and typed values, as a dict; what is none of these as it is."""
    if not isinstance(attributes, list):
        return attributes
    pairs = [item for item in attributes if isinstance(item, Mapping) and "key" in item]
    return {str(item["key"]): _untyped(item.get("value")) for item in pairs}


def _untyped(value: object) -> Any:
    """Return the value inside of OTLP's `{"stringValue": …}`."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return value
    (kind, inner), *_ = value.items()
    values = find(inner, ["values"]) or []
    if kind in {"arrayValue", "array_value"}:
        return [_untyped(item) for item in values]
    return plain(values) if kind in {"kvlistValue", "kvlist_value"} else inner


def question_text(value: object) -> str | None:
    """Return the question that an application was asked: a text, or what its input holds under a usual key.

    Of messages the last one of the user counts. None if there is no telling.
    """
    return _text(value, QUESTION_KEYS, ASKING)


def answer_text(value: object) -> str | None:
    """Return the text that an application or a model answered; of messages the last one of the assistant."""
    return _text(value, ANSWER_KEYS, ANSWERING)


def _text(value: object, keys: Sequence[str], roles: frozenset[str], depth: int = DEPTH) -> str | None:
    if depth == 0:
        return None
    if isinstance(value, str):
        inner = opened(value)
        if isinstance(inner, Mapping) or (inner is not value and isinstance(inner, list | str)):
            return _text(inner, keys, roles, depth - 1) or (None if isinstance(inner, Mapping) else value)
        return value if value.strip() else None
    if isinstance(value, list):
        return _text_of_list(value, keys, roles, depth - 1)
    if isinstance(value, Mapping):
        held = [found for key in keys if (found := lookup(value, key)) is not ABSENT] or (
            list(value.values()) if len(value) == 1 else []
        )
        return next((text for item in held if (text := _text(item, keys, roles, depth - 1))), None)
    return None


def _text_of_list(items: list[Any], keys: Sequence[str], roles: frozenset[str], depth: int) -> str | None:
    """Return the text of messages, or of the parts of one.

    Without a message in one of the roles, all count but those of others: tools give their own names to what an answer
    stands in, such as LangChain's `ChatGeneration`.
    """
    kinds = [(_kind(item), item) for item in items]
    parts = [text for kind, item in kinds if kind in PARTS and (text := _text(item, keys, roles, depth))]
    others = (NEITHER | ASKING | ANSWERING) - roles
    unknown = [item for kind, item in kinds if kind not in others and not kind.startswith(("tool", "function"))]
    messages = [item for kind, item in kinds if kind in roles] or unknown
    texts = (text for item in reversed(messages) if (text := _text(item, keys, roles, depth)))
    return "\n".join(parts) or next(texts, None)


def _kind(item: object) -> str:
    """Return the role of a message, as LangChain also spells it (`AIMessageChunk`), or the type of a part."""
    return str(find(item, ROLES)).lower().removesuffix("chunk").removesuffix("message")

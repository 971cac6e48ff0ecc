"""What a model says that it is, checked: a cache and a summary know it by this."""

import json
from collections.abc import Mapping
from typing import Any

from rag_descriptors.errors import ModelError

__all__ = ["identity_key", "identity_of"]


def identity_of(model: Any, *role: str) -> dict[str, Any]:
    """Return the identity of a model, that of an embedder in a role.

    Raises:
        ModelError: It is no mapping of JSON values.
    """
    identity = model.identity(*role)
    fault = _fault(identity)
    if fault:
        raise ModelError(
            f"the identity of {model!r} is {identity!r}: {fault}. It must be a dict from names to JSON values, which "
            "are the same in every process."
        )
    return dict(identity)


def identity_key(model: Any, *role: str) -> str:
    """Return the identity of a model as a text, whatever the order of its names.

    Raises:
        ModelError: It is no mapping of JSON values.
    """
    return json.dumps(identity_of(model, *role), sort_keys=True)


def _fault(identity: object) -> str | None:
    if not isinstance(identity, Mapping):
        return f"it is a {type(identity).__name__}"
    try:
        json.dumps(dict(identity), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        return str(error)
    return None

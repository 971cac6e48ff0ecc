"""What answers are kept by, and in what portions they are worked out."""

import hashlib
import time
from collections.abc import Iterator

__all__ = ["blocks", "digest"]

FIRST_BLOCK = 16  # texts
SECONDS_A_BLOCK = 1


def digest(*fields: str) -> bytes:
    """Return a 16-byte blake2b of the fields, each framed by its length, so that no two lists of fields collide."""
    encoded = [field.encode() for field in fields]
    return hashlib.blake2b(b"".join(b"%d:%b" % (len(field), field) for field in encoded), digest_size=16).digest()


def blocks(places: list[int], start: float | None = None) -> Iterator[list[int]]:
    """Yield places in blocks that are done in about a second: so little can a kill lose.

    `start` is the share of them after which to begin; those before come last.
    """
    first = int(len(places) * (start or 0))
    places = places[first:] + places[:first]
    size, done = FIRST_BLOCK, 0
    while done < len(places):
        began = time.monotonic()
        yield places[done : done + size]
        done += size
        size = size * 2 if time.monotonic() - began < SECONDS_A_BLOCK / 2 else max(size // 2, FIRST_BLOCK)

"""The long format: one row per (row, item) pair of a list column, and the way back.

Rows are never matched by label, group-by or sort: the offsets say which items belong to which row.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["LongFrame"]


@dataclass(frozen=True, eq=False)
class LongFrame:
    """A list column, exploded.

    Attributes:
        items: The items of all lists, in row order, shape (n_items,).
        offsets: Row `i` holds `items[offsets[i]:offsets[i + 1]]`, int64, shape (n_rows + 1,).
        is_null: Whether the list itself is missing (it then holds no items), bool, shape (n_rows,).
    """

    items: pa.Array
    offsets: npt.NDArray[np.int64]
    is_null: npt.NDArray[np.bool_]

    @classmethod
    def explode(cls, lists: pa.ListArray) -> Self:
        """Return the items of `lists` with the offsets that lead back."""
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        return cls(lists.flatten(), _offsets(lengths), as_bool(lists.is_null()))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of items of each row, shape (n_rows,)."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The row of each item, shape (n_items,)."""
        return np.repeat(np.arange(len(self.is_null)), self.lengths)

    def distinct(self) -> Self:
        """Return the same rows and items, dictionary-encoded: each distinct item is held once."""
        return replace(self, items=self.items.dictionary_encode())

    def select(self, keep: npt.NDArray[np.bool_]) -> Self:
        """Return the same rows with only the items where `keep`, shape (n_items,), is true."""
        lengths = np.bincount(self.rows[keep], minlength=len(self.is_null))
        return type(self)(self.items.filter(pa.array(keep)), _offsets(lengths), self.is_null)

    def regroup(self, values: pa.Array, is_null: npt.NDArray[np.bool_]) -> pa.ListArray:
        """Return one value per item, shape (n_items,), as one list per row; null where `is_null`, shape (n_rows,)."""
        kept = values.filter(pa.array(~is_null[self.rows]))
        offsets = _offsets(np.where(is_null, 0, self.lengths)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), kept, mask=pa.array(is_null))


def as_bool(mask: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return an Arrow mask without nulls as numpy."""
    result: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return result


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

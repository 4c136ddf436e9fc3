"""BlockMap: a mapping that is copied by reference, for the pods of a node.

A scheduling cycle copies each node that changed. A virtual kubelet's node has thousands of pods, of which one changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_BLOCK_SIZE = 128  # the 110 pods that a kubelet runs by default fit into one block


class BlockMap(Mapping[K, V]):
    """A mapping in the order of additions.

    Copies share their blocks of up to 128 entries; one that changes a shared block copies this block first. With B
    blocks, copy() and add() take constant time but for a tuple of B references, finding an entry up to B lookups.
    """

    __slots__ = ("_blocks", "_owned")

    def __init__(self) -> None:
        self._blocks: tuple[dict[K, V], ...] = ()  # none is empty
        self._owned = 0  # bit per block: no copy shares it

    def copy(self) -> BlockMap[K, V]:
        copy: BlockMap[K, V] = BlockMap()
        copy._blocks = self._blocks
        self._owned = 0
        return copy

    def add(self, key: K, value: V) -> None:
        """Add an entry. The key must be new."""
        blocks = self._blocks
        if blocks and len(blocks[-1]) < _BLOCK_SIZE:
            self._writable(len(blocks) - 1)[key] = value
        else:
            self._blocks = (*blocks, {key: value})
            self._owned |= 1 << len(blocks)

    def pop(self, key: K) -> V:
        """Remove the entry and return its value. Raises KeyError if there is none."""
        index = self._find(key)
        block = self._writable(index)
        value = block.pop(key)
        if not block:
            self._blocks = self._blocks[:index] + self._blocks[index + 1 :]
            self._owned = 0  # the blocks have other numbers: that costs at most another copy of each
        return value

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._blocks)

    def __getitem__(self, key: K) -> V:
        return self._blocks[self._find(key)][key]

    def _find(self, key: K) -> int:
        """Return the index of the block that has the key. Newest first: these change most. Raises KeyError."""
        blocks = self._blocks
        for index in range(len(blocks) - 1, -1, -1):
            if key in blocks[index]:
                return index
        raise KeyError(key)

    def _writable(self, index: int) -> dict[K, V]:
        blocks = self._blocks
        if self._owned >> index & 1:
            return blocks[index]
        block = blocks[index].copy()
        self._blocks = (*blocks[:index], block, *blocks[index + 1 :])
        self._owned |= 1 << index
        return block

    def __repr__(self) -> str:
        return f"BlockMap({dict(self)})"


class _Values(ValuesView[V]):
    __slots__ = ()
    _mapping: BlockMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, self._mapping._blocks))

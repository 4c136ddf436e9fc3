"""BlockDict: a dict that is copied by reference, for the pods of a node.

A scheduling cycle copies each node that changed. A virtual kubelet's node has thousands of pods, of which one changed.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, ValuesView
from itertools import chain
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_BLOCK_SIZE = 128  # the 110 pods that a kubelet runs by default fit into one block


class BlockDict(MutableMapping[K, V]):
    """A mapping in the order of insertion, like dict.

    Copies share their blocks of up to 128 entries; one that writes to a shared block copies this block first. With B
    blocks, copy() takes constant time, reading or writing one entry O(B).
    """

    __slots__ = ("_blocks", "_owned")

    def __init__(self) -> None:
        self._blocks: tuple[dict[K, V], ...] = ()  # none is empty
        self._owned = 0  # bit per block: no copy shares it

    def copy(self) -> BlockDict[K, V]:
        copy: BlockDict[K, V] = BlockDict()
        copy._blocks = self._blocks
        self._owned = 0
        return copy

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._blocks)

    def __contains__(self, key: object) -> bool:
        return self._find(key) >= 0

    def __getitem__(self, key: K) -> V:
        return self._blocks[self._existing(key)][key]

    def __setitem__(self, key: K, value: V) -> None:
        blocks = self._blocks
        index = self._find(key)
        if index < 0:
            index = len(blocks) - 1
            if index < 0 or len(blocks[index]) >= _BLOCK_SIZE:
                self._blocks = (*blocks, {key: value})
                self._owned |= 1 << len(blocks)
                return
        self._writable(index)[key] = value

    def __delitem__(self, key: K) -> None:
        index = self._existing(key)
        block = self._writable(index)
        del block[key]
        if not block:
            self._blocks = self._blocks[:index] + self._blocks[index + 1 :]
            self._owned = self._owned >> (index + 1) << index | self._owned & ((1 << index) - 1)

    def _find(self, key: object) -> int:
        """Return the index of the block that has the key, or -1."""
        for index, block in enumerate(self._blocks):
            if key in block:
                return index
        return -1

    def _existing(self, key: K) -> int:
        index = self._find(key)
        if index < 0:
            raise KeyError(key)
        return index

    def _writable(self, index: int) -> dict[K, V]:
        blocks = self._blocks
        if self._owned >> index & 1:
            return blocks[index]
        block = blocks[index].copy()
        self._blocks = (*blocks[:index], block, *blocks[index + 1 :])
        self._owned |= 1 << index
        return block

    def __repr__(self) -> str:
        return f"BlockDict({dict(self)})"


class _Values(ValuesView[V]):
    __slots__ = ()
    _mapping: BlockDict[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, self._mapping._blocks))

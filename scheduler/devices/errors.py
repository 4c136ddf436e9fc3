"""Errors of the allocation of devices, with kube-scheduler's messages."""

from __future__ import annotations


class AllocationError(Exception):
    """A claim, class or slice with a problem that ends the scheduling attempt."""


class InvalidPools(Exception):
    """No allocation on a node, and some of its pools are invalid."""

    def __init__(self) -> None:
        super().__init__("invalid resource pools were encountered")


class AllocationTimeout(Exception):
    """The search on a node takes too long."""

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node}: timed out trying to allocate devices")

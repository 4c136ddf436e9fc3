"""Extenders as plugins use them: HTTP services that take part in preemption.

Implemented by `scheduler.extenders.extender`. Source: framework.Extender of k8s.io/kube-scheduler v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.cache.node_info import PodInfo


class ExtenderError(Exception):
    """The extender cannot be reached, failed, or sent an invalid response."""


class Extender(Protocol):
    """One configured extender. ignorable: if it fails, scheduling continues without it."""

    name: str
    ignorable: bool

    @property
    def preempts(self) -> bool:
        """True if a preemptVerb is configured."""
        ...

    def is_interested(self, pod: Pod) -> bool:
        """Return True if the extender manages no resources, or one that the pod requests."""
        ...

    async def process_preemption(
        self, pod: Pod, victims: Mapping[str, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[str, tuple[Sequence[str], int]]:
        """Return the candidates left, by node: (UIDs of the victims, PDB violations).

        victims: node -> (victims, PDB violations). Raises ExtenderError.
        """
        ...

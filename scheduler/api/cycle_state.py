"""CycleState: data that plugins store about one pod for its scheduling cycle, and about a pod group for its cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeloop.kube.objects.api_types import NodeAllocatableResourceClaimStatus
from kubeloop.scheduler.cache.pod_groups import PodGroupState

_NO_CLAIMS: Mapping[str, tuple[NodeAllocatableResourceClaimStatus, ...]] = {}


class CycleState:
    """Values by key, written by one extension point and read by a later one. Dry runs use a `clone`.

    trace_attributes: attributes of the span of the attempt, by name, which plugins add. can_pause: a filter may raise
    FilterPaused, as in the scheduling cycle itself; not in dry runs. node_allocatable_claims: by node, what the pod's
    claims take of its resources, to be counted from the moment at which the pod is assumed.
    pod_group_cycle: the state of the pod's group while the group's cycle tries nodes for its members; None for a pod
    that is scheduled on its own, and once the nodes of the group are chosen.

    Values with a `clone()` method are cloned with it, others are shared.
    """

    __slots__ = (
        "_values",
        "can_pause",
        "measured",
        "node_allocatable_claims",
        "pod_group_cycle",
        "skip_filter",
        "skip_pre_bind",
        "skip_score",
        "trace_attributes",
    )

    def __init__(self, *, measured: bool = False) -> None:
        """measured: the duration of each plugin call is reported."""
        self.measured = measured
        self.can_pause = False
        self.node_allocatable_claims: Mapping[str, tuple[NodeAllocatableResourceClaimStatus, ...]] = _NO_CLAIMS
        self._values: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.skip_pre_bind: set[str] = set()
        self.trace_attributes: dict[str, int | float] = {}
        self.pod_group_cycle: PodGroupCycleState | None = None

    def write(self, key: str, value: Any) -> None:
        self._values[key] = value

    def read(self, key: str) -> Any:
        """Return the value. Raises KeyError if `key` was not written in this cycle."""
        return self._values[key]

    def get(self, key: str) -> Any | None:
        return self._values.get(key)

    def clone(self) -> CycleState:
        copy = CycleState(measured=self.measured)
        copy._values = {key: value.clone() if hasattr(value, "clone") else value for key, value in self._values.items()}
        copy.skip_filter = set(self.skip_filter)
        copy.skip_score = set(self.skip_score)
        copy.skip_pre_bind = set(self.skip_pre_bind)
        copy.pod_group_cycle = self.pod_group_cycle
        return copy


class PodGroupCycleState(CycleState):
    """Values about a pod group for its cycle. Its placement plugins receive it, and its members' plugins through
    CycleState.pod_group_cycle.

    pods: the state of the group when the cycle started, with the members that the cycle has assumed since.
    """

    __slots__ = ("pods",)

    def __init__(self, pods: PodGroupState) -> None:
        super().__init__(measured=True)
        self.pods = pods

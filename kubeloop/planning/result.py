"""The plan as data; --json prints it. Times are seconds of virtual time since the changes were made."""

from __future__ import annotations

from typing import Literal

import msgspec

Action = Literal["create", "change", "delete"]


class ObjectChange(msgspec.Struct, rename="camel"):
    """An object that the changes create, change or delete. fields: "image 1.4 -> 1.5"."""

    action: Action
    kind: str
    name: str
    namespace: str = ""
    fields: list[str] = []


class UnplacedPods(msgspec.Struct, rename="camel"):
    """Pods of one workload that have no node at the end, for one reason.

    message: kube-scheduler's. helps: what would help. pending_before: the same pods were pending before the changes.
    """

    count: int
    pod: str
    message: str
    helps: list[str] = []
    details: list[str] = []
    pending_before: bool = False


class WorkloadResult(msgspec.Struct, rename="camel"):
    """The pods of a workload in a plan, and its rollout.

    created, deleted: pods. pools, zones, nodes: number of its new pods there. rollout: complete, after `seconds`;
    failed: it never completes, for `reasons`; running: its pods run until they end, which the plan does not know;
    suspended. waits: what the rollout waits for, the longest first.
    """

    kind: str
    name: str
    namespace: str
    desired: int = 0
    created: int = 0
    deleted: int = 0
    placed: int = 0
    pools: dict[str, int] = {}
    zones: dict[str, int] = {}
    nodes: dict[str, int] = {}
    pending: list[UnplacedPods] = []
    rollout: Literal["complete", "failed", "running", "suspended"] = "complete"
    seconds: float = 0.0
    waits: list[str] = []
    reasons: list[str] = []


class DisplacedPod(msgspec.Struct, rename="camel"):
    """A pod that is preempted or evicted. replaced: its controller creates another one."""

    pod: str
    workload: str
    node: str
    reason: str
    replaced: bool


class BlockedDrain(msgspec.Struct, rename="camel"):
    """A pod that an eviction never removes from its node."""

    node: str
    pod: str
    reason: str


class ResourceUse(msgspec.Struct, rename="camel"):
    """Amounts of one resource on all nodes: millicores of cpu, bytes of memory."""

    requested_before: int
    allocatable_before: int
    requested_after: int
    allocatable_after: int


class FitRun(msgspec.Struct, rename="camel"):
    """One run of the search: with so many more nodes, this number of pods is pending at the end."""

    nodes: int
    pending: int


class FitResult(msgspec.Struct, rename="camel"):
    """The fewest nodes like `like` with which nothing is pending; None if no number of them suffices."""

    like: str
    nodes: int | None
    runs: list[FitRun] = []

    @property
    def is_fewest(self) -> bool:
        """Return False if the search ended before one node less was tried."""
        return not self.nodes or any(run.nodes == self.nodes - 1 for run in self.runs)


class Plan(msgspec.Struct, rename="camel"):
    """The result. moment: time of the copied state, RFC 3339. settled_seconds: until nothing changes any more.

    nodes_before, nodes_after: numbers of nodes. findings: what was not used, or not simulated, and what that means.
    would_help: nodes that would let the pending pods fit. fits: nothing is pending that was not pending before, every
    rollout completes, and every drain ends.
    """

    cluster: str
    moment: str
    fits: bool = True
    settled_seconds: float = 0.0
    changes: list[ObjectChange] = []
    workloads: list[WorkloadResult] = []
    preempted: list[DisplacedPod] = []
    evicted: list[DisplacedPod] = []
    blocked: list[BlockedDrain] = []
    pending_before: list[WorkloadResult] = []
    resources: dict[str, ResourceUse] = {}
    nodes_before: int = 0
    nodes_after: int = 0
    would_help: str = ""
    fit: FitResult | None = None
    findings: list[str] = []

"""A scenario: what users do to a small cluster, and what must hold meanwhile and in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from support.faults.objects import JSON

if TYPE_CHECKING:
    from kubeloop.testing.faults.fault_plan import FaultPlan
    from support.faults.cluster import Cluster

UNTIL_SETTLED = -1.0


@dataclass(frozen=True)
class Step:
    """One action of a user.

    after_seconds: time since the previous step; UNTIL_SETTLED waits for the desired state first.
    """

    title: str
    act: Callable[[Cluster], object]
    after_seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Scenario:
    """Steps, and the checks beyond those of every scenario (see `desired_state` and `invariants`).

    controllers: names from the controller table, and "scheduler". nodes: fields of NodeSettings.
    options: of the controllers. exact: resources of which the control plane creates exactly as many objects after a
    crash as without faults. desired: returns what is missing of the scenario's own final state.
    invariants: create the scenario's own step-by-step checks. serves_metrics: the cluster serves the metrics API.
    orphans: controlled objects may outlive their controller. stalls: pods need not become ready.
    gates: feature gates of server and control plane.
    one_final_state: False if the final state depends on delays, such as how many pods of a Job fail before a user
      suspends it; it is then not compared with that of a run without postponed writes.
    """

    name: str
    controllers: tuple[str, ...]
    steps: tuple[Step, ...]
    nodes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    exact: tuple[str, ...] = ("pods",)
    desired: Callable[[Cluster], list[str]] = lambda cluster: []
    invariants: tuple[Callable[[Cluster, FaultPlan], object], ...] = ()
    serves_metrics: bool = False
    orphans: bool = False
    stalls: bool = False
    gates: Mapping[str, bool] = field(default_factory=dict)
    one_final_state: bool = True


def create(*manifests: JSON) -> Callable[[Cluster], object]:
    """Return an action that applies the manifests."""

    def act(cluster: Cluster) -> None:
        for manifest in manifests:
            cluster.apply(manifest)

    return act

"""Topology spread constraints of a pod, compiled: its own, or the defaults with a selector from its owners.

Source: plugins/podtopologyspread/common.go and plugins/helper/spread.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubeloop.kube.objects import OwnerReference, Pod, TopologySpreadConstraint
from kubeloop.kube.selectors import Selector, selector_from, selector_from_map
from kubeloop.scheduler.plugins.listers import Listers

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5),
)


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """max_skew in pods. min_domains: with fewer domains the emptiest counts as empty.

    honors_affinity, honors_taints: nodes that the pod cannot be on because of them are no domains.
    """

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


def compile_constraints(
    constraints: Iterable[TopologySpreadConstraint], pod_labels: Mapping[str, str], action: str
) -> tuple[SpreadConstraint, ...]:
    """Those of `constraints` whose whenUnsatisfiable is `action`. Raises SelectorError."""
    return tuple(
        SpreadConstraint(
            max_skew=constraint.max_skew,
            topology_key=constraint.topology_key,
            selector=_selector(constraint, pod_labels),
            min_domains=1 if constraint.min_domains is None else constraint.min_domains,
            honors_affinity=constraint.node_affinity_policy in (None, "Honor"),
            honors_taints=constraint.node_taints_policy == "Honor",
        )
        for constraint in constraints
        if constraint.when_unsatisfiable == action
    )


def _selector(constraint: TopologySpreadConstraint, pod_labels: Mapping[str, str]) -> Selector:
    selector = selector_from(constraint.label_selector)
    same = {key: pod_labels[key] for key in constraint.match_label_keys if key in pod_labels}
    if not same:
        return selector
    # A constraint without a selector, which selects nothing by itself, selects by these labels alone.
    return Selector((*selector_from_map(same).requirements, *selector.requirements))


def default_selector(pod: Pod, listers: Listers) -> Selector:
    """What selects the pods that belong together with `pod`: by its services and its controller."""
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    same: dict[str, str] = {}
    for service in listers.services.by_index("namespace", namespace):
        wanted = service.spec.selector
        if wanted and wanted.items() <= labels.items():
            same.update(wanted)
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    if owner is None:
        return selector_from_map(same)
    key = f"{namespace}/{owner.name}"
    if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
        controller = listers.replication_controllers.get(key)
        return selector_from_map(same | (controller.spec.selector if controller is not None else {}))
    added = _owner_selector(owner, key, listers)
    return Selector((*selector_from_map(same).requirements, *(added.requirements if added is not None else ())))


def _owner_selector(owner: OwnerReference, key: str, listers: Listers) -> Selector | None:
    if owner.api_version != "apps/v1" or owner.kind not in ("ReplicaSet", "StatefulSet"):
        return None
    found = listers.replica_sets.get(key) if owner.kind == "ReplicaSet" else listers.stateful_sets.get(key)
    if found is None:
        return None
    try:
        return selector_from(found.spec.selector)
    except ValueError:  # an owner with a malformed selector adds nothing, as in kube-scheduler
        return None


def with_selector(constraints: Sequence[SpreadConstraint], selector: Selector) -> tuple[SpreadConstraint, ...]:
    return tuple(
        SpreadConstraint(
            each.max_skew, each.topology_key, selector, each.min_domains, each.honors_affinity, each.honors_taints
        )
        for each in constraints
    )

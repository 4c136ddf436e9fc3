"""Topology spread constraints of a pod, compiled: its own, or the defaults with a selector from its owners.

Source: plugins/podtopologyspread/common.go and plugins/helper/spread.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kubeloop.kube.objects.api_types import LabelSelector, OwnerReference, Pod, Service, TopologySpreadConstraint
from kubeloop.kube.selectors import Selector, selector_from, selector_from_map
from kubeloop.scheduler.api.listers import Listers

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

_MAX_SELECTORS = 1024  # kept, one per class of pods

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5),
)


class SpreadConstraint(msgspec.Struct, frozen=True):
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


_ONE_LABEL = "one_label"


def _one_label(service: Service) -> tuple[str, ...]:
    """One of the labels that a service selects by: only for pods with it the others need to be looked at."""
    selector = service.spec.selector
    return (_indexed(service.metadata.namespace, min(selector.items())),) if selector else ()


def _indexed(namespace: str, label: tuple[str, str]) -> str:
    return f"{namespace}/{label[0]}={label[1]}"


class DefaultSelectors:
    """What selects the pods that belong together with a pod: by its services and its controller.

    Kept per class of pods for as long as no service changes and its controller keeps its selector.
    """

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        listers.services.add_index(_ONE_LABEL, _one_label)
        self._kept: dict[int, tuple[object, object, Selector]] = {}

    def of(self, pod: Pod, class_number: int | None) -> Selector:
        """`class_number` None: do not remember."""
        owner = next((each for each in pod.metadata.owner_references if each.controller), None)
        stamp = self._listers.services.version
        controlled = self._controlled(pod, owner)
        kept = self._kept.get(class_number) if class_number is not None else None
        if kept is not None and kept[0] == stamp and (kept[1] is controlled or kept[1] == controlled):
            return kept[2]
        selector = self._find(pod, controlled)
        if class_number is not None:
            if len(self._kept) >= _MAX_SELECTORS:
                self._kept.clear()
            self._kept[class_number] = (stamp, controlled, selector)
        return selector

    def _find(self, pod: Pod, controlled: LabelSelector | Mapping[str, str] | None) -> Selector:
        labels = pod.metadata.labels
        same: dict[str, str] = {}
        for label in labels.items():
            for service in self._listers.services.by_index(_ONE_LABEL, _indexed(pod.metadata.namespace, label)):
                if service.spec.selector.items() <= labels.items():
                    same.update(service.spec.selector)
        if isinstance(controlled, LabelSelector):
            try:
                added = selector_from(controlled).requirements
            except ValueError:  # an owner with a malformed selector adds nothing, as in kube-scheduler
                added = ()
            return Selector((*selector_from_map(same).requirements, *added))
        return selector_from_map(same | dict(controlled or {}))

    def _controlled(self, pod: Pod, owner: OwnerReference | None) -> LabelSelector | Mapping[str, str] | None:
        """The selector of the pod's controller, if that is one that spreads its pods."""
        if owner is None:
            return None
        listers = self._listers
        key = f"{pod.metadata.namespace}/{owner.name}"
        match owner.api_version, owner.kind:
            case "apps/v1", "ReplicaSet":
                replica_set = listers.replica_sets.get(key)
                return None if replica_set is None else replica_set.spec.selector
            case "apps/v1", "StatefulSet":
                stateful_set = listers.stateful_sets.get(key)
                return None if stateful_set is None else stateful_set.spec.selector
            case "v1", "ReplicationController":
                controller = listers.replication_controllers.get(key)
                return None if controller is None else controller.spec.selector
        return None


def default_selector(pod: Pod, listers: Listers) -> Selector:
    """As DefaultSelectors says, for one question."""
    return DefaultSelectors(listers).of(pod, None)


def with_selector(constraints: Sequence[SpreadConstraint], selector: Selector) -> tuple[SpreadConstraint, ...]:
    return tuple(
        SpreadConstraint(
            each.max_skew, each.topology_key, selector, each.min_domains, each.honors_affinity, each.honors_taints
        )
        for each in constraints
    )

"""Topology spread constraints of a pod, compiled: its own, or the defaults with a selector derived from its owners.

Source: plugins/podtopologyspread/common.go and plugins/helper/spread.go of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kubeloop.kube.objects.api_types import LabelSelector, OwnerReference, Pod, Service, TopologySpreadConstraint
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.selectors.selectors import Selector, selector_from, selector_from_map
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.framework.versioned_cache import VersionedCache

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

_MAX_SELECTORS = 1024  # cached, one per class of pods

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5),
)


class SpreadConstraint(msgspec.Struct, frozen=True):
    """A compiled constraint. max_skew: in pods. With fewer domains than min_domains, the global minimum counts as 0.

    honors_node_affinity, honors_node_taints: nodes that the pod's node affinity or untolerated taints exclude do not
    count as domains.
    """

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honors_node_affinity: bool
    honors_node_taints: bool


def compile_constraints(
    constraints: Iterable[TopologySpreadConstraint], pod_labels: Mapping[str, str], action: str
) -> tuple[SpreadConstraint, ...]:
    """Return those of `constraints` whose whenUnsatisfiable is `action`. Raises SelectorError."""
    return tuple(
        SpreadConstraint(
            max_skew=constraint.max_skew,
            topology_key=constraint.topology_key,
            selector=_selector(constraint, pod_labels),
            min_domains=1 if constraint.min_domains is None else constraint.min_domains,
            honors_node_affinity=constraint.node_affinity_policy in (None, "Honor"),
            honors_node_taints=constraint.node_taints_policy == "Honor",
        )
        for constraint in constraints
        if constraint.when_unsatisfiable == action
    )


def _selector(constraint: TopologySpreadConstraint, pod_labels: Mapping[str, str]) -> Selector:
    selector = selector_from(constraint.label_selector)
    label_values = {key: pod_labels[key] for key in constraint.match_label_keys if key in pod_labels}
    if not label_values:
        return selector
    # Without a labelSelector, which selects nothing, only these labels select.
    return Selector((*selector_from_map(label_values).requirements, *selector.requirements))


_ONE_LABEL = "one_label"


def _index_by_one_label(service: Service) -> tuple[str, ...]:
    """Return one label that the service selects by: only pods with this label need to be checked against it."""
    selector = service.spec.selector
    return (_index_key(service.metadata.namespace, min(selector.items())),) if selector else ()


def _index_key(namespace: str, label: tuple[str, str]) -> str:
    return f"{namespace}/{label[0]}={label[1]}"


class DefaultSelectors:
    """Selectors for default constraints: the selectors of the pod's services and of its controller, combined.

    Cached per class of pods until a service or the controller's selector changes.
    """

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        listers.services.add_index(_ONE_LABEL, _index_by_one_label)
        self._cached: VersionedCache[int, Selector] = VersionedCache(_MAX_SELECTORS)

    def of(self, pod: Pod, class_number: int | None) -> Selector:
        """Return the selector for `pod`; it is not cached if `class_number` is None."""
        owner = controller_of(pod.metadata)
        controller_selector = self._controller_selector(pod, owner)
        if class_number is None:
            return self._combined_selector(pod, controller_selector)
        version = (self._listers.services.version, controller_selector)
        return self._cached.get(class_number, version, lambda: self._combined_selector(pod, controller_selector))

    def _combined_selector(self, pod: Pod, controller_selector: LabelSelector | Mapping[str, str] | None) -> Selector:
        labels = pod.metadata.labels
        label_values: dict[str, str] = {}
        for label in labels.items():
            for service in self._listers.services.by_index(_ONE_LABEL, _index_key(pod.metadata.namespace, label)):
                if service.spec.selector.items() <= labels.items():
                    label_values.update(service.spec.selector)
        if isinstance(controller_selector, LabelSelector):
            try:
                added = selector_from(controller_selector).requirements
            except ValueError:  # a malformed selector of the owner adds nothing, as in kube-scheduler
                added = ()
            return Selector((*selector_from_map(label_values).requirements, *added))
        return selector_from_map(label_values | dict(controller_selector or {}))

    def _controller_selector(self, pod: Pod, owner: OwnerReference | None) -> LabelSelector | Mapping[str, str] | None:
        """Return the selector of the pod's ReplicaSet, StatefulSet or ReplicationController; None for other owners."""
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
    """Return the selector that DefaultSelectors derives, without a cache."""
    return DefaultSelectors(listers).of(pod, None)


def with_selector(constraints: Sequence[SpreadConstraint], selector: Selector) -> tuple[SpreadConstraint, ...]:
    return tuple(
        SpreadConstraint(
            constraint.max_skew,
            constraint.topology_key,
            selector,
            constraint.min_domains,
            constraint.honors_node_affinity,
            constraint.honors_node_taints,
        )
        for constraint in constraints
    )

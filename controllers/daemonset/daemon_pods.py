"""Pods of a DaemonSet: the nodes they may run on, their template, and the node that a pod is created for.

Pure functions. Source: v1.36 pkg/controller/daemon/util/daemonset_util.go, NodeShouldRunDaemonPod in
pkg/controller/daemon/daemon_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kubeloop.controllers.runtime.integers import InvalidInteger, parse_int
from kubeloop.controllers.runtime.pods.pod_template import pod_from_template
from kubeloop.kube.objects.api_types import DaemonSet, JSONValue, Node, Pod, PodSpec, Toleration, convert
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE, find_untolerated_taint
from kubeloop.kube.selectors.node_selectors import RequiredNodeAffinity

REVISION_LABEL = "controller-revision-hash"
TEMPLATE_GENERATION_LABEL = "pod-template-generation"
SYNCED_LABELS = (REVISION_LABEL, TEMPLATE_GENERATION_LABEL)
"""Labels of a pod that a sync reads, except those of the selector."""
_TEMPLATE_GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"
_NODE_NAME_FIELD = "metadata.name"
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_TOLERATED_BY_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


class Eligibility(NamedTuple):
    """should_run: a pod is created on the node. should_continue: a pod that runs there is not deleted."""

    should_run: bool
    should_continue: bool


class PodPlacement:
    """The nodes that the pods of a DaemonSet may run on, by its template."""

    def __init__(self, daemon_set: DaemonSet, *, comparison_operators: bool) -> None:
        """comparison_operators: the feature gate TaintTolerationComparisonOperators."""
        spec_json = daemon_set.spec.template.get("spec") or {}
        spec = convert(PodSpec, spec_json)
        self._node_name = spec.node_name
        self._affinity = RequiredNodeAffinity(spec.node_selector, spec.affinity)
        self._tolerations = [convert(Toleration, toleration) for toleration in with_daemon_tolerations(spec_json)]
        self._comparison_operators = comparison_operators

    def eligibility(self, node: Node) -> Eligibility:
        """Return whether a pod should run on the node; of unschedulable nodes only the taint counts."""
        name = node.metadata.name
        if self._node_name not in ("", name) or not self._affinity.matches(name, node.metadata.labels):
            return Eligibility(False, False)
        taints = node.spec.taints
        if find_untolerated_taint(taints, self._tolerations, comparison_operators=self._comparison_operators) is None:
            return Eligibility(True, True)
        evicting = find_untolerated_taint(
            (taint for taint in taints if taint.effect == NO_EXECUTE),
            self._tolerations,
            comparison_operators=self._comparison_operators,
        )
        return Eligibility(False, evicting is None)


def with_daemon_tolerations(pod_spec: JSONValue) -> list[JSONValue]:
    """Return the tolerations of a pod spec and those that every pod of a DaemonSet has."""
    tolerations: list[JSONValue] = list(pod_spec.get("tolerations") or ())
    for key, effect in (*_TOLERATED, *([_TOLERATED_BY_HOST_NETWORK] if pod_spec.get("hostNetwork") else ())):
        added = {"key": key, "operator": "Exists", "effect": effect}
        same = [index for index, toleration in enumerate(tolerations) if _without_seconds(toleration) == added]
        for index in same:
            tolerations[index] = added
        if not same:
            tolerations.append(added)
    return tolerations


def _without_seconds(toleration: JSONValue) -> JSONValue:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds" and value}


def template_generation(daemon_set: DaemonSet) -> str | None:
    """Return the generation of the template by a deprecated annotation; None if it is absent or no number."""
    try:
        return str(parse_int(daemon_set.metadata.annotations[_TEMPLATE_GENERATION_ANNOTATION]))
    except (KeyError, InvalidInteger):
        return None


def daemon_pod_body(daemon_set: DaemonSet, revision_hash: str) -> dict[str, JSONValue]:
    """Return the JSON of a pod, to be passed to `for_node`."""
    body = pod_from_template(daemon_set, daemon_set.spec.template)
    labels = dict(body["metadata"].get("labels") or {})
    generation = template_generation(daemon_set)
    if generation is not None:
        labels[TEMPLATE_GENERATION_LABEL] = generation
    labels[REVISION_LABEL] = revision_hash
    spec = {**body["spec"], "tolerations": with_daemon_tolerations(body["spec"])}
    return {**body, "metadata": {**body["metadata"], "labels": labels}, "spec": spec}


def for_node(body: dict[str, JSONValue], node_name: str) -> dict[str, JSONValue]:
    """Return a copy of a pod whose required node affinity is the node; the scheduler binds it."""
    affinity = body["spec"].get("affinity") or {}
    field = {"key": _NODE_NAME_FIELD, "operator": "In", "values": [node_name]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    node_affinity = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }
    return {**body, "spec": {**body["spec"], "affinity": {**affinity, "nodeAffinity": node_affinity}}}


def target_node(pod: Pod) -> str | None:
    """Return the node that a pod runs on or was created for; None if it is bound to none."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        for field in term.match_fields:
            if field.key == _NODE_NAME_FIELD and field.operator == "In":
                return field.values[0] if len(field.values) == 1 else None
    return None


def is_updated(pod: Pod, revision_hash: str, generation: str | None) -> bool:
    """Return True if the pod was created from the current template. generation: see `template_generation`."""
    labels = pod.metadata.labels
    return labels.get(REVISION_LABEL) == revision_hash or (
        generation is not None and labels.get(TEMPLATE_GENERATION_LABEL) == generation
    )


def oldest_first(pods: Iterable[Pod]) -> list[Pod]:
    """Return scheduled pods before others, each by time of creation, then name."""

    def rank(pod: Pod) -> tuple[bool, float, str]:
        created = pod.metadata.creation_timestamp
        return not pod.spec.node_name, created.timestamp() if created is not None else 0.0, pod.metadata.name

    return sorted(pods, key=rank)

"""Advice for `kubeloop explain`: what could make a pending pod schedulable, per plugin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.taints_and_tolerations import find_untolerated_taint
from kubeloop.kube.selectors.node_selectors import RequiredNodeAffinity
from kubeloop.kube.selectors.pod_affinity import AffinityTerm
from kubeloop.kube.values.quantities import Format, Quantity
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.pod_requests import request_rules
from kubeloop.scheduler.plugins.pod_topology_spread.constraints import HOSTNAME

_MAX_DETAILS = 3  # per piece of advice

_ADVICE: Mapping[str, str] = {
    "NodeUnschedulable": "make a node schedulable again (kubectl uncordon)",
    "NodeName": "spec.nodeName is another node, or one that does not exist",
    "TaintToleration": "add a toleration to the pod, or remove a taint from a node",
    "NodeAffinity": "relax the pod's nodeSelector or node affinity, or label a node accordingly",
    "NodePorts": "free the host port on a node, or use another one",
    "NodeResourcesFit": "request less, add a node, or free resources on a node",
    "PodTopologySpread": "relax maxSkew, or make room in the domains that have the fewest matching pods",
    "InterPodAffinity": "relax the (anti-)affinity to pods, or make room where it would be met",
    "VolumeBinding": "provide a PersistentVolume or StorageClass that the claims can use on a node with room",
    "VolumeZone": "make room in the zone of the pod's volumes",
    "VolumeRestrictions": "another pod uses the same disk or claim; wait for it, or use another one",
    "NodeVolumeLimits": "detach volumes from a node, or add a node",
    "GangScheduling": "create the PodGroup or the missing pods: see kubeloop explain podgroup/NAME",
    "SchedulingGates": "remove the pod's scheduling gates",
    "DynamicResources": "change the pod's claims, free devices, or add a node that has them",
}

# A node that is added is a domain of its own.
_BY_HOSTNAME: Mapping[str, str] = {
    "InterPodAffinity": "relax the anti-affinity to pods, or add a node",
    "PodTopologySpread": "relax maxSkew, add a node, or make room on the nodes that have the fewest matching pods",
}

# Part of a message about volumes or claims -> advice; the first match applies.
_CLAIM_ADVICE: Sequence[tuple[str, str]] = (
    ("waiting for ephemeral volume controller", "wait until the claim of the pod's ephemeral volume is created"),
    ("unbound immediate", "bind the pod's claims (see kubectl describe pvc)"),
    ("is being deleted", "wait until the claim is deleted, and create it again"),
    ("bound to non-existent", "the claim has lost its volume: restore the volume, or create the claim again"),
    ("was not created for pod", "another object has the name of the claim for the pod's ephemeral volume: rename one"),
    ("could not find ResourceClaim", "create the missing ResourceClaim"),
    ("ResourceClaim not created yet", "check that the ResourceClaimTemplate exists, and that its controller runs"),
    ("not found", "create the missing object"),
)


VOLUME_BINDING_ADVICE: Final = frozenset({_ADVICE["VolumeBinding"], *(text for _, text in _CLAIM_ADVICE)})
"""Advice about claims in general, which that about a claim by name replaces."""


def advice(
    plugins: Sequence[str],
    pod: Pod,
    nodes: Sequence[NodeInfo] = (),
    message: str = "",
    gates: FeatureGates = DEFAULT_FEATURE_GATES,
) -> list[str]:
    """Return the advice for `plugins`. message: that of the plugin that rejected the pod in PreEnqueue or PreFilter."""
    result = []
    for plugin in plugins:
        if plugin not in _ADVICE:
            continue
        details = _details(plugin, pod, nodes, gates)[:_MAX_DETAILS]
        text = next((text for part, text in _CLAIM_ADVICE if part in message), _ADVICE[plugin])
        text = _BY_HOSTNAME.get(plugin, text) if _is_by_hostname(plugin, pod, nodes) else text
        result.append(f"{text}: {'; '.join(details)}" if details else text)
    return result


def _is_by_hostname(plugin: str, pod: Pod, nodes: Sequence[NodeInfo]) -> bool:
    """Return True if the pod would fit on a node that has no other pods, as far as this plugin is concerned."""
    if plugin == "PodTopologySpread":
        hard = [term for term in pod.spec.topology_spread_constraints if term.when_unsatisfiable == "DoNotSchedule"]
        return bool(hard) and all(term.topology_key == HOSTNAME for term in hard)
    if plugin != "InterPodAffinity":
        return False
    info = PodInfo(pod)
    terms = [
        *info.affinity_class.required_anti_affinity_terms,
        *(term for node in nodes for term in _rejecting_terms(pod, node)),
    ]
    return (
        bool(terms)
        and not info.affinity_class.required_affinity_terms
        and all(term.topology_key == HOSTNAME for term in terms)
    )


def _rejecting_terms(pod: Pod, node: NodeInfo) -> Iterator[AffinityTerm]:
    """Yield the anti-affinity terms of the node's pods that select this pod, by its namespace's name only."""
    for affinity in node.affinity_counts:
        for term in affinity.required_anti_affinity_terms:
            if term.matches(pod.metadata.namespace, pod.metadata.labels, {}):
                yield term


def _details(plugin: str, pod: Pod, nodes: Sequence[NodeInfo], gates: FeatureGates) -> list[str]:
    if not nodes:
        return []
    match plugin:
        case "TaintToleration":
            return _taints(pod, nodes, gates.enabled("TaintTolerationComparisonOperators"))
        case "NodeAffinity":
            return _labels(pod, nodes)
        case "NodeResourcesFit":
            return _sizes(PodInfo(pod, request_rules(gates)), nodes)
        case "InterPodAffinity":
            return _affinity_terms(pod, nodes)
    return []


def _on(count: int, nodes: Sequence[NodeInfo]) -> str:
    return f"(on {count} of {len(nodes)} nodes)"


def _taints(pod: Pod, nodes: Sequence[NodeInfo], comparison_operators: bool) -> list[str]:
    """Return the taints that reject the pod, the most frequent first; of each node the first one."""
    taints: Counter[str] = Counter()
    for info in nodes:
        taint = info.node and find_untolerated_taint(
            info.node.spec.taints, pod.spec.tolerations, comparison_operators=comparison_operators
        )
        if taint:
            taints[f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"] += 1
    return [
        f"{taint} {_on(count, nodes)}"
        for taint, count in sorted(taints.items(), key=lambda entry: (-entry[1], entry[0]))
    ]


def _labels(pod: Pod, nodes: Sequence[NodeInfo]) -> list[str]:
    """Return the requirements of nodeSelector and required node affinity (all terms), the rarest first."""
    required = RequiredNodeAffinity(pod.spec.node_selector, pod.spec.affinity)
    terms = required.affinity.terms if required.affinity is not None else ()
    selectors = [required.node_selector, *(term.labels for term in terms if term.labels is not None)]
    node_counts: dict[str, int] = {}
    for requirement in (requirement for selector in selectors for requirement in selector.requirements):
        holds = requirement.compiled()
        matching = (info.node is not None and holds(info.node.metadata.labels) for info in nodes)
        node_counts[str(requirement)] = sum(matching)
    for fields in (term.fields for term in terms if term.fields is not None):
        node_counts[str(fields)] = sum(fields.matches({"metadata.name": info.name}) for info in nodes)
    return [
        f"{text} {_on(number, nodes)}"
        for text, number in sorted(node_counts.items(), key=lambda entry: (entry[1], entry[0]))
    ]


def _sizes(pod: PodInfo, nodes: Sequence[NodeInfo]) -> list[str]:
    """Return the resources of which the pod requests more than any node has in total."""
    details = []
    for name, amount in pod.requests.items():
        most = max((info.allocatable.get(name, 0) for info in nodes), default=0)
        if amount > most:
            has = f"more than {_amount(name, most)} of {name}" if most else f"any {name}"
            details.append(f"no node has {has}, the pod requests {_amount(name, amount)}")
    return details


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return Quantity(amount, -3, Format.DECIMAL_SI).canonical()
    binary = name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")
    return Quantity(amount, 0, Format.BINARY_SI if binary else Format.DECIMAL_SI).canonical()


def _affinity_terms(pod: Pod, nodes: Sequence[NodeInfo]) -> list[str]:
    """Return where the pods selected by the pod's required (anti-)affinity terms are."""
    info = PodInfo(pod)
    return [
        *(
            _placement(f"affinity to {term.selector}", term, nodes)
            for term in info.affinity_class.required_affinity_terms
        ),
        *(
            _placement(f"anti-affinity to {term.selector}", term, nodes)
            for term in info.affinity_class.required_anti_affinity_terms
        ),
    ]


def _placement(text: str, term: AffinityTerm, nodes: Sequence[NodeInfo]) -> str:
    if not term.namespace_selector.nothing:  # the selected namespaces are unknown here
        return f"{text} by {term.topology_key}"
    node_count = sum(
        any(term.matches(other.pod.metadata.namespace, other.pod.metadata.labels, {}) for other in node.pods.values())
        for node in nodes
    )
    pods = f"such pods run {_on(node_count, nodes)}" if node_count else "no such pods"
    return f"{text} by {term.topology_key}: {pods}"

"""What would have to change for a pending pod, plugin by plugin, with the names and numbers it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kubeloop.kube.node_selectors import RequiredNodeAffinity
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.taints_and_tolerations import find_untolerated_taint
from kubeloop.kube.pod_affinity import AffinityTerm
from kubeloop.kube.quantities import Format, Quantity
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo

_TOLD_DETAILS = 3  # in one piece of advice

_ADVICE: Mapping[str, str] = {
    "NodeUnschedulable": "make a node schedulable again (kubectl uncordon)",
    "NodeName": "the pod names a node that does not exist, or another one",
    "TaintToleration": "add a toleration to the pod, or remove a taint from a node",
    "NodeAffinity": "relax the pod's nodeSelector or node affinity, or label a node accordingly",
    "NodePorts": "free the host port on a node, or use another one",
    "NodeResourcesFit": "ask for less, add a node, or free room on one",
    "PodTopologySpread": "relax maxSkew, or make room in the domains that have the fewest matching pods",
    "InterPodAffinity": "relax the (anti-)affinity to pods, or make room where it would be met",
    "VolumeBinding": "provide a PersistentVolume or StorageClass that the claims can use on a node with room",
    "VolumeZone": "make room in the zone of the pod's volumes",
    "VolumeRestrictions": "another pod uses the same disk or claim; wait for it, or use another one",
    "NodeVolumeLimits": "detach volumes from a node, or add a node",
    "SchedulingGates": "remove the pod's scheduling gates",
    "DynamicResources": "leave the pod to a scheduler that allocates devices (spec.schedulerName), or drop its claims",
}

# What PreFilter says of volumes and their claims, and what it means; the first that fits.
_ABOUT_CLAIMS: Sequence[tuple[str, str]] = (
    ("waiting for ephemeral volume controller", "wait for the claim of the pod's ephemeral volume to be made"),
    ("unbound immediate", "get the pod's claims bound (kubectl describe pvc says what they wait for)"),
    ("is being deleted", "wait until the claim is gone, and create it anew"),
    ("bound to non-existent", "the claim has lost its volume: restore the volume, or create the claim anew"),
    ("was not created for pod", "another object has the name of the claim for the pod's ephemeral volume: rename one"),
    ("not found", "create what is not found"),
)


def advice(plugins: Sequence[str], pod: Pod, nodes: Sequence[NodeInfo] = (), message: str = "") -> list[str]:
    """What would help against each of `plugins`. message: what a PreFilter plugin said, if one has refused the pod."""
    told = []
    for plugin in plugins:
        if plugin not in _ADVICE:
            continue
        details = _details(plugin, pod, nodes)[:_TOLD_DETAILS]
        text = next((text for part, text in _ABOUT_CLAIMS if part in message), _ADVICE[plugin])
        told.append(f"{text}: {'; '.join(details)}" if details else text)
    return told


def _details(plugin: str, pod: Pod, nodes: Sequence[NodeInfo]) -> list[str]:
    if not nodes:
        return []
    match plugin:
        case "TaintToleration":
            return _taints(pod, nodes)
        case "NodeAffinity":
            return _labels(pod, nodes)
        case "NodeResourcesFit":
            return _sizes(pod, nodes)
        case "InterPodAffinity":
            return _neighbours(pod, nodes)
    return []


def _on(count: int, nodes: Sequence[NodeInfo]) -> str:
    return f"(on {count} of {len(nodes)} nodes)"


def _taints(pod: Pod, nodes: Sequence[NodeInfo]) -> list[str]:
    """The taints that keep the pod off, the most frequent first: of each node the one that stands in the way first."""
    found: Counter[str] = Counter()
    for info in nodes:
        taint = info.node and find_untolerated_taint(info.node.spec.taints, pod.spec.tolerations)
        if taint:
            found[f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"] += 1
    return [f"{taint} {_on(count, nodes)}" for taint, count in found.most_common()]


def _labels(pod: Pod, nodes: Sequence[NodeInfo]) -> list[str]:
    """What the pod's nodeSelector and required node affinity ask for, the rarest first; alternatives all together."""
    required = RequiredNodeAffinity(pod.spec.node_selector, pod.spec.affinity)
    terms = required.affinity.terms if required.affinity is not None else ()
    selectors = [required.node_selector, *(term.labels for term in terms if term.labels is not None)]
    having: dict[str, int] = {}
    for requirement in (each for selector in selectors for each in selector.requirements):
        holds = requirement.compiled()
        having[str(requirement)] = sum(info.node is not None and holds(info.node.metadata.labels) for info in nodes)
    for fields in (term.fields for term in terms if term.fields is not None):
        having[str(fields)] = sum(fields.matches({"metadata.name": info.name}) for info in nodes)
    return [f"{text} {_on(number, nodes)}" for text, number in sorted(having.items(), key=lambda each: each[1])]


def _sizes(pod: Pod, nodes: Sequence[NodeInfo]) -> list[str]:
    """Resources of which the pod asks for more than any node has, empty as it may be."""
    too_much = []
    for name, amount in PodInfo(pod).requests.items():
        most = max((info.allocatable.get(name, 0) for info in nodes), default=0)
        if amount > most:
            has = f"more than {_amount(name, most)} of {name}" if most else f"any {name}"
            too_much.append(f"no node has {has}, and the pod asks for {_amount(name, amount)}")
    return too_much


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return Quantity(amount, -3, Format.DECIMAL_SI).canonical()
    binary = name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")
    return Quantity(amount, 0, Format.BINARY_SI if binary else Format.DECIMAL_SI).canonical()


def _neighbours(pod: Pod, nodes: Sequence[NodeInfo]) -> list[str]:
    """Where the pods are that required terms of the pod's own are about."""
    info = PodInfo(pod)
    return [
        *(_where(f"affinity to {term.selector}", term, nodes) for term in info.required_affinity_terms),
        *(_where(f"anti-affinity to {term.selector}", term, nodes) for term in info.required_anti_affinity_terms),
    ]


def _where(text: str, term: AffinityTerm, nodes: Sequence[NodeInfo]) -> str:
    if not term.namespace_selector.nothing:  # which namespaces that means, is not known here
        return f"{text} by {term.topology_key}"
    having = sum(
        any(term.matches(each.pod.metadata.namespace, each.pod.metadata.labels, {}) for each in node.pods.values())
        for node in nodes
    )
    return f"{text} by {term.topology_key}, of which {f'pods run {_on(having, nodes)}' if having else 'no pod runs'}"

"""Hypothesis strategies for random nodes and pods that use most scheduling fields."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kubeloop.kube.objects.api_types import Node, Pod, convert

APPS = ("web", "db")


ZONES = ("a", "b")


NAMES = tuple(f"node-{number}" for number in range(9))


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


QUICKLY = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


selectors = st.sampled_from([{"matchLabels": {"app": app}} for app in APPS] + [{}, None])


keys = st.sampled_from(["kubernetes.io/hostname", "zone", "rack"])


taints = st.lists(
    st.sampled_from(
        [
            {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": "old", "effect": "PreferNoSchedule"},
            {"key": "evicted", "effect": "NoExecute"},
        ]
    ),
    max_size=2,
    unique_by=lambda taint: taint["key"],
)


tolerations = st.lists(
    st.sampled_from(
        [{"key": "gpu", "operator": "Exists"}, {"key": "old", "operator": "Exists"}, {"operator": "Exists"}]
    ),
    max_size=2,
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = {"kubernetes.io/hostname": name}
    for key, values in (("zone", ZONES), ("rack", ("1", "2"))):
        value = draw(st.sampled_from((*values, None)))
        if value is not None:
            labels[key] = value
    allocatable = {"cpu": draw(st.sampled_from(["1", "2500m", "8"])), "memory": draw(st.sampled_from(["1Gi", "16Gi"])),
                   "pods": draw(st.sampled_from(["2", "5"]))}  # fmt: skip
    if draw(st.booleans()):
        allocatable["example.com/gpu"] = draw(st.sampled_from(["0", "2"]))
    images = draw(st.lists(st.sampled_from([{"names": ["app:1"], "sizeBytes": 700 << 20}]), max_size=1))
    return convert(
        Node,
        {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"taints": draw(taints), "unschedulable": draw(st.booleans()) and draw(st.booleans())},
            "status": {"allocatable": allocatable, "images": images},
        },
    )


def affinity_terms(weighted: bool) -> Any:
    term = st.builds(
        lambda selector, key, namespaces: {"labelSelector": selector, "topologyKey": key} | namespaces,
        selectors,
        keys,
        st.sampled_from([{}, {"namespaceSelector": {}}, {"namespaces": ["other"]}]),
    )
    if not weighted:
        return st.lists(term, max_size=1)
    weighted_term = st.builds(
        lambda term, weight: {"weight": weight, "podAffinityTerm": term}, term, st.sampled_from([1, 50])
    )
    return st.lists(weighted_term, max_size=1)


@st.composite
def pods(draw: st.DrawFn, name: str, node_name: str = "") -> Pod:
    spec: dict[str, Any] = {"nodeName": node_name, "tolerations": draw(tolerations)}
    requests = {}
    if draw(st.booleans()):
        requests = {"cpu": draw(st.sampled_from(["100m", "1"])), "memory": "300Mi"}
    if draw(st.integers(0, 5)) == 0:
        requests["example.com/gpu"] = "1"
    ports = [{"containerPort": 80, "hostPort": 80}] if draw(st.integers(0, 4)) == 0 else []
    spec["containers"] = [{"name": "c", "image": "app:1", "resources": {"requests": requests}, "ports": ports}]
    if draw(st.booleans()):
        spec["affinity"] = {
            kind: {REQUIRED: draw(affinity_terms(False)), PREFERRED: draw(affinity_terms(True))}
            for kind in ("podAffinity", "podAntiAffinity")
            if draw(st.booleans())
        }
        if draw(st.booleans()):
            expression = {"key": "zone", "operator": draw(st.sampled_from(["In", "NotIn"])), "values": ["a"]}
            exists = {"key": "rack", "operator": draw(st.sampled_from(["Exists", "DoesNotExist"]))}
            spec["affinity"]["nodeAffinity"] = {
                REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}, {"matchExpressions": [exists]}]},
                PREFERRED: [{"weight": 3, "preference": {"matchExpressions": [expression]}}],
            }
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": draw(st.sampled_from([1, 2])),
                "topologyKey": draw(keys),
                "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
                "labelSelector": draw(selectors),
                "nodeTaintsPolicy": draw(st.sampled_from(["Honor", "Ignore"])),
            }
        ]
    labels = {"app": draw(st.sampled_from(APPS))}
    namespace = draw(st.sampled_from(["default", "default", "other"]))
    return convert(
        Pod, {"metadata": {"name": name, "uid": name, "namespace": namespace, "labels": labels}, "spec": spec}
    )


@st.composite
def populated(draw: st.DrawFn) -> tuple[list[Node], list[Pod]]:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    drawn_nodes = [draw(nodes(name)) for name in names]
    placed = [draw(pods(f"old-{number}", draw(st.sampled_from(names)))) for number in range(draw(st.integers(0, 6)))]
    return drawn_nodes, placed

"""Warnings that several kinds share: deprecated node labels, fractional quantities of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubeloop.devcluster.validation.common.ip_addresses import ip_warning
from kubeloop.kube.json_object import JSON
from kubeloop.kube.name_checks import label_value
from kubeloop.kube.quantities import milli_value

DEPRECATED_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
"""Deprecated node labels, with the reason. Source: pkg/api/node/util.go."""


def node_term_warnings(term: JSON, path: str, *, check_values: bool = False) -> Iterator[str]:
    """Yield the warnings about a node selector term; check_values: values that no label can have are not rejected."""
    for i, match_expression in enumerate(term.get("matchExpressions", ())):
        where, key = f"{path}.matchExpressions[{i}]", match_expression.get("key", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{where}.key: {key} is {DEPRECATED_NODE_LABELS[key]}"
        for j, value in enumerate(match_expression.get("values", ()) if check_values else ()):
            for detail in label_value(value):
                yield f"{where}.values[{j}]: {value} is invalid, {detail}"


def fractional_bytes_warnings(amounts: JSON, path: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name in amounts and milli_value(amounts[name]) % 1000:
            yield f'{path}[{name}]: fractional byte value "{amounts[name]}" is invalid, must be an integer'


def load_balancer_status_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    for i, entry in enumerate(((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()):
        if entry.get("ip"):
            yield ip_warning(f"status.loadBalancer.ingress[{i}]", entry["ip"])

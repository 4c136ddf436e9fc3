"""Simulated resource usage of pods, set by KWOK's annotations. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.quantities import Quantity, QuantityError, parse_quantity

USAGE_ANNOTATIONS = {"cpu": "kwok.x-k8s.io/usage-cpu", "memory": "kwok.x-k8s.io/usage-memory"}

Usage = dict[str, Quantity]
"""Used amount by resource."""


def container_usage(pod: JSON) -> Usage:
    """Return what each container of a running pod uses; empty if the pod does not run, or no usage is set."""
    annotations = pod["metadata"].get("annotations")
    if not annotations or (pod.get("status") or {}).get("phase") != "Running":
        return {}
    usage: Usage = {}
    for resource, annotation in USAGE_ANNOTATIONS.items():
        if annotation in annotations:
            quantity = _parsed(annotations[annotation])
            if quantity is not None:
                usage[resource] = quantity
    return usage


def total_usage(pods: Iterable[JSON]) -> Usage:
    """Return the sum over all containers of the pods."""
    total: Usage = {}
    for pod in pods:
        for resource, quantity in container_usage(pod).items():
            used = quantity * len(pod["spec"]["containers"])
            total[resource] = total[resource] + used if resource in total else used
    return total


def invalid_usage(pod: JSON) -> list[str]:
    """Return messages about invalid annotations."""
    annotations = pod["metadata"].get("annotations") or {}
    return [
        f"{annotation}: {annotations[annotation]!r} is not a quantity of 0 or more, such as 250m or 64Mi; it is ignored"
        for annotation in USAGE_ANNOTATIONS.values()
        if annotation in annotations and _parsed(annotations[annotation]) is None
    ]


def _parsed(text: str) -> Quantity | None:
    try:
        quantity = parse_quantity(text)
    except QuantityError:
        return None
    return quantity if quantity.sign >= 0 else None

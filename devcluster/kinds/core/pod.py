"""Pods. Source: pkg/registry/core/pod and pkg/apis/core of Kubernetes v1.36."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.serializer.defaulting import default_pod_spec
from kubeloop.devcluster.validation.pod.pod_spec import validate_pod
from kubeloop.devcluster.validation.pod.pod_status import validate_pod_status_update
from kubeloop.devcluster.validation.pod.pod_subresources import (
    validate_ephemeral_containers_update,
    validate_pod_resize,
)
from kubeloop.devcluster.validation.pod.pod_update import validate_pod_update
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.pod_resources import container_totals, is_pod_level


def _requests_from_limits(containers: Iterable[JSON]) -> None:
    for container in containers:
        resources = container.get("resources")
        limits = resources.get("limits") if resources else None
        if limits:
            assert resources is not None
            resources["requests"] = {**limits, **resources.get("requests", {})}


def _host_ports(containers: Iterable[JSON]) -> None:
    for container in containers:
        for port in container.get("ports", ()):
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]


def _default_pod_resources(spec: JSON) -> None:
    """Default pod-level requests and limits, if the pod has any."""
    resources = spec["resources"]
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    if limits or requests:
        for name, quantity in container_totals(spec, "limits").items():
            if name.startswith("hugepages-") and name not in requests and name not in limits:
                limits = {**limits, name: quantity}
    if limits:
        for name, quantity in container_totals(spec, "requests").items():
            if name in ("cpu", "memory") and name not in requests:
                requests = {**requests, name: quantity}
        requests = {**{name: quantity for name, quantity in limits.items() if is_pod_level(name)}, **requests}
    if limits:
        resources["limits"] = limits
    if requests:
        resources["requests"] = requests


def _default(pod: JSON) -> None:
    spec = pod["spec"]
    default_pod_spec(spec)
    containers, init_containers = spec.get("containers") or (), spec.get("initContainers", ())
    _requests_from_limits(containers)
    _requests_from_limits(init_containers)
    if spec.get("resources"):
        _default_pod_resources(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("hostNetwork"):
        _host_ports(containers)
        _host_ports(init_containers)
    status = pod.get("status")
    if status:
        _synchronize_first(status, "podIP", "podIPs", "ip")


def _synchronize_first(holder: JSON, single: str, plural: str, key: str) -> None:
    """Synchronize a single field with the first list item (podIP and podIPs[0].ip); the single field wins."""
    first, several = holder.get(single), holder.get(plural)
    if first and (not several or several[0].get(key) != first):
        holder[plural] = [{key: first}]
    elif several and not first:
        holder[single] = several[0].get(key, "")


STRATEGY = Strategy(
    default=_default,
    validate=validate_pod,
    validate_update=validate_pod_update,
    validate_status=validate_pod_status_update,
    validate_ephemeral_containers=validate_ephemeral_containers_update,
    validate_resize=validate_pod_resize,
    update_steps="uws",
)

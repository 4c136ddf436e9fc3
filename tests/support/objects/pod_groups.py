"""Pods in the groups that the ReplicaSet controller forms."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.controllers.replicaset.pod_groups import PodGroupKey, pod_group_key
from kubeloop.kube.objects.api_types import Pod


def group_pods(pods: Iterable[Pod]) -> dict[PodGroupKey, dict[str, Pod]]:
    """Return these Pods in groups, whatever their owner."""
    groups: dict[PodGroupKey, dict[str, Pod]] = {}
    for pod in pods:
        groups.setdefault(pod_group_key(pod), {})[pod.key] = pod
    return groups

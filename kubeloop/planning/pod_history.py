"""Times of pods while a plan runs, from the changes of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.json_object import JSON

_DISRUPTION = "DisruptionTarget"


class PlannedPod(msgspec.Struct):
    """Times of one pod, in seconds of the loop; None: it has not happened. disruption: reason of its condition."""

    key: str
    created_at: float | None = None
    bound_at: float | None = None
    ready_at: float | None = None
    deletion_at: float | None = None
    gone_at: float | None = None
    node: str = ""
    disruption: str = ""
    object: JSON = {}


class PodHistory:
    """Follows the pods of a store, by UID."""

    def __init__(self) -> None:
        self._pods: dict[str, PlannedPod] = {}

    def __iter__(self) -> Iterator[PlannedPod]:
        return iter(self._pods.values())

    def get(self, uid: str) -> PlannedPod | None:
        return self._pods.get(uid)

    def receive(self, change: Change) -> None:
        """Note a change of a pod."""
        now, pod = asyncio.get_running_loop().time(), change.now.object
        metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        times = self._pods.get(metadata["uid"])
        if times is None:
            times = self._pods[metadata["uid"]] = PlannedPod(f"{metadata['namespace']}/{metadata['name']}")
        times.object = pod
        if change.type == "ADDED":
            times.created_at = now
        if spec.get("nodeName"):
            if not times.node and change.before is not None and not change.before.object["spec"].get("nodeName"):
                times.bound_at = now
            times.node = spec["nodeName"]
        if metadata.get("deletionTimestamp") and times.deletion_at is None:
            times.deletion_at = now
        if change.type == "DELETED":
            times.deletion_at = now if times.deletion_at is None else times.deletion_at
            times.gone_at = now
        for condition in status.get("conditions") or ():
            if condition.get("type") == "Ready" and condition.get("status") == "True" and times.ready_at is None:
                times.ready_at = now
            elif condition.get("type") == _DISRUPTION and condition.get("status") == "True":
                times.disruption = condition.get("reason", "")

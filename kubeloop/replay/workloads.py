"""Workloads: the topmost owners of pods, by which replays and reports group them."""

from __future__ import annotations

from typing import Final

from kubeloop.kube.json_object import JSON

_KNOWN_GROUPS: Final = ("apps", "batch", "scheduling.k8s.io")
_KNOWN_CORE_KINDS: Final = ("ReplicationController", "Pod")


def controller_of(obj: JSON) -> JSON | None:
    """Return the reference to the controller of an object, None if users manage it."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def is_run_here(owner: JSON) -> bool:
    """Return True if a controller of kubeloop manages the objects of this owner."""
    group, _, _ = owner.get("apiVersion", "").rpartition("/")
    return group in _KNOWN_GROUPS or (not group and owner.get("kind") in _KNOWN_CORE_KINDS)


class Workloads:
    """Names of workloads, such as "deployment shop/checkout", from the owners that have been added."""

    def __init__(self) -> None:
        self._owners: dict[str, JSON] = {}  # references to controllers, by the uid of the object

    def add(self, obj: JSON) -> None:
        """Remember the controller of an object that may own pods."""
        owner = controller_of(obj)
        if owner is not None:
            self._owners[obj["metadata"].get("uid", "")] = owner

    def name_of(self, pod: JSON) -> str:
        """Return the name of the workload of a pod; that of the pod itself if nothing controls it."""
        metadata = pod["metadata"]
        kind, name = "pod", metadata["name"]
        uid = metadata.get("uid", "")
        owner = controller_of(pod)
        while owner is not None:
            kind, name, uid = owner["kind"].lower(), owner["name"], owner.get("uid", "")
            owner = self._owners.get(uid)
        return f"{kind} {metadata.get('namespace', '')}/{name}"

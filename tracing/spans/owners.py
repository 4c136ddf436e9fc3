"""Owners of pods as text: "statefulset/db", with the kind in lower case and without its API group.

Imports the standard library only.
"""

from __future__ import annotations

POD_GROUP = "PodGroup"
"""Kind under which a pod's group is listed after its owners."""


def owner_text(kind: str, name: str) -> str:
    return f"{kind.lower()}/{name}"


def plural_kind(kind: str) -> str:
    """Return the usual resource of a kind in lower case. Source: UnsafeGuessKindToResource of apimachinery."""
    if kind.endswith("s"):
        return f"{kind}es"
    return f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"


def deployment_name(owner_kind: str, owner_name: str, template_hash: str) -> str:
    """Return the name of the Deployment that owns a pod's owner, derived from the pod-template-hash; "" for none."""
    suffix = f"-{template_hash}"
    if owner_kind == "ReplicaSet" and template_hash and owner_name.endswith(suffix):
        return owner_name.removesuffix(suffix)
    return ""

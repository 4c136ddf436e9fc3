"""Sets of tolerations. Source: pkg/util/tolerations of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.kube.json_object import JSON


def merge_tolerations(first: list[JSON], second: list[JSON]) -> list[JSON]:
    """Return the tolerations without those that another one covers."""
    tolerations = [*first, *second]
    merged: list[JSON] = []
    for i, toleration in enumerate(tolerations):
        superset = any(is_superset(other, toleration) for other in merged) or any(
            is_superset(other, toleration) and other != toleration for other in tolerations[i + 1 :]
        )
        if not superset:
            merged.append(toleration)
    return merged


def is_superset(wide: JSON, narrow: JSON) -> bool:
    """Return True if a pod with the first toleration needs the second one for no taint."""
    if wide == narrow:
        return True
    if wide.get("key", "") != narrow.get("key", "") and not (not wide.get("key") and wide.get("operator") == "Exists"):
        return False
    if wide.get("effect") and wide.get("effect") != narrow.get("effect"):
        return False
    if wide.get("effect") == "NoExecute":
        seconds = wide.get("tolerationSeconds")
        if seconds is not None and (narrow.get("tolerationSeconds") is None or narrow["tolerationSeconds"] > seconds):
            return False
    if wide.get("operator", "Equal") == "Equal":
        return narrow.get("operator") == "Equal" and wide.get("value", "") == narrow.get("value", "")
    return wide.get("operator") == "Exists"

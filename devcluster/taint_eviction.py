"""Which pods a NoExecute taint drives off a node, and when.

Pure functions on plain JSON. Source: kube-controller-manager, taint eviction controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

JSON = dict[str, Any]


def no_execute_taints(node: JSON) -> list[JSON]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("effect") == "NoExecute"]


def tolerates(toleration: JSON, taint: JSON) -> bool:
    """Source: v1.Toleration.ToleratesTaint. The numeric operators (Lt, Gt) compare the taint's value as an integer."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    wanted, actual = toleration.get("value", ""), taint.get("value", "")
    if operator == "Equal":
        return bool(wanted == actual)
    if operator in ("Lt", "Gt"):
        try:
            return int(actual) < int(wanted) if operator == "Lt" else int(actual) > int(wanted)
        except ValueError:
            return False
    return bool(operator == "Exists")


def stay_seconds(taints: Sequence[JSON], tolerations: Iterable[JSON]) -> float | None:
    """How long a pod with these tolerations may stay on a node with these NoExecute taints.

    0: it must go at once; None: it may stay. The shortest tolerationSeconds among the tolerations used counts.
    """
    used: list[JSON] = []
    tolerations = list(tolerations)
    for taint in taints:
        matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
        if not matching:
            return 0.0
        used += matching[:1]  # the first that matches is the one that counts
    limits = [toleration["tolerationSeconds"] for toleration in used if toleration.get("tolerationSeconds") is not None]
    return max(0.0, float(min(limits))) if limits else None

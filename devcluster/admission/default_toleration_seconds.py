"""DefaultTolerationSeconds: tolerations of unready and unreachable nodes for pods without their own.

Source: plugin/pkg/admission/defaulttolerationseconds of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.kube.json_object import JSON

_EVICTION_SECONDS = 300


def add_default_tolerations(pod: JSON) -> None:
    """Add the default tolerations that a pod lacks, in place."""
    tolerations = pod["spec"].get("tolerations", [])
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTION_SECONDS}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not any(
            toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")
            for toleration in tolerations
        )
    ]
    if added:
        pod["spec"]["tolerations"] = [*tolerations, *added]

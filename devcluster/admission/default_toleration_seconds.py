"""DefaultTolerationSeconds: tolerations of unready and unreachable nodes for pods without their own.

Source: plugin/pkg/admission/defaulttolerationseconds of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeloop.kube.json_object import JSON

_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class TolerationSeconds(NamedTuple):
    """tolerationSeconds of the tolerations of unready and of unreachable nodes."""

    not_ready: int = 300
    unreachable: int = 300


DEFAULT_TOLERATION_SECONDS = TolerationSeconds()


def add_default_tolerations(pod: JSON, seconds: TolerationSeconds) -> None:
    """Add the default tolerations that a pod lacks, in place."""
    tolerations = pod["spec"].get("tolerations", [])
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": eviction_seconds}
        for key, eviction_seconds in zip(_KEYS, seconds, strict=True)
        if not any(
            toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")
            for toleration in tolerations
        )
    ]
    if added:
        pod["spec"]["tolerations"] = [*tolerations, *added]

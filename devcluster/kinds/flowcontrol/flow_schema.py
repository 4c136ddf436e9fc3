"""FlowSchemas. Source: pkg/apis/flowcontrol/v1/defaults.go of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.kube.json_object import JSON


def _default(obj: JSON) -> None:
    if not obj["spec"].get("matchingPrecedence"):
        obj["spec"]["matchingPrecedence"] = 1000


STRATEGY = Strategy(default=_default)

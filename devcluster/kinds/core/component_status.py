"""ComponentStatuses. Source: pkg/printers/internalversion of Kubernetes v1.36."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.formatting import Cells, object_name
from kubeloop.kube.json_object import JSON


def _cells(obj: JSON, _now: datetime) -> Cells:
    healthy = next((condition for condition in obj.get("conditions") or () if condition.get("type") == "Healthy"), None)
    if healthy is None:
        return [object_name(obj), "Unknown", "", ""]
    state = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [object_name(obj), state, healthy.get("message", ""), healthy.get("error", "")]


STRATEGY = Strategy(cells=_cells)

"""APIServices. `aggregation` maintains the condition of those with a Service.

Source: pkg/registry/apiservice of kube-aggregator v0.36.
"""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.kinds.admissionregistration.validating_webhook_configuration import default_service_port
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.printers.formatting import spec_of
from kubeloop.kube.json_object import JSON


def _default(obj: JSON) -> None:
    default_service_port(obj["spec"].get("service"))


def _backend(obj: JSON, _now: datetime) -> str:
    service = spec_of(obj).get("service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _available(obj: JSON, _now: datetime) -> str:
    condition = condition_of(obj, "Available")
    if condition is None:
        return "Unknown"
    status = str(condition.get("status", ""))
    return status if status == "True" else f"{status} ({condition.get('reason', '')})"


def _condition(type_: str, now: str, reason: str, message: str, *, status: str = "False") -> JSON:
    return {"type": type_, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}


def _prepare_create(obj: JSON, write: Write) -> None:
    obj["status"] = {}
    if not obj["spec"].get("service"):
        detail = "Local APIServices are always available"
        condition = _condition("Available", write.now(), "Local", detail, status="True")
        obj["status"] = {"conditions": [condition]}


STRATEGY = Strategy(
    default=_default, prepare_create=_prepare_create, status_metadata=(), cells=row(_backend, _available, AGE)
)

"""APIServices. This server serves no requests for other API servers.

Source: pkg/registry/apiregistration of kube-aggregator v0.36.
"""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.admissionregistration.validating_webhook_configuration import default_service_port
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


STRATEGY = Strategy(default=_default, computed_columns={"Service": _backend, "Available": _available})

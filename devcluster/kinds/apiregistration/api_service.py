"""APIServices. This server serves no requests for other API servers.

Source: pkg/registry/apiregistration of kube-aggregator v0.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.admissionregistration.validating_webhook_configuration import default_service_port
from kubeloop.kube.json_object import JSON


def _default(obj: JSON) -> None:
    default_service_port(obj["spec"].get("service"))


STRATEGY = Strategy(default=_default)

"""MutatingWebhookConfigurations.

Source: pkg/apis/admissionregistration/v1/defaults.go of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.admissionregistration.policies import static_name_warnings
from kubeloop.devcluster.kinds.admissionregistration.validating_webhook_configuration import (
    default_webhooks,
    validate_webhooks,
    validate_webhooks_update,
)
from kubeloop.devcluster.printers.columns import AGE, number_of, row
from kubeloop.kube.json_object import JSON


def _default(obj: JSON) -> None:
    default_webhooks(obj)
    for webhook in obj.get("webhooks") or ():
        webhook.setdefault("reinvocationPolicy", "Never")


STRATEGY = Strategy(
    default=_default,
    generation_as_sent=True,
    validate=validate_webhooks,
    validate_update=validate_webhooks_update,
    warnings=static_name_warnings,
    cells=row(number_of("webhooks"), AGE),
)

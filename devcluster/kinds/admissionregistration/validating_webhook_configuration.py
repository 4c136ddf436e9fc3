"""ValidatingWebhookConfigurations, which this server stores: it calls no webhooks.

Of their fields, only match conditions are validated. Source: pkg/apis/admissionregistration/v1/defaults.go and
pkg/apis/admissionregistration/validation of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.admissionregistration.policies import (
    Expressions,
    static_name_warnings,
    validate_match_conditions,
)
from kubeloop.devcluster.printers.columns import AGE, number_of, row
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON


def default_service_port(service: JSON | None) -> None:
    if service is not None:
        service.setdefault("port", 443)


def default_webhooks(obj: JSON) -> None:
    for webhook in obj.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        default_service_port((webhook.get("clientConfig") or {}).get("service"))
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")


def webhook_warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    yield from static_name_warnings(obj, old)
    if old is None:
        yield "this server stores webhook configurations and calls no webhooks"


def validate_webhooks(errors: ErrorList, obj: JSON) -> None:
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        conditions = webhook.get("matchConditions") or ()
        validate_match_conditions(
            errors, f"webhooks[{index}].matchConditions", conditions, Expressions({}, composed=False)
        )


def validate_webhooks_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    """Validate match conditions if any have changed."""
    current, former = (
        [webhook.get("matchConditions") or [] for webhook in version.get("webhooks") or ()] for version in (obj, old)
    )
    if current != former:
        validate_webhooks(errors, obj)


STRATEGY = Strategy(
    default=default_webhooks,
    generation_as_sent=True,
    validate=validate_webhooks,
    validate_update=validate_webhooks_update,
    warnings=webhook_warnings,
    cells=row(number_of("webhooks"), AGE),
)

"""ValidatingWebhookConfigurations, which this server stores: it calls no webhooks.

Source: pkg/apis/admissionregistration/v1/defaults.go of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.admissionregistration.policies import static_name_warnings
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
        if obj.get("kind") == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        default_service_port((webhook.get("clientConfig") or {}).get("service"))
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")


def webhook_warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    yield from static_name_warnings(obj, old)
    if old is None:
        yield "this server stores webhook configurations and calls no webhooks"


STRATEGY = Strategy(default=default_webhooks, generation_as_sent=True, warnings=webhook_warnings)

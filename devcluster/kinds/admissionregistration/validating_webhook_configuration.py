"""ValidatingWebhookConfigurations, which this server stores: it calls no webhooks.

Source: pkg/apis/admissionregistration/v1/defaults.go of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
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


STRATEGY = Strategy(default=default_webhooks)

"""ValidatingWebhookConfigurations; `mutating_webhook_configuration` shares the rules of webhooks.

Source: pkg/apis/admissionregistration/v1/defaults.go and pkg/apis/admissionregistration/validation of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.admissionregistration.policies import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    Expressions,
    static_name_warnings,
    validate_match_conditions,
    validate_rule,
)
from kubeloop.devcluster.printers.columns import AGE, number_of, row
from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_label_selector
from kubeloop.devcluster.validation.common.webhook_client_config import (
    validate_review_versions,
    validate_webhook_service,
    validate_webhook_url,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain

_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REINVOCATION_POLICIES = ("IfNeeded", "Never")
_MAX_SECONDS = 30
_MIN_LABELS = 3


# --- defaults ---------------------------------------------------------------------------------------------------------


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


# --- validation -------------------------------------------------------------------------------------------------------


def validate_webhooks(errors: ErrorList, obj: JSON) -> None:
    """Validate a new configuration of either kind."""
    _validate_webhooks(errors, obj, None)


def validate_webhooks_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    """Validate an update; match conditions only if any have changed."""
    _validate_webhooks(errors, obj, old)


def _validate_webhooks(errors: ErrorList, obj: JSON, old: JSON | None) -> None:
    names: set[str] = set()
    webhooks, old_webhooks = obj.get("webhooks") or (), (old or {}).get("webhooks") or ()
    current, former = ([webhook.get("matchConditions") or [] for webhook in all_] for all_ in (webhooks, old_webhooks))
    for index, webhook in enumerate(webhooks):
        path, name = f"webhooks[{index}]", webhook.get("name", "")
        _validate_webhook(errors, path, webhook)
        if old is None or current != former:
            conditions = webhook.get("matchConditions") or ()
            validate_match_conditions(errors, f"{path}.matchConditions", conditions, Expressions({}, composed=False))
        versions, detail = webhook.get("admissionReviewVersions") or [], "must specify one of v1, v1beta1"
        validate_review_versions(errors, versions, f"{path}.admissionReviewVersions", detail)
        if name:
            errors.unique(f"{path}.name", name, names)


def _validate_webhook(errors: ErrorList, path: str, webhook: JSON) -> None:
    _validate_name(errors, f"{path}.name", webhook.get("name", ""))
    for index, rule in enumerate(webhook.get("rules") or ()):
        validate_rule(errors, f"{path}.rules[{index}]", rule)
    errors.one_of(f"{path}.failurePolicy", webhook.get("failurePolicy"), FAILURE_POLICIES)
    errors.one_of(f"{path}.matchPolicy", webhook.get("matchPolicy"), MATCH_POLICIES)
    if webhook.get("sideEffects") is None:
        errors.required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    errors.one_of(f"{path}.sideEffects", webhook.get("sideEffects"), _SIDE_EFFECTS)
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= _MAX_SECONDS:
        errors.invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    for selector in ("namespaceSelector", "objectSelector"):
        validate_label_selector(errors, f"{path}.{selector}", webhook.get(selector))
    errors.one_of(f"{path}.reinvocationPolicy", webhook.get("reinvocationPolicy"), _REINVOCATION_POLICIES)
    _validate_client_config(errors, f"{path}.clientConfig", webhook.get("clientConfig") or {})


def _validate_name(errors: ErrorList, path: str, name: str) -> None:
    """Require a fully qualified name."""
    if not name:
        errors.required(path)
    elif problems := dns_subdomain(name):
        errors.invalid(path, name, ",".join(problems))
    elif name.count(".") + 1 < _MIN_LABELS:
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots")


def _validate_client_config(errors: ErrorList, path: str, config: JSON) -> None:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        errors.required(path, "exactly one of url or service is required")
    elif url is not None:
        validate_webhook_url(errors, url, f"{path}.url")
    elif service is not None:
        validate_webhook_service(errors, service, f"{path}.service")


STRATEGY = Strategy(
    default=default_webhooks,
    generation_as_sent=True,
    validate=validate_webhooks,
    validate_update=validate_webhooks_update,
    warnings=static_name_warnings,
    cells=row(number_of("webhooks"), AGE),
)

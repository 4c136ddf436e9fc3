"""ResourceQuotas. Sources: pkg/apis/core/validation/validation.go, pkg/apis/core/helper."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from kubeloop.devcluster.api.strategy import ComputedColumn, Strategy
from kubeloop.devcluster.printers.columns import AGE, row
from kubeloop.devcluster.printers.formatting import status_of
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.containers import validate_resource_name, validate_resource_quantity
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.quantities import parse_quantity

_COMPUTE = ("cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
_QUOTA_NAMES = frozenset(
    {*_COMPUTE, "ephemeral-storage", "requests.storage", "requests.ephemeral-storage", "limits.ephemeral-storage",
     "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "persistentvolumeclaims", "configmaps",
     "services.nodeports", "services.loadbalancers"}
)  # fmt: skip
_POD_RESOURCES = frozenset({"pods", *_COMPUTE})
_SCOPES: dict[str, frozenset[str] | None] = {
    "Terminating": _POD_RESOURCES,
    "NotTerminating": _POD_RESOURCES,
    "NotBestEffort": _POD_RESOURCES,
    "PriorityClass": _POD_RESOURCES,
    "CrossNamespacePodAffinity": _POD_RESOURCES,
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""Resources whose objects each scope can select; other resources are not standard ones."""
_EXISTS_ONLY_SCOPES = frozenset(_SCOPES) - {"PriorityClass", "VolumeAttributesClass"}
_CONFLICTING_SCOPES = (("BestEffort", "NotBestEffort"), ("NotTerminating", "Terminating"))


def _is_standard(name: str) -> bool:
    return name in _QUOTA_NAMES or name.startswith(("hugepages-", "requests.hugepages-"))


def _validate_resource_list(errors: ErrorList, path: str, amounts: JSON) -> None:
    for name, quantity in sorted(amounts.items()):
        where = f"{path}[{name}]"
        validate_resource_name(errors, where, name)
        if "/" not in name and not _is_standard(name):
            errors.invalid(where, name, "must be a standard resource for quota")
        validate_resource_quantity(errors, where, name, quantity)


def _is_scope_inapplicable(scope: str, name: str) -> bool:
    applies = _SCOPES.get(scope)
    return applies is not None and _is_standard(name) and name not in applies


def validate_resource_quota_spec(errors: ErrorList, spec: JSON) -> None:
    hard, scopes, path = spec.get("hard") or {}, spec.get("scopes") or [], "spec.scopes"
    _validate_resource_list(errors, "spec.hard", hard)
    for scope in scopes:
        if scope not in _SCOPES:
            errors.invalid(path, scopes, "unsupported scope")
        for name in sorted(hard):
            if _is_scope_inapplicable(scope, name):
                errors.invalid(path, scopes, "unsupported scope applied to resource")
    _validate_conflicts(errors, path, scopes, scopes)
    selector = spec.get("scopeSelector")
    if selector is not None:
        _validate_scope_selector(errors, "spec.scopeSelector.matchExpressions", spec, selector)


def _validate_conflicts(errors: ErrorList, path: str, requested: list[str], scopes: list[str] | None) -> None:
    for pair in _CONFLICTING_SCOPES:
        if set(pair) <= set(requested):
            errors.invalid(path, scopes, "conflicting scopes")


def _validate_scope_selector(errors: ErrorList, path: str, spec: JSON, selector: JSON) -> None:
    expressions = selector.get("matchExpressions") or ()
    for expression in expressions:
        scope, operator, values = (
            expression.get("scopeName", ""),
            expression.get("operator", ""),
            expression.get("values") or [],
        )
        if scope not in _SCOPES:
            errors.invalid(f"{path}.scopeName", scope, "unsupported scope")
        for name in sorted(spec.get("hard") or {}):
            if _is_scope_inapplicable(scope, name):
                detail = "unsupported scope applied to resource"
                errors.invalid(path, selector, detail, "core/v1.ScopeSelector")
        if scope in _EXISTS_ONLY_SCOPES and operator != "Exists":
            detail = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            errors.invalid(f"{path}.operator", operator, detail)
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.required(f"{path}.values", detail)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.invalid(f"{path}.values", values, detail)
        else:
            errors.invalid(f"{path}.operator", operator, "not a valid selector operator")
    _validate_conflicts(
        errors, path, [expression.get("scopeName", "") for expression in expressions], spec.get("scopes")
    )


def validate_resource_quota(errors: ErrorList, obj: JSON) -> None:
    validate_resource_quota_spec(errors, obj["spec"])


def validate_resource_quota_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    if spec == before:
        return
    validate_resource_quota_spec(errors, spec)
    if set(spec.get("scopes") or ()) != set(before.get("scopes") or ()):
        errors.invalid("spec.scopes", spec.get("scopes"), "field is immutable")


def validate_resource_quota_status_update(errors: ErrorList, obj: JSON, _old: JSON) -> None:
    for name in ("hard", "used"):
        _validate_resource_list(errors, f"status.{name}", obj.get("status", {}).get(name) or {})


def _usage(*, limits: bool) -> ComputedColumn:
    def cell(obj: JSON, _now: datetime) -> str:
        hard, used = status_of(obj).get("hard") or {}, status_of(obj).get("used") or {}
        names = [name for name in sorted(hard) if name.startswith("limits.") is limits]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def _warnings(obj: JSON, old: JSON | None) -> Iterator[str]:
    hard = obj["spec"].get("hard", {}) if old is None else {}
    for name in ("cpu", "memory", "ephemeral-storage"):
        request_name, limit = f"requests.{name}", hard.get(f"limits.{name}")
        if request_name not in hard and name != "ephemeral-storage":
            request_name = name
        if request_name not in hard or limit is None:
            continue
        request, limit_quantity = parse_quantity(hard[request_name]), parse_quantity(limit)
        if request.compare(limit_quantity) > 0:
            amounts = f"({request.canonical()}) should be less than limits.{name} ({limit_quantity.canonical()})"
            yield f"ResourceQuota {request_name} {amounts}"


STRATEGY = Strategy(
    validate=validate_resource_quota,
    validate_update=validate_resource_quota_update,
    validate_subresources={"status": validate_resource_quota_status_update},
    warnings=_warnings,
    cells=row(_usage(limits=False), _usage(limits=True), AGE),
)

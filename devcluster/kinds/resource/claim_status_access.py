"""Permissions for the status of ResourceClaims: to allocate a claim, and to write the status of a driver's devices.

Source: pkg/registry/resource/utils.go of Kubernetes v1.36 (KEP-4817, feature gate
DRAResourceClaimGranularStatusAuthorization).
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import AccessAttributes, forbidden
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.request_info import request_verb
from kubeloop.devcluster.authorization.users import split_account
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain

_NODE_NAME = "authentication.kubernetes.io/node-name"


def check_binding(context: RequestContext, status: JSON, old: JSON) -> list[JSON]:
    """Return the cause against a changed allocation by a user without permission for resourceclaims/binding."""
    changed = any((status.get(field) or None) != (old.get(field) or None) for field in ("allocation", "reservedFor"))
    verb = _verb(context)
    if not changed or not (problem := _missing_permission(context, [verb], "binding")):
        return []
    message = (
        f'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="{verb}"'
    )
    return [errors.cause("FieldValueForbidden", "status.allocation", f"Forbidden: {message} permission: {problem}")]


def check_devices(context: RequestContext, status: JSON, old: JSON) -> list[JSON]:
    """Return the causes against changed devices by a user without permission for resourceclaims/driver.

    A driver on the node of the claim needs a verb with the prefix `associated-node:`, others `arbitrary-node:`.
    """
    devices, old_devices = (
        {_device_id(device): device for device in version.get("devices") or ()} for version in (status, old)
    )
    drivers = {key[0] for key in {*devices, *old_devices} if devices.get(key) != old_devices.get(key)}
    verb = _verb(context)
    verbs = [f"arbitrary-node:{verb}"]
    if _is_on_node(context.request.user, _node_of(status["allocation"])):
        verbs.insert(0, f"associated-node:{verb}")
    causes = []
    for driver in sorted(drivers):
        if problem := _missing_permission(context, verbs, "driver", driver):
            requirement = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]"'
            message = f"Forbidden: changing status.devices requires {requirement} permission: {problem}"
            causes.append(errors.cause("FieldValueForbidden", "status.devices", message))
    return causes


def _verb(context: RequestContext) -> str:
    return request_verb(context.info, context.request.method)


def _missing_permission(context: RequestContext, verbs: Sequence[str], subresource: str, name: str = "") -> str:
    """Return "" if one of the verbs is allowed, else the refusal of the first. name: of a driver, "" for all claims."""
    resource = context.info.served.resource
    namespace = context.info.namespace if name else ""
    refusals = []
    for verb in verbs:
        place = (resource.group, resource.plural, subresource, namespace, name)
        attributes = AccessAttributes(context.request.user, verb, *place)
        decision = context.authorizer.authorize(attributes)
        if decision.allowed:
            return ""
        reason = ": ".join(filter(None, (decision.error, decision.reason)))
        refusals.append(forbidden(attributes, reason).message)
    return refusals[0]


def _device_id(device: JSON) -> tuple[str, ...]:
    return tuple(device.get(field) or "" for field in ("driver", "pool", "device", "shareID"))


def _node_of(allocation: JSON) -> str:
    """Return the name of the only node at which the devices are, "" if there may be more."""
    terms: list[JSON] = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or ()) != 1:
        return ""
    field = terms[0]["matchFields"][0]
    values: list[str] = field.get("values") or []
    if (field.get("key"), field.get("operator")) != ("metadata.name", "In") or len(values) != 1:
        return ""
    return str(values[0])


def _is_on_node(user: JSON, node: str) -> bool:
    """Return True for a ServiceAccount with a token that is bound to a pod on this node."""
    names: list[str] = (user.get("extra") or {}).get(_NODE_NAME) or []
    return bool(node) and names == [node] and not dns_subdomain(node) and split_account(user["username"]) is not None

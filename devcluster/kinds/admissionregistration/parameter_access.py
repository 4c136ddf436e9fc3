"""Permissions for the parameters of admission policies: the author of a policy or binding must be able to read them.

Source: authz.go in pkg/registry/admissionregistration of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import AccessAttributes, is_privileged
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import BY_KIND, CUSTOM_RESOURCE_DEFINITIONS
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource


def check_param_kind(
    chain: AdmissionChain, context: RequestContext, policy: JSON, old: JSON | None, causes: list[JSON]
) -> list[JSON]:
    """Return the cause against a valid policy whose author may not read all objects of its paramKind."""
    if causes:
        return causes
    param_kind, user = policy["spec"].get("paramKind"), context.request.user
    old_kind = None if old is None else old["spec"].get("paramKind")
    if context.info.subresource or param_kind in (None, old_kind) or is_privileged(user):
        return causes
    group, resource, _ = _resource_of(chain.store, param_kind)
    decision = context.authorizer.authorize(AccessAttributes(user, "get", group, resource, "", "*", "*"))
    problem = decision.error
    if not problem and not decision.allowed:
        kind = f"kind={param_kind['kind']}, apiVersion={param_kind['apiVersion']}"
        permission = f'"get" permission on all objects of the referenced paramKind ({kind})'
        problem = f"user {_go_user(user)} must have {permission}"
    return _forbidden("spec.paramKind", problem)


def check_param_ref(
    policies: Resource[JSON],
    chain: AdmissionChain,
    context: RequestContext,
    binding: JSON,
    old: JSON | None,
    causes: list[JSON],
    *,
    error_prefix: str = "",
    refusal: str = 'user {user} does not have "{verb}" permission on the object referenced by paramRef',
) -> list[JSON]:
    """Return the cause against a valid binding whose author may not read the parameters. policies: kind of its policy.

    error_prefix, refusal: of the messages for an error of the authorizer, and for a user without permission.
    """
    if causes:
        return causes
    spec, user = binding["spec"], context.request.user
    reference, name = spec.get("paramRef"), spec["policyName"]
    is_same = old is not None and (old["spec"].get("paramRef"), old["spec"]["policyName"]) == (reference, name)
    if reference is None or is_same or is_privileged(user):
        return causes
    verb = "get" if reference.get("name") else "list"
    group = resource = "*"
    is_known, param_kind, policy = True, None, chain.store.get(policies, "", name)
    if policy is not None and (param_kind := policy["spec"].get("paramKind")) is not None:
        group, resource, is_known = _resource_of(chain.store, param_kind)
    place = (group, resource, "", reference.get("namespace", ""), reference.get("name", ""))
    decision = context.authorizer.authorize(AccessAttributes(user, verb, *place))
    if decision.error:
        return _forbidden("spec.paramRef", error_prefix + decision.error)
    if decision.allowed:
        return causes
    permissions = f'user {_go_user(user)} does not have "{verb}" permission for all groups, versions and resources'
    if policy is None:
        problem = f"unable to get policy {name} to determine minimum required permissions and {permissions}"
    elif param_kind is not None and not is_known:
        kind = f"&{{{param_kind['apiVersion']} {param_kind['kind']}}}"
        problem = f"unable to resolve paramKind {kind} to determine minimum required permissions and {permissions}"
    else:
        problem = refusal.format(user=_go_user(user), verb=verb)
    return _forbidden("spec.paramRef", problem)


def _forbidden(path: str, problem: str) -> list[JSON]:
    return [errors.cause("FieldValueForbidden", path, f"Forbidden: {problem}")] if problem else []


def _resource_of(store: ObjectStore, param_kind: JSON) -> tuple[str, str, bool]:
    """Return group and resource of a kind, and True; "*" and False for a kind that is not served."""
    api_version, kind = param_kind["apiVersion"], param_kind["kind"]
    group, _, version = api_version.rpartition("/")
    if (served := BY_KIND.get((api_version, kind))) is not None:
        return group, served.resource.plural, True
    for definition in store.list(CUSTOM_RESOURCE_DEFINITIONS, ""):
        spec = definition["spec"]
        is_served = any(entry["name"] == version and entry.get("served") for entry in spec["versions"])
        if (spec["group"], spec["names"]["kind"]) == (group, kind) and is_served:
            return group, spec["names"]["plural"], True
    return group, "*", False


def _go_user(user: JSON) -> str:
    """Return a user as Go prints user.DefaultInfo."""
    extra = " ".join(f"{key}:[{' '.join(values)}]" for key, values in sorted((user.get("extra") or {}).items()))
    return f"&{{{user['username']} {user.get('uid') or ''} [{' '.join(user.get('groups') or ())}] map[{extra}]}}"

"""PodGroups, and the fields that a template in a Workload shares with them.

Source: pkg/apis/scheduling/v1alpha2 (zz_generated.validations.go, from the markers of the types) and
pkg/apis/scheduling/validation of Kubernetes v1.36. An update cannot change a valid part of a spec, so an update checks
changed fields only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from kubeloop.devcluster.admission.chain import AdmissionChain, add_finalizer
from kubeloop.devcluster.admission.priority import set_group_priority
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE, spec_of
from kubeloop.devcluster.registry.disabled_fields import drop_fields, spec_part
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import IMMUTABLE, ErrorList
from kubeloop.devcluster.validation.common.status_conditions import validate_conditions
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import POD_GROUPS, WORKLOADS
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain, qualified_name

_MAX_CLAIMS, _MAX_TOPOLOGY_CONSTRAINTS = 4, 1
_HIGHEST_USER_PRIORITY = 1_000_000_000
_TOPOLOGY, _PREEMPTION = "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption"
_GATED_FIELDS = {
    "schedulingConstraints": _TOPOLOGY,
    "disruptionMode": _PREEMPTION,
    "priorityClassName": _PREEMPTION,
    "priority": _PREEMPTION,
}
"""Feature gate without which a field is forbidden."""

_NameCheck = Callable[[str], Sequence[str]]


def validate_pod_group(errors: ErrorList, obj: JSON) -> None:
    spec = obj["spec"]
    if (reference := spec.get("podGroupTemplateRef")) is not None:
        path = "spec.podGroupTemplateRef"
        _validate_union(errors, path, reference, "workload")
        if (workload := reference.get("workload")) is not None:
            validate_name(errors, f"{path}.workload.workloadName", workload.get("workloadName"), dns_subdomain)
            template = workload.get("podGroupTemplateName")
            validate_name(errors, f"{path}.workload.podGroupTemplateName", template, dns_label)
    validate_group(errors, "spec", spec)


def validate_pod_group_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    spec, before = obj["spec"], old["spec"]
    for name in ("podGroupTemplateRef", "schedulingPolicy"):
        validate_immutable(errors, spec, before, name)
    _immutable_if_enabled(errors, spec, before, "schedulingConstraints")
    if validate_immutable(errors, spec, before, "resourceClaims"):
        validate_size(errors, "spec.resourceClaims", spec.get("resourceClaims") or [], _MAX_CLAIMS)
    for name in ("disruptionMode", "priorityClassName", "priority"):
        _immutable_if_enabled(errors, spec, before, name)


def validate_pod_group_status_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    status, before = obj.get("status") or {}, old.get("status") or {}
    validate_conditions(errors, "status.conditions", status.get("conditions") or ())
    path = "status.resourceClaimStatuses"
    statuses, stored = status.get("resourceClaimStatuses") or [], before.get("resourceClaimStatuses") or []
    claims = {claim.get("name", "") for claim in obj["spec"].get("resourceClaims") or ()}
    for i, entry in enumerate(statuses):
        if entry.get("name", "") not in claims:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errors.invalid(f"{path}[{i}].name", entry.get("name", ""), detail)
    if statuses == stored or not validate_size(errors, path, statuses, _MAX_CLAIMS):
        return
    validate_unique_names(errors, path, statuses, "scheduling/v1alpha2.PodGroupResourceClaimStatus")
    stored_names = {entry.get("name", ""): entry.get("resourceClaimName") for entry in reversed(stored)}
    for i, entry in enumerate(statuses):
        name = entry.get("resourceClaimName")
        if name is not None and name != stored_names.get(entry.get("name", "")):
            errors.check(f"{path}[{i}].resourceClaimName", name, dns_subdomain)


def validate_group(errors: ErrorList, path: str, group: JSON) -> None:
    """Validate the fields that the spec of a PodGroup and a template of a Workload share."""
    _validate_policy(errors, f"{path}.schedulingPolicy", group.get("schedulingPolicy") or {})
    if _is_allowed(errors, path, group, "schedulingConstraints"):
        constraints = group["schedulingConstraints"].get("topology") or []
        where = f"{path}.schedulingConstraints.topology"
        if validate_size(errors, where, constraints, _MAX_TOPOLOGY_CONSTRAINTS):
            for i, constraint in enumerate(constraints):
                validate_name(errors, f"{where}[{i}].key", constraint.get("key"), qualified_name)
    _validate_claims(errors, f"{path}.resourceClaims", group.get("resourceClaims") or [])
    if _is_allowed(errors, path, group, "disruptionMode") and group["disruptionMode"] not in ("Pod", "PodGroup"):
        errors.not_supported(f"{path}.disruptionMode", group["disruptionMode"], ("Pod", "PodGroup"))
    if _is_allowed(errors, path, group, "priorityClassName"):
        name = group["priorityClassName"]
        errors.check(f"{path}.priorityClassName", name, dns_subdomain)
    if _is_allowed(errors, path, group, "priority") and group["priority"] > _HIGHEST_USER_PRIORITY:
        detail = f"must be less than or equal to {_HIGHEST_USER_PRIORITY}"
        errors.invalid(f"{path}.priority", group["priority"], detail)


def _validate_policy(errors: ErrorList, path: str, policy: JSON) -> None:
    _validate_union(errors, path, policy, "basic", "gang")
    if (gang := policy.get("gang")) is not None:
        count = gang.get("minCount", 0)
        if errors.require(f"{path}.gang.minCount", count) and count < 1:
            errors.invalid(f"{path}.gang.minCount", count, "must be greater than or equal to 1")


def _validate_claims(errors: ErrorList, path: str, claims: list[JSON]) -> None:
    if not validate_size(errors, path, claims, _MAX_CLAIMS):
        return
    validate_unique_names(errors, path, claims, "scheduling/v1alpha2.PodGroupResourceClaim")
    sources = ("resourceClaimName", "resourceClaimTemplateName")
    for i, claim in enumerate(claims):
        _validate_union(errors, f"{path}[{i}]", claim, *sources)
        validate_name(errors, f"{path}[{i}].name", claim.get("name"), dns_label)
        for source in sources:
            errors.check(f"{path}[{i}].{source}", claim.get(source), dns_subdomain)


def _validate_union(errors: ErrorList, path: str, value: JSON, *members: str) -> None:
    present = [name for name in members if value.get(name) is not None]
    choices = ", ".join(f"`{name}`" for name in members)
    if not present:
        errors.invalid(path, "", f"must specify one of: {choices}")
    elif len(present) > 1:
        errors.invalid(path, f"{{{', '.join(present)}}}", f"must specify exactly one of: {choices}")


def validate_name(errors: ErrorList, path: str, name: str | None, check: _NameCheck) -> None:
    errors.check_required(path, name, check)


def validate_size(errors: ErrorList, path: str, items: list[Any], limit: int, *, required: bool = False) -> bool:
    """Return True if the number of items is valid."""
    if len(items) > limit:
        errors.too_many(path, len(items), limit)
    elif required and not items:
        errors.required(path)
    return len(items) <= limit and bool(items or not required)


def validate_unique_names(errors: ErrorList, path: str, items: list[JSON], type_name: str) -> None:
    names: set[str] = set()
    for i, item in enumerate(items):
        name = item.get("name", "")
        if name in names:
            errors.duplicate(f"{path}[{i}]", item, type_name=type_name)
        names.add(name)


def _is_allowed(errors: ErrorList, path: str, group: JSON, name: str) -> bool:
    """Return True if a gated field is set and may be set."""
    value = group.get(name)
    if value is None or (name == "priorityClassName" and not value):
        return False
    if not errors.gates.enabled(_GATED_FIELDS[name]):
        errors.forbidden(f"{path}.{name}")
        return False
    return True


def validate_immutable(errors: ErrorList, spec: JSON, before: JSON, name: str) -> bool:
    """Add an error and return True if a field of the spec has changed."""
    changed = (spec.get(name) or None) != (before.get(name) or None)
    if changed:
        errors.invalid(f"spec.{name}", None, IMMUTABLE)
    return changed


def _immutable_if_enabled(errors: ErrorList, spec: JSON, before: JSON, name: str) -> None:
    """Validate a change of a gated field: without the gate it may be removed."""
    if spec.get(name) == before.get(name):
        return
    if errors.gates.enabled(_GATED_FIELDS[name]):
        errors.invalid(f"spec.{name}", None, IMMUTABLE)
    else:
        _is_allowed(errors, "spec", spec, name)


def _default(obj: JSON) -> None:
    obj["spec"].setdefault("disruptionMode", "Pod")


def _policy(pod_group: JSON, _now: datetime) -> str:
    return "Basic" if spec_of(pod_group).get("schedulingPolicy", {}).get("gang") is None else "Gang"


def _pod_group_status(pod_group: JSON, _now: datetime) -> str:
    if (disruption := condition_of(pod_group, "DisruptionTarget")) is not None:
        reason: str = disruption["reason"]
        return reason
    if condition_of(pod_group, "PodGroupScheduled") is None:
        return "Pending"
    return "Scheduled" if is_true(pod_group, "PodGroupScheduled") else "Unschedulable"


GATES_OF_GROUP_FIELDS = (
    ("schedulingConstraints", "TopologyAwareWorkloadScheduling"),
    ("resourceClaims", "DRAWorkloadResourceClaims"),
    ("disruptionMode", "WorkloadAwarePreemption"),
    ("priorityClassName", "WorkloadAwarePreemption"),
    ("priority", "WorkloadAwarePreemption"),
)
"""Fields of PodGroups and of their templates in Workloads; each is retained on its own."""


def _prepare_status(pod_group: JSON, old: JSON, write: Write) -> None:
    if not (write.gates.enabled("DRAWorkloadResourceClaims") or old["spec"].get("resourceClaims")):
        status = pod_group["status"] = {**(pod_group.get("status") or {})}
        status.pop("resourceClaimStatuses", None)


def _admit_create(chain: AdmissionChain, _context: RequestContext, pod_group: JSON) -> None:
    if chain.gates.enabled("WorkloadAwarePreemption") and "Priority" in chain.enabled:
        set_group_priority(chain.store, pod_group)
    if "PodGroupProtection" in chain.enabled:
        add_finalizer(pod_group, "scheduling.k8s.io/podgroup-protection")


def _check_create(chain: AdmissionChain, _context: RequestContext, pod_group: JSON) -> None:
    if "PodGroupWorkloadExists" in chain.enabled:
        check_template_exists(chain.store, pod_group)


def check_template_exists(store: ObjectStore, pod_group: JSON) -> None:
    """Raise StatusError 403 if the template that a new PodGroup refers to does not exist."""
    reference = (pod_group["spec"].get("podGroupTemplateRef") or {}).get("workload")
    if reference is None:
        return
    metadata, workload_name = pod_group["metadata"], reference["workloadName"]
    workload = store.get(WORKLOADS, metadata["namespace"], workload_name)
    if workload is None:
        problem = f'Workload "{workload_name}" not found'
    elif "deletionTimestamp" in workload["metadata"]:
        problem = f'Workload "{workload_name}" is being deleted'
    elif any(
        template["name"] == reference["podGroupTemplateName"] for template in workload["spec"]["podGroupTemplates"]
    ):
        return
    else:
        template_name = reference["podGroupTemplateName"]
        problem = f'PodGroupTemplate "{template_name}" not found in Workload "{workload_name}"'
    raise errors.forbidden(POD_GROUPS, errors.name_in_message(pod_group), f"PodGroup rejected: {problem}")


STRATEGY = Strategy(
    default=_default,
    default_on_read=_default,
    owns_status=True,
    gated_fields=tuple((gate, drop_fields((spec_part, (name,)))) for name, gate in GATES_OF_GROUP_FIELDS),
    prepare_status=_prepare_status,
    status_metadata=(),
    validate=validate_pod_group,
    validate_update=validate_pod_group_update,
    validate_subresources={"status": validate_pod_group_status_update},
    admit_create=_admit_create,
    check_create=_check_create,
    cells=row(_policy, text_of("spec.podGroupTemplateRef.workload.workloadName", NONE), _pod_group_status, AGE),
)

"""What may change in a pod, through the pod itself and through its status. Source: core/validation/validation.go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kubeloop.devcluster.validation import scheduling
from kubeloop.devcluster.validation.field import (
    Errors,
    dns_subdomain,
    internal,
    ip,
    json_differences,
    qualified_name,
)
from kubeloop.devcluster.validation.pods import image_without_blanks, pod_metadata_and_spec

JSON = dict[str, Any]

_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _fixed_annotations(errors: Errors, pod: JSON, old: JSON) -> None:
    """What makes a pod a static pod's mirror, and the old way of AppArmor, stay as they are."""
    new, before = pod["metadata"].get("annotations", {}), old["metadata"].get("annotations", {})
    for key in sorted({*new, *before}):
        what = "mirror pod annotation" if key == _MIRROR else "AppArmor annotations" if _is_app_armor(key) else ""
        if what and key in before and new.get(key) != before[key]:
            errors.forbidden(f"metadata.annotations[{key}]", f"may not remove or update {what}")
        elif what and key not in before:
            errors.forbidden(f"metadata.annotations[{key}]", f"may not add {what}")


_MIRROR = "kubernetes.io/config.mirror"


def _is_app_armor(key: str) -> bool:
    return key.startswith("container.apparmor.security.beta.kubernetes.io/")


def pod_update(errors: Errors, pod: JSON, old: JSON) -> None:
    spec, before = pod["spec"], old["spec"]
    if spec == before:
        _fixed_annotations(errors, pod, old)
        return
    pod_metadata_and_spec(errors, pod)
    _fixed_annotations(errors, pod, old)
    for kind in ("containers", "initContainers"):
        if len(spec.get(kind) or ()) != len(before.get(kind) or ()):
            errors.forbidden(f"spec.{kind}", "pod updates may not add or remove containers")
            return
        for i, container in enumerate(spec.get(kind) or ()):
            if not container.get("image"):
                errors.required(f"spec.{kind}[{i}].image")
            image_without_blanks(errors, f"spec.{kind}[{i}].image", container.get("image", ""))
    if not _deadline(errors, spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")):
        return
    _only_added_tolerations(errors, spec.get("tolerations", ()), before.get("tolerations", ()))
    known = {gate["name"] for gate in before.get("schedulingGates", ())}
    for i, gate in enumerate(spec.get("schedulingGates", ())):
        if gate["name"] not in known:
            wrong = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            errors.forbidden(f"spec.schedulingGates[{i}].name", wrong)
    munged = _munged(errors, spec, before)
    if munged != before:
        difference = json_differences(_internal(before), _internal(munged))
        told = f"pod updates may not change fields other than {_UPDATABLE}\n{difference}"
        errors.forbidden("spec", told)


def _deadline(errors: Errors, new: int | None, old: int | None) -> bool:
    """False: nothing else is looked at."""
    path = "spec.activeDeadlineSeconds"
    if new is not None:
        if not 0 <= new <= 0x7FFFFFFF:
            errors.invalid(path, new, "must be between 0 and 2147483647, inclusive")
            return False
        if old is not None and old < new:
            errors.invalid(path, new, "must be less than or equal to previous value")
            return False
    elif old is not None:
        errors.invalid(path, None, "must not update from a positive integer to nil value")
    return True


def _only_added_tolerations(errors: Errors, new: Sequence[JSON], old: Sequence[JSON]) -> None:
    def but_seconds(toleration: JSON) -> JSON:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}

    kept = [but_seconds(each) for each in new]
    if any(but_seconds(each) not in kept for each in old):
        wrong = "existing toleration can not be modified except its tolerationSeconds"
        errors.forbidden("spec.tolerations", wrong)
        return
    scheduling.tolerations(errors, "spec.tolerations", new)


def _munged(errors: Errors, spec: JSON, before: JSON) -> JSON:
    """The new spec with everything that may change set back."""
    munged = dict(spec)
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            munged[kind] = [
                {**new, "image": old.get("image", "")} for new, old in zip(spec[kind], before[kind], strict=True)
            ]
    _set_back(munged, before, "activeDeadlineSeconds")
    _set_back(munged, before, "schedulingGates")
    _set_back(munged, before, "tolerations")
    if before.get("terminationGracePeriodSeconds", 0) < 0 and munged.get("terminationGracePeriodSeconds") == 1:
        _set_back(munged, before, "terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        _gated(errors, munged, before)
    return munged


def _set_back(munged: JSON, before: JSON, name: str) -> None:
    if name in before:
        munged[name] = before[name]
    else:
        munged.pop(name, None)


def _gated(errors: Errors, munged: JSON, before: JSON) -> None:
    """A gated pod's node selector and node affinity may become stricter."""
    new, old = munged.get("nodeSelector", {}), before.get("nodeSelector", {})
    if any(new.get(key) != value for key, value in old.items()):
        wrong = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.invalid("spec.nodeSelector", new, wrong)
    _set_back(munged, before, "nodeSelector")
    new_affinity = (munged.get("affinity") or {}).get("nodeAffinity")
    old_affinity = (before.get("affinity") or {}).get("nodeAffinity")
    if new_affinity == old_affinity:
        return
    _node_affinity_mutation(errors, new_affinity or {}, old_affinity)
    affinity = dict(munged.get("affinity") or {})
    if old_affinity is not None:
        affinity["nodeAffinity"] = old_affinity
    else:
        affinity.pop("nodeAffinity", None)
    if affinity or "affinity" in before:
        munged["affinity"] = affinity
    else:
        munged.pop("affinity", None)


def _node_affinity_mutation(errors: Errors, new: JSON, old: JSON | None) -> None:
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}"
    old_terms = ((old or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms")
    if not old_terms:
        return
    new_terms = (new.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    if len(new_terms) != len(old_terms):
        wrong = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errors.invalid(f"{path}.nodeSelectorTerms", new_terms, wrong, "core/v1.NodeSelectorTerm")
        return
    for i, (ours, theirs) in enumerate(zip(new_terms, old_terms, strict=True)):
        if not theirs.get("matchExpressions") and not theirs.get("matchFields"):
            same = ours == theirs
        else:
            same = all(
                ours.get(kind, [])[: len(theirs.get(kind, []))] == theirs.get(kind, [])
                for kind in ("matchExpressions", "matchFields")
            )
        if not same:
            wrong = "only additions are allowed (no mutations or deletions)"
            errors.invalid(f"{path}.nodeSelectorTerms[{i}]", ours, wrong, "core/v1.NodeSelectorTerm")


_HOST_FIELDS = ("HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers")


def _internal(spec: JSON) -> JSON:
    """The internal version of a pod spec, which keeps what concerns the host in its security context."""
    shown: JSON = internal(spec, "core/v1.PodSpec")
    shown.pop("DeprecatedServiceAccount", None)
    host = {name: shown.pop(name, None) for name in _HOST_FIELDS}
    if shown["SecurityContext"] is not None:
        shown["SecurityContext"] = host | shown["SecurityContext"]
    return shown


# --- status -----------------------------------------------------------------------------------------------------------

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized", "ContainersReady")


def pod_status_update(errors: Errors, pod: JSON, old: JSON) -> None:
    status, before = pod.get("status", {}), old.get("status", {})
    if status == before:
        return
    for i, condition in enumerate(status.get("conditions", ())):
        name = condition.get("type", "")
        if name not in _SYSTEM_CONDITIONS:
            errors.invalid_each(f"metadata.conditions[{i}].Type", name, qualified_name(name))
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName"):
        errors.invalid_each("status.nominatedNodeName", nominated, dns_subdomain(nominated))
    errors.immutable("status.qosClass", status.get("qosClass", ""), before.get("qosClass", ""))
    for kind in ("container", "initContainer", "ephemeralContainer"):
        where = f"{kind}Statuses"
        _transitions(errors, f"status.{where}", status.get(where, ()), before.get(where, ()), _policies(kind, old))
    _claim_statuses(errors, "status.resourceClaimStatuses", pod)
    _addresses(errors, "status.podIPs", status.get("podIPs", ()), "core/v1.PodIP")
    host_ips = status.get("hostIPs")
    if host_ips and status.get("hostIP", "") != host_ips[0].get("ip", ""):
        errors.invalid("status.hostIPs[0].ip", host_ips[0].get("ip", ""), "must be equal to `hostIP`")
    _addresses(errors, "status.hostIPs", host_ips or (), "core/v1.HostIP")


def _addresses(errors: Errors, path: str, addresses: Sequence[JSON], type_name: str) -> None:
    """At most one of each family."""
    texts = [each.get("ip", "") for each in addresses]
    for i, text in enumerate(texts):
        ip(errors, f"{path}[{i}]", text)
    if len(texts) > 1:
        if len(texts) > 2 or len({":" in text for text in texts}) == 1:
            errors.invalid(path, list(addresses), "may specify no more than one IP for each IP family", type_name)
        for i, text in enumerate(texts):
            if text in texts[:i]:
                errors.duplicate(f"{path}[{i}]", addresses[i], type_name=type_name)


def _claim_statuses(errors: Errors, path: str, pod: JSON) -> None:
    names, seen = {each.get("name") for each in pod["spec"].get("resourceClaims", ())}, set()
    for i, each in enumerate(pod.get("status", {}).get("resourceClaimStatuses", ())):
        where, name, claim = f"{path}[{i}].name", each.get("name", ""), each.get("resourceClaimName")
        if name not in names:
            errors.invalid(where, name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            errors.duplicate(where, name)
        seen.add(name)
        if claim is not None:
            errors.invalid_each(where, claim, dns_subdomain(claim))


def _policies(kind: str, pod: JSON) -> Callable[[str], str]:
    """The restart policy of a container by its name: its own, the pod's, or for ephemeral ones Never."""
    if kind == "ephemeralContainer":
        return lambda _name: "Never"
    own = {each.get("name"): each.get("restartPolicy") for each in pod["spec"].get(f"{kind}s") or ()}
    of_pod = pod["spec"].get("restartPolicy", "")
    return lambda name: own.get(name) or of_pod


def _transitions(
    errors: Errors, path: str, new: Sequence[JSON], old: Sequence[JSON], policy_of: Callable[[str], str]
) -> None:
    for i, was in enumerate(old):
        terminated, policy = was.get("state", {}).get("terminated"), policy_of(was.get("name", ""))
        if terminated is None or policy == "Always":
            continue
        if policy == "OnFailure" and terminated.get("exitCode", 0) != 0:
            continue
        for now in new:
            if now.get("name") == was.get("name") and "terminated" not in now.get("state", {}):
                errors.forbidden(f"{path}[{i}].state", "may not be transitioned to non-terminated state")

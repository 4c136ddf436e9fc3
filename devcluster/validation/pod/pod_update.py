"""Validation of pod updates: immutable fields and the fields that may change.

Source: pkg/apis/core/validation/validation.go of v1.36. `pod_subresources` validates updates through subresources.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.go_values import struct_differences
from kubeloop.devcluster.validation.pod import scheduling
from kubeloop.devcluster.validation.pod.pod_spec import (
    validate_image_whitespace,
    validate_pod_annotations,
    validate_pod_metadata_and_spec,
)
from kubeloop.kube.json_object import JSON

_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def validate_immutable_annotations(errors: ErrorList, pod: JSON, old: JSON) -> None:
    """Require the mirror pod annotation and the AppArmor annotations to stay as they are."""
    new, before = pod["metadata"].get("annotations", {}), old["metadata"].get("annotations", {})
    for key in sorted({*new, *before}):
        description = (
            "mirror pod annotation" if key == _MIRROR else "AppArmor annotations" if _is_app_armor(key) else ""
        )
        if description and key in before and new.get(key) != before[key]:
            errors.forbidden(f"metadata.annotations[{key}]", f"may not remove or update {description}")
        elif description and key not in before:
            errors.forbidden(f"metadata.annotations[{key}]", f"may not add {description}")
    if new:
        validate_pod_annotations(errors, "metadata.annotations", pod["metadata"], pod["spec"], old["metadata"])


_MIRROR = "kubernetes.io/config.mirror"


def _is_app_armor(key: str) -> bool:
    return key.startswith("container.apparmor.security.beta.kubernetes.io/")


def validate_pod_update(errors: ErrorList, pod: JSON, old: JSON) -> None:
    """Validate a pod update, without metadata. Source: ValidatePodUpdate."""
    spec, before = pod["spec"], old["spec"]
    validate_pod_metadata_and_spec(errors, pod, old)
    validate_immutable_annotations(errors, pod, old)
    if spec == before:
        return
    for kind in ("containers", "initContainers"):
        if len(spec.get(kind) or ()) != len(before.get(kind) or ()):
            errors.forbidden(f"spec.{kind}", "pod updates may not add or remove containers")
            return
        for i, container in enumerate(spec.get(kind) or ()):
            errors.require(f"spec.{kind}[{i}].image", container.get("image"))
            validate_image_whitespace(errors, f"spec.{kind}[{i}].image", container.get("image", ""))
    if not _validate_deadline(errors, spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")):
        return
    _validate_only_added_tolerations(errors, spec.get("tolerations", ()), before.get("tolerations", ()))
    old_gates = {gate["name"] for gate in before.get("schedulingGates", ())}
    gates = spec.get("schedulingGates", ())
    last = {gate.get("name", ""): i for i, gate in enumerate(gates)}
    for i, gate in enumerate(gates):
        if gate.get("name", "") not in old_gates and last[gate.get("name", "")] == i:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            errors.forbidden(f"spec.schedulingGates[{i}].name", detail)
    munged = _munged_spec(errors, spec, before)
    if munged != before:
        difference = struct_differences(before, munged, "core/v1.PodSpec")
        message = f"pod updates may not change fields other than {_UPDATABLE}\n{difference}"
        errors.forbidden("spec", message)


def _validate_deadline(errors: ErrorList, new: int | None, old: int | None) -> bool:
    """Validate a change of activeDeadlineSeconds; False ends the validation of the pod."""
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


def _validate_only_added_tolerations(errors: ErrorList, new: Sequence[JSON], old: Sequence[JSON]) -> None:
    def without_seconds(toleration: JSON) -> JSON:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}

    new_tolerations = [without_seconds(toleration) for toleration in new]
    if any(without_seconds(toleration) not in new_tolerations for toleration in old):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        errors.forbidden("spec.tolerations", detail)
        return
    scheduling.validate_tolerations(errors, "spec.tolerations", new)


def _munged_spec(errors: ErrorList, spec: JSON, before: JSON) -> JSON:
    """Return the new spec with the old values of all fields that may change."""
    munged = dict(spec)
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            munged[kind] = [
                {**new, "image": old.get("image", "")} for new, old in zip(spec[kind], before[kind], strict=True)
            ]
    _restore_field(munged, before, "activeDeadlineSeconds")
    _restore_field(munged, before, "schedulingGates")
    _restore_field(munged, before, "tolerations")
    if before.get("terminationGracePeriodSeconds", 0) < 0 and munged.get("terminationGracePeriodSeconds") == 1:
        _restore_field(munged, before, "terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        _validate_gated_pod(errors, munged, before)
    return munged


def _restore_field(spec: JSON, before: JSON, name: str) -> None:
    if name in before:
        spec[name] = before[name]
    else:
        spec.pop(name, None)


def _validate_gated_pod(errors: ErrorList, spec: JSON, before: JSON) -> None:
    """Validate a gated pod's node selector and node affinity, which may become stricter, and restore the old ones."""
    new, old = spec.get("nodeSelector", {}), before.get("nodeSelector", {})
    if any(new.get(key) != value for key, value in old.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.invalid("spec.nodeSelector", new or None, detail)
    _restore_field(spec, before, "nodeSelector")
    new_affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    old_affinity = (before.get("affinity") or {}).get("nodeAffinity")
    if new_affinity == old_affinity:
        return
    _validate_node_affinity_change(errors, new_affinity or {}, old_affinity)
    affinity = dict(spec.get("affinity") or {})
    if old_affinity is not None:
        affinity["nodeAffinity"] = old_affinity
    else:
        affinity.pop("nodeAffinity", None)
    if affinity or "affinity" in before:
        spec["affinity"] = affinity
    else:
        spec.pop("affinity", None)


def _validate_node_affinity_change(errors: ErrorList, new: JSON, old: JSON | None) -> None:
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}"
    old_terms = ((old or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms")
    if not old_terms:
        return
    new_terms = (new.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    if len(new_terms) != len(old_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        errors.invalid(f"{path}.nodeSelectorTerms", new_terms or None, detail, "core/v1.NodeSelectorTerm")
        return
    for i, (new_term, old_term) in enumerate(zip(new_terms, old_terms, strict=True)):
        if not old_term.get("matchExpressions") and not old_term.get("matchFields"):
            same = new_term == old_term
        else:
            same = all(
                new_term.get(kind, [])[: len(old_term.get(kind, []))] == old_term.get(kind, [])
                for kind in ("matchExpressions", "matchFields")
            )
        if not same:
            detail = "only additions are allowed (no mutations or deletions)"
            errors.invalid(f"{path}.nodeSelectorTerms[{i}]", new_term, detail, "core/v1.NodeSelectorTerm")

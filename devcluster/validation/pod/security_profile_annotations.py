"""Seccomp and AppArmor profiles in the annotations that preceded the fields of the security context.

Source: pkg/apis/core/validation/validation.go, applyAppArmorVersionSkew of pkg/registry/core/pod.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.validation.common.error_list import ErrorList, validate_local_path
from kubeloop.devcluster.validation.pod.security_context import every_container, validate_app_armor
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted

SECCOMP_POD_ANNOTATION = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER_PREFIX = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR_PREFIX = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_SECCOMP_DEFAULTS = ("runtime/default", "docker/default")
_APP_ARMOR_DEFAULT = "runtime/default"
_UNCONFINED = "unconfined"


def validate_profile_annotations(errors: ErrorList, path: str, annotations: dict[str, str], spec: JSON) -> None:
    """Validate profiles in annotations, and require the containers that AppArmor annotations name to exist."""
    if SECCOMP_POD_ANNOTATION in annotations:
        _validate_seccomp_profile(errors, f"{path}.{SECCOMP_POD_ANNOTATION}", annotations[SECCOMP_POD_ANNOTATION])
    for key in sorted(annotations):
        if key.startswith(SECCOMP_CONTAINER_PREFIX):
            _validate_seccomp_profile(errors, f"{path}.{key}", annotations[key])
    for key in sorted(annotations):
        if not key.startswith(APP_ARMOR_PREFIX):
            continue
        name, profile = key.removeprefix(APP_ARMOR_PREFIX), annotations[key]
        if all(container.get("name", "") != name for _, container in every_container("", spec)):
            errors.invalid(f"{path}[{key}]", name, "container not found")
        if profile not in ("", _APP_ARMOR_DEFAULT, _UNCONFINED) and not profile.startswith(_LOCALHOST):
            errors.invalid(f"{path}[{key}]", profile, f"invalid AppArmor profile name: {quoted(profile)}")


def _validate_seccomp_profile(errors: ErrorList, path: str, profile: str) -> None:
    if profile in _SECCOMP_DEFAULTS or profile == _UNCONFINED:
        return
    if profile.startswith(_LOCALHOST):
        validate_local_path(errors, path, profile.removeprefix(_LOCALHOST))
    else:
        errors.invalid(path, profile, "must be a valid seccomp profile")


def validate_profiles_match_fields(errors: ErrorList, path: str, annotations: dict[str, str], spec: JSON) -> None:
    """Require annotations and fields of a new pod or a template to hold equal profiles; path: path of the spec."""
    pod_context = spec.get("securityContext") or {}
    if SECCOMP_POD_ANNOTATION in annotations and pod_context.get("seccompProfile") is not None:
        _validate_profile_matches_field(
            errors,
            f"{path}.securityContext.seccompProfile",
            annotations[SECCOMP_POD_ANNOTATION],
            pod_context["seccompProfile"],
            "seccomp",
        )
    for where, container in every_container(path, spec):
        annotation = annotations.get(SECCOMP_CONTAINER_PREFIX + container.get("name", ""))
        profile = container.get("securityContext", {}).get("seccompProfile")
        if annotation is not None and profile is not None:
            _validate_profile_matches_field(
                errors, f"{where}.securityContext.seccompProfile", annotation, profile, "seccomp"
            )
    if (spec.get("os") or {}).get("name") == "windows":
        return
    for where, container in every_container(path, spec):
        annotation = annotations.get(APP_ARMOR_PREFIX + container.get("name", ""))
        profile = container.get("securityContext", {}).get("appArmorProfile") or pod_context.get("appArmorProfile")
        if annotation is not None and profile is not None:
            _validate_profile_matches_field(
                errors, f"{where}.securityContext.appArmorProfile", annotation, profile, "apparmor"
            )


def _validate_profile_matches_field(
    errors: ErrorList, path: str, annotation: str, profile: JSON, profile_kind: str
) -> None:
    kind, matches = profile.get("type"), True
    if kind == "Unconfined":
        matches = annotation == _UNCONFINED
    elif kind == "RuntimeDefault":
        matches = annotation in (_SECCOMP_DEFAULTS if profile_kind == "seccomp" else (_APP_ARMOR_DEFAULT,))
    elif kind == "Localhost":
        matches = annotation.startswith(_LOCALHOST)
        if matches and annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
            errors.forbidden(f"{path}.localhostProfile", f"{profile_kind} profile in annotation and field must match")
    if not matches:
        errors.forbidden(f"{path}.type", f"{profile_kind} type in annotation and field must match")


def app_armor_profile(annotation: str) -> JSON | None:
    """Return the appArmorProfile that an annotation stands for, or None if the annotation is invalid."""
    if annotation == _UNCONFINED:
        return {"type": "Unconfined"}
    if annotation == _APP_ARMOR_DEFAULT:
        return {"type": "RuntimeDefault"}
    local = annotation.removeprefix(_LOCALHOST)
    return {"type": "Localhost", "localhostProfile": local} if local and local != annotation else None


def _app_armor_annotations_without_field(pod: JSON) -> Iterator[tuple[str, JSON, JSON | None]]:
    """Yield each AppArmor annotation without a field: its key, the container, the profile to set.

    The profile is None if it is invalid; annotations that repeat the pod's profile are left out.
    """
    annotations, spec = pod["metadata"].get("annotations", {}), pod.get("spec", {})
    if (
        not any(key.startswith(APP_ARMOR_PREFIX) for key in annotations)
        or (spec.get("os") or {}).get("name") == "windows"
    ):
        return
    pod_profile = (spec.get("securityContext") or {}).get("appArmorProfile")
    for _, container in every_container("", spec):
        key = APP_ARMOR_PREFIX + container.get("name", "")
        if key not in annotations or "appArmorProfile" in container.get("securityContext", {}):
            continue
        profile, problems = app_armor_profile(annotations[key]), ErrorList()
        validate_app_armor(problems, "", profile)
        if problems:
            profile = None
        if profile is None or profile != pod_profile:
            yield key, container, profile


def set_app_armor_from_annotations(pod: JSON) -> None:
    """Set the containers' appArmorProfile from the annotations of a new pod."""
    for _, container, profile in list(_app_armor_annotations_without_field(pod)):
        if profile is not None:
            container["securityContext"] = {**container.get("securityContext", {}), "appArmorProfile": profile}


def app_armor_warnings(pod: JSON) -> list[str]:
    """Return the warnings about AppArmor annotations of a new pod."""
    detail = 'deprecated since v1.30; use the "appArmorProfile" field instead'
    return [f"metadata.annotations[{key}]: {detail}" for key, _, _ in _app_armor_annotations_without_field(pod)]

"""Security profiles that pods once had in annotations: seccomp and AppArmor, beside the fields of the same meaning.

Source: pkg/apis/core/validation/validation.go, applyAppArmorVersionSkew of pkg/registry/core/pod.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.field_checks import validate_local_path
from kubeloop.devcluster.validation.pod.security_context import every_container, validate_app_armor
from kubeloop.kube.json_object import JSON

SECCOMP_OF_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_OF_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_SECCOMP_DEFAULTS = ("runtime/default", "docker/default")
_APP_ARMOR_DEFAULT = "runtime/default"
_UNCONFINED = "unconfined"


def validate_profile_annotations(errors: ErrorList, path: str, annotations: dict[str, str], spec: JSON) -> None:
    """Whether the profiles in annotations are ones, and of containers there are."""
    if SECCOMP_OF_POD in annotations:
        _validate_seccomp_profile(errors, f"{path}.{SECCOMP_OF_POD}", annotations[SECCOMP_OF_POD])
    for key in sorted(annotations):
        if key.startswith(SECCOMP_OF_CONTAINER):
            _validate_seccomp_profile(errors, f"{path}.{key}", annotations[key])
    for key in sorted(annotations):
        if not key.startswith(APP_ARMOR):
            continue
        name, profile = key.removeprefix(APP_ARMOR), annotations[key]
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
    """A new pod, or a template, that has both, annotations and fields, has to say the same twice; path: its spec's."""
    own = spec.get("securityContext") or {}
    if SECCOMP_OF_POD in annotations and own.get("seccompProfile") is not None:
        _validate_profile_matches_field(
            errors,
            f"{path}.securityContext.seccompProfile",
            annotations[SECCOMP_OF_POD],
            own["seccompProfile"],
            "seccomp",
        )
    for where, container in every_container(path, spec):
        annotation = annotations.get(SECCOMP_OF_CONTAINER + container.get("name", ""))
        profile = container.get("securityContext", {}).get("seccompProfile")
        if annotation is not None and profile is not None:
            _validate_profile_matches_field(
                errors, f"{where}.securityContext.seccompProfile", annotation, profile, "seccomp"
            )
    if (spec.get("os") or {}).get("name") == "windows":
        return
    for where, container in every_container(path, spec):
        annotation = annotations.get(APP_ARMOR + container.get("name", ""))
        profile = container.get("securityContext", {}).get("appArmorProfile") or own.get("appArmorProfile")
        if annotation is not None and profile is not None:
            _validate_profile_matches_field(
                errors, f"{where}.securityContext.appArmorProfile", annotation, profile, "apparmor"
            )


def _validate_profile_matches_field(errors: ErrorList, path: str, annotation: str, profile: JSON, what: str) -> None:
    kind, same = profile.get("type"), True
    if kind == "Unconfined":
        same = annotation == _UNCONFINED
    elif kind == "RuntimeDefault":
        same = annotation in (_SECCOMP_DEFAULTS if what == "seccomp" else (_APP_ARMOR_DEFAULT,))
    elif kind == "Localhost":
        same = annotation.startswith(_LOCALHOST)
        if same and annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
            errors.forbidden(f"{path}.localhostProfile", f"{what} profile in annotation and field must match")
    if not same:
        errors.forbidden(f"{path}.type", f"{what} type in annotation and field must match")


def app_armor_of(annotation: str) -> JSON | None:
    """The field that says the same as an annotation, or None."""
    if annotation == _UNCONFINED:
        return {"type": "Unconfined"}
    if annotation == _APP_ARMOR_DEFAULT:
        return {"type": "RuntimeDefault"}
    local = annotation.removeprefix(_LOCALHOST)
    return {"type": "Localhost", "localhostProfile": local} if local and local != annotation else None


def _to_adopt(pod: JSON) -> Iterator[tuple[str, JSON, JSON | None]]:
    """Each annotation that no field repeats: its key, its container, the field to set (None: it says nothing new)."""
    annotations, spec = pod["metadata"].get("annotations", {}), pod.get("spec", {})
    if not any(key.startswith(APP_ARMOR) for key in annotations) or (spec.get("os") or {}).get("name") == "windows":
        return
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    for _, container in every_container("", spec):
        key = APP_ARMOR + container.get("name", "")
        if key not in annotations or "appArmorProfile" in container.get("securityContext", {}):
            continue
        profile, detail = app_armor_of(annotations[key]), ErrorList()
        validate_app_armor(detail, "", profile)
        if detail:
            profile = None
        if profile is None or profile != of_pod:
            yield key, container, profile


def adopt_app_armor(pod: JSON) -> None:
    """Set the containers' fields from the annotations of a new pod."""
    for _, container, profile in list(_to_adopt(pod)):
        if profile is not None:
            container["securityContext"] = {**container.get("securityContext", {}), "appArmorProfile": profile}


def app_armor_warnings(pod: JSON) -> list[str]:
    """What a client is told about such annotations of a new pod."""
    detail = 'deprecated since v1.30; use the "appArmorProfile" field instead'
    return [f"metadata.annotations[{key}]: {detail}" for key, _, _ in _to_adopt(pod)]

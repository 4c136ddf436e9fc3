"""pods/ephemeralcontainers and pods/resize: what may change through them. Source: core/validation/validation.go.

The strategies have set everything else back to what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeloop.devcluster.quality_of_service import qos_class
from kubeloop.devcluster.validation.field import Errors, quoted, struct_differences
from kubeloop.devcluster.validation.pods import pod_metadata_and_spec

JSON = dict[str, Any]
_RESIZABLE = ("cpu", "memory")
_MIRROR = "kubernetes.io/config.mirror"


def ephemeral_containers_update(errors: Errors, pod: JSON, old: JSON) -> None:
    """Ephemeral containers may be added, and stay as they are."""
    if _MIRROR in old["metadata"].get("annotations", {}):
        errors.forbidden("[]", "static pods do not support ephemeral containers")
        return
    pod_metadata_and_spec(errors, pod)
    path = "spec.ephemeralContainers"
    now = {each.get("name"): each for each in pod["spec"].get("ephemeralContainers", ())}
    for before in old["spec"].get("ephemeralContainers", ()):
        name = before.get("name", "")
        if name not in now:
            errors.forbidden(path, f"existing ephemeral containers {quoted(name)} may not be removed\n")
        elif now[name] != before:
            difference = struct_differences(before, now[name], "core/v1.EphemeralContainer")
            errors.forbidden(path, f"existing ephemeral containers {quoted(name)} may not be changed\n{difference}")


def resize(errors: Errors, pod: JSON, old: JSON) -> None:
    """cpu and memory of containers and of sidecars may change, as long as the pod keeps its class."""
    spec, before = pod["spec"], old["spec"]
    if _MIRROR in old["metadata"].get("annotations", {}):
        errors.forbidden("[]", "static pods cannot be resized")
        return
    if (before.get("os") or {}).get("name") == "windows":
        errors.forbidden("[]", "windows pods cannot be resized")
        return
    pod_metadata_and_spec(errors, pod)
    pairs = {kind: list(zip(spec.get(kind) or (), before.get(kind) or (), strict=False)) for kind in _KINDS}
    if any(len(spec.get(kind) or ()) != len(before.get(kind) or ()) for kind in _KINDS):
        errors.forbidden("spec", "only cpu and memory resources are mutable")
        return
    if qos_class(spec) != qos_class(before):
        wrong = "Pod QOS Class may not change as a result of resizing"
        errors.invalid("spec", old.get("status", {}).get("qosClass", ""), wrong)
    for kind in _KINDS:
        for i, (new, was) in enumerate(pairs[kind]):
            if kind == "containers" or was.get("restartPolicy") == "Always":
                _nothing_removed(errors, f"spec.{kind}[{i}].resources", new, was)
    for new, was in pairs["containers"]:
        if _without_sizes(new, was) != was:
            errors.forbidden("spec", "only cpu and memory resources are mutable")
    for new, was in pairs["initContainers"]:
        if was.get("restartPolicy") == "Always":
            if _without_sizes(new, was) != was:
                errors.forbidden("spec", "only cpu and memory resources for sidecar containers are mutable")
        elif new != was:
            errors.forbidden("spec", "resources for non-sidecar init containers are immutable")


_KINDS = ("initContainers", "containers")


def _nothing_removed(errors: Errors, path: str, new: JSON, old: JSON) -> None:
    for part in ("requests", "limits"):
        if set(old.get("resources", {}).get(part, {})) - set(new.get("resources", {}).get(part, {})):
            errors.forbidden(f"{path}.{part}", f"resource {part} cannot be removed")


def _without_sizes(new: JSON, old: JSON) -> JSON:
    """The new container with the old amounts of what may change, and the old resize policy."""
    result = {**new, "resources": {}}
    for part in ("limits", "requests"):
        before: Mapping[str, str] = old.get("resources", {}).get(part, {})
        now: Mapping[str, str] = new.get("resources", {}).get(part, {})
        kept = {name: each for name, each in now.items() if name not in _RESIZABLE}
        kept |= {name: each for name, each in before.items() if name in _RESIZABLE}
        if kept:
            result["resources"][part] = kept
    if "resources" not in old and not result["resources"]:
        result.pop("resources")
    result.pop("resizePolicy", None)
    return {**result, **{name: old[name] for name in ("resizePolicy",) if name in old}}

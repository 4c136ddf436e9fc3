"""RuntimeClass admission: a pod's runtime class has to be there, and says what the pod costs and where it runs.

Source: plugin/pkg/admission/runtimeclass of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.served_resources import RUNTIME_CLASSES
from kubeloop.devcluster.storage.store import Store
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.quantities import parse_quantity

_DIFFERS = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


def _class_of(store: Store, pod: JSON) -> JSON | None:
    """Raises StatusError 403 for a class that is not there, 500 for a name that none can have."""
    name = pod["spec"].get("runtimeClassName")
    if name is None:
        return None
    found = store.get(RUNTIME_CLASSES, "", name)
    if found is not None:
        return found
    if not name:
        raise errors.internal("resource name may not be empty")
    if wrong := path_segment(name):
        raise errors.internal(f"invalid resource name {quoted(name)}: [{' '.join(wrong)}]")
    raise errors.forbidden(
        PODS,
        errors.name_in_message(pod),
        f"pod rejected: RuntimeClass {quoted(name)} not found",
    )


def _same(one: JSON, other: JSON) -> bool:
    return one.keys() == other.keys() and all(
        parse_quantity(one[name]).compare(parse_quantity(other[name])) == 0 for name in one
    )


def apply_runtime_class(store: Store, pod: JSON) -> None:
    """Give a new pod the overhead, node selector and tolerations of its class, in place. Raises StatusError."""
    found = _class_of(store, pod)
    if found is None:
        return
    spec, name = pod["spec"], errors.name_in_message(pod)
    overhead = found.get("overhead")
    if overhead is not None:
        fixed = overhead.get("podFixed", {})
        if spec.get("overhead") and not _same(fixed, spec["overhead"]):
            raise errors.forbidden(PODS, name, _DIFFERS)
        spec["overhead"] = dict(fixed)
    scheduling = found.get("scheduling") or {}
    selector = dict(spec.get("nodeSelector", {}))
    for key, value in sorted(scheduling.get("nodeSelector", {}).items()):
        if selector.setdefault(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise errors.forbidden(PODS, name, why)
    if selector:
        spec["nodeSelector"] = selector
    if tolerations := scheduling.get("tolerations"):
        spec["tolerations"] = _merged(spec.get("tolerations", []), tolerations)


def _merged(first: list[JSON], second: list[JSON]) -> list[JSON]:
    """Both, less those of which another says as much and more. Source: pkg/util/tolerations (MergeTolerations)."""
    every = [*first, *second]
    merged: list[JSON] = []
    for i, each in enumerate(every):
        superset = any(_covers(other, each) for other in merged) or any(
            _covers(other, each) and other != each for other in every[i + 1 :]
        )
        if not superset:
            merged.append(each)
    return merged


def _covers(wide: JSON, narrow: JSON) -> bool:
    if wide == narrow:
        return True
    if wide.get("key", "") != narrow.get("key", "") and not (not wide.get("key") and wide.get("operator") == "Exists"):
        return False
    if wide.get("effect") and wide.get("effect") != narrow.get("effect"):
        return False
    if wide.get("effect") == "NoExecute":
        seconds = wide.get("tolerationSeconds")
        if seconds is not None and (narrow.get("tolerationSeconds") is None or narrow["tolerationSeconds"] > seconds):
            return False
    if wide.get("operator", "Equal") == "Equal":
        return narrow.get("operator") == "Equal" and wide.get("value", "") == narrow.get("value", "")
    return wide.get("operator") == "Exists"


def check_overhead(store: Store, pod: JSON) -> None:
    """Only a runtime class gives a valid new pod an overhead. Raises StatusError 403."""
    spec = pod["spec"]
    if "overhead" not in spec and "runtimeClassName" not in spec:
        return
    found = _class_of(store, pod)
    overhead, name = (
        (found or {}).get("overhead"),
        errors.name_in_message(pod),
    )
    if overhead is not None:
        if not _same(overhead.get("podFixed", {}), spec.get("overhead", {})):
            raise errors.forbidden(PODS, name, _DIFFERS)
    elif "overhead" in spec:
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise errors.forbidden(PODS, name, why)

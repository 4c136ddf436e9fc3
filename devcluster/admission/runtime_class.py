"""RuntimeClass: overhead, node selector and tolerations of a pod from its runtime class.

Source: plugin/pkg/admission/runtimeclass of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.admission.tolerations import merge_tolerations
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import RUNTIME_CLASSES
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.kube.json_object import JSON, sorted_map
from kubeloop.kube.objects.resources import PODS
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.quantities import parse_quantity

_DIFFERS = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


def _runtime_class_of(store: ObjectStore, pod: JSON) -> JSON | None:
    """Return a pod's runtime class. Raises StatusError 403 if it does not exist, 500 for an invalid name."""
    name = pod["spec"].get("runtimeClassName")
    if name is None:
        return None
    runtime_class = store.get(RUNTIME_CLASSES, "", name)
    if runtime_class is not None:
        return runtime_class
    if not name:
        raise errors.internal("resource name may not be empty")
    if problems := path_segment(name):
        raise errors.internal(f"invalid resource name {quoted(name)}: [{' '.join(problems)}]")
    raise errors.forbidden(
        PODS,
        errors.name_in_message(pod),
        f"pod rejected: RuntimeClass {quoted(name)} not found",
    )


def _equal_amounts(left: JSON, right: JSON) -> bool:
    return left.keys() == right.keys() and all(
        parse_quantity(left[name]).compare(parse_quantity(right[name])) == 0 for name in left
    )


def apply_runtime_class(store: ObjectStore, pod: JSON) -> None:
    """Set overhead, node selector and tolerations of a new pod from its class, in place. Raises StatusError."""
    runtime_class = _runtime_class_of(store, pod)
    if runtime_class is None:
        return
    spec, name = pod["spec"], errors.name_in_message(pod)
    overhead = runtime_class.get("overhead")
    if overhead is not None:
        fixed = overhead.get("podFixed", {})
        if spec.get("overhead") and not _equal_amounts(fixed, spec["overhead"]):
            raise errors.forbidden(PODS, name, _DIFFERS)
        spec["overhead"] = dict(fixed)
    scheduling = runtime_class.get("scheduling") or {}
    selector = dict(spec.get("nodeSelector", {}))
    for key, value in sorted(scheduling.get("nodeSelector", {}).items()):
        if selector.setdefault(key, value) != value:
            message = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise errors.forbidden(PODS, name, message)
    if selector:
        spec["nodeSelector"] = sorted_map(selector)
    if tolerations := scheduling.get("tolerations"):
        spec["tolerations"] = merge_tolerations(spec.get("tolerations", []), tolerations)


def check_overhead(store: ObjectStore, pod: JSON) -> None:
    """Require the overhead of a valid new pod to be that of its runtime class. Raises StatusError 403."""
    spec = pod["spec"]
    if "overhead" not in spec and "runtimeClassName" not in spec:
        return
    runtime_class = _runtime_class_of(store, pod)
    overhead, name = (
        (runtime_class or {}).get("overhead"),
        errors.name_in_message(pod),
    )
    if overhead is not None:
        if not _equal_amounts(overhead.get("podFixed", {}), spec.get("overhead", {})):
            raise errors.forbidden(PODS, name, _DIFFERS)
    elif "overhead" in spec:
        message = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise errors.forbidden(PODS, name, message)

"""PodResizeValidator and NodeDeclaredFeatureValidator: reject a resize that does not fit the pod's node.

Source: plugin/pkg/admission/podresize of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.pod_resources import pod_requests
from kubeloop.kube.objects.resources import NODES, PODS
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.quantities import parse_quantity


def check_declared_features(store: ObjectStore, pod: JSON, old: JSON) -> None:
    """Raise StatusError 403 if the resize of a bound pod uses features that its node does not declare.

    Source: plugin/pkg/admission/nodedeclaredfeatures.
    """
    name, node_name, spec, before = pod["metadata"]["name"], pod["spec"].get("nodeName", ""), pod["spec"], old["spec"]
    if not node_name or pod["metadata"].get("generation") == old["metadata"].get("generation"):
        return
    needed = []
    if spec.get("resources") != before.get("resources"):
        needed.append("InPlacePodLevelResourcesVerticalScaling")
    pairs = zip(spec.get("initContainers") or (), before.get("initContainers") or (), strict=True)
    if any(
        old_container.get("restartPolicy") != "Always" and container.get("resources") != old_container.get("resources")
        for container, old_container in pairs
    ):
        needed.append("InPlacePodVerticalScalingInitContainers")
    if not needed:
        return
    node = store.get(NODES, "", node_name)
    if node is None:
        raise errors.forbidden(PODS, name, f"node {quoted(node_name)} not found")
    declared = node.get("status", {}).get("declaredFeatures") or ()
    if missing := [feature for feature in needed if feature not in declared]:
        message = (
            f"pod update requires features {', '.join(missing)} which are not available on node {quoted(node_name)}"
        )
        raise errors.forbidden(PODS, name, message)


def check_pod_resize(store: ObjectStore, pod: JSON, old: JSON) -> None:
    """Raise StatusError 403 if a bound pod's node does not exist, is not Linux, or is too small for the new `pod`."""
    name, node_name = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
    if not node_name or pod["metadata"].get("generation") == old["metadata"].get("generation"):
        return
    node = store.get(NODES, "", node_name)
    if node is None:
        raise errors.forbidden(PODS, name, f"node {quoted(node_name)} not found")
    system = node["metadata"].get("labels", {}).get("kubernetes.io/os", "linux")
    if system != "linux":
        message = f"pod resize is only supported on linux nodes, node {quoted(node_name)} is {quoted(system)}"
        raise errors.forbidden(PODS, name, message, causes=[{"reason": "UnsupportedPlatform"}])
    requests, allocatable = pod_requests(pod["spec"]), node.get("status", {}).get("allocatable", {})
    missing = []
    for resource in ("cpu", "memory"):
        requested, available = (parse_quantity(amounts.get(resource, "0")) for amounts in (requests, allocatable))
        if requested.compare(available) > 0:
            numbers = (
                (requested.milli_value(), available.milli_value())
                if resource == "cpu"
                else (requested.value(), available.value())
            )
            missing.append(f"{resource}, requested: {numbers[0]}, allocatable: {numbers[1]}")
    if missing:
        message = f"node didn't have enough allocatable resources: {'; '.join(missing)}"
        raise errors.forbidden(PODS, name, message, causes=[{"reason": "NodeCapacity"}])

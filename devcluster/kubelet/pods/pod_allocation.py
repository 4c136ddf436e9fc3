"""Resources that a node has allocated to a pod; during a resize they differ from those of its spec."""

from __future__ import annotations

from kubeloop.devcluster.kubelet.pods.pod_admission import requested_amounts
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.kube.json_object import JSON


def differs_from_spec(pod: SimulatedPod) -> bool:
    """Return True if the spec has other resources than those that are allocated."""
    return (pod.object["spec"].get("resources") or {}) != (pod.allocated or {}) or any(
        (pod.container(run).get("resources") or {}) != (run.allocated or {}) for run in pod.runs
    )


def allocate(pod: SimulatedPod) -> None:
    """Allocate the resources of the spec."""
    pod.allocated = pod.object["spec"].get("resources")
    for run in pod.runs:
        run.allocated = pod.container(run).get("resources")
    pod.requests = requested_amounts(pod.object)
    pod.node.recount(pod.uid, pod.requests)


def allocated_object(pod: SimulatedPod) -> JSON:
    """Return the pod with its allocated resources in the spec."""
    if not differs_from_spec(pod):
        return pod.object
    spec, by_name = pod.object["spec"], {run.name: run.allocated for run in pod.runs}
    changed = {
        field: [{**container, "resources": by_name.get(container["name"]) or {}} for container in spec[field]]
        for field in ("containers", "initContainers")
        if spec.get(field)
    }
    if pod.allocated is not None:
        changed["resources"] = pod.allocated  # type: ignore[assignment] # an object, unlike the other fields
    return {**pod.object, "spec": {**spec, **changed}}

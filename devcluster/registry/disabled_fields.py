"""Drop the fields of pods whose feature gates are off by default in v1.36, without an error or a warning.

Source: pkg/api/pod/util.go (DropDisabledPodFields) and pkg/features of Kubernetes v1.36, ClusterTrustBundleProjection,
PodCertificateRequest, ContainerStopSignals, GenericWorkload, ImageVolumeWithDigest and DRANodeAllocatableResources.
Objects are changed in place; they are the request's own.
"""

from __future__ import annotations

from kubeloop.kube.json_object import JSON

_TEMPLATE_PATHS: dict[str, tuple[str, ...]] = {
    "pods": (),
    "podtemplates": ("template",),
    "replicationcontrollers": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}
_PROJECTIONS = ("clusterTrustBundle", "podCertificate")


def drop_disabled_fields(group_resource: str, obj: JSON) -> None:
    """Drop disabled fields from a pod or a workload's pod template, in place; other kinds are unchanged."""
    path = _TEMPLATE_PATHS.get(group_resource)
    if path is None:
        return
    for name in path:
        obj = obj.get(name) or {}
    spec = obj.get("spec")
    if spec:
        _drop_from_pod_spec(spec)


def _drop_from_pod_spec(spec: JSON) -> None:
    spec.pop("schedulingGroup", None)
    for volume in spec.get("volumes") or ():
        for source in volume.get("projected", {}).get("sources") or ():
            for name in _PROJECTIONS:
                source.pop(name, None)
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            if "stopSignal" in container.get("lifecycle", ()):
                del container["lifecycle"]["stopSignal"]
                if not container["lifecycle"]:
                    del container["lifecycle"]


def drop_disabled_status_fields(status: JSON) -> None:
    """Drop disabled fields from a pod's status, in place."""
    status.pop("nodeAllocatableResourceClaimStatuses", None)
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for container in status.get(kind) or ():
            for mount in container.get("volumeMounts") or ():
                mount.pop("volumeStatus", None)

"""Fields of objects that are recorded: what decides about pods, and nothing secret.

Left out are environment, commands, mounts, the annotations that nothing here reads, messages, addresses and bookkeeping
of the API server. Where it matters whether such a field changes (a pod template that is applied again), the object has
a digest of 16 bits in its place: enough to notice a change, too little to find the value by trying.

The result is a valid object of the same kind, and project() of it is the same again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeloop.kube.json_object import JSON

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
OMITTED: Final = "KUBELOOP_OMITTED"
"""Name of the environment variable with the digest of what is left out of a container of a template."""

_METADATA = (
    "name", "generateName", "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
)  # fmt: skip
_ANNOTATION_PREFIXES = (
    "autoscaling.alpha.kubernetes.io/", "batch.kubernetes.io/", "controller.kubernetes.io/",
    "deployment.kubernetes.io/", "kubeloop.dev/", "kwok.x-k8s.io/", "node.alpha.kubernetes.io/",
    "pod.alpha.kubernetes.io/", "pv.kubernetes.io/", "resource.kubernetes.io/", "scheduling.k8s.io/",
    "service.kubernetes.io/topology", "storage.alpha.kubernetes.io/", "storageclass.kubernetes.io/",
    "volume.beta.kubernetes.io/", "volume.kubernetes.io/", "deprecated.daemonset.",
    "cluster-autoscaler.kubernetes.io/", "batch.volcano.sh/", "kueue.x-k8s.io/",
)  # fmt: skip
_HIDDEN = ("env", "envFrom", "command", "args", "workingDir", "volumeMounts", "volumeDevices")
_CONTAINER_FIELDS = ("initContainers", "containers", "ephemeralContainers")
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_HOOKS = ("postStart", "preStop")
_POD_VOLUMES = (  # volumes that decide about the node of a pod
    "persistentVolumeClaim", "ephemeral", "csi", "gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "iscsi",
    "rbd", "cinder", "portworxVolume", "vsphereVolume",
)  # fmt: skip
_STATE_FIELDS = ("reason", "exitCode", "startedAt", "finishedAt", "signal")
_STATUS_FIELDS = (
    "name", "ready", "started", "restartCount", "allocatedResources", "resources", "allocatedResourcesStatus",
)  # fmt: skip
_POD_STATUS = (
    "phase", "reason", "startTime", "qosClass", "nominatedNodeName", "podIP", "podIPs", "hostIP", "hostIPs",
    "resourceClaimStatuses", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses", "resize",
    "observedGeneration",
)  # fmt: skip
_NODE_STATUS = ("capacity", "allocatable", "images", "features", "declaredFeatures")
_NODE_INFO = ("architecture", "operatingSystem", "kubeletVersion")

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def project(kind: str, obj: JSON) -> JSON:
    """Return the recorded fields of an object with apiVersion, kind and metadata. Values are shared with `obj`."""
    return _PROJECTIONS.get(kind, _project_other)({**obj, "metadata": _metadata(obj["metadata"], kind)})


def digest(value: Any) -> str:
    """Return a digest of 16 bits of a JSON value, as "#9f3a"."""
    return f"#{hashlib.blake2b(_encode_sorted(value), digest_size=2).hexdigest()}"


def _is_needed(annotation: str) -> bool:
    return annotation.startswith(_ANNOTATION_PREFIXES)


def _selected(value: Mapping[str, Any], names: Iterable[str]) -> JSON:
    return {name: value[name] for name in names if name in value}


def _without(value: Mapping[str, Any], names: Sequence[str]) -> JSON:
    return {name: item for name, item in value.items() if name not in names}


# --- metadata ---------------------------------------------------------------------------------------------------------


def _metadata(metadata: JSON, kind: str) -> JSON:
    selected = _selected(metadata, _METADATA)
    if annotations := selected.pop("annotations", None):
        needed = {name: value for name, value in annotations.items() if _is_needed(name)}
        if (applied := annotations.get(LAST_APPLIED)) and (text := _last_applied(applied, kind)):
            needed[LAST_APPLIED] = text
        if needed:
            selected["annotations"] = needed
    return selected


def _last_applied(text: str, kind: str) -> str:
    """Return the recorded fields of a manifest that was applied, "" if it is not readable."""
    try:
        manifest = msgspec.json.decode(text)
        return _encode_sorted(project(kind, manifest)).decode()
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return ""  # not written by kubectl


def _template_metadata(metadata: JSON) -> JSON:
    """Return the metadata of a template: a change of any annotation is a new version of it."""
    annotations = metadata.get("annotations")
    if not annotations:
        return metadata
    digests = {
        name: value if _is_needed(name) or _is_digest(value) else digest(value) for name, value in annotations.items()
    }
    return {**metadata, "annotations": digests}


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 5 and value[0] == "#"


# --- pods and templates -----------------------------------------------------------------------------------------------


def _pod_spec(spec: JSON, *, is_template: bool) -> JSON:
    projected = dict(spec)
    for field in _CONTAINER_FIELDS:
        if containers := spec.get(field):
            projected[field] = [_container(container, is_template=is_template) for container in containers]
    if not is_template and (volumes := spec.get("volumes")):
        needed = [_volume(volume) for volume in volumes if any(source in volume for source in _POD_VOLUMES)]
        projected.pop("volumes")
        if needed:
            projected["volumes"] = needed
    return projected


def _volume(volume: JSON) -> JSON:
    if csi := volume.get("csi"):
        return {**volume, "csi": _without(csi, ("volumeAttributes", "nodePublishSecretRef"))}
    return volume


def _container(container: JSON, *, is_template: bool) -> JSON:
    projected = _without(container, _HIDDEN)
    if is_template and (hidden := _hidden_digest(container)):
        projected["env"] = [{"name": OMITTED, "value": hidden}]
    for name in _PROBES:
        if probe := projected.get(name):
            projected[name] = _handler(probe, is_template=is_template)
    if lifecycle := projected.get("lifecycle"):
        projected["lifecycle"] = {
            name: _handler(hook, is_template=is_template) if name in _HOOKS else hook
            for name, hook in lifecycle.items()
        }
    return projected


def _hidden_digest(container: JSON) -> str:
    """Return the digest of the fields that are left out; that of a container that is projected already stays."""
    hidden = {name: container[name] for name in _HIDDEN if container.get(name)}
    match hidden:
        case {"env": [{"name": str(name), "value": str(value)}]} if name == OMITTED and len(hidden) == 1:
            return value
    if "env" in hidden:
        hidden["env"] = [_variable(variable) for variable in hidden["env"]]
    return digest(hidden) if hidden else ""


def _variable(variable: JSON) -> JSON:
    """Return a variable without the values that the API server sets by default."""
    source = variable.get("valueFrom") or {}
    if (field := source.get("fieldRef")) and field.get("apiVersion") == "v1":
        return {**variable, "valueFrom": {**source, "fieldRef": _without(field, ("apiVersion",))}}
    if (field := source.get("resourceFieldRef")) and str(field.get("divisor")) == "0":
        return {**variable, "valueFrom": {**source, "resourceFieldRef": _without(field, ("divisor",))}}
    return _without(variable, ("value",)) if variable.get("value") == "" else variable


def _handler(handler: JSON, *, is_template: bool) -> JSON:
    """Return a probe or hook without command and headers."""
    if (action := handler.get("exec")) and (command := action.get("command")):
        is_projected = len(command) == 1 and (_is_digest(command[0]) or command == ["omitted"])
        hidden = command if is_projected else [digest(command) if is_template else "omitted"]
        return {**handler, "exec": {"command": hidden}}
    if (request := handler.get("httpGet")) and (headers := request.get("httpHeaders")):
        path = f"{request.get('path') or '/'}{digest(headers) if is_template else ''}"
        return {**handler, "httpGet": {**_without(request, ("httpHeaders",)), "path": path}}
    return handler


def _template(template: JSON) -> JSON:
    """Return a pod template."""
    projected = dict(template)
    if metadata := template.get("metadata"):
        projected["metadata"] = _template_metadata(metadata)
    if spec := template.get("spec"):
        projected["spec"] = _pod_spec(spec, is_template=True)
    return projected


def _project_pod(pod: JSON) -> JSON:
    # a manifest may be applied to a pod that no controller owns
    is_bare = not any(reference.get("controller") for reference in pod["metadata"].get("ownerReferences") or ())
    projected = {**pod, "spec": _pod_spec(pod.get("spec") or {}, is_template=is_bare)}
    if status := pod.get("status"):
        projected["status"] = _pod_status(status)
    return projected


def _pod_status(status: JSON) -> JSON:
    projected = _selected(status, _POD_STATUS)
    if conditions := status.get("conditions"):
        projected["conditions"] = [_condition(condition) for condition in conditions]
    for field in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        if statuses := status.get(field):
            projected[field] = [_container_status(entry) for entry in statuses]
    return projected


def _container_status(entry: JSON) -> JSON:
    projected = _selected(entry, _STATUS_FIELDS)
    for field in ("state", "lastState"):
        if states := entry.get(field):
            projected[field] = {name: _selected(state, _STATE_FIELDS) for name, state in states.items()}
    return projected


def _condition(condition: JSON) -> JSON:
    return _without(condition, ("message", "lastHeartbeatTime", "lastProbeTime"))


# --- other kinds ------------------------------------------------------------------------------------------------------


def _project_node(node: JSON) -> JSON:
    status = node.get("status") or {}
    projected = _selected(status, _NODE_STATUS)
    if conditions := status.get("conditions"):
        projected["conditions"] = [_condition(condition) for condition in conditions]
    if info := status.get("nodeInfo"):
        projected["nodeInfo"] = _selected(info, _NODE_INFO)
    return {
        **node,
        "spec": _without(node.get("spec") or {}, ("providerID", "configSource", "externalID")),
        "status": projected,
    }


def _project_workload(workload: JSON) -> JSON:
    spec = dict(workload.get("spec") or {})
    if template := spec.get("template"):
        spec["template"] = _template(template)
    return _with_conditions({**workload, "spec": spec})


def _project_cron_job(cron_job: JSON) -> JSON:
    spec = cron_job.get("spec") or {}
    if job_spec := (spec.get("jobTemplate") or {}).get("spec"):
        job_spec = {**job_spec, "template": _template(job_spec.get("template") or {})}
        spec = {**spec, "jobTemplate": {**spec["jobTemplate"], "spec": job_spec}}
    return {**cron_job, "spec": spec}


def _project_revision(revision: JSON) -> JSON:
    """Return a ControllerRevision: its data are compared with the template of its owner."""
    data = revision.get("data")
    if not isinstance(data, dict) or not isinstance((data.get("spec") or {}).get("template"), dict):
        return revision
    return {**revision, "data": {**data, "spec": {**data["spec"], "template": _template(data["spec"]["template"])}}}


def _project_volume(volume: JSON) -> JSON:
    """Return a PersistentVolume without secrets and attributes of its driver."""
    spec = volume.get("spec") or {}
    if csi := spec.get("csi"):
        secrets = tuple(name for name in csi if name.endswith("SecretRef"))
        spec = {**spec, "csi": _without(csi, ("volumeAttributes", *secrets))}
    return _with_conditions({**volume, "spec": spec})


def _project_webhooks(configuration: JSON) -> JSON:
    webhooks = []
    for webhook in configuration.get("webhooks") or ():
        client = webhook.get("clientConfig") or {}
        webhooks.append({**webhook, "clientConfig": _without(client, ("caBundle",))})
    return {**configuration, "webhooks": webhooks}


def _project_other(obj: JSON) -> JSON:
    return _with_conditions(_without(obj, ("data", "stringData", "binaryData")))


def _with_conditions(obj: JSON) -> JSON:
    """Return the object with the conditions of its status as they are recorded."""
    status = obj.get("status") or {}
    if not status.get("conditions"):
        return obj
    return {**obj, "status": {**status, "conditions": [_condition(condition) for condition in status["conditions"]]}}


_PROJECTIONS: Final[Mapping[str, Callable[[JSON], JSON]]] = {
    "Pod": _project_pod,
    "Node": _project_node,
    "ReplicationController": _project_workload,
    "ReplicaSet": _project_workload,
    "Deployment": _project_workload,
    "StatefulSet": _project_workload,
    "DaemonSet": _project_workload,
    "Job": _project_workload,
    "CronJob": _project_cron_job,
    "ControllerRevision": _project_revision,
    "PersistentVolume": _project_volume,
    "MutatingWebhookConfiguration": _project_webhooks,
    "ValidatingWebhookConfiguration": _project_webhooks,
}

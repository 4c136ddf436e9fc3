"""Defaulting: default values of fields that are unset in a request.

`apply_defaults` works in place on objects from `decoding.decode`, in which an absent field is an unset one. It also
applies what the conversion between API versions does to every object (serviceAccount mirrors serviceAccountName, podIPs
starts with podIP, Secrets have no stringData). Defaults that are set by admission are in the admission package.

Sources: pkg/apis/*/v1/defaults.go and conversion.go of Kubernetes v1.36, and the `+default` markers of its types.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from kubeloop.devcluster.api.served_resources import CustomResource
from kubeloop.devcluster.serializer import extension_defaults
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.pod_resources import container_totals, is_pod_level
from kubeloop.kube.objects.resources import Resource

_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_IMAGE = re.compile(
    rf"(?P<name>(?:(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?{_PATH_PART}(?:/{_PATH_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)
_DIGEST = re.compile("[0-9a-f]{64}")  # a name of this form could be taken for a digest
_MAX_IMAGE_NAME = 255


def _with_registry(name: str) -> str:
    """Return an image's full name, with the default registry and namespace if it names none."""
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in first or ":" in first or first == "localhost" else f"docker.io/{name}"


@lru_cache(maxsize=1024)
def image_pull_policy(image: str) -> str:
    """Return Always for images with the tag "latest" or without a tag, else IfNotPresent."""
    match = _IMAGE.fullmatch(image)
    if match is None or _DIGEST.fullmatch(image) or len(_with_registry(match["name"])) > _MAX_IMAGE_NAME:
        return "IfNotPresent"  # invalid names are left to validation
    tag = match["tag"] or ("" if match["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


# --- pods -------------------------------------------------------------------------------------------------------------


def _default_probe(probe: JSON) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    _default_lifecycle_handler(probe)
    if "grpc" in probe and probe["grpc"].get("service") is None:
        probe["grpc"]["service"] = ""


def _default_lifecycle_handler(handler: JSON) -> None:
    if "httpGet" in handler:
        handler["httpGet"].setdefault("path", "/")
        handler["httpGet"].setdefault("scheme", "HTTP")


def _default_container(container: JSON) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = image_pull_policy(container.get("image", ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _default_probe(container[probe])
    for action in container.get("lifecycle", {}).values():
        if type(action) is dict:
            _default_lifecycle_handler(action)
    for variable in container.get("env", ()):
        source = variable.get("valueFrom")
        if source:
            if "fieldRef" in source:
                source["fieldRef"].setdefault("apiVersion", "v1")
            if "fileKeyRef" in source:
                source["fileKeyRef"].setdefault("optional", False)


def _downward_items(items: Iterable[JSON]) -> None:
    for item in items:
        if "fieldRef" in item:
            item["fieldRef"].setdefault("apiVersion", "v1")


def _default_projection(source: JSON) -> None:
    if "serviceAccountToken" in source:
        source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    if "downwardAPI" in source:
        _downward_items(source["downwardAPI"].get("items", ()))


_CLIENT_VOLUMES: dict[str, JSON] = {
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "hostPath": {"type": ""},
    "configMap": {"defaultMode": 0o644},
    "secret": {"defaultMode": 0o644},
    "downwardAPI": {"defaultMode": 0o644},
    "projected": {"defaultMode": 0o644},
}


def _default_volume(volume: JSON) -> None:
    if len(volume) == 1:  # only a name
        volume["emptyDir"] = {}
        return
    for source, defaults in _CLIENT_VOLUMES.items():
        if source in volume:
            for name, value in defaults.items():
                volume[source].setdefault(name, value)
    if "downwardAPI" in volume:
        _downward_items(volume["downwardAPI"].get("items", ()))
    if "projected" in volume:
        for projection in volume["projected"].get("sources") or ():
            _default_projection(projection)
    if "image" in volume and "pullPolicy" not in volume["image"]:
        volume["image"]["pullPolicy"] = image_pull_policy(volume["image"].get("reference", ""))
    if "ephemeral" in volume and "volumeClaimTemplate" in volume["ephemeral"]:
        _default_claim_spec(volume["ephemeral"]["volumeClaimTemplate"].setdefault("spec", {}))


def default_pod_spec(spec: JSON) -> None:
    """Apply the defaults common to pods and pod templates."""
    for volume in spec.get("volumes", ()):
        _default_volume(volume)
    for container in spec.get("initContainers", ()):
        _default_container(container)
    for container in spec.get("containers") or ():
        _default_container(container)
    for container in spec.get("ephemeralContainers", ()):
        _default_container(container)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _requests_from_limits(containers: Iterable[JSON]) -> None:
    for container in containers:
        resources = container.get("resources")
        limits = resources.get("limits") if resources else None
        if limits:
            assert resources is not None
            resources["requests"] = {**limits, **resources.get("requests", {})}


def _host_ports(containers: Iterable[JSON]) -> None:
    for container in containers:
        for port in container.get("ports", ()):
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]


def _default_pod_resources(spec: JSON) -> None:
    """Default pod-level requests and limits, if the pod has any."""
    resources = spec["resources"]
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    if limits or requests:
        for name, quantity in container_totals(spec, "limits").items():
            if name.startswith("hugepages-") and name not in requests and name not in limits:
                limits = {**limits, name: quantity}
    if limits:
        for name, quantity in container_totals(spec, "requests").items():
            if name in ("cpu", "memory") and name not in requests:
                requests = {**requests, name: quantity}
        requests = {**{name: quantity for name, quantity in limits.items() if is_pod_level(name)}, **requests}
    if limits:
        resources["limits"] = limits
    if requests:
        resources["requests"] = requests


def _pod(pod: JSON) -> None:
    spec = pod["spec"]
    default_pod_spec(spec)
    containers, init_containers = spec.get("containers") or (), spec.get("initContainers", ())
    _requests_from_limits(containers)
    _requests_from_limits(init_containers)
    if spec.get("resources"):
        _default_pod_resources(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("hostNetwork"):
        _host_ports(containers)
        _host_ports(init_containers)
    status = pod.get("status")
    if status:
        _synchronize_first(status, "podIP", "podIPs", "ip")


def _synchronize_first(holder: JSON, single: str, plural: str, key: str) -> None:
    """Synchronize a single field with the first list item (podIP and podIPs[0].ip); the single field wins."""
    first, several = holder.get(single), holder.get(plural)
    if first and (not several or several[0].get(key) != first):
        holder[plural] = [{key: first}]
    elif several and not first:
        holder[single] = several[0].get(key, "")


def _template(holder: JSON) -> None:
    template = holder.get("template")
    if template is not None:
        default_pod_spec(template.setdefault("spec", {}))


# --- workloads --------------------------------------------------------------------------------------------------------


def _deployment(obj: JSON) -> None:
    spec = obj["spec"]
    _template(spec)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling_update = strategy.setdefault("rollingUpdate", {})
        rolling_update.setdefault("maxUnavailable", "25%")
        rolling_update.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _replica_set(obj: JSON) -> None:
    _template(obj["spec"])
    obj["spec"].setdefault("replicas", 1)


def _replication_controller(obj: JSON) -> None:
    spec = obj["spec"]
    _template(spec)
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)
    spec.setdefault("replicas", 1)


def _stateful_set(obj: JSON) -> None:
    spec = obj["spec"]
    _template(spec)
    for claim in spec.get("volumeClaimTemplates", ()):
        claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
        _persistent_volume_claim(claim)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)


def _daemon_set(obj: JSON) -> None:
    spec = obj["spec"]
    obj["metadata"].setdefault("annotations", {}).setdefault("deprecated.daemonset.template.generation", "0")
    _template(spec)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling_update = strategy.setdefault("rollingUpdate", {})
        rolling_update.setdefault("maxUnavailable", 1)
        rolling_update.setdefault("maxSurge", 0)
    elif "rollingUpdate" in strategy:  # non-pointer fields in Go, which are always encoded
        strategy["rollingUpdate"] = {"maxUnavailable": 0, "maxSurge": 0, **strategy["rollingUpdate"]}
    spec.setdefault("revisionHistoryLimit", 10)


def _job(obj: JSON) -> None:
    spec = obj["spec"]
    _template(spec)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 0x7FFFFFFF if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    for rule in spec.get("podFailurePolicy", {}).get("rules") or ():
        for condition in rule.get("onPodConditions") or ():
            condition["status"] = condition.get("status") or "True"
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = labels  # the same dict: labels that the strategy adds appear in both


def _cron_job(obj: JSON) -> None:
    spec = obj["spec"]
    _template(spec.get("jobTemplate", {}).get("spec", {}))
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)


def _pod_autoscaler(obj: JSON) -> None:
    spec = obj["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is not None:
        up = [{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]
        down = [{"type": "Percent", "value": 100, "periodSeconds": 15}]
        for direction, policies in (("scaleUp", up), ("scaleDown", down)):
            rules = behavior.setdefault(direction, {})
            if direction == "scaleUp":
                rules.setdefault("stabilizationWindowSeconds", 0)
            rules.setdefault("selectPolicy", "Max")
            rules.setdefault("policies", policies)


# --- everything else --------------------------------------------------------------------------------------------------


def _service(obj: JSON) -> None:
    spec = obj["spec"]
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {})
        if config.get("clientIP", {}).get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    kind = spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort", 0) in (0, ""):
            port["targetPort"] = port.get("port", 0)
    external = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if external:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in obj.get("status", {}).get("loadBalancer", {}).get("ingress", ()):
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _endpoints(obj: JSON) -> None:
    for subset in obj.get("subsets", ()):
        for port in subset.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _endpoint_slice(obj: JSON) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _secret(obj: JSON) -> None:
    obj.setdefault("type", "Opaque")
    text = obj.pop("stringData", None)
    if text:
        obj["data"] = {
            **obj.get("data", {}),
            **{key: b64encode(value.encode()).decode() for key, value in text.items()},
        }


def _persistent_volume(obj: JSON) -> None:
    spec = obj["spec"]
    obj.setdefault("status", {}).setdefault("phase", "Pending")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    for source in ("iscsi", "rbd", "azureDisk", "scaleIO", "hostPath"):
        if source in spec:
            for name, value in _CLIENT_VOLUMES[source].items():
                spec[source].setdefault(name, value)


def _default_claim_spec(spec: JSON) -> None:
    spec.setdefault("volumeMode", "Filesystem")


def _persistent_volume_claim(obj: JSON) -> None:
    _default_claim_spec(obj.setdefault("spec", {}))
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _namespace(obj: JSON) -> None:
    metadata = obj["metadata"]
    if metadata.get("name"):
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _node(obj: JSON) -> None:
    status, spec = obj.setdefault("status", {}), obj.setdefault("spec", {})
    if "allocatable" not in status and "capacity" in status:
        status["allocatable"] = dict(status["capacity"])
    first, several = spec.get("podCIDR"), spec.get("podCIDRs")
    if first and (not several or several[0] != first):
        spec["podCIDRs"] = [first]
    elif several and not first:
        spec["podCIDR"] = several[0]


def _limit_range(obj: JSON) -> None:
    for item in obj["spec"].get("limits") or ():
        if item.get("type") == "Container":
            limits = {**item.get("max", {}), **item.get("default", {})}
            requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
            for name, value in (("default", limits), ("defaultRequest", requests)):
                if value:
                    item[name] = value


def _pod_group(obj: JSON) -> None:
    obj["spec"].setdefault("disruptionMode", "Pod")


def _storage_class(obj: JSON) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _csi_driver(obj: JSON) -> None:
    spec = obj["spec"]
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("storageCapacity", False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    spec.setdefault("requiresRepublish", False)
    spec.setdefault("seLinuxMount", False)


def _priority_class(obj: JSON) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _network_policy(obj: JSON) -> None:
    spec = obj["spec"]
    for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
        for port in rule.get("ports", ()):
            port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _ingress_class(obj: JSON) -> None:
    parameters = obj.get("spec", {}).get("parameters")
    if parameters is not None and parameters.get("scope") is None:
        parameters["scope"] = "Cluster"


_RBAC = "rbac.authorization.k8s.io"


def _role_binding(obj: JSON) -> None:
    if not obj.get("roleRef", {}).get("apiGroup"):
        obj.setdefault("roleRef", {})["apiGroup"] = _RBAC
    for subject in obj.get("subjects", ()):
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = _RBAC


_DEFAULTS: dict[tuple[str, str], Callable[[JSON], None]] = {
    ("", "Pod"): _pod,
    ("", "PodTemplate"): _template,
    ("", "ReplicationController"): _replication_controller,
    ("", "Service"): _service,
    ("", "Endpoints"): _endpoints,
    ("", "Secret"): _secret,
    ("", "PersistentVolume"): _persistent_volume,
    ("", "PersistentVolumeClaim"): _persistent_volume_claim,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "LimitRange"): _limit_range,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("autoscaling", "HorizontalPodAutoscaler"): _pod_autoscaler,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    (_RBAC, "RoleBinding"): _role_binding,
    (_RBAC, "ClusterRoleBinding"): _role_binding,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("scheduling.k8s.io", "PodGroup"): _pod_group,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    **extension_defaults.DEFAULTS,
}


def apply_time_defaults(resource: Resource[Any], obj: JSON, now: Callable[[], str]) -> None:
    """Set unset times of `obj` that default to the current one, in place. now: returns it in the format of the API."""
    default = extension_defaults.TIME_DEFAULTS.get((resource.group, resource.kind))
    if default is not None:
        default(obj, now)


def apply_defaults(resource: Resource[Any], obj: JSON) -> None:
    """Set unset fields of `obj` to their defaults, in place. `obj` must come from decoding.decode."""
    default = _DEFAULTS.get((resource.api_version, resource.kind)) or _DEFAULTS.get((resource.group, resource.kind))
    if isinstance(resource, CustomResource):
        resource.rules.default(obj)
    elif default is not None:
        default(obj)

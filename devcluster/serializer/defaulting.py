"""Defaulting: default values of fields that are unset in a request.

`apply_defaults` works in place on objects from `decoding.decode`, in which an absent field is an unset one. It also
applies what the conversion between API versions does to every object (serviceAccount mirrors serviceAccountName, podIPs
starts with podIP, Secrets have no stringData). Defaults that are set by admission are in the admission package.

Sources: pkg/apis/*/v1/defaults.go and conversion.go of Kubernetes v1.36, and the `+default` markers of its types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.serializer.image_references import image_reference
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource


def image_pull_policy(image: str) -> str:
    """Return Always for images with the tag "latest" or without a tag, else IfNotPresent; also for invalid images."""
    reference = image_reference(image)
    is_latest = not reference.error and reference.name.partition("@")[0].endswith(":latest")
    return "Always" if is_latest else "IfNotPresent"


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


VOLUME_DEFAULTS: dict[str, JSON] = {
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
    for source, defaults in VOLUME_DEFAULTS.items():
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


def default_template(holder: JSON) -> None:
    template = holder.get("template")
    if template is not None:
        default_pod_spec(template.setdefault("spec", {}))


def default_labels_of_template(obj: JSON) -> None:
    """Give an object without labels those of its pod template, as kube-apiserver does on each read."""
    labels = (obj["spec"].get("template") or {}).get("metadata", {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)


# --- claims -----------------------------------------------------------------------------------------------------------


def _default_claim_spec(spec: JSON) -> None:
    spec.setdefault("volumeMode", "Filesystem")


def default_persistent_volume_claim(obj: JSON) -> None:
    _default_claim_spec(obj.setdefault("spec", {}))
    obj.setdefault("status", {}).setdefault("phase", "Pending")


# --- objects ----------------------------------------------------------------------------------------------------------


def apply_time_defaults(resource: Resource[Any], obj: JSON, now: Callable[[], str]) -> None:
    """Set unset times of `obj` that default to the current one, in place. now: returns it in the format of the API."""
    default = strategy_of(resource).default_times
    if default is not None:
        default(obj, now)


def apply_defaults(resource: Resource[Any], obj: JSON) -> None:
    """Set unset fields of `obj` to their defaults, in place. `obj` must come from decoding.decode."""
    if (default := strategy_of(resource).default) is not None:
        default(obj)

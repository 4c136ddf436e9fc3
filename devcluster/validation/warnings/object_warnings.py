"""Warnings about a written object: texts of the Warning headers, by kind.

Sources: pkg/api/service/warnings.go, and WarningsOnCreate and WarningsOnUpdate of the strategies under pkg/registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.devcluster.api.name_checks import dns_label
from kubeloop.devcluster.validation.pod.security_profile_annotations import app_armor_warnings
from kubeloop.devcluster.validation.warnings.kind_warnings import warnings_of_kind, warnings_of_status
from kubeloop.devcluster.validation.warnings.pod_warnings import pod_warnings
from kubeloop.devcluster.validation.warnings.storage_warnings import (
    claim_warnings,
    class_annotation_warnings,
    volume_warnings,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_TEMPLATES = {
    ("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("apps", "DaemonSet"),
    ("", "ReplicationController"), ("batch", "Job"),
}  # fmt: skip
_NAMES_OF_PODS = {("apps", "Deployment"), ("apps", "ReplicaSet"), ("", "ReplicationController"), ("batch", "Job")}
_ALL_REVISIONS = (
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
)
_SURPRISING = "which can result in surprising behavior; a DNS label is recommended"


def warnings_for(resource: Resource[Any], obj: JSON, old: JSON | None = None, *, subresource: str = "") -> list[str]:
    """Warnings about writing `obj`; about an update of what makes pods only where the spec changed."""
    key, metadata, spec = (resource.group, resource.kind), obj.get("metadata", {}), obj.get("spec", {})
    if subresource == "status":
        return warnings_of_status(key, obj.get("status") or {})
    if not subresource:
        if found := warnings_of_kind(key, obj, old):
            return found
        if key == ("", "Service"):
            return list(_service(metadata, spec))
        if key == ("", "PersistentVolumeClaim"):
            return [*class_annotation_warnings(metadata), *claim_warnings(spec, "spec")]
        if key == ("", "PersistentVolume"):
            return [*class_annotation_warnings(metadata), *volume_warnings(spec)]
    if key == ("", "Pod"):
        if old is not None:  # people do not update pods
            return []
        return [*_host_name(metadata, "the Pod's hostname"), *pod_warnings(metadata, spec, "metadata", "spec")]
    if subresource not in ("", "scale"):
        return []
    same = old is not None and metadata.get("generation") == old["metadata"].get("generation")
    if key in _TEMPLATES:
        return _workload(key, obj, old, same=same)
    if key == ("batch", "CronJob"):
        name = [] if old is not None else _host_name(metadata, "Pod names and hostnames")
        found = [] if same else _job(spec.get("jobTemplate", {}).get("spec", {}), "spec.jobTemplate.spec")
        zone = [_ZONE_IN_SCHEDULE] if old is not None and "TZ" in spec.get("schedule", "") else []
        return [*name, *found, *zone]
    if key == ("", "PodTemplate"):
        template = obj.get("template", {})
        if old is not None and template == old.get("template", {}):
            return []
        return pod_warnings(
            template.get("metadata", {}), template.get("spec", {}), "template.metadata", "template.spec"
        )
    return []


def _workload(key: tuple[str, str], obj: JSON, old: JSON | None, *, same: bool) -> list[str]:
    """Of ReplicationControllers, v1.36 tells on an update what was wrong before it."""
    metadata, spec = obj.get("metadata", {}), obj.get("spec", {})
    found = _host_name(metadata, "Pod names and hostnames") if key in _NAMES_OF_PODS and old is None else []
    if key == ("batch", "Job"):
        return [*found, *([] if same else _job(spec, "spec"))]
    if not same:
        described = old.get("spec", {}) if old is not None and key == ("", "ReplicationController") else spec
        found += _template(described, "spec")
    if key == ("apps", "StatefulSet"):
        inside = ".Spec" if old is not None else ""
        for i, claim in enumerate(spec.get("volumeClaimTemplates", ())):
            found += claim_warnings(claim.get("spec", {}), f"spec.volumeClaimTemplates[{i}]{inside}")
        if spec.get("revisionHistoryLimit", 0) < 0:
            found.append(_ALL_REVISIONS)
    return found


def _template(spec: JSON, path: str) -> list[str]:
    template = spec.get("template") or {}
    where = f"{path}.template"
    return pod_warnings(template.get("metadata", {}), template.get("spec", {}), f"{where}.metadata", f"{where}.spec")


def _job(spec: JSON, path: str) -> list[str]:
    many = spec.get("completions", 0) > _MANY_COMPLETIONS and spec.get("parallelism", 0) > _MANY_AT_ONCE
    detail = [f"{path}: {_TOO_MANY_INDEXES}"] if many and spec.get("completionMode") == "Indexed" else []
    return [*detail, *_template(spec, path)]


_ZONE_IN_SCHEDULE = (
    "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)
_MANY_COMPLETIONS, _MANY_AT_ONCE = 100_000, 10_000
_TOO_MANY_INDEXES = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes "
    "might not be able to track completedIndexes when a big number of indexes fail"
)


def warnings_before(resource: Resource[Any], obj: JSON) -> list[str]:
    """Warnings about a new object as it came, before the server fills in what follows from them."""
    return app_armor_warnings(obj) if (resource.group, resource.kind) == ("", "Pod") else []


def _host_name(metadata: JSON, used_in: str) -> list[str]:
    detail = dns_label(metadata.get("name", ""))
    return [f"metadata.name: this is used in {used_in}, {_SURPRISING}: [{' '.join(detail)}]"] if detail else []


def _service(metadata: JSON, spec: JSON) -> Iterator[str]:
    if "service.kubernetes.io/topology-aware-hints" in metadata.get("annotations", {}):
        yield (
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, "
            "please use service.kubernetes.io/topology-mode instead"
        )
    kind = spec.get("type")
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if spec.get("externalIPs"):
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    if spec.get("externalIPs") and not headless and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("externalIPs") and kind == "ExternalName":
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if spec.get("externalName") and kind != "ExternalName":
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'

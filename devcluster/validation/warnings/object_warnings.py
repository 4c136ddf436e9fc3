"""Warnings about a written object: texts of the Warning headers, by kind.

Sources: pkg/api/service/warnings.go, and WarningsOnCreate and WarningsOnUpdate of the strategies under pkg/registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.devcluster.validation.pod.security_profile_annotations import app_armor_warnings
from kubeloop.devcluster.validation.warnings.kind_warnings import kind_warnings, status_warnings
from kubeloop.devcluster.validation.warnings.pod_warnings import pod_warnings
from kubeloop.devcluster.validation.warnings.storage_warnings import (
    claim_warnings,
    class_annotation_warnings,
    persistent_volume_warnings,
)
from kubeloop.kube.json_object import JSON
from kubeloop.kube.name_checks import dns_label
from kubeloop.kube.objects.resources import Resource

_KINDS_WITH_TEMPLATE = {
    ("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("apps", "DaemonSet"),
    ("", "ReplicationController"), ("batch", "Job"),
}  # fmt: skip
_KINDS_THAT_NAME_PODS = {
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("", "ReplicationController"),
    ("batch", "Job"),
}
_NEGATIVE_HISTORY_LIMIT = (
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
)
_DNS_LABEL_RECOMMENDED = "which can result in surprising behavior; a DNS label is recommended"


def write_warnings(resource: Resource[Any], obj: JSON, old: JSON | None = None, *, subresource: str = "") -> list[str]:
    """Return the warnings about writing `obj`; pod templates are checked only if the spec changed."""
    key, metadata, spec = (resource.group, resource.kind), obj.get("metadata", {}), obj.get("spec", {})
    if subresource == "status":
        return status_warnings(key, obj.get("status") or {})
    if not subresource:
        if warnings := kind_warnings(key, obj, old):
            return warnings
        if key == ("", "Service"):
            return list(_service_warnings(metadata, spec))
        if key == ("", "PersistentVolumeClaim"):
            return [*class_annotation_warnings(metadata), *claim_warnings(spec, "spec")]
        if key == ("", "PersistentVolume"):
            return [*class_annotation_warnings(metadata), *persistent_volume_warnings(spec)]
    if key == ("", "Pod"):
        if old is not None:  # Kubernetes warns on create only
            return []
        return [*_hostname_warnings(metadata, "the Pod's hostname"), *pod_warnings(metadata, spec, "metadata", "spec")]
    if subresource not in ("", "scale"):
        return []
    spec_unchanged = old is not None and metadata.get("generation") == old["metadata"].get("generation")
    if key in _KINDS_WITH_TEMPLATE:
        return _workload_warnings(key, obj, old, spec_unchanged=spec_unchanged)
    if key == ("batch", "CronJob"):
        name = [] if old is not None else _hostname_warnings(metadata, "Pod names and hostnames")
        warnings = (
            []
            if spec_unchanged
            else _job_warnings(spec.get("jobTemplate", {}).get("spec", {}), "spec.jobTemplate.spec")
        )
        zone = [_ZONE_IN_SCHEDULE] if old is not None and "TZ" in spec.get("schedule", "") else []
        return [*name, *warnings, *zone]
    if key == ("", "PodTemplate"):
        template = obj.get("template", {})
        if old is not None and template == old.get("template", {}):
            return []
        return pod_warnings(
            template.get("metadata", {}), template.get("spec", {}), "template.metadata", "template.spec"
        )
    return []


def _workload_warnings(key: tuple[str, str], obj: JSON, old: JSON | None, *, spec_unchanged: bool) -> list[str]:
    """Return the warnings about a kind with a pod template.

    On an update of a ReplicationController, v1.36 warns about the stored template.
    """
    metadata, spec = obj.get("metadata", {}), obj.get("spec", {})
    warnings = (
        _hostname_warnings(metadata, "Pod names and hostnames") if key in _KINDS_THAT_NAME_PODS and old is None else []
    )
    if key == ("batch", "Job"):
        return [*warnings, *([] if spec_unchanged else _job_warnings(spec, "spec"))]
    if not spec_unchanged:
        template_holder = old.get("spec", {}) if old is not None and key == ("", "ReplicationController") else spec
        warnings += _template_warnings(template_holder, "spec")
    if key == ("apps", "StatefulSet"):
        spec_segment = ".Spec" if old is not None else ""
        for i, claim in enumerate(spec.get("volumeClaimTemplates", ())):
            warnings += claim_warnings(claim.get("spec", {}), f"spec.volumeClaimTemplates[{i}]{spec_segment}")
        if spec.get("revisionHistoryLimit", 0) < 0:
            warnings.append(_NEGATIVE_HISTORY_LIMIT)
    return warnings


def _template_warnings(spec: JSON, path: str) -> list[str]:
    template = spec.get("template") or {}
    where = f"{path}.template"
    return pod_warnings(template.get("metadata", {}), template.get("spec", {}), f"{where}.metadata", f"{where}.spec")


def _job_warnings(spec: JSON, path: str) -> list[str]:
    exceeds_limits = spec.get("completions", 0) > _HIGH_COMPLETIONS and spec.get("parallelism", 0) > _HIGH_PARALLELISM
    warnings = [f"{path}: {_TOO_MANY_INDEXES}"] if exceeds_limits and spec.get("completionMode") == "Indexed" else []
    return [*warnings, *_template_warnings(spec, path)]


_ZONE_IN_SCHEDULE = (
    "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)
_HIGH_COMPLETIONS, _HIGH_PARALLELISM = 100_000, 10_000
_TOO_MANY_INDEXES = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes "
    "might not be able to track completedIndexes when a big number of indexes fail"
)


def submitted_object_warnings(resource: Resource[Any], obj: JSON) -> list[str]:
    """Return the warnings about a new object as it was sent, before the server sets fields from its annotations."""
    return app_armor_warnings(obj) if (resource.group, resource.kind) == ("", "Pod") else []


def _hostname_warnings(metadata: JSON, used_in: str) -> list[str]:
    problems = dns_label(metadata.get("name", ""))
    return (
        [f"metadata.name: this is used in {used_in}, {_DNS_LABEL_RECOMMENDED}: [{' '.join(problems)}]"]
        if problems
        else []
    )


def _service_warnings(metadata: JSON, spec: JSON) -> Iterator[str]:
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

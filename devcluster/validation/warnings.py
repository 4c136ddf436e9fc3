"""What is allowed but unwise: the texts of Warning headers. Sources: warnings.go of pkg/api/{pod,service}, util.go of
pkg/api/{node,persistentvolume,persistentvolumeclaim}, the strategies' WarningsOnCreate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.name_checks import dns_label, label_value
from kubeloop.devcluster.validation.field import ip_warning
from kubeloop.devcluster.validation.kind_warnings import DEPRECATED_NODE_LABELS, warnings_of_kind, warnings_of_status
from kubeloop.devcluster.validation.profiles import (
    APP_ARMOR,
    SECCOMP_OF_CONTAINER,
    SECCOMP_OF_POD,
    app_armor_of,
    app_armor_warnings,
)
from kubeloop.devcluster.validation.security import every_container
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.quantities import milli_value

_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_USE_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_TEMPLATES = {
    ("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("apps", "DaemonSet"),
    ("", "ReplicationController"), ("batch", "Job"),
}  # fmt: skip
_NAMES_OF_PODS = {("apps", "Deployment"), ("apps", "ReplicaSet"), ("", "ReplicationController"), ("batch", "Job")}
_ALL_REVISIONS = (
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
)
_SURPRISING = "which can result in surprising behavior; a DNS label is recommended"
_NO_POD = "a null labelSelector results in matching no pod"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


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
            return [*_class_annotation(metadata), *_claim(spec, "spec")]
        if key == ("", "PersistentVolume"):
            return [*_class_annotation(metadata), *_volume(spec)]
    if key == ("", "Pod"):
        if old is not None:  # people do not update pods
            return []
        return [*_host_name(metadata, "the Pod's hostname"), *_pod(metadata, spec, "metadata", "spec")]
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
        return _pod(template.get("metadata", {}), template.get("spec", {}), "template.metadata", "template.spec")
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
            found += _claim(claim.get("spec", {}), f"spec.volumeClaimTemplates[{i}]{inside}")
        if spec.get("revisionHistoryLimit", 0) < 0:
            found.append(_ALL_REVISIONS)
    return found


def _template(spec: JSON, path: str) -> list[str]:
    template = spec.get("template") or {}
    where = f"{path}.template"
    return _pod(template.get("metadata", {}), template.get("spec", {}), f"{where}.metadata", f"{where}.spec")


def _job(spec: JSON, path: str) -> list[str]:
    many = spec.get("completions", 0) > _MANY_COMPLETIONS and spec.get("parallelism", 0) > _MANY_AT_ONCE
    told = [f"{path}: {_TOO_MANY_INDEXES}"] if many and spec.get("completionMode") == "Indexed" else []
    return [*told, *_template(spec, path)]


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
    wrong = dns_label(metadata.get("name", ""))
    return [f"metadata.name: this is used in {used_in}, {_SURPRISING}: [{' '.join(wrong)}]"] if wrong else []


def _pod(metadata: JSON, spec: JSON, metadata_path: str, path: str) -> list[str]:
    annotations = metadata.get("annotations", {})
    found = [
        f"{path}.nodeSelector[{key}]: {DEPRECATED_NODE_LABELS[key]}"
        for key in sorted(spec.get("nodeSelector", {}))
        if key in DEPRECATED_NODE_LABELS
    ]
    found += _node_labels(spec, path)
    found += [
        f"{metadata_path}.annotations[{key}]: {_ANNOTATIONS[key]}" for key in sorted(annotations) if key in _ANNOTATIONS
    ]
    found += _volumes(spec, path)
    found += _repeated(spec.get("hostAliases", ()), f"{path}.hostAliases", "ip")
    found += _repeated(spec.get("imagePullSecrets", ()), f"{path}.imagePullSecrets", "name")
    found += [
        f'{path}.imagePullSecrets[{i}].name: invalid empty name ""'
        for i, secret in enumerate(spec.get("imagePullSecrets", ()))
        if not secret.get("name")
    ]
    found += _fractions(spec.get("overhead", {}), f"{path}.overhead", ("memory", "ephemeral-storage"))
    found += _profiles_and_containers(annotations, spec, metadata_path, path)
    found += _ports(spec, path)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        told = "must be >= 0; negative values are invalid and will be treated as 1"
        found.append(f"{path}.terminationGracePeriodSeconds: {told}")
    found += _pod_affinity(spec, path)
    for i, each in enumerate((spec.get("dnsConfig") or {}).get("nameservers", ())):
        found += filter(None, [ip_warning(f"{path}.dnsConfig.nameservers[{i}]", each)])
    for i, alias in enumerate(spec.get("hostAliases", ())):
        found += filter(None, [ip_warning(f"{path}.hostAliases[{i}].ip", alias.get("ip", ""))])
    return found


def _volumes(spec: JSON, path: str) -> Iterator[str]:
    for i, volume in enumerate(spec.get("volumes", ())):
        where = f"{path}.volumes[{i}]"
        for kind, told in _VOLUMES.items():
            if kind in volume:
                yield f"{where}.{'storageOS' if kind == 'storageos' else kind}: {told}"
        template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
        if template is not None:
            yield from _claim(template.get("spec", {}), f"{where}.ephemeral.volumeClaimTemplate.spec")
    for volume in spec.get("volumes", ()):
        yield from overlapping_paths(volume)


def _profiles_and_containers(annotations: JSON, spec: JSON, metadata_path: str, path: str) -> Iterator[str]:
    """Annotations that set profiles, of the pod and of each container, and what else is to be said of containers."""
    of_pod = spec.get("securityContext") or {}
    if SECCOMP_OF_POD in annotations and of_pod.get("seccompProfile") is None:
        yield f"{metadata_path}.annotations[{SECCOMP_OF_POD}]: {_USE_SECCOMP}"
    for where, container in every_container(path, spec):
        yield from _container(container, where)
        own, name = container.get("securityContext", {}), container.get("name", "")
        if SECCOMP_OF_CONTAINER + name in annotations and own.get("seccompProfile") is None:
            yield f"{metadata_path}.annotations[{SECCOMP_OF_CONTAINER}{name}]: {_USE_SECCOMP}"
        annotation = annotations.get(APP_ARMOR + name) if metadata_path != "metadata" else None
        if annotation is None or "appArmorProfile" in own:
            continue
        profile = of_pod.get("appArmorProfile")
        if not profile or profile != app_armor_of(annotation):
            told = 'deprecated since v1.30; use the "appArmorProfile" field instead'
            yield f"{metadata_path}.annotations[{APP_ARMOR}{name}]: {told}"


def _node_labels(spec: JSON, path: str) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    node, where = affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity"
    for i, term in enumerate((node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from _node_term(term, f"{where}.{_REQUIRED}.nodeSelectorTerms[{i}]")
    for i, each in enumerate(node.get(_PREFERRED, ())):
        term, at = each.get("preference", {}), f"{where}.{_PREFERRED}[{i}].preference"
        yield from _node_term(term, at, check_values=True)
    for i, each in enumerate(spec.get("topologySpreadConstraints", ())):
        where, key = f"{path}.topologySpreadConstraints[{i}]", each.get("topologyKey", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{where}.topologyKey: {key} is {DEPRECATED_NODE_LABELS[key]}"
        if each.get("labelSelector") is None:
            yield f"{where}.labelSelector: {_NO_POD}"


def _pod_affinity(spec: JSON, path: str) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        pods, where = affinity.get(kind) or {}, f"{path}.affinity.{kind}"
        for i, term in enumerate(pods.get(_REQUIRED, ())):
            if term.get("labelSelector") is None:
                yield f"{where}.{_REQUIRED}[{i}].labelSelector: {_NO_POD}"
        for i, each in enumerate(pods.get(_PREFERRED, ())):
            if each.get("podAffinityTerm", {}).get("labelSelector") is None:
                yield f"{where}.{_PREFERRED}[{i}].podAffinityTerm.labelSelector: {_NO_POD}"


def _node_term(term: JSON, path: str, *, check_values: bool = False) -> Iterator[str]:
    """check_values: they are not refused, though no label can have them."""
    for i, each in enumerate(term.get("matchExpressions", ())):
        where, key = f"{path}.matchExpressions[{i}]", each.get("key", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{where}.key: {key} is {DEPRECATED_NODE_LABELS[key]}"
        for j, value in enumerate(each.get("values", ()) if check_values else ()):
            for wrong in label_value(value):
                yield f"{where}.values[{j}]: {value} is invalid, {wrong}"


def _repeated(items: Sequence[JSON], path: str, name: str) -> Iterator[str]:
    seen = set()
    for i, item in enumerate(items):
        if item.get(name, "") in seen:
            yield f"{path}[{i}].{name}: duplicate {name} {quoted(item.get(name, ''))}"
        seen.add(item.get(name, ""))


def _fractions(amounts: JSON, path: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name in amounts and milli_value(amounts[name]) % 1000:
            yield f'{path}[{name}]: fractional byte value "{amounts[name]}" is invalid, must be an integer'


def _container(container: JSON, path: str) -> list[str]:
    found: list[str] = []
    for name in ("memory", "ephemeral-storage"):
        for which in ("limits", "requests"):
            found += _fractions(container.get("resources", {}).get(which, {}), f"{path}.resources.{which}", (name,))
    seen = set()
    for i, variable in enumerate(container.get("env", ())):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        if name in seen and ("valueFrom" in variable or value == reference or reference not in value):
            found.append(
                f'{path}.env[{i}]: hides previous definition of "{name}", which may be dropped when using apply'
            )
        seen.add(name)
    return found


def _ports(spec: JSON, path: str) -> Iterator[str]:
    """Ports of all containers that are the same, or that overlap."""
    known: dict[tuple[Any, Any], list[tuple[str, JSON]]] = {}
    for container_path, container in every_container(path, spec):
        for i, port in enumerate(container.get("ports", ())):
            where, address, on_host = f"{container_path}.ports[{i}]", port.get("hostIP", ""), port.get("hostPort", 0)
            if address and not on_host:
                told = (
                    f"{{Name:{port.get('name', '')} HostPort:0 ContainerPort:{port.get('containerPort', 0)} "
                    f"Protocol:{port.get('protocol', '')} HostIP:{address}}}"
                )
                yield f"{where}: hostIP set without hostPort: {told}"
            others = known.setdefault((port.get("containerPort"), port.get("protocol")), [])
            for other_path, other in others:
                other_address, other_on_host = other.get("hostIP", ""), other.get("hostPort", 0)
                if (address, on_host) == (other_address, other_on_host):
                    yield f"{where}: duplicate port definition with {other_path}"
                elif not on_host or not other_on_host:
                    yield f"{where}: overlapping port definition with {other_path}"
                elif on_host == other_on_host and bool(address) != bool(other_address):
                    yield f"{where}: dangerously ambiguous port definition with {other_path}"
            others.append((where, port))
    first: dict[str, str] = {}
    for container_path, container in every_container(path, spec):
        for i, port in enumerate(container.get("ports", ())):
            where, name = f"{container_path}.ports[{i}]", port.get("name", "")
            if name in first:
                told = f"services and probes that select ports by name will use {first[name]}"
                yield f"{where}: duplicate port name {quoted(name)} with {first[name]}, {told}"
            elif name:
                first[name] = where


# --- volumes ----------------------------------------------------------------------------------------------------------


def overlapping_paths(volume: JSON) -> Iterator[str]:
    """Files of one volume that would lie on, or under, each other."""
    name = quoted(volume.get("name", ""))
    for kind, told, holder in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
        source = volume.get(kind, {})
        if "items" in source:
            words = f"volume {name} ({told} {quoted(source.get(holder, ''))}): overlapping paths"
            yield from _overlaps(_paths(source), words)
    if "items" in volume.get("downwardAPI", {}):
        yield from _overlaps(_paths(volume["downwardAPI"]), f"volume {name} (DownwardAPI): overlapping paths")
    taken: set[str] = set()
    for source in volume.get("projected", {}).get("sources") or ():
        if not source:
            yield f"volume {name} (Projected) has no sources provided"
            continue
        paths, told = _projected(source)
        if paths:
            words = f"volume {name} (Projected {told}): overlapping paths"
            yield from _overlaps(paths, words)
            yield from _overlaps(sorted([*set(paths), *taken]), words)
            taken |= set(paths)


def _paths(source: JSON) -> list[str]:
    return [item.get("path", "") for item in source.get("items", ())]


def _projected(source: JSON) -> tuple[list[str], str]:
    for kind, told in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if "items" in source.get(kind, {}):
            return _paths(source[kind]), f"{told} {quoted(source[kind].get('name', ''))}"
    if "items" in source.get("downwardAPI", {}):
        return _paths(source["downwardAPI"]), "DownwardAPI"
    if "serviceAccountToken" in source:
        return [source["serviceAccountToken"].get("path", "")], "ServiceAccountToken"
    return [], ""


def _overlaps(paths: Sequence[str], words: str) -> Iterator[str]:
    seen: list[str] = []
    for path in (each.rstrip("/") for each in paths):
        for other in seen:
            if path and other and (f"{other}/".startswith(path) or f"{path}/".startswith(other)):
                yield f"{words}: {quoted(path)} with {quoted(other)}"
                break
        if path not in seen:
            seen.append(path)


_CLASS = "volume.beta.kubernetes.io/storage-class"


def _class_annotation(metadata: JSON) -> list[str]:
    told = 'deprecated since v1.8; use "storageClassName" attribute instead'
    return [f"metadata.annotations[{_CLASS}]: {told}"] if _CLASS in metadata.get("annotations", {}) else []


def _claim(spec: JSON, path: str) -> list[str]:
    resources = spec.get("resources", {})
    return [
        warning
        for which in ("requests", "limits")
        for warning in _fractions(resources.get(which, {}), f"{path}.resources.{which}", ("storage",))
    ]


def _volume(spec: JSON) -> Iterator[str]:
    required = (spec.get("nodeAffinity") or {}).get("required") or {}
    for i, term in enumerate(required.get("nodeSelectorTerms") or ()):
        yield from _node_term(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{i}]")
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended "
            "approach is to use dynamic provisioning."
        )
    for kind in ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd"):
        if kind in spec:
            yield f"spec.{'storageOS' if kind == 'storageos' else kind}: {_VOLUMES[kind]}"


# --- services ---------------------------------------------------------------------------------------------------------


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

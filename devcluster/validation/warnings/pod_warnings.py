"""Warnings about pods and pod templates. Sources: pkg/api/pod/warnings.go, pkg/api/node/util.go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubeloop.devcluster.validation.common.ip_addresses import ip_warning
from kubeloop.devcluster.validation.pod.security_context import every_container
from kubeloop.devcluster.validation.pod.security_profile_annotations import (
    APP_ARMOR_PREFIX,
    SECCOMP_CONTAINER_PREFIX,
    SECCOMP_POD_ANNOTATION,
    app_armor_profile,
)
from kubeloop.devcluster.validation.pod.token_source import is_token_volume
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.validation.name_checks import dns_label, label_value
from kubeloop.kube.values.quantities import milli_value

_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_USE_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_NULL_SELECTOR = "a null labelSelector results in matching no pod"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod_warnings(metadata: JSON, spec: JSON, metadata_path: str, path: str) -> list[str]:
    annotations = metadata.get("annotations", {})
    warnings = [
        f"{path}.nodeSelector[{key}]: {DEPRECATED_NODE_LABELS[key]}"
        for key in sorted(spec.get("nodeSelector", {}))
        if key in DEPRECATED_NODE_LABELS
    ]
    warnings += _node_labels_warnings(spec, path)
    warnings += [
        f"{metadata_path}.annotations[{key}]: {_DEPRECATED_ANNOTATIONS[key]}"
        for key in sorted(annotations)
        if key in _DEPRECATED_ANNOTATIONS
    ]
    warnings += _volumes_warnings(spec, path)
    warnings += _duplicate_warnings(spec.get("hostAliases", ()), f"{path}.hostAliases", "ip")
    warnings += _duplicate_warnings(spec.get("imagePullSecrets", ()), f"{path}.imagePullSecrets", "name")
    warnings += [
        f'{path}.imagePullSecrets[{i}].name: invalid empty name ""'
        for i, secret in enumerate(spec.get("imagePullSecrets", ()))
        if not secret.get("name")
    ]
    warnings += fractional_bytes_warnings(spec.get("overhead", {}), f"{path}.overhead", ("memory", "ephemeral-storage"))
    warnings += _profiles_and_containers_warnings(annotations, spec, metadata_path, path)
    warnings += _ports_warnings(spec, path)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        detail = "must be >= 0; negative values are invalid and will be treated as 1"
        warnings.append(f"{path}.terminationGracePeriodSeconds: {detail}")
    warnings += _pod_affinity_warnings(spec, path)
    for i, nameserver in enumerate((spec.get("dnsConfig") or {}).get("nameservers", ())):
        warnings += filter(None, [ip_warning(f"{path}.dnsConfig.nameservers[{i}]", nameserver)])
    for i, alias in enumerate(spec.get("hostAliases", ())):
        warnings += filter(None, [ip_warning(f"{path}.hostAliases[{i}].ip", alias.get("ip", ""))])
    return warnings


def _volumes_warnings(spec: JSON, path: str) -> Iterator[str]:
    volumes = [(i, volume) for i, volume in enumerate(spec.get("volumes", ())) if not is_token_volume(volume)]
    for i, volume in volumes:
        where = f"{path}.volumes[{i}]"
        for kind, detail in DEPRECATED_VOLUME_TYPES.items():
            if kind in volume:
                yield f"{where}.{'storageOS' if kind == 'storageos' else kind}: {detail}"
        template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
        if template is not None:
            yield from claim_warnings(template.get("spec", {}), f"{where}.ephemeral.volumeClaimTemplate.spec")
    for _, volume in volumes:
        yield from overlapping_path_warnings(volume)


def _profiles_and_containers_warnings(annotations: JSON, spec: JSON, metadata_path: str, path: str) -> Iterator[str]:
    """Yield the warnings about seccomp and AppArmor annotations, and about each container."""
    pod_context = spec.get("securityContext") or {}
    if SECCOMP_POD_ANNOTATION in annotations and pod_context.get("seccompProfile") is None:
        yield f"{metadata_path}.annotations[{SECCOMP_POD_ANNOTATION}]: {_USE_SECCOMP}"
    for where, container in every_container(path, spec):
        yield from _container_warnings(container, where)
        container_context, name = container.get("securityContext", {}), container.get("name", "")
        if SECCOMP_CONTAINER_PREFIX + name in annotations and container_context.get("seccompProfile") is None:
            yield f"{metadata_path}.annotations[{SECCOMP_CONTAINER_PREFIX}{name}]: {_USE_SECCOMP}"
        annotation = annotations.get(APP_ARMOR_PREFIX + name) if metadata_path != "metadata" else None
        if annotation is None or "appArmorProfile" in container_context:
            continue
        profile = pod_context.get("appArmorProfile")
        if not profile or profile != app_armor_profile(annotation):
            detail = 'deprecated since v1.30; use the "appArmorProfile" field instead'
            yield f"{metadata_path}.annotations[{APP_ARMOR_PREFIX}{name}]: {detail}"


def _node_labels_warnings(spec: JSON, path: str) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    node, where = affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity"
    for i, term in enumerate((node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from node_term_warnings(term, f"{where}.{_REQUIRED}.nodeSelectorTerms[{i}]")
    for i, preferred in enumerate(node.get(_PREFERRED, ())):
        term, preference_path = preferred.get("preference", {}), f"{where}.{_PREFERRED}[{i}].preference"
        yield from node_term_warnings(term, preference_path, check_values=True)
    for i, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        where, key = f"{path}.topologySpreadConstraints[{i}]", constraint.get("topologyKey", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{where}.topologyKey: {key} is {DEPRECATED_NODE_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{where}.labelSelector: {_NULL_SELECTOR}"


def _pod_affinity_warnings(spec: JSON, path: str) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        pods, where = affinity.get(kind) or {}, f"{path}.affinity.{kind}"
        for i, term in enumerate(pods.get(_REQUIRED, ())):
            if term.get("labelSelector") is None:
                yield f"{where}.{_REQUIRED}[{i}].labelSelector: {_NULL_SELECTOR}"
        for i, preferred in enumerate(pods.get(_PREFERRED, ())):
            if preferred.get("podAffinityTerm", {}).get("labelSelector") is None:
                yield f"{where}.{_PREFERRED}[{i}].podAffinityTerm.labelSelector: {_NULL_SELECTOR}"


def _duplicate_warnings(items: Sequence[JSON], path: str, name: str) -> Iterator[str]:
    seen = set()
    for i, item in enumerate(items):
        if item.get(name, "") in seen:
            yield f"{path}[{i}].{name}: duplicate {name} {quoted(item.get(name, ''))}"
        seen.add(item.get(name, ""))


def _container_warnings(container: JSON, path: str) -> list[str]:
    warnings: list[str] = []
    for name in ("memory", "ephemeral-storage"):
        for which in ("limits", "requests"):
            warnings += fractional_bytes_warnings(
                container.get("resources", {}).get(which, {}), f"{path}.resources.{which}", (name,)
            )
    seen = set()
    for i, variable in enumerate(container.get("env", ())):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        if name in seen and ("valueFrom" in variable or value == reference or reference not in value):
            warnings.append(
                f'{path}.env[{i}]: hides previous definition of "{name}", which may be dropped when using apply'
            )
        seen.add(name)
    return warnings


def _ports_warnings(spec: JSON, path: str) -> Iterator[str]:
    """Yield the warnings about duplicate and overlapping ports of all containers."""
    ports_by_number: dict[tuple[Any, Any], list[tuple[str, JSON]]] = {}
    for container_path, container in every_container(path, spec):
        for i, port in enumerate(container.get("ports", ())):
            where, address, host_port = f"{container_path}.ports[{i}]", port.get("hostIP", ""), port.get("hostPort", 0)
            if address and not host_port:
                detail = (
                    f"{{Name:{port.get('name', '')} HostPort:0 ContainerPort:{port.get('containerPort', 0)} "
                    f"Protocol:{port.get('protocol', '')} HostIP:{address}}}"
                )
                yield f"{where}: hostIP set without hostPort: {detail}"
            earlier_ports = ports_by_number.setdefault((port.get("containerPort"), port.get("protocol")), [])
            for other_path, other in earlier_ports:
                other_address, other_host_port = other.get("hostIP", ""), other.get("hostPort", 0)
                if (address, host_port) == (other_address, other_host_port):
                    yield f"{where}: duplicate port definition with {other_path}"
                elif not host_port or not other_host_port:
                    yield f"{where}: overlapping port definition with {other_path}"
                elif host_port == other_host_port and bool(address) != bool(other_address):
                    yield f"{where}: dangerously ambiguous port definition with {other_path}"
            earlier_ports.append((where, port))
    first_path: dict[str, str] = {}
    for container_path, container in every_container(path, spec):
        for i, port in enumerate(container.get("ports", ())):
            where, name = f"{container_path}.ports[{i}]", port.get("name", "")
            if name in first_path:
                detail = f"services and probes that select ports by name will use {first_path[name]}"
                yield f"{where}: duplicate port name {quoted(name)} with {first_path[name]}, {detail}"
            elif name:
                first_path[name] = where


def overlapping_path_warnings(volume: JSON) -> Iterator[str]:
    """Yield the warnings about files of one volume with equal or nested paths."""
    name = quoted(volume.get("name", ""))
    for kind, source_kind, name_field in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
        source = volume.get(kind, {})
        if "items" in source:
            prefix = f"volume {name} ({source_kind} {quoted(source.get(name_field, ''))}): overlapping paths"
            yield from _path_overlaps(_item_paths(source), prefix)
    if "items" in volume.get("downwardAPI", {}):
        yield from _path_overlaps(_item_paths(volume["downwardAPI"]), f"volume {name} (DownwardAPI): overlapping paths")
    other_paths: set[str] = set()
    for source in volume.get("projected", {}).get("sources") or ():
        if not source:
            yield f"volume {name} (Projected) has no sources provided"
            continue
        paths, source_kind = _projected_paths(source)
        if paths:
            prefix = f"volume {name} (Projected {source_kind}): overlapping paths"
            yield from _path_overlaps(paths, prefix)
            yield from _path_overlaps(sorted([*set(paths), *other_paths]), prefix)
            other_paths |= set(paths)


def _item_paths(source: JSON) -> list[str]:
    return [item.get("path", "") for item in source.get("items", ())]


def _projected_paths(source: JSON) -> tuple[list[str], str]:
    for kind, source_kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if "items" in source.get(kind, {}):
            return _item_paths(source[kind]), f"{source_kind} {quoted(source[kind].get('name', ''))}"
    if "items" in source.get("downwardAPI", {}):
        return _item_paths(source["downwardAPI"]), "DownwardAPI"
    if "serviceAccountToken" in source:
        return [source["serviceAccountToken"].get("path", "")], "ServiceAccountToken"
    return [], ""


def _path_overlaps(paths: Sequence[str], prefix: str) -> Iterator[str]:
    seen: list[str] = []
    for path in (entry.rstrip("/") for entry in paths):
        for other in seen:
            if path and other and (f"{other}/".startswith(path) or f"{path}/".startswith(other)):
                yield f"{prefix}: {quoted(path)} with {quoted(other)}"
                break
        if path not in seen:
            seen.append(path)


_DNS_LABEL_RECOMMENDED = "which can result in surprising behavior; a DNS label is recommended"


def template_warnings(spec: JSON, path: str) -> list[str]:
    template = spec.get("template") or {}
    where = f"{path}.template"
    return pod_warnings(template.get("metadata", {}), template.get("spec", {}), f"{where}.metadata", f"{where}.spec")


def hostname_warnings(metadata: JSON, used_in: str) -> list[str]:
    problems = dns_label(metadata.get("name", ""))
    return (
        [f"metadata.name: this is used in {used_in}, {_DNS_LABEL_RECOMMENDED}: [{' '.join(problems)}]"]
        if problems
        else []
    )


def workload_warnings(obj: JSON, old: JSON | None, *, names_pods: bool = False) -> list[str]:
    """Return the warnings about a kind with a pod template, which is checked only if the spec changed.

    names_pods: names of pods start with the object's.
    """
    warnings = hostname_warnings(obj["metadata"], "Pod names and hostnames") if names_pods and old is None else []
    return warnings if has_same_spec(obj, old) else [*warnings, *template_warnings(obj["spec"], "spec")]


def has_same_spec(obj: JSON, old: JSON | None) -> bool:
    """Return True for an update that does not increase the generation."""
    return old is not None and obj["metadata"].get("generation") == old["metadata"].get("generation")


DEPRECATED_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
"""Deprecated node labels, with the reason. Source: pkg/api/node/util.go."""


def node_term_warnings(term: JSON, path: str, *, check_values: bool = False) -> Iterator[str]:
    """Yield the warnings about a node selector term; check_values: values that no label can have are not rejected."""
    for i, match_expression in enumerate(term.get("matchExpressions", ())):
        where, key = f"{path}.matchExpressions[{i}]", match_expression.get("key", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{where}.key: {key} is {DEPRECATED_NODE_LABELS[key]}"
        for j, value in enumerate(match_expression.get("values", ()) if check_values else ()):
            for detail in label_value(value):
                yield f"{where}.values[{j}]: {value} is invalid, {detail}"


def fractional_bytes_warnings(amounts: JSON, path: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name in amounts and milli_value(amounts[name]) % 1000:
            yield f'{path}[{name}]: fractional byte value "{amounts[name]}" is invalid, must be an integer'


def load_balancer_status_warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    for i, entry in enumerate(((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()):
        if entry.get("ip"):
            yield ip_warning(f"status.loadBalancer.ingress[{i}]", entry["ip"])


DEPRECATED_VOLUME_TYPES = {
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

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def class_annotation_warnings(metadata: JSON) -> list[str]:
    detail = 'deprecated since v1.8; use "storageClassName" attribute instead'
    return (
        [f"metadata.annotations[{_CLASS_ANNOTATION}]: {detail}"]
        if _CLASS_ANNOTATION in metadata.get("annotations", {})
        else []
    )


def claim_warnings(spec: JSON, path: str) -> list[str]:
    resources = spec.get("resources", {})
    return [
        warning
        for which in ("requests", "limits")
        for warning in fractional_bytes_warnings(resources.get(which, {}), f"{path}.resources.{which}", ("storage",))
    ]

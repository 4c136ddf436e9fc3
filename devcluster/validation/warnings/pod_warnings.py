"""Warnings about pods and pod templates. Sources: pkg/api/pod/warnings.go, pkg/api/node/util.go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.validation.common.ip_addresses import ip_warning
from kubeloop.devcluster.validation.pod.security_context import every_container
from kubeloop.devcluster.validation.pod.security_profile_annotations import (
    APP_ARMOR_PREFIX,
    SECCOMP_CONTAINER_PREFIX,
    SECCOMP_POD_ANNOTATION,
    app_armor_profile,
)
from kubeloop.devcluster.validation.warnings.shared_warnings import (
    DEPRECATED_NODE_LABELS,
    fractional_bytes_warnings,
    node_term_warnings,
)
from kubeloop.devcluster.validation.warnings.storage_warnings import DEPRECATED_VOLUME_TYPES, claim_warnings
from kubeloop.kube.json_object import JSON

_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_USE_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_NO_POD = "a null labelSelector results in matching no pod"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod_warnings(metadata: JSON, spec: JSON, metadata_path: str, path: str) -> list[str]:
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
    found += fractional_bytes_warnings(spec.get("overhead", {}), f"{path}.overhead", ("memory", "ephemeral-storage"))
    found += _profiles_and_containers(annotations, spec, metadata_path, path)
    found += _ports(spec, path)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        detail = "must be >= 0; negative values are invalid and will be treated as 1"
        found.append(f"{path}.terminationGracePeriodSeconds: {detail}")
    found += _pod_affinity(spec, path)
    for i, nameserver in enumerate((spec.get("dnsConfig") or {}).get("nameservers", ())):
        found += filter(None, [ip_warning(f"{path}.dnsConfig.nameservers[{i}]", nameserver)])
    for i, alias in enumerate(spec.get("hostAliases", ())):
        found += filter(None, [ip_warning(f"{path}.hostAliases[{i}].ip", alias.get("ip", ""))])
    return found


def _volumes(spec: JSON, path: str) -> Iterator[str]:
    for i, volume in enumerate(spec.get("volumes", ())):
        where = f"{path}.volumes[{i}]"
        for kind, detail in DEPRECATED_VOLUME_TYPES.items():
            if kind in volume:
                yield f"{where}.{'storageOS' if kind == 'storageos' else kind}: {detail}"
        template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
        if template is not None:
            yield from claim_warnings(template.get("spec", {}), f"{where}.ephemeral.volumeClaimTemplate.spec")
    for volume in spec.get("volumes", ()):
        yield from overlapping_paths(volume)


def _profiles_and_containers(annotations: JSON, spec: JSON, metadata_path: str, path: str) -> Iterator[str]:
    """Annotations that set profiles, of the pod and of each container, and what else is to be said of containers."""
    of_pod = spec.get("securityContext") or {}
    if SECCOMP_POD_ANNOTATION in annotations and of_pod.get("seccompProfile") is None:
        yield f"{metadata_path}.annotations[{SECCOMP_POD_ANNOTATION}]: {_USE_SECCOMP}"
    for where, container in every_container(path, spec):
        yield from _container(container, where)
        own, name = container.get("securityContext", {}), container.get("name", "")
        if SECCOMP_CONTAINER_PREFIX + name in annotations and own.get("seccompProfile") is None:
            yield f"{metadata_path}.annotations[{SECCOMP_CONTAINER_PREFIX}{name}]: {_USE_SECCOMP}"
        annotation = annotations.get(APP_ARMOR_PREFIX + name) if metadata_path != "metadata" else None
        if annotation is None or "appArmorProfile" in own:
            continue
        profile = of_pod.get("appArmorProfile")
        if not profile or profile != app_armor_profile(annotation):
            detail = 'deprecated since v1.30; use the "appArmorProfile" field instead'
            yield f"{metadata_path}.annotations[{APP_ARMOR_PREFIX}{name}]: {detail}"


def _node_labels(spec: JSON, path: str) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    node, where = affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity"
    for i, term in enumerate((node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()):
        yield from node_term_warnings(term, f"{where}.{_REQUIRED}.nodeSelectorTerms[{i}]")
    for i, each in enumerate(node.get(_PREFERRED, ())):
        term, at = each.get("preference", {}), f"{where}.{_PREFERRED}[{i}].preference"
        yield from node_term_warnings(term, at, check_values=True)
    for i, topology_spread_constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        where, key = f"{path}.topologySpreadConstraints[{i}]", topology_spread_constraint.get("topologyKey", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{where}.topologyKey: {key} is {DEPRECATED_NODE_LABELS[key]}"
        if topology_spread_constraint.get("labelSelector") is None:
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


def _repeated(items: Sequence[JSON], path: str, name: str) -> Iterator[str]:
    seen = set()
    for i, item in enumerate(items):
        if item.get(name, "") in seen:
            yield f"{path}[{i}].{name}: duplicate {name} {quoted(item.get(name, ''))}"
        seen.add(item.get(name, ""))


def _container(container: JSON, path: str) -> list[str]:
    found: list[str] = []
    for name in ("memory", "ephemeral-storage"):
        for which in ("limits", "requests"):
            found += fractional_bytes_warnings(
                container.get("resources", {}).get(which, {}), f"{path}.resources.{which}", (name,)
            )
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
                detail = (
                    f"{{Name:{port.get('name', '')} HostPort:0 ContainerPort:{port.get('containerPort', 0)} "
                    f"Protocol:{port.get('protocol', '')} HostIP:{address}}}"
                )
                yield f"{where}: hostIP set without hostPort: {detail}"
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
                detail = f"services and probes that select ports by name will use {first[name]}"
                yield f"{where}: duplicate port name {quoted(name)} with {first[name]}, {detail}"
            elif name:
                first[name] = where


def overlapping_paths(volume: JSON) -> Iterator[str]:
    """Files of one volume that would lie on, or under, each other."""
    name = quoted(volume.get("name", ""))
    for kind, detail, holder in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
        source = volume.get(kind, {})
        if "items" in source:
            words = f"volume {name} ({detail} {quoted(source.get(holder, ''))}): overlapping paths"
            yield from _overlaps(_paths(source), words)
    if "items" in volume.get("downwardAPI", {}):
        yield from _overlaps(_paths(volume["downwardAPI"]), f"volume {name} (DownwardAPI): overlapping paths")
    taken: set[str] = set()
    for source in volume.get("projected", {}).get("sources") or ():
        if not source:
            yield f"volume {name} (Projected) has no sources provided"
            continue
        paths, detail = _projected(source)
        if paths:
            words = f"volume {name} (Projected {detail}): overlapping paths"
            yield from _overlaps(paths, words)
            yield from _overlaps(sorted([*set(paths), *taken]), words)
            taken |= set(paths)


def _paths(source: JSON) -> list[str]:
    return [item.get("path", "") for item in source.get("items", ())]


def _projected(source: JSON) -> tuple[list[str], str]:
    for kind, detail in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if "items" in source.get(kind, {}):
            return _paths(source[kind]), f"{detail} {quoted(source[kind].get('name', ''))}"
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

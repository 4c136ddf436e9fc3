"""Objects that a pod needs, and the errors of a v1.36 kubelet without them: ConfigMaps, Secrets, ResourceClaims.

Pure functions of the pod and of `read`, which returns the object of a kind and name in the pod's namespace. Sources:
pkg/kubelet/kubelet_pods.go (environment), pkg/volume/{configmap,secret,projected} and volumemanager (volumes),
pkg/kubelet/cm/dra/manager.go (claims).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import POD_GROUPS

Kind = Literal["ConfigMap", "Secret", "ResourceClaim"]
ReadObject = Callable[[Kind, str], JSON | None]

_ROOT_CA = "kube-root-ca.crt"  # counts as present: root-ca-cert-publisher creates it in each namespace, if it runs


class MissingObject(NamedTuple):
    """An object that does not exist, or has not all required keys. message: the kubelet's error.

    kind: "" for an error of the pod's spec alone.
    """

    kind: Kind | Literal[""]
    name: str
    message: str


def missing_for_volumes(pod: JSON, read: ReadObject) -> Iterator[tuple[str, MissingObject]]:
    """Yield (name of a mounted volume, missing object); the containers of the pod cannot be created without it."""
    volumes = pod["spec"].get("volumes")
    if not volumes:
        return
    mounted = {
        mount["name"]
        for field in ("initContainers", "containers")
        for container in pod["spec"].get(field) or ()
        for mount in container.get("volumeMounts") or ()
    }
    for volume in volumes:
        if volume["name"] in mounted:
            for missing in _missing_for_volume(volume, read):
                yield volume["name"], missing


def unprepared_claim(pod: JSON, read: ReadObject) -> MissingObject | None:
    """Return the first ResourceClaim that the pod must not use yet: its containers cannot be created without it.

    A claim whose name the status of the pod lacks has the name "".
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    special = status.get("extendedResourceClaimStatus")
    if not spec.get("resourceClaims") and not special:
        return None
    recorded = {entry["name"]: entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()}
    for entry in (*(spec.get("resourceClaims") or ()), *([special] if special else ())):
        name = entry.get("resourceClaimName")
        if name is None:
            if entry["name"] not in recorded:
                key = f"{metadata['namespace']}/{metadata['name']}"
                return MissingObject("ResourceClaim", "", f'pod "{key}": ResourceClaim not created yet')
            name = recorded[entry["name"]]
            if name is None:
                continue  # not needed
        message = _claim_problem(pod, name, read("ResourceClaim", name))
        if message:
            return MissingObject("ResourceClaim", name, message)
    return None


def _claim_problem(pod: JSON, name: str, claim: JSON | None) -> str:
    if claim is None:
        return f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found'
    status, uid, metadata = claim.get("status") or {}, claim["metadata"]["uid"], pod["metadata"]
    if not any(_is_consumer(pod, consumer) for consumer in status.get("reservedFor") or ()):
        return f"pod {metadata['name']} ({metadata['uid']}) is not allowed to use ResourceClaim {name} ({uid})"
    return "" if status.get("allocation") else f"ResourceClaim {name}: not allocated"


def _is_consumer(pod: JSON, consumer: JSON) -> bool:
    """Return True for a reservation of the pod or of its PodGroup, whose UID the pod does not have."""
    if consumer["uid"] == pod["metadata"]["uid"]:
        return True
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    kind = (consumer.get("apiGroup"), consumer["resource"], consumer["name"])
    return group is not None and kind == (POD_GROUPS.group, POD_GROUPS.plural, group)


def _missing_for_volume(volume: JSON, read: ReadObject) -> Iterator[MissingObject]:
    if source := volume.get("configMap"):
        yield from _missing_for_files("ConfigMap", source.get("name", ""), source, read)
    elif source := volume.get("secret"):
        yield from _missing_for_files("Secret", source.get("secretName", ""), source, read)
    elif projected := volume.get("projected"):
        for entry in projected.get("sources") or ():
            if source := entry.get("configMap"):
                yield from _missing_for_files("ConfigMap", source.get("name", ""), source, read)
            elif source := entry.get("secret"):
                yield from _missing_for_files("Secret", source.get("name", ""), source, read)


def _missing_for_files(kind: Kind, name: str, source: JSON, read: ReadObject) -> Iterator[MissingObject]:
    """Yield the missing object of a volume's source, at most one."""
    if source.get("optional") or (kind == "ConfigMap" and name == _ROOT_CA):
        return
    obj = read(kind, name)
    if obj is None:
        yield MissingObject(kind, name, _not_found(kind, name))
        return
    keys = {*(obj.get("data") or ()), *(obj.get("binaryData") or ())}
    for item in source.get("items") or ():
        if item["key"] not in keys:
            subject = (
                "configmap references non-existent config" if kind == "ConfigMap" else "references non-existent secret"
            )
            yield MissingObject(kind, name, f"{subject} key: {item['key']}")
            return


def missing_for_environment(container: JSON, namespace: str, read: ReadObject) -> MissingObject | None:
    """Return the first missing object of a container's environment; the container cannot be created without it."""
    for kind, source, key in _environment_sources(container):
        if source.get("optional"):
            continue
        name = source.get("name", "")
        obj = read(kind, name)
        if obj is None:
            return MissingObject(kind, name, _not_found(kind, name))
        if key is not None and key not in (obj.get("data") or ()):
            return MissingObject(kind, name, f"couldn't find key {key} in {kind} {namespace}/{name}")
    return None


def _environment_sources(container: JSON) -> Iterable[tuple[Kind, JSON, str | None]]:
    """Yield (kind, reference, key; None for all keys), in the order in which a kubelet reads them."""
    for entry in container.get("envFrom") or ():
        if source := entry.get("configMapRef"):
            yield "ConfigMap", source, None
        elif source := entry.get("secretRef"):
            yield "Secret", source, None
    for variable in container.get("env") or ():
        value_from = variable.get("valueFrom")
        if value_from is None:
            continue
        if source := value_from.get("configMapKeyRef"):
            yield "ConfigMap", source, source["key"]
        elif source := value_from.get("secretKeyRef"):
            yield "Secret", source, source["key"]


def _not_found(kind: Kind, name: str) -> str:
    return f'{kind.lower()} "{name}" not found'

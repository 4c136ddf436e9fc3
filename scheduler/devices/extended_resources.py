"""Extended resources that devices provide: a DeviceClass names the resource that its devices satisfy.

A pod requests such a resource like any other; on a node without a device plugin for it, the scheduler allocates devices
to a special ResourceClaim, which it creates for the pod. Source: plugins/dynamicresources/extendeddynamicresources.go
and deviceclass/extendedresourcecache of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Container, ObjectMeta, Pod, Struct, to_json
from kubeloop.kube.objects.device_types import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kubeloop.kube.objects.pod_claims import EXTENDED_RESOURCE_ANNOTATION
from kubeloop.kube.values.quantities import parse_quantity
from kubeloop.scheduler.cache.node_info import DEVICE_CLASS_PREFIX

SPECIAL_CLAIM = "<extended-resources>"
"""Name of the special claim before it is created; no claim in the API server can have it."""


class ExtendedResources:
    """Handler of the informer of DeviceClasses: the class of each extended resource.

    changed is called after a resource has got another class, or none.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._class_of: dict[str, DeviceClass] = {}

    def get(self, resource: str) -> DeviceClass | None:
        """Return the class whose devices provide a resource."""
        return self._class_of.get(resource)

    def on_add(self, obj: DeviceClass, initial: bool) -> None:
        self._put(obj)

    def on_update(self, old: DeviceClass, new: DeviceClass) -> None:
        self._put(new, old)

    def on_delete(self, obj: DeviceClass, final_state_unknown: bool) -> None:
        self._remove(obj)
        self._changed()

    def _put(self, new: DeviceClass, old: DeviceClass | None = None) -> None:
        """Add or replace a class. Of several classes with one resource, the newest counts, then the first by name.

        As in kube-scheduler, a class that does not count for its resource also keeps its former resources.
        """
        resource = new.spec.extended_resource_name
        other = self._class_of.get(resource) if resource is not None else None
        if other is not None and _precedence(new) >= _precedence(other):
            return
        if old is not None:
            self._remove(old)
        for name in _resources(new):
            self._class_of[name] = new
        self._changed()

    def _remove(self, device_class: DeviceClass) -> None:
        for name in _resources(device_class):
            self._class_of.pop(name, None)


def _resources(device_class: DeviceClass) -> list[str]:
    explicit = device_class.spec.extended_resource_name
    return [*((explicit,) if explicit is not None else ()), DEVICE_CLASS_PREFIX + device_class.metadata.name]


def _precedence(device_class: DeviceClass) -> tuple[float, str]:
    created = device_class.metadata.creation_timestamp
    return (-created.timestamp() if created is not None else 0.0, device_class.metadata.name)


class RequestMapping(Struct):
    """An entry of status.extendedResourceClaimStatus of a Pod: the request that serves a container's resource."""

    container_name: str
    resource_name: str
    request_name: str


def special_claim(pod: Pod, uid: str, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
    """Return the claim for the extended resources of a pod, as it is before its creation. uid: temporary."""
    metadata = ObjectMeta(namespace=pod.metadata.namespace, name=SPECIAL_CLAIM, uid=uid)
    return ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)))


def special_claim_body(pod: Pod, claim: ResourceClaim) -> JSON:
    """Return the special claim of a pod for its creation."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": pod.metadata.namespace,
            "generateName": f"{pod.metadata.name}-extended-resources-",
            "annotations": {EXTENDED_RESOURCE_ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [*map(to_json, claim.spec.devices.requests)]}},
    }


def device_requests(
    pod: Pod, class_of: Mapping[str, str]
) -> tuple[tuple[DeviceRequest, ...], tuple[RequestMapping, ...]]:
    """Return the requests of the special claim for these resources, with the containers that each request serves.

    class_of: name of the class of each resource. Each container has a request of its own, but an init container that
    ends before the others start uses their devices, and all such init containers share the largest further request.
    """
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    starting = [
        index < len(pod.spec.init_containers) and container.restart_policy != "Always"
        for index, container in enumerate(containers)
    ]
    for resource in sorted(class_of):
        own: list[DeviceRequest | None] = [None] * len(containers)
        for index, container in enumerate(containers):
            if not starting[index]:
                own[index], mapped = _container_request(index, container, resource, class_of[resource], ())
                mappings += mapped
        largest: DeviceRequest | None = None
        shared: list[RequestMapping] = []
        names = set()
        for index, container in enumerate(containers):
            if not starting[index]:
                continue
            request, mapped = _container_request(index, container, resource, class_of[resource], own[index:])
            shared += mapped
            if request is not None:
                names.add(request.name)
                if largest is None or _count(request) > _count(largest):
                    largest = request
        if largest is not None:
            requests.append(largest)
            shared = [
                msgspec.structs.replace(entry, request_name=largest.name) if entry.request_name in names else entry
                for entry in shared
            ]
        requests += [request for request in own if request is not None]
        mappings += shared
    return tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings)


def _container_request(
    index: int, container: Container, resource: str, device_class: str, reusable: Iterable[DeviceRequest | None]
) -> tuple[DeviceRequest | None, list[RequestMapping]]:
    """Return what a container must request in addition to the reusable requests, and its mappings."""
    quantity = container.resources.requests.get(resource)
    requested = 0 if quantity is None else parse_quantity(quantity).value()
    if requested == 0:
        return None, []
    mappings = []
    reused = 0
    for request in reusable:
        if request is not None:
            reused += _count(request)
            mappings.append(_mapping(container, resource, request.name))
            if reused >= requested:
                return None, mappings
    name = f"container-{index}-request-{sorted(container.resources.requests).index(resource)}"
    exactly = ExactDeviceRequest(device_class_name=device_class, allocation_mode="ExactCount", count=requested - reused)
    mappings.append(_mapping(container, resource, name))
    return DeviceRequest(name=name, exactly=exactly), mappings


def _mapping(container: Container, resource: str, request: str) -> RequestMapping:
    return RequestMapping(container_name=container.name, resource_name=resource, request_name=request)


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0

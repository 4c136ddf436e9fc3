"""Pod requests and limits: the resources that scheduling counts for a pod.

Sums are exact (integers of 10^-9, the finest unit of the API) and rounded up once, at the end, as in Kubernetes: CPU to
millicores, everything else to whole units.
Source: k8s.io/component-helpers/resource of v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Container, ContainerStatus, Pod, Quantity
from kubeloop.kube.values.quantities import parse_quantity

CPU = "cpu"
MEMORY = "memory"

DEFAULT_MILLI_CPU = 100  # request of a container without a CPU request, for scores
DEFAULT_MEMORY_BYTES = 200 << 20

_NANO = 1_000_000_000
_NANO_PER_MILLI = 1_000_000
_MAX_INT64 = (1 << 63) - 1
_MIN_INT64 = -(1 << 63)


class RequestRules(msgspec.Struct, frozen=True):
    """Feature gates that requests depend on.

    pod_level: PodLevelResources, by which spec.resources counts. pod_level_status: with
    InPlacePodLevelResourcesVerticalScaling, during an in-place resize its status counts, too. node_allocatable: with
    DRANodeAllocatableResources, what the pod's claims take of its node counts.
    """

    pod_level: bool = True
    pod_level_status: bool = True
    node_allocatable: bool = False


DEFAULT_REQUEST_RULES = RequestRules()


def request_rules(gates: FeatureGates) -> RequestRules:
    return RequestRules(
        pod_level=gates.enabled("PodLevelResources"),
        pod_level_status=gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
        node_allocatable=gates.enabled("DRANodeAllocatableResources"),
    )


NanoList = dict[str, int]
"""Resource name -> amount in 10^-9 units."""

_NON_ZERO: Mapping[str, int] = {CPU: DEFAULT_MILLI_CPU * _NANO_PER_MILLI, MEMORY: DEFAULT_MEMORY_BYTES * _NANO}


@lru_cache(maxsize=16384)
def _text_nano(text: str) -> int:
    return parse_quantity(text).nano()


def nano(quantity: Quantity) -> int:
    """Return `quantity` in 10^-9 units, rounded up. Raises QuantityError."""
    return _text_nano(quantity if type(quantity) is str else str(quantity))


def rounded_up(name: str, amount_nano: int) -> int:
    """Return millicores for CPU, whole units for anything else; rounded away from zero, as by Quantity.Value.

    Amounts above int64 become its maximum, which fits no node; Go would wrap around, or count nothing.
    """
    unit = _NANO_PER_MILLI if name == CPU else _NANO
    amount = -(-amount_nano // unit) if amount_nano >= 0 else amount_nano // unit
    return amount if _MIN_INT64 <= amount <= _MAX_INT64 else max(_MIN_INT64, min(amount, _MAX_INT64))


def is_pod_level_resource(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def has_pod_level_requests(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(map(is_pod_level_resource, resources.requests))


def has_pod_level_resources(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(map(is_pod_level_resource, (*resources.requests, *resources.limits)))


def is_resize_infeasible(pod: Pod) -> bool:
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def pod_requests(
    pod: Pod,
    *,
    non_zero: bool = False,
    use_status: bool = False,
    rules: RequestRules = DEFAULT_REQUEST_RULES,
    overhead: bool = True,
) -> dict[str, int]:
    """Return the pod's requests: millicores for "cpu", whole units for every other resource.

    non_zero: containers without a CPU or memory request count as 100m and 200Mi. use_status: during an in-place resize,
    the maximum of spec, allocated and actual resources counts. overhead: whether spec.overhead is included. Raises
    QuantityError.
    """
    default = _NON_ZERO if non_zero else None
    sums = requests_nano(pod, default=default, use_status=use_status, rules=rules, overhead=overhead)
    return {name: rounded_up(name, amount) for name, amount in sums.items()}


def accounted_requests(pod: Pod, rules: RequestRules = DEFAULT_REQUEST_RULES) -> tuple[dict[str, int], int, int]:
    """Return what a bound pod adds to its node: (requests, non-zero millicores, non-zero memory bytes).

    Requests are pod_requests(use_status=True), read only: pods with equal resources share them. The non-zero sums use
    defaults for containers without a request; with pod-level resources only for resources without a pod-level request.
    """
    spec = pod.spec
    key = _encoder.encode(
        (
            rules,
            [(container.name, container.resources) for container in spec.containers],
            [(container.name, container.restart_policy, container.resources) for container in spec.init_containers],
            spec.resources,
            spec.overhead,
            status_of_resources(pod),
        )
    )
    accounted = _accounted.get(key)
    if accounted is None:
        if len(_accounted) >= _MAX_ACCOUNTED:
            _accounted.clear()
        accounted = _accounted[key] = _accounted_requests(pod, rules)
    return accounted


_encoder = msgspec.msgpack.Encoder(order="sorted")
_accounted: dict[bytes, tuple[dict[str, int], int, int]] = {}
_MAX_ACCOUNTED = 4096


def _accounted_requests(pod: Pod, rules: RequestRules) -> tuple[dict[str, int], int, int]:
    sums = requests_nano(pod, use_status=True, rules=rules)
    default = _NON_ZERO
    if rules.pod_level and has_pod_level_requests(pod):
        default = {name: amount for name, amount in _NON_ZERO.items() if name not in sums}
    non_zero = sums
    if default and _lacks_request(pod, default):
        non_zero = requests_nano(pod, default=default, use_status=True, rules=rules)
    return (
        {name: rounded_up(name, amount) for name, amount in sums.items()},
        rounded_up(CPU, non_zero.get(CPU, 0)),
        rounded_up(MEMORY, non_zero.get(MEMORY, 0)),
    )


def _lacks_request(pod: Pod, names: Mapping[str, int]) -> bool:
    """Return True if a container in spec or status has no request for one of `names`; else defaults have no effect."""
    if pod.status.container_statuses or pod.status.init_container_statuses:
        return True
    return any(
        name not in container.resources.requests
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name in names
    )


def pod_limits(pod: Pod) -> dict[str, int]:
    """Return the effective limits of the spec; a resource without a limit is absent. Units as in pod_requests."""
    limits = _aggregate(pod, lambda container: _nanos(container.resources.limits), None)
    spec = pod.spec
    if spec.resources is not None and has_pod_level_resources(pod):
        limits.update(_pod_level(_nanos(spec.resources.limits)))
    for name, quantity in spec.overhead.items():
        if limits.get(name):
            limits[name] += nano(quantity)
    return {name: rounded_up(name, amount) for name, amount in limits.items()}


def requests_nano(
    pod: Pod,
    *,
    default: Mapping[str, int] | None = None,
    use_status: bool = False,
    rules: RequestRules = DEFAULT_REQUEST_RULES,
    overhead: bool = True,
) -> NanoList:
    """Return pod_requests before rounding. default: requests of containers that have none."""
    spec, status = pod.spec, pod.status
    use_status = use_status and has_resize_status(pod)
    infeasible = use_status and is_resize_infeasible(pod)
    if use_status:
        sidecars = {container.name for container in spec.init_containers if container.restart_policy == "Always"}
        statuses = {
            container.name: container for container in status.init_container_statuses if container.name in sidecars
        }
        statuses |= {container.name: container for container in status.container_statuses}
        sums = _aggregate(pod, lambda container: _in_place_requests(container, statuses, infeasible), default)
    else:
        sums = _aggregate(pod, lambda container: _nanos(container.resources.requests), default)
    if rules.node_allocatable:
        for claim in status.node_allocatable_resource_claim_statuses:
            _add(sums, _nanos(claim.resources))
    if rules.pod_level and spec.resources is not None and has_pod_level_requests(pod):
        pod_level_requests = _pod_level(_nanos(spec.resources.requests))
        if use_status and rules.pod_level_status and status.resources is not None:
            effective = {} if infeasible else dict(pod_level_requests)
            _max_into(effective, _nanos(status.resources.requests))
            _max_into(effective, _nanos(status.allocated_resources))
            pod_level_requests = {name: effective.get(name, 0) for name in pod_level_requests}
        sums.update(pod_level_requests)
    if overhead and spec.overhead:
        _add(sums, _nanos(spec.overhead))
    return sums


def _in_place_requests(container: Container, statuses: Mapping[str, ContainerStatus], infeasible: bool) -> NanoList:
    """Return the maximum of spec, allocated and actual resources; without the spec if the resize is infeasible."""
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return _nanos(container.resources.requests)
    requests = {} if infeasible else _nanos(container.resources.requests)
    _max_into(requests, _nanos(status.resources.requests))
    _max_into(requests, _nanos(status.allocated_resources))
    return requests


def has_resize_status(pod: Pod) -> bool:
    """Return True if the status has resources. Most pods' has none, and their requests follow from the spec alone."""
    status = pod.status
    return bool(
        status.resources is not None
        or status.allocated_resources
        or any(
            container.resources is not None or container.allocated_resources
            for container in (*status.container_statuses, *status.init_container_statuses)
        )
    )


def status_of_resources(pod: Pod) -> object:
    """Return the part of the status that affects requests."""
    status = pod.status
    return (
        status.resize,
        status.resources,
        status.node_allocatable_resource_claim_statuses,
        status.allocated_resources,
        tuple(map(_container_resources, status.container_statuses)),
        tuple(map(_container_resources, status.init_container_statuses)),
        tuple(
            (condition.status, condition.reason)
            for condition in status.conditions
            if condition.type == "PodResizePending"
        ),
    )


def _container_resources(container: ContainerStatus) -> object:
    return container.name, container.resources, container.allocated_resources


def is_pending_request(pod: Pod) -> bool:
    """Return True if the status adds nothing to the requests of the spec, as for a pod that is not bound."""
    return not has_resize_status(pod) and not pod.status.node_allocatable_resource_claim_statuses


def _aggregate(pod: Pod, resources_of: Callable[[Container], NanoList], default: Mapping[str, int] | None) -> NanoList:
    """Sum up containers and sidecars. An init container counts, with the sidecars started before it, as a minimum."""

    def resources(container: Container) -> NanoList:
        requests = resources_of(container)
        if default:
            for name, amount in default.items():
                requests.setdefault(name, amount)
        return requests

    spec = pod.spec
    sums: NanoList = {}
    for container in spec.containers:
        _add(sums, resources(container))
    if spec.init_containers:
        sidecars: NanoList = {}
        starting: NanoList = {}
        for container in spec.init_containers:
            requests = resources(container)
            if container.restart_policy == "Always":
                _add(sums, requests)
                _add(sidecars, requests)
                _max_into(starting, sidecars)
            else:
                _add(requests, sidecars)
                _max_into(starting, requests)
        _max_into(sums, starting)
    return sums


def _nanos(quantities: Mapping[str, Quantity]) -> NanoList:
    return {name: nano(quantity) for name, quantity in quantities.items()}


def _pod_level(resources: NanoList) -> NanoList:
    return {name: amount for name, amount in resources.items() if is_pod_level_resource(name)}


def _add(sums: NanoList, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + amount


def _max_into(sums: NanoList, floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        if name not in sums or amount > sums[name]:
            sums[name] = amount

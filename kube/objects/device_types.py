"""Objects of resource.k8s.io with the fields that control logic reads, and the claims of a Pod.

The rules of `api_types` apply. Source: staging/src/k8s.io/dynamic-resource-allocation/resourceclaim.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from kubeloop.kube.objects.api_types import Condition, JSONValue, NodeSelector, Object, Quantity, Struct


class ResourceClaimConsumerReference(Struct):
    """Object that may use a claim: a Pod (apiGroup "" and resource "pods") or a PodGroup."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class CELDeviceSelector(Struct):
    expression: str = ""


class DeviceSelector(Struct):
    cel: CELDeviceSelector | None = None


class DeviceToleration(Struct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Struct):
    requests: dict[str, Quantity] = {}


class DeviceSubRequest(Struct):
    """One alternative of a request."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class ExactDeviceRequest(Struct):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(Struct):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Struct):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Struct):
    requests: tuple[str, ...] = ()
    opaque: JSONValue = None


class DeviceClaim(Struct):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Struct):
    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Struct):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = None
    consumed_capacity: dict[str, Quantity] = {}


class DeviceAllocationConfiguration(Struct):
    """source: "FromClass" or "FromClaim"."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: JSONValue = None


class DeviceAllocationResult(Struct):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Struct):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None


class AllocatedDeviceStatus(Struct):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = None
    conditions: tuple[Condition, ...] = ()


class ResourceClaimStatus(Struct):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Object):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Struct):
    """metadata and spec are those of the claims, which a controller creates with all of their fields."""

    metadata: JSONValue = {}
    spec: JSONValue = {}


class ResourceClaimTemplate(Object):
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassConfiguration(Struct):
    opaque: JSONValue = None


class DeviceClassSpec(Struct):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object):
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(Struct):
    """One of the fields is set; lists need the feature gate DRAListTypeAttributes."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: tuple[int, ...] | None = msgspec.field(default=None, name="ints")
    bool_values: tuple[bool, ...] | None = msgspec.field(default=None, name="bools")
    string_values: tuple[str, ...] | None = msgspec.field(default=None, name="strings")
    version_values: tuple[str, ...] | None = msgspec.field(default=None, name="versions")


class CapacityRequestPolicyRange(Struct):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Struct):
    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Struct):
    value: Quantity = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(Struct):
    value: Quantity = "0"


class CounterSet(Struct):
    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Struct):
    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Struct):
    """effect: "None", "NoSchedule" or "NoExecute". time_added: set by the API server if a client does not."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeAllocatableResourceMapping(Struct):
    capacity_key: str | None = None
    allocation_multiplier: Quantity | None = None


class Device(Struct):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = {}


class ResourcePool(Struct):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Struct):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Object):
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(Struct):
    """Devices with all of the fields that are set."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Struct):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRuleStatus(Struct):
    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(Object):
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()

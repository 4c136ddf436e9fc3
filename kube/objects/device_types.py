"""Objects of resource.k8s.io with the fields that control logic reads, and the claims of a Pod.

The rules of `api_types` apply. Source: staging/src/k8s.io/dynamic-resource-allocation/resourceclaim.
"""

from __future__ import annotations

from kubeloop.kube.objects.api_types import JSONValue, Object, Struct


class ResourceClaimConsumerReference(Struct):
    """Object that may use a claim: a Pod (apiGroup "" and resource "pods") or a PodGroup."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimSpec(Struct):
    devices: JSONValue = {}


class ResourceClaimStatus(Struct):
    allocation: JSONValue = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()


class ResourceClaim(Object):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Struct):
    """metadata and spec are those of the claims, which a controller creates with all of their fields."""

    metadata: JSONValue = {}
    spec: JSONValue = {}


class ResourceClaimTemplate(Object):
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()

"""Plan of a Pod's ResourceClaims: claims to create from templates, the Pod's status, and reservations.

Pure functions. Source: v1.36 pkg/controller/resourceclaim/controller.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kubeloop.kube.objects.api_types import JSONValue, Pod, PodResourceClaim, convert
from kubeloop.kube.objects.device_types import DeviceClaim, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate
from kubeloop.kube.objects.object_fields import is_finished
from kubeloop.kube.objects.pod_claims import ClaimNotCreated, claim_name, is_owned_by, is_reserved_for

POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
"""Name of the entry in spec.resourceClaims of the Pod for which a claim was created."""

_MAX_BASE = 57  # leaves room for a hyphen and five random characters in a name of 63

FindClaim = Callable[[str], ResourceClaim | None]
"""Returns the claim of a name in the Pod's namespace."""


@dataclass(frozen=True, slots=True)
class PodClaimPlan:
    """names: claim of each entry whose claim exists, by name of the entry, for the entries with a template.

    missing: entries whose claims have to be created. is_recorded: the status of the Pod has all of `names`.
    """

    names: dict[str, str]
    missing: tuple[PodResourceClaim, ...]
    is_recorded: bool


def is_done(pod: Pod) -> bool:
    """Return True if no container of the Pod runs or will run."""
    return is_finished(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


def used_claims(pod: Pod) -> list[str]:
    """Return the names of the claims that the Pod uses, with that of its extended resources."""
    names = created_claims(pod)
    extended = pod.status.extended_resource_claim_status
    return [*names, extended["resourceClaimName"]] if extended else names


def created_claims(pod: Pod) -> list[str]:
    """Return the names of the claims of spec.resourceClaims, without those that are not created yet."""
    names = []
    for pod_claim in pod.spec.resource_claims:
        try:
            name = claim_name(pod, pod_claim)
        except ClaimNotCreated:
            continue
        if name is not None:
            names.append(name)
    return names


def needs_work(pod: Pod, find: FindClaim) -> bool:
    """Return True if a claim of the Pod has to be created, recorded in its status or reserved for it.

    Unlike in Kubernetes, a finished Pod gets no new claim for the one that has been deleted because the Pod finished.
    """
    if pod.metadata.deletion_timestamp is not None or is_finished(pod):
        return False
    for pod_claim in pod.spec.resource_claims:
        try:
            name = claim_name(pod, pod_claim)
        except ClaimNotCreated:
            return True
        if name is None:
            continue
        claim = find(name)
        if claim is None and pod_claim.resource_claim_template_name is not None:
            return True
    return bool(claims_to_reserve(pod, find))


def claims_to_reserve(pod: Pod, find: FindClaim) -> list[ResourceClaim]:
    """Return the allocated claims that are not reserved for a Pod which the scheduler did not bind."""
    claims: list[ResourceClaim] = []
    if not pod.spec.node_name:
        return claims  # the scheduler will reserve them
    for pod_claim in pod.spec.resource_claims:
        try:
            name = claim_name(pod, pod_claim)
        except ClaimNotCreated:
            continue
        claim = find(name) if name is not None else None
        if claim is None or (pod_claim.resource_claim_name is None and not is_owned_by(claim, pod)):
            continue
        if claim.status.allocation is not None and not is_reserved_for(claim, pod):
            claims.append(claim)
    return claims


def plan_pod_claims(pod: Pod, find: FindClaim, owned: Iterable[ResourceClaim]) -> PodClaimPlan:
    """Return the claims to create for a Pod. owned: the claims whose controller it is, with those just created.

    A claim that the status names is created again if it is missing or belongs to another Pod.
    """
    created: dict[str, str] = {}
    for claim in owned:
        entry = claim.metadata.annotations.get(POD_CLAIM_ANNOTATION)
        if entry is not None:
            created.setdefault(entry, claim.metadata.name)
    names: dict[str, str] = {}
    missing: list[PodResourceClaim] = []
    is_recorded = True
    for pod_claim in pod.spec.resource_claims:
        if pod_claim.resource_claim_template_name is None:
            continue
        try:
            recorded = claim_name(pod, pod_claim)
        except ClaimNotCreated:
            recorded = ""
        if recorded is None:
            continue
        recorded_claim = find(recorded) if recorded else None
        if recorded_claim is not None and is_owned_by(recorded_claim, pod):
            names[pod_claim.name] = recorded
        elif pod_claim.name in created:
            names[pod_claim.name] = created[pod_claim.name]
            is_recorded = is_recorded and names[pod_claim.name] == recorded
        else:
            missing.append(pod_claim)
    return PodClaimPlan(names, tuple(missing), is_recorded and not missing)


def claim_from_template(pod: Pod, pod_claim: PodResourceClaim, template: ResourceClaimTemplate) -> JSONValue:
    """Return the ResourceClaim that a Pod's entry with a template gets."""
    metadata = template.spec.metadata
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            **{name: metadata[name] for name in ("labels",) if metadata.get(name)},
            "generateName": generate_name(pod.metadata.name, pod_claim.name),
            "annotations": {**(metadata.get("annotations") or {}), POD_CLAIM_ANNOTATION: pod_claim.name},
            "ownerReferences": [owner],
        },
        "spec": template.spec.spec,
    }


def generate_name(pod: str, pod_claim: str) -> str:
    """Return "POD-CLAIM-"; parts of a name that is too long are cut in proportion to their lengths."""
    name = f"{pod}-{pod_claim}-"
    if len(name) <= _MAX_BASE:
        return name
    return f"{pod[: len(pod) * _MAX_BASE // len(name)]}-{pod_claim[: len(pod_claim) * _MAX_BASE // len(name)]}"


def devices_of(template: ResourceClaimTemplate) -> DeviceClaim:
    """Return spec.devices of the claims that the template describes."""
    return convert(ResourceClaimSpec, template.spec.spec).devices


def uses_prioritized_list(devices: DeviceClaim) -> bool:
    return any(request.first_available for request in devices.requests)


def requests_admin_access(devices: DeviceClaim) -> bool:
    return any(request.exactly is not None and request.exactly.admin_access for request in devices.requests)

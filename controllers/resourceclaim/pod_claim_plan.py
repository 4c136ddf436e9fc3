"""Plan of the ResourceClaims of a Pod or PodGroup: claims to create, names for its status, and reservations.

Pure functions. Source: v1.36 pkg/controller/resourceclaim/controller.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kubeloop.kube.objects.api_types import JSONValue, Object, Pod, PodResourceClaim, convert
from kubeloop.kube.objects.device_types import (
    DeviceClaim,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from kubeloop.kube.objects.object_fields import controller_of, is_finished
from kubeloop.kube.objects.pod_claims import (
    ClaimNotCreated,
    claim_name,
    consumer_reference,
    group_claim_name,
    is_owned_by,
    is_owned_by_group,
    is_reserved_for,
    is_reserved_for_group,
    is_shared,
)
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.objects.workload_types import PodGroup, PodGroupResourceClaim

POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
"""Name of the entry in spec.resourceClaims of the owner for which a claim was created."""

_MAX_BASE = 57  # leaves room for a hyphen and five random characters in a name of 63

FindClaim = Callable[[str], ResourceClaim | None]
"""Returns the claim of a name in the Pod's namespace."""

ClaimEntry: TypeAlias = PodResourceClaim | PodGroupResourceClaim


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """names: the names of the claims that exist, by entry, of the entries with a template.

    missing: entries whose claims have to be created. is_recorded: the status of the owner has all of `names`.
    """

    names: dict[str, str]
    missing: tuple[ClaimEntry, ...]
    is_recorded: bool


@dataclass(frozen=True, slots=True)
class Membership:
    """The PodGroup of a Pod that may share claims with it.

    key: of the PodGroup, None if the Pod has none or PodGroups share no claims. pod_group: None if it is not cached.
    owned: the claims that were created for it.
    """

    key: str | None = None
    pod_group: PodGroup | None = None
    owned: Sequence[ResourceClaim] = ()

    def shares(self, pod_claim: PodResourceClaim) -> bool:
        """Return True if the PodGroup is the consumer of the claim of a Pod's entry."""
        return self.pod_group is not None and is_shared(pod_claim, self.pod_group)

    def is_owner(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Return True if the claim was created for the Pod or for its PodGroup."""
        return is_owned_by(claim, pod) or (self.key is not None and is_owned_by_group(claim, pod))

    def is_consumer(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Return True if the claim is reserved for the Pod or for its PodGroup."""
        return is_reserved_for(claim, pod) or (self.key is not None and is_reserved_for_group(claim, pod))


NO_GROUP = Membership()


def is_done(pod: Pod) -> bool:
    """Return True if no container of the Pod runs or will run."""
    return is_finished(pod) or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


def used_claims(pod: Pod) -> list[str]:
    """Return the names of the claims that the Pod uses, with that of its extended resources."""
    names = created_claims(pod)
    extended = pod.status.extended_resource_claim_status
    return [*names, extended["resourceClaimName"]] if extended else names


def created_claims(owner: Pod | PodGroup) -> list[str]:
    """Return the names of the claims of spec.resourceClaims, without those that are not created yet."""
    names = []
    for entry in owner.spec.resource_claims:
        try:
            name = recorded_name(owner, entry)
        except ClaimNotCreated:
            continue
        if name is not None:
            names.append(name)
    return names


def recorded_name(owner: Pod | PodGroup, entry: Any) -> str | None:
    """Return claim_name() or group_claim_name(). Raises ClaimNotCreated."""
    return claim_name(owner, entry) if isinstance(owner, Pod) else group_claim_name(owner, entry)


def needs_work(pod: Pod, find: FindClaim, membership: Membership = NO_GROUP) -> bool:
    """Return True if a claim of the Pod has to be created, recorded in its status or reserved for it.

    Unlike in Kubernetes, a finished Pod gets no new claim for the one that has been deleted because the Pod finished.
    """
    if pod.metadata.deletion_timestamp is not None or is_finished(pod):
        return False
    return _lacks_claim(pod, find, membership) or bool(claims_to_reserve(pod, find, membership))


def group_needs_work(pod_group: PodGroup, find: FindClaim) -> bool:
    """Return True if a claim of the PodGroup has to be created or recorded in its status."""
    return pod_group.metadata.deletion_timestamp is None and _lacks_claim(pod_group, find, NO_GROUP)


def _lacks_claim(owner: Pod | PodGroup, find: FindClaim, membership: Membership) -> bool:
    for entry in owner.spec.resource_claims:
        try:
            name = recorded_name(owner, entry)
        except ClaimNotCreated:
            return True
        if name is None or entry.resource_claim_template_name is None or find(name) is not None:
            continue
        if not (isinstance(entry, PodResourceClaim) and membership.shares(entry)):
            return True
    return False


def claims_to_reserve(
    pod: Pod, find: FindClaim, membership: Membership = NO_GROUP
) -> list[tuple[ResourceClaim, ResourceClaimConsumerReference]]:
    """Return the allocated claims that are not reserved for a Pod which the scheduler did not bind.

    Each with the consumer for which it has to be reserved: the Pod, or its PodGroup if that shares the claim.
    """
    claims: list[tuple[ResourceClaim, ResourceClaimConsumerReference]] = []
    if not pod.spec.node_name:
        return claims  # the scheduler will reserve them
    for pod_claim in pod.spec.resource_claims:
        try:
            name = claim_name(pod, pod_claim)
        except ClaimNotCreated:
            continue
        claim = find(name) if name is not None else None
        if claim is None or (pod_claim.resource_claim_name is None and not membership.is_owner(claim, pod)):
            continue
        if claim.status.allocation is not None and not membership.is_consumer(claim, pod):
            group = membership.pod_group if membership.shares(pod_claim) else None
            claims.append((claim, consumer_reference(group or pod)))
    return claims


def plan_pod_claims(
    pod: Pod, find: FindClaim, owned: Sequence[ResourceClaim], membership: Membership = NO_GROUP
) -> ClaimPlan:
    """Return the claims to create for a Pod. owned: the claims whose controller it is, with those just created.

    A claim that the status names is created again if it is missing or belongs to another Pod. Claims that the PodGroup
    shares are created for the PodGroup only.
    """
    shared = {entry.name for entry in pod.spec.resource_claims if membership.shares(entry)}
    created = {name: claim for name, claim in _by_entry(owned).items() if name not in shared}
    created |= {name: claim for name, claim in _by_entry(membership.owned).items() if name in shared}
    find = _including(find, (*owned, *membership.owned))
    return _plan(pod, find, created, lambda claim: membership.is_owner(claim, pod), shared)


def plan_group_claims(pod_group: PodGroup, find: FindClaim, owned: Sequence[ResourceClaim]) -> ClaimPlan:
    """Return the claims to create for a PodGroup, like plan_pod_claims()."""
    uid = pod_group.metadata.uid

    def is_owner(claim: ResourceClaim) -> bool:
        owner = controller_of(claim.metadata)
        return owner is not None and owner.uid == uid

    return _plan(pod_group, _including(find, owned), _by_entry(owned), is_owner)


def _including(find: FindClaim, created: Iterable[ResourceClaim]) -> FindClaim:
    """Return a lookup that includes claims just created, which the cache may not show yet."""
    by_name = {claim.metadata.name: claim for claim in created}
    return lambda name: find(name) or by_name.get(name)


def _by_entry(claims: Iterable[ResourceClaim]) -> dict[str, str]:
    """Return the names of claims by the entry for which they were created."""
    names: dict[str, str] = {}
    for claim in claims:
        entry = claim.metadata.annotations.get(POD_CLAIM_ANNOTATION)
        if entry is not None:
            names.setdefault(entry, claim.metadata.name)
    return names


def _plan(
    owner: Pod | PodGroup,
    find: FindClaim,
    created: dict[str, str],
    is_owner: Callable[[ResourceClaim], bool],
    shared: Collection[str] = (),
) -> ClaimPlan:
    """created: existing claims by entry. shared: entries whose claims are not created for this owner."""
    names: dict[str, str] = {}
    missing: list[ClaimEntry] = []
    is_recorded = True
    for entry in owner.spec.resource_claims:
        if entry.resource_claim_template_name is None:
            continue
        try:
            recorded = recorded_name(owner, entry)
        except ClaimNotCreated:
            recorded = ""
        if recorded is None:
            continue
        recorded_claim = find(recorded) if recorded else None
        if recorded_claim is not None and is_owner(recorded_claim):
            names[entry.name] = recorded
        elif entry.name in created:
            names[entry.name] = created[entry.name]
            is_recorded = is_recorded and names[entry.name] == recorded
        elif entry.name not in shared:
            missing.append(entry)
    return ClaimPlan(names, tuple(missing), is_recorded and not missing)


def claim_from_template(
    resource: Resource[Any], owner: Object, entry: ClaimEntry, template: ResourceClaimTemplate
) -> JSONValue:
    """Return the ResourceClaim that an entry with a template gets. owner: the Pod or PodGroup."""
    metadata = template.spec.metadata
    reference = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            **{name: metadata[name] for name in ("labels",) if metadata.get(name)},
            "generateName": generate_name(owner.metadata.name, entry.name),
            "annotations": {**(metadata.get("annotations") or {}), POD_CLAIM_ANNOTATION: entry.name},
            "ownerReferences": [reference],
        },
        "spec": template.spec.spec,
    }


def generate_name(owner: str, entry: str) -> str:
    """Return "OWNER-CLAIM-"; parts of a name that is too long are cut in proportion to their lengths."""
    name = f"{owner}-{entry}-"
    if len(name) <= _MAX_BASE:
        return name
    return f"{owner[: len(owner) * _MAX_BASE // len(name)]}-{entry[: len(entry) * _MAX_BASE // len(name)]}"


def devices_of(template: ResourceClaimTemplate) -> DeviceClaim:
    """Return spec.devices of the claims that the template describes."""
    return convert(ResourceClaimSpec, template.spec.spec).devices


def uses_prioritized_list(devices: DeviceClaim) -> bool:
    return any(request.first_available for request in devices.requests)


def requests_admin_access(devices: DeviceClaim) -> bool:
    return any(request.exactly is not None and request.exactly.admin_access for request in devices.requests)


def claim_keys(consumer: Pod | PodGroup) -> list[str]:
    """Return the keys of the claims that a consumer names or that were created for it. Function of an index."""
    return [f"{consumer.metadata.namespace}/{name}" for name in created_claims(consumer)]


def template_keys(consumer: Pod | PodGroup) -> list[str]:
    """Return the keys of the claim templates that a consumer names. Function of an index."""
    return [
        f"{consumer.metadata.namespace}/{entry.resource_claim_template_name}"
        for entry in consumer.spec.resource_claims
        if entry.resource_claim_template_name is not None
    ]

"""Events of PodGroups with ResourceClaims (feature gate DRAWorkloadResourceClaims), and lookups in their cache.

Source: v1.36 pkg/controller/resourceclaim/controller.go.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.controllers.resourceclaim.pod_claim_plan import (
    NO_GROUP,
    FindClaim,
    Membership,
    claim_keys,
    group_needs_work,
    template_keys,
)
from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.informers.shared_informer import HandlerRegistration
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.device_types import ResourceClaim
from kubeloop.kube.objects.object_fields import pod_group_key
from kubeloop.kube.objects.resources import POD_GROUPS, PODS, RESOURCE_CLAIMS
from kubeloop.kube.objects.workload_types import PodGroup

_CLAIM_INDEX = "resource-claim"
_TEMPLATE_INDEX = "resource-claim-template"
_GROUP_INDEX = "pod-group"


class GroupEvents:
    """Enqueues PodGroups, their claims and their Pods.

    add: adds a key to the queue. on_pod: handles a Pod that may need work. on_deleted: receives the UID of a deleted
    PodGroup.
    """

    def __init__(
        self,
        context: ControllerContext,
        *,
        add: Callable[[str], None],
        on_pod: Callable[[Pod], None],
        on_deleted: Callable[[str], None],
    ) -> None:
        self._add, self._on_pod, self._on_deleted = add, on_pod, on_deleted
        groups = context.informers.informer(POD_GROUPS)
        self.groups = groups.store
        self.groups.add_index(_CLAIM_INDEX, claim_keys)
        self.groups.add_index(_TEMPLATE_INDEX, template_keys)
        self._claims = context.informers.informer(RESOURCE_CLAIMS).store
        self._pods = context.informers.informer(PODS).store
        self._pods.add_index(_GROUP_INDEX)
        self.registration: HandlerRegistration[PodGroup] = groups.on_latest(
            self.on_group, deleted=self._on_group_delete
        )

    def on_group(self, group: PodGroup) -> None:
        if not group.spec.resource_claims:
            return
        if group_needs_work(group, self.finder(group)):
            self._add(f"podgroup:{group.key}")
        # the status of the Pods names the claims that the PodGroup shares
        for pod in self._pods.by_index(_GROUP_INDEX, group.key):
            self._on_pod(pod)

    def _on_group_delete(self, group: PodGroup) -> None:
        if not group.spec.resource_claims:
            return
        self._on_deleted(group.metadata.uid)
        for key in claim_keys(group):
            self._add(f"claim:{key}")
        for pod in self._pods.by_index(_GROUP_INDEX, group.key):
            self._on_pod(pod)

    def on_claim(self, key: str) -> None:
        for group in self.groups.by_index(_CLAIM_INDEX, key):
            self.on_group(group)

    def on_template(self, key: str) -> None:
        for group in self.groups.by_index(_TEMPLATE_INDEX, key):
            self.on_group(group)

    def finder(self, group: PodGroup) -> FindClaim:
        claims, namespace = self._claims, group.metadata.namespace
        return lambda name: claims.get(f"{namespace}/{name}")

    def membership_of(self, pod: Pod, owned: Callable[[str], list[ResourceClaim]]) -> Membership:
        """Return the PodGroup of a Pod. owned: returns the claims that were created for the owner of a UID."""
        key = pod_group_key(pod)
        if key is None:
            return NO_GROUP
        group = self.groups.get(key)
        return Membership(key, group, () if group is None else owned(group.metadata.uid))


def check_group_is_cached(pod: Pod, membership: Membership) -> None:
    """Raise ReconcileError if the PodGroup of the Pod is unknown: it may share claims with the Pod."""
    if membership.key is not None and membership.pod_group is None:
        name = membership.key.rpartition("/")[2]
        raise ReconcileError(f'get PodGroup for Pod {pod.key}: podgroup.{POD_GROUPS.group} "{name}" not found')

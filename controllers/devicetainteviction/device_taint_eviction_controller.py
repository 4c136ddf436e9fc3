"""Device taint eviction controller: evicts Pods by the taints of their devices, and counts them in DeviceTaintRules.

    slice, rule or claim changed --> eviction of the claim --> Pods that the claim is reserved for
    Pod's node or claims changed -----------------------------> the Pod --> None: cancel | evict at a time

    pod:KEY/UID    evicts a Pod when its time has come
    rule:NAME      updates the status of a DeviceTaintRule, at most once per STATUS_PERIOD_SECONDS

Source: v1.36 pkg/controller/devicetainteviction/device_taint_eviction.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from kubeloop.controllers.devicetainteviction.eviction_time import (
    Eviction,
    RuleReference,
    claim_eviction,
    pod_eviction,
    reference_to_rule,
    rule_selects,
)
from kubeloop.controllers.devicetainteviction.rule_status import (
    NO_EFFECT,
    STATUS_PERIOD_SECONDS,
    RuleCounts,
    changed_condition,
    seconds_until_update,
)
from kubeloop.controllers.devicetainteviction.tainted_devices import DeviceKey, TaintedDevices
from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.disruption_target import (
    disruption_target,
    has_disruption_target,
    patch_pod_status,
)
from kubeloop.informers.shared_informer import HandlerRegistration
from kubeloop.informers.store import Store
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import NotFound
from kubeloop.kube.objects.api_types import Condition, Pod, to_json
from kubeloop.kube.objects.device_types import DeviceTaintRule, ResourceClaim, ResourceSlice
from kubeloop.kube.objects.resources import DEVICE_TAINT_RULES, POD_GROUPS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubeloop.kube.objects.taints_and_tolerations import NO_EXECUTE
from kubeloop.kube.values.times import seconds_between

_NAME = "device-taint-eviction-controller"

_APPLY = {"fieldManager": _NAME, "force": "true"}
_REASON, _MESSAGE = "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint"
_GROUP_INDEX = "pod-group"
_MAX_EVICTED_PODS = 500

ClaimEvictions = dict[str, tuple[ResourceClaim, Eviction | None]]
"""Allocated claims with the eviction of their Pods, by key."""


class DeviceTaintEvictionController(EventDrivenController):
    """Evicts Pods, and writes the status of DeviceTaintRules; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "devicetainteviction", _NAME)
        self._deletions = context.metrics.counter(
            "device_taint_eviction_controller_pod_deletions_total",
            "Total number of Pods deleted by DeviceTaintEvictionController since its start.",
        ).labels()
        self._deletion_seconds = context.metrics.histogram(
            "device_taint_eviction_controller_pod_deletion_duration_seconds",
            "Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion"
            " via DeviceTaintEvictionController.",
            buckets=(0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240),
        ).labels()
        pods, claims = context.informers.informer(PODS), context.informers.informer(RESOURCE_CLAIMS)
        slices = context.informers.informer(RESOURCE_SLICES)
        self._pods = pods.store
        self._groups = context.feature_gates.enabled("DRAWorkloadResourceClaims")
        if self._groups:
            self._pods.add_index(_GROUP_INDEX)
        self._devices = TaintedDevices()
        self._claims: ClaimEvictions = {}
        self._evicting_rules: dict[str, DeviceTaintRule] = {}  # by name
        self._planned: dict[str, Eviction] = {}  # by UID of the Pod
        self._evicted: dict[str, Eviction] = {}  # by UID, of the Pods evicted last
        self._evicted_pods: Counter[RuleReference] = Counter()
        self._rules: Store[DeviceTaintRule] | None = None
        self._registrations: list[HandlerRegistration[Any]] = [
            claims.on_changes(self.on_claim),
            pods.on_events(added=self.on_pod, updated=self.on_pod_update, deleted=self.on_pod_delete),
            slices.on_changes(self.on_slice),
        ]
        if context.feature_gates.enabled("DRADeviceTaintRules"):
            rules = context.informers.informer(DEVICE_TAINT_RULES)
            self._rules = rules.store
            self._registrations.append(rules.on_changes(self.on_rule))

    # --- event handlers --------------------------------------------------------------------------------------------

    def on_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        changed = self._devices.change(old, new)
        if not changed:
            return
        for key, (claim, _) in self._claims.items():
            if any(device in changed for device in _devices_of(claim)):
                self._update_eviction(key, claim)

    def on_rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            if new.status != old.status and new.spec.taint.effect == NO_EXECUTE:
                # Perhaps written by the former leader, with its counts. v1.36 waits for the next change of a Pod.
                self.queue.add(f"rule:{new.metadata.name}")
            return
        if new is not None:
            self.queue.add(f"rule:{new.metadata.name}")
        if old is not None:
            self._evicting_rules.pop(old.metadata.name, None)
            if new is None:
                self._evicted_pods.pop(reference_to_rule(old), None)
        if new is not None and new.spec.taint.effect == NO_EXECUTE:
            self._evicting_rules[new.metadata.name] = new
        for key, (claim, _) in self._claims.items():
            self._update_eviction(key, claim)

    def _update_eviction(self, key: str, claim: ResourceClaim) -> None:
        """Compute the eviction of a claim again; if it has changed, those of its Pods as well."""
        eviction = claim_eviction(claim, self._devices, self._evicting_rules.values())
        if eviction != self._claims[key][1]:
            self._claims[key] = claim, eviction
            self._plan_pods_of(claim)

    def on_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old is not None:
            self._claims.pop(old.key, None)
        if new is not None and new.status.allocation is not None:
            eviction = claim_eviction(new, self._devices, self._evicting_rules.values())
            self._claims[new.key] = new, eviction
        if old is not None and (new is None or old.status.reserved_for != new.status.reserved_for):
            self._plan_pods_of(old)
        if new is not None:
            self._plan_pods_of(new)

    def _plan_pods_of(self, claim: ResourceClaim) -> None:
        for pod in self._pods_of(claim):
            self._plan(pod)

    def _pods_of(self, claim: ResourceClaim) -> Iterable[Pod]:
        """Yield the Pods that a claim is reserved for, directly or by their PodGroup, as the cache shows them."""
        for consumer in claim.status.reserved_for:
            key = f"{claim.metadata.namespace}/{consumer.name}"
            named = (consumer.api_group, consumer.resource)
            if named == (PODS.group, PODS.plural):
                pod = self._pods.get(key)
                if pod is not None and pod.metadata.uid == consumer.uid:
                    yield pod
            elif self._groups and named == (POD_GROUPS.group, POD_GROUPS.plural):
                yield from self._pods.by_index(_GROUP_INDEX, key)

    def on_pod(self, pod: Pod) -> None:
        if pod.spec.resource_claims:
            self._plan(pod)

    def on_pod_update(self, old: Pod, new: Pod) -> None:
        if not new.spec.resource_claims:
            return
        if old.metadata.deletion_timestamp is None and new.metadata.deletion_timestamp is not None:
            self._update_status_of(new)
        if (
            old.spec.node_name == new.spec.node_name
            and old.status.resource_claim_statuses == new.status.resource_claim_statuses
        ):
            return
        self._plan(new)

    def on_pod_delete(self, pod: Pod) -> None:
        self._update_status_of(pod)
        self._planned.pop(pod.metadata.uid, None)

    # --- plans -----------------------------------------------------------------------------------------------------

    def _plan(self, pod: Pod) -> None:
        """Plan, change or cancel the eviction of a Pod."""
        eviction, uid = pod_eviction(pod, self._claims.get, groups=self._groups), pod.metadata.uid
        if eviction is None:
            self._update_status_of(pod)
            if self._planned.pop(uid, None) is not None:
                self._events.event(pod, "Normal", "DeviceTaintManagerEviction", "Cancelling deletion")
            return
        self._planned[uid] = eviction
        self.queue.add_after(f"pod:{pod.key}/{uid}", self._seconds_until(eviction))
        self._update_status_of(pod)

    def _update_status_of(self, pod: Pod) -> None:
        """Update the status of the rules that evict or have evicted a Pod, later: more Pods may change.

        In v1.36, a Pod whose end the cache shows late, or that a user deletes, may stay in the count.
        """
        eviction = self._planned.get(pod.metadata.uid) or self._evicted.get(pod.metadata.uid)
        for rule in eviction.rules if eviction is not None else ():
            self.queue.add_after(f"rule:{rule.name}", STATUS_PERIOD_SECONDS)

    def _seconds_until(self, eviction: Eviction) -> float:
        return seconds_between(self._clock.now(), eviction.when)

    # --- reconciles ------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Reconcile "pod:NAMESPACE/NAME/UID" or "rule:NAME". An exception means: retry with backoff."""
        kind, _, name = key.partition(":")
        if kind == "rule":
            return await self._reconcile_rule(name)
        return await self._reconcile_pod(*name.split("/"))

    async def _reconcile_pod(self, namespace: str, name: str, uid: str) -> float | None:
        """Evict a Pod if its time has come, else return the seconds until then."""
        eviction = self._planned.get(uid)
        if eviction is None or uid in self._evicted:
            return None
        seconds = self._seconds_until(eviction)
        if seconds > 0:
            return seconds
        with suppress(NotFound):
            if await self._evict(namespace, name, uid):
                self._count(eviction)
        self._planned.pop(uid, None)
        self._evicted[uid] = eviction
        if len(self._evicted) > _MAX_EVICTED_PODS:
            del self._evicted[next(iter(self._evicted))]
        return None

    async def _evict(self, namespace: str, name: str, uid: str) -> bool:
        """Delete the Pod with this UID unless it terminates already; False if another Pod has its name.

        Raises NotFound.
        """
        pod = await self._client.get(PODS, name, namespace)
        if pod.metadata.uid != uid:
            return False
        if pod.metadata.deletion_timestamp is not None:
            return True
        self._events.event(pod, "Normal", "DeviceTaintManagerEviction", "Marking for deletion")
        if not has_disruption_target(pod, _REASON, _MESSAGE):
            condition = disruption_target(pod, _REASON, _MESSAGE, self._clock.now())
            del condition["observedGeneration"]  # this controller does not set it
            await patch_pod_status(self._client, pod, condition)
        await self._client.delete(PODS, name, namespace, precondition_uid=uid)
        return True

    def _count(self, eviction: Eviction) -> None:
        self._deletions.inc()
        self._deletion_seconds.observe(-self._seconds_until(eviction))
        for rule in eviction.rules:
            current = self._rules.get(rule.name) if self._rules is not None else None
            if current is not None and current.metadata.uid == rule.uid:
                self._evicted_pods[rule] += 1
            self.queue.add_after(f"rule:{rule.name}", STATUS_PERIOD_SECONDS)

    async def _reconcile_rule(self, name: str) -> float | None:
        """Write the condition of a rule if it has changed, or return the seconds until the next time to do so."""
        rule = self._rules.get(name) if self._rules is not None else None
        if rule is None:
            return None
        now = self._clock.now()
        seconds = seconds_until_update(rule, now)
        if seconds > 0:
            return seconds
        condition = changed_condition(rule, self._counts(rule), now)
        if condition is not None:
            await self._write_condition(rule, condition)
        return None

    def _counts(self, rule: DeviceTaintRule) -> RuleCounts:
        """Count the Pods that a rule evicts. For one without effect, those that it would evict, and its devices."""
        effect, reference = rule.spec.taint.effect, reference_to_rule(rule)
        evicted = self._evicted_pods[reference]
        if effect not in (NO_EXECUTE, NO_EFFECT):
            return RuleCounts(evicted_pods=evicted)
        claims = self._claims
        if effect == NO_EFFECT:
            taint = msgspec.structs.replace(rule.spec.taint, effect=NO_EXECUTE)
            evicting = msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=taint))
            claims = {
                key: (claim, claim_eviction(claim, self._devices, [evicting])) for key, (claim, _) in claims.items()
            }
        pods: dict[str, str] = {}  # namespace by UID
        for claim, eviction in claims.values():
            if eviction is None or reference not in eviction.rules:
                continue
            for pod in self._pods_of(claim):
                if pod.metadata.deletion_timestamp is not None:
                    continue
                of_pod = pod_eviction(pod, claims.get, groups=self._groups)
                if of_pod is not None and reference in of_pod.rules:
                    pods[pod.metadata.uid] = pod.metadata.namespace
        published = allocated = 0
        if effect == NO_EFFECT:
            published = sum(rule_selects(rule, *device) for device in self._devices.devices())
            allocated = sum(
                rule_selects(rule, *device) for claim, _ in claims.values() for device in _devices_of(claim)
            )
        return RuleCounts(len(pods), len(set(pods.values())), evicted, published, allocated)

    async def _write_condition(self, rule: DeviceTaintRule, condition: Condition) -> None:
        """Apply the condition. Raises ApiError, for example if another rule has replaced this one."""
        assert condition.last_transition_time is not None
        fields = to_json(condition) | {
            "lastTransitionTime": rfc3339(condition.last_transition_time),
            "message": condition.message,
        }
        body = {
            "apiVersion": DEVICE_TAINT_RULES.api_version,
            "kind": DEVICE_TAINT_RULES.kind,
            "metadata": {"name": rule.metadata.name, "uid": rule.metadata.uid},
            "status": {"conditions": [fields]},
        }
        await self._client.patch(
            DEVICE_TAINT_RULES, rule.metadata.name, body, PatchType.APPLY, subresource="status", query=_APPLY
        )


def _devices_of(claim: ResourceClaim) -> list[DeviceKey]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return [(result.driver, result.pool, result.device) for result in results]

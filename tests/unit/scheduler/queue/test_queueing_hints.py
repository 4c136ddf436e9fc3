"""Registrations of plugins for events."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.kube.objects.resources import BY_GROUP_KIND
from kubeloop.scheduler.api import events
from kubeloop.scheduler.api.events import ActionType, Hint
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.results import on_event
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.profile_plugins import create_plugin
from kubeloop.scheduler.legacy_policy.plugins import ALL_PLUGINS
from kubeloop.scheduler.metrics import NO_METRICS
from kubeloop.scheduler.queue.queueing_hints import (
    HINTS_DECIDED_BY_SPEC,
    QueueingHintMap,
    QueueingHints,
    QueueingStrategy,
    Registration,
    registrations,
)


class Plugin:
    name = "Mine"


def test_plugin_without_registrations_receives_events_of_pod_groups_if_the_gate_is_on():
    for enabled in (True, False):
        registered = registrations([Plugin()], pod_groups=enabled)
        resources = [registration.event.resource for registration in registered]
        assert (events.POD_GROUP in resources) is enabled
        assert events.POD in resources


@pytest.mark.parametrize(
    ("actions", "added"),
    [
        pytest.param([ActionType.ADD], True, id="a new node"),
        pytest.param([ActionType.ADD | ActionType.UPDATE_NODE_LABEL], True, id="a new node or new labels"),
        pytest.param([ActionType.UPDATE_NODE_LABEL], False, id="new labels"),
        pytest.param([ActionType.ADD | ActionType.UPDATE_NODE_TAINT], False, id="taints in the same event"),
        pytest.param([ActionType.ADD, ActionType.UPDATE_NODE_TAINT], False, id="taints in another event"),
    ],
)
def test_plugins_of_new_nodes_receive_taint_updates(actions, added):
    """An untainted node may be as good as a new one, since pre-check rejected it while it was tainted."""

    class Registering(Plugin):
        def events_to_register(self):
            return [on_event(events.NODE, action, lambda *_: Hint.SKIP) for action in actions]

    registered = registrations([Registering()], pod_groups=False)
    taints = events.cluster_event(events.NODE, ActionType.UPDATE_NODE_TAINT)
    assert [registration.event.action for registration in registered[: len(actions)]] == actions
    assert registered[len(actions) :] == ([Registration("Mine", taints, None)] if added else [])


def _pods() -> list[Pod]:
    """Return pods with an empty and with a rich spec."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
    }
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    container = {
        "name": "main",
        "resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}},
        "ports": [{"hostPort": 80}],
    }
    spec = {
        "schedulerName": "default-scheduler",
        "affinity": affinity,
        "containers": [container],
        "topologySpreadConstraints": [spread],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "csi", "csi": {}}],
        "schedulingGroup": {"podGroupName": "gang"},
    }
    metadata = {"name": "pending", "namespace": "ns", "uid": "1", "labels": {"app": "web"}}
    return [convert(Pod, {}), convert(Pod, {"metadata": metadata, "spec": spec})]


def _queued(pod: Pod, plugin: str) -> QueuedPodInfo:
    queued = QueuedPodInfo(PodInfo(pod), 0)
    queued.unschedulable_plugins = {plugin}
    return queued


def _objects(resource: str) -> list[Any]:
    """Return None, an empty and a named object of the resource of an event."""
    group, _, kind = resource.rpartition("/")
    type_ = {events.NODE: Node, events.POD: Pod}.get(resource) or BY_GROUP_KIND[group, kind].type
    bound = {"nodeName": "node"} if type_ is Pod else {}
    named = {"metadata": {"name": "data", "namespace": "ns", "labels": {"app": "web"}}, "spec": bound}
    return [None, convert(type_, {}), convert(type_, named)]


def _registered(plugin_cluster: Any) -> list[Registration]:
    gates = {"GenericWorkload": True, "GangScheduling": True, "DRAExtendedResource": True, "NodeDeclaredFeatures": True}
    handle = plugin_cluster(feature_gates=gates)
    names = ALL_PLUGINS.keys() - {"RequestedToCapacityRatio"}  # which needs arguments
    plugins = [create_plugin(name, None, handle, ALL_PLUGINS) for name in sorted(names)]
    return registrations(plugins, pod_groups=True)


def test_every_hint_takes_missing_and_empty_objects(plugin_cluster):
    called = set()
    for registered in _registered(plugin_cluster):
        objects = _objects(registered.event.resource)
        for pod in _pods():
            for old in objects:
                for new in objects:
                    if registered.hint is not None:
                        assert registered.hint(pod, old, new) in Hint
                        called.add(registered.plugin)
                    if registered.pod_info_hint is not None:
                        assert registered.pod_info_hint(PodInfo(pod), old, new) in Hint
    assert len(called) > 15


def test_event_without_objects_queues_the_pods_of_its_plugins(plugin_cluster, caplog):
    """An event without objects, such as completed caches of devices, queues every pod."""
    registered = _registered(plugin_cluster)
    hints = QueueingHints({"default-scheduler": QueueingHintMap(registered)}, NO_METRICS, lambda: 0)
    caplog.set_level(logging.WARNING)
    for entry in registered:
        for action in ActionType:
            if action & entry.event.action and entry.hint is not None:
                queued = _queued(_pods()[1], entry.plugin)
                event = events.cluster_event(entry.event.resource, action)
                assert hints.strategy(queued, event, None, None, {}) is QueueingStrategy.AFTER_BACKOFF, entry
    assert caplog.records == []


def test_failing_hint_queues_the_pod(caplog):
    def fail(pod: Pod, old: Any, new: Any) -> Hint:
        raise ValueError("odd")

    class Failing:
        name = "Failing"

        def events_to_register(self) -> Any:
            return (on_event(events.NODE, events.ADD, fail),)

    hints = QueueingHints({"default-scheduler": QueueingHintMap(registrations([Failing()]))}, NO_METRICS, lambda: 0)
    strategy = hints.strategy(_queued(_pods()[1], "Failing"), events.NODE_ADD, None, Node(), None)
    assert strategy is QueueingStrategy.AFTER_BACKOFF
    assert [record.message for record in caplog.records] == ["queueing hint failed"]


def hint_of(result: Hint) -> Any:
    return lambda pod, old, new: result


@pytest.mark.parametrize(
    ("hints", "rejected_by", "pending", "expected"),
    [
        pytest.param({}, "A", "", QueueingStrategy.SKIP, id="no registration"),
        pytest.param({"A": Hint.QUEUE}, "A", "", QueueingStrategy.AFTER_BACKOFF, id="queue"),
        pytest.param({"A": Hint.SKIP}, "A", "", QueueingStrategy.SKIP, id="skip"),
        pytest.param({"A": None}, "A", "", QueueingStrategy.AFTER_BACKOFF, id="no hint"),
        pytest.param({"A": Hint.QUEUE}, "B", "", QueueingStrategy.SKIP, id="another plugin rejected it"),
        pytest.param({"A": Hint.SKIP, "B": Hint.QUEUE}, "AB", "", QueueingStrategy.AFTER_BACKOFF, id="the second one"),
        pytest.param({"A": Hint.QUEUE, "B": Hint.SKIP}, "AB", "", QueueingStrategy.AFTER_BACKOFF, id="the first one"),
        pytest.param({"A": Hint.QUEUE}, "", "A", QueueingStrategy.IMMEDIATELY, id="pending"),
        pytest.param({"A": Hint.SKIP}, "", "A", QueueingStrategy.SKIP, id="pending, skip"),
        pytest.param({"A": Hint.QUEUE, "B": Hint.QUEUE}, "A", "B", QueueingStrategy.IMMEDIATELY, id="pending second"),
        pytest.param({"A": Hint.QUEUE, "B": Hint.SKIP}, "A", "B", QueueingStrategy.AFTER_BACKOFF, id="pending skips"),
        pytest.param({"A": Hint.SKIP}, "", "", QueueingStrategy.AFTER_BACKOFF, id="rejected by no plugin"),
    ],
)
@pytest.mark.parametrize("memo", [None, {}])
def test_strategy_by_hints_and_rejections(hints, rejected_by, pending, expected, memo):
    registered = [
        Registration(plugin, events.NODE_ADD, None if hint is None else hint_of(hint)) for plugin, hint in hints.items()
    ]
    subject = QueueingHints({"default-scheduler": QueueingHintMap(registered)}, NO_METRICS, lambda: 0)
    queued = QueuedPodInfo(PodInfo(_pods()[1]), 0)
    queued.unschedulable_plugins, queued.pending_plugins = set(rejected_by), set(pending)
    assert subject.strategy(queued, events.NODE_ADD, None, Node(), memo) is expected


def test_memo_does_not_hide_the_following_plugins():
    first, second = sorted(HINTS_DECIDED_BY_SPEC)[:2]
    registered = [
        Registration(plugin, events.NODE_ADD, hint_of(hint))
        for plugin, hint in ((first, Hint.SKIP), (second, Hint.QUEUE))
    ]
    subject = QueueingHints({"default-scheduler": QueueingHintMap(registered)}, NO_METRICS, lambda: 0)
    queued, memo = QueuedPodInfo(PodInfo(_pods()[1]), 0), {}
    queued.unschedulable_plugins = {first, second}
    for _ in range(2):
        strategy = subject.strategy(queued, events.NODE_ADD, None, Node(), memo)
        assert strategy is QueueingStrategy.AFTER_BACKOFF
    assert sorted(hint.name for hint in memo.values()) == ["QUEUE", "SKIP"]


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(None, QueueingStrategy.AFTER_BACKOFF, id="for all pods"),
        pytest.param(_pods()[1], QueueingStrategy.AFTER_BACKOFF, id="for this pod"),
        pytest.param(convert(Pod, {"metadata": {"name": "x", "uid": "x"}}), QueueingStrategy.SKIP, id="for another"),
        pytest.param(Node(), QueueingStrategy.SKIP, id="for a node"),
    ],
)
def test_forced_activation_is_for_one_pod(new, expected):
    subject = QueueingHints({"default-scheduler": QueueingHintMap([])}, NO_METRICS, lambda: 0)
    queued = _queued(_pods()[1], "A")
    assert subject.strategy(queued, events.FORCE_ACTIVATE, None, new, None) is expected


def test_pod_of_an_unknown_scheduler_is_queued():
    subject = QueueingHints({"other": QueueingHintMap([])}, NO_METRICS, lambda: 0)
    strategy = subject.strategy(_queued(_pods()[1], "A"), events.NODE_ADD, None, Node(), None)
    assert strategy is QueueingStrategy.AFTER_BACKOFF


@pytest.mark.parametrize("hint", [Hint.QUEUE, Hint.SKIP])
def test_hint_for_the_parsed_pod_decides(hint, queued):
    """pod_info_hint gets the PodInfo, with terms and requests that are parsed already."""
    pods = []

    def pod_info_hint(info, old, new):
        pods.append((info, old, new))
        return hint

    waiting = queued("p")
    registered = Registration("Mine", events.NODE_ADD, None, pod_info_hint)
    assert QueueingHints._hint(registered, waiting, "old", "new") is hint
    assert pods == [(waiting.info, "old", "new")]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param(["n/c"], "n/c", id="the only plugin"),
        pytest.param(["n/c", "n/c"], "n/c", id="two plugins that need the same claim"),
        pytest.param(["n/c", "n/d"], None, id="two plugins that need different claims"),
        pytest.param(["n/c", None], None, id="a plugin that needs none"),
        pytest.param([], None, id="no plugin"),
    ],
)
def test_claim_is_needed_if_all_hints_need_it(claims, expected):
    event = events.cluster_event("resource.k8s.io/ResourceClaim", ActionType.ADD)
    registered = [
        Registration(
            "Mine", event, lambda *_: Hint.SKIP, claim=None if claim is None else lambda *_, claim=claim: claim
        )
        for claim in claims
    ]
    hints = QueueingHints({"default-scheduler": QueueingHintMap(registered)}, NO_METRICS, lambda: 0)
    assert hints.claim_needed(event, None, object()) == expected

"""The state of a namespace as text."""

import msgspec
import pytest

from kubeloop.kube.objects.api_types import Event, Pod
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS
from kubeloop.testing.description import (
    event_lines,
    pending_lines,
    pod_lines,
    pods_of,
    status_lines,
    unmet_reasons,
)


def pod(name: str, *, node: str = "", ready: bool = False, **labels: str) -> Pod:
    conditions = [{"type": "Ready", "status": "True"}] if ready else []
    document = {
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running" if ready else "Pending", "conditions": conditions},
    }
    return msgspec.convert(document, Pod)


def event(name: str, message: str, *, count: int = 1) -> Event:
    involved = {"kind": "Pod", "name": name, "namespace": "shop"}
    document = {
        "metadata": {"name": name},
        "involvedObject": involved,
        "type": "Normal",
        "reason": "Scheduled",
        "message": message,
        "count": count,
    }
    return msgspec.convert(document, Event)


async def no_explanation(pod: Pod) -> str:
    return f"{pod.metadata.name} fits no node"


def test_status_lines_show_generation_counts_and_conditions():
    deployment = {
        "apiVersion": "apps/v1",
        "metadata": {"name": "web", "generation": 2},
        "spec": {"replicas": 3},
        "status": {
            "observedGeneration": 1,
            "readyReplicas": 1,
            "conditions": [{"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"}],
        },
    }
    assert status_lines(deployment) == [
        "no controller has observed generation 2 yet",
        "desired 3: readyReplicas 1",
        "condition Available=False (MinimumReplicasUnavailable)",
    ]


@pytest.mark.parametrize(
    ("obj", "lines"),
    [
        ({"metadata": {}, "status": {"phase": "Pending"}}, ["phase Pending"]),
        (
            {"metadata": {"deletionTimestamp": "now", "finalizers": ["a/b"]}},
            ["it is being deleted, with finalizers a/b"],
        ),
        (
            {"metadata": {}, "status": {"desiredNumberScheduled": 2, "numberReady": 1}},
            ["desiredNumberScheduled 2, updatedNumberScheduled 0, numberReady 1, numberAvailable 0"],
        ),
        ({"metadata": {}}, []),
    ],
)
def test_status_lines_of_other_objects(obj, lines):
    assert status_lines(obj) == lines


def test_related_pods_are_those_of_the_selector():
    pods = [pod("web-1", app="web"), pod("api-1", app="api")]
    web = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
    assert pods_of(DEPLOYMENTS, web, pods) == pods[:1]
    assert pods_of(DEPLOYMENTS, {"metadata": {"name": "web"}}, pods) == pods
    assert pods_of(PODS, {"metadata": {"name": "api-1"}}, pods) == pods[1:]


async def test_pending_lines_explain_the_first_three_pods():
    pods = [pod(f"web-{number}") for number in range(5)] + [pod("bound", node="node-0")]
    assert await pending_lines(pods, no_explanation) == [
        "pod shop/web-0: web-0 fits no node",
        "pod shop/web-1: web-1 fits no node",
        "pod shop/web-2: web-2 fits no node",
        "and 2 more pods without a node",
    ]


def test_event_lines_group_equal_events_of_several_pods():
    events = [event("web-1", "assigned web-1 to node-0"), event("web-2", "assigned web-2 to node-1")]
    assert event_lines(events) == ["event Normal Scheduled pod/web-2 and 1 more: assigned web-2 to node-1"]
    assert event_lines([event("web-1", "again", count=3)]) == ["event Normal Scheduled pod/web-1 (x3): again"]


def test_event_lines_count_the_omitted_groups():
    events = [event("web", f"message {number}") for number in range(10)]
    assert event_lines(events) == [
        "(2 kinds of earlier events)",
        *(f"event Normal Scheduled pod/web: message {number}" for number in range(2, 10)),
    ]


def test_pod_lines_list_unready_pods_first():
    pods = [pod("ready", node="node-0", ready=True), *(pod(f"p{number}") for number in range(10))]
    assert pod_lines(pods) == [
        *(f"pod/p{number} Pending, not ready, on no node" for number in range(10)),
        "and 1 more pods",
    ]


async def test_missing_object_is_the_reason_with_its_events():
    reasons = await unmet_reasons(PODS, "web", None, [], [event("web", "gone"), event("other", "x")], no_explanation)
    assert reasons == ["there is no pod web", "event Normal Scheduled pod/web: gone"]

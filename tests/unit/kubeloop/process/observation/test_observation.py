"""Observation of an API server: what is watched, and what its receivers pass to the observer."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from kubeloop.kube.objects.observed_types import ObservedPod, ObservedPodMeta
from kubeloop.kube.objects.resources import PODS
from kubeloop.process.metrics.metrics_registry import MetricsRegistry
from kubeloop.process.observation.observation import Observation, ObservationSettings, PodReceiver
from kubeloop.tracing.observation.clock_skew import ClockSkew
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.spans.traceparent import TraceContext
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import injected_error

pytestmark = pytest.mark.virtual_time


@contextlib.asynccontextmanager
async def observing(server, elect=None, **settings):
    """Run the observation of a server, and yield it when the pods are listed."""
    observation = Observation(
        server.client,
        ObservationSettings(**settings),
        clock=server.clock,
        rng=random.Random(1),
        registry=MetricsRegistry(),
        skew=ClockSkew(),
    )
    task = asyncio.create_task(observation.run(elect))
    await observation.synced.wait()
    yield observation
    task.cancel()
    await asyncio.wait([task])


async def watched_targets(server):
    await asyncio.sleep(1)
    return sorted(request.target.partition("&sendInitialEvents")[0] for request in server.transport.sent)


async def test_pods_events_and_nodes_are_watched():
    server = FakeApiServer()
    async with observing(server):
        targets = await watched_targets(server)
    assert [target.partition("?")[0] for target in targets] == ["/api/v1/events", "/api/v1/nodes", "/api/v1/pods"]
    assert "fieldSelector=involvedObject.kind%3DPod" in targets[0]
    assert server.requests == []


async def test_scope_limits_pods_and_events():
    server = FakeApiServer()
    async with observing(server, namespace="shop", label_selector="app=web"):
        events, pods, nodes = await watched_targets(server)
    assert nodes.startswith("/api/v1/nodes?")
    assert pods.startswith("/api/v1/namespaces/shop/pods?")
    assert "labelSelector=app%3Dweb" in pods
    assert events.startswith("/api/v1/namespaces/shop/events?")
    assert "labelSelector" not in events


async def test_resource_is_watched_when_its_permission_is_granted(caplog):
    server = FakeApiServer()
    permissions = {"pods"}

    def reject(method, path):
        return None if path.rpartition("/")[2] in permissions else injected_error(403)

    def watched():
        return {
            request.path.rpartition("/")[2]
            for request in server.transport.sent
            if "sendInitialEvents" in request.target
        }

    server.transport.reject = reject
    async with observing(server, missing=frozenset({"events", "nodes"})) as observation:
        await asyncio.sleep(600)
        assert watched() == {"pods"}
        assert observation.missing == {"events", "nodes"}
        server.transport.down = True  # is no answer
        await asyncio.sleep(120)
        server.transport.down = False
        for resource in ("events", "nodes"):
            permissions.add(resource)
            await asyncio.sleep(61)
            assert watched() == permissions
        assert observation.missing == set()
    granted = [record.resource for record in caplog.records if "permission was granted" in record.message]
    assert granted == ["events", "nodes"]


async def test_replica_exports_while_it_leads():
    elected = asyncio.Event()

    async def elect(lead):
        await elected.wait()
        await lead()

    async with observing(FakeApiServer(), elect) as observation:
        await asyncio.sleep(1)
        assert not observation.tracing.is_leader
        elected.set()
        await asyncio.sleep(1)
        assert observation.tracing.is_leader
    async with observing(FakeApiServer()) as observation:
        assert observation.tracing.is_leader


class RecordingObserver:
    """Stands in for the observer and for the recorder, with an open record for each UID in `open_uids`."""

    def __init__(self, *open_uids):
        self._open_uids = open_uids
        self.calls = []

    def all(self):
        for uid in self._open_uids:
            record = PodRecord(TraceContext("1" * 32, "2" * 16, True).traceparent, 1)
            record.namespace, record.name, record.uid = "ns", f"pod-{uid}", uid
            yield record

    def pod_observed(self, pod, arrival_ns, late_since_ns, *, initial):
        self.calls.append(("observed", pod.metadata.uid, initial))

    def pod_deleted(self, pod, arrival_ns, late_since_ns=0):
        self.calls.append(("deleted", pod.key, pod.metadata.uid))

    def interrupted(self, resource, since_ns, until_ns):
        self.calls.append(("interrupted", resource, since_ns, until_ns))

    def retain(self, uids):
        self.calls.append(("retained", sorted(uids)))

    def synced(self):
        self.calls.append("synced")


def pod(uid):
    return ObservedPod(metadata=ObservedPodMeta(name=f"pod-{uid}", namespace="ns", uid=uid))


async def test_first_list_of_pods_completes_the_synchronization():
    observer, synced = RecordingObserver("a"), asyncio.Event()
    receiver = PodReceiver(observer, observer, synced)
    receiver.list_started()
    receiver.observed(pod("a"), 1, 1, initial=True)
    assert not synced.is_set()
    receiver.listed(2, "")
    assert synced.is_set()
    assert observer.calls == [("observed", "a", True), ("retained", ["a"]), "synced"]


async def test_pods_that_a_later_list_lacks_were_deleted():
    observer = RecordingObserver("kept", "unreadable", "gone", "replaced", "lost")
    receiver = PodReceiver(observer, observer, asyncio.Event())
    receiver.list_started()
    for uid in ("kept", "unreadable", "gone", "replaced", "lost"):
        receiver.observed(pod(uid), 1, 1, initial=True)
    receiver.listed(2, "")
    observer.calls.clear()
    receiver.interrupted(3, 4)
    receiver.list_started()
    receiver.observed(pod("gone"), 5, 5, initial=False)
    receiver.list_started()  # the first attempt failed
    receiver.observed(pod("kept"), 5, 5, initial=False)
    receiver.observed(pod("lost"), 5, 5, initial=False)
    receiver.list_has("unreadable")
    receiver.list_lost("lost")
    receiver.listed(6, "")
    assert observer.calls == [
        ("interrupted", "pods", 3, 4),
        ("observed", "gone", False),
        ("observed", "kept", False),
        ("observed", "lost", False),
        ("deleted", "ns/pod-gone", "gone"),
        ("deleted", "ns/pod-replaced", "replaced"),
        ("deleted", "ns/pod-lost", "lost"),
        ("retained", ["kept", "unreadable"]),
    ]


def test_scope_of_messages():
    assert ObservationSettings().scope == "all pods"
    assert ObservationSettings(namespace="a", label_selector="b=c").scope == "pods with b=c in namespace a"


async def test_pods_that_cannot_be_decoded_do_not_stop_the_observation():
    server = FakeApiServer()
    server.store.create(PODS, {"metadata": {"name": "bad", "namespace": "ns", "uid": "1"}, "spec": {"nodeName": 1}})
    async with observing(server) as observation:
        assert observation.synced.is_set()

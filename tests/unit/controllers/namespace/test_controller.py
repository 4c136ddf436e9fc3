"""The namespace controller against a small API server, in virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.controllers.namespace import NamespaceController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.tracing.recording.reconcile_recorder import ReconcileTraces
from support.fake_apiserver import WIDGETS

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def emptying(fake_apiserver, start):
    """An API server with namespaces "ns" and "other", and a controller that runs."""
    traces = ReconcileTraces(clock=VirtualClock(), rng=random.Random(3))
    controller = NamespaceController(
        fake_apiserver.client, fake_apiserver.informers, clock=fake_apiserver.clock, traces=traces
    )
    await start(fake_apiserver.informers, controller)
    return fake_apiserver


def conditions(api: Any, name: str = "ns") -> dict[str, tuple[str, str]]:
    namespace = api.store.get(NAMESPACES, "", name)
    return {each["type"]: (each["status"], each["message"]) for each in namespace["status"].get("conditions", ())}


async def test_terminating_namespace_is_emptied_and_removed(emptying):
    for name in ("ns", "other"):
        emptying.add(CONFIG_MAPS, "settings", namespace=name)
        emptying.add(DEPLOYMENTS, "web", namespace=name)
        emptying.add(WIDGETS, "custom", namespace=name)
    emptying.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(4)
    assert len(emptying.names(CONFIG_MAPS)) == 2  # the grace of five seconds
    await asyncio.sleep(3)
    assert emptying.names(NAMESPACES) == ["other"]
    for resource in (CONFIG_MAPS, DEPLOYMENTS, WIDGETS):
        assert [each["metadata"]["namespace"] for each in emptying.objects(resource)] == ["other"]


async def test_active_namespace_is_not_changed(emptying):
    emptying.add(CONFIG_MAPS, "settings")
    await asyncio.sleep(600)
    assert emptying.requests == []


async def test_resources_without_deletecollection_are_deleted_singly(emptying):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.method_not_allowed() if method == "DELETE" and path.endswith("/widgets") else None

    emptying.reject = reject
    emptying.add(WIDGETS, "a")
    emptying.add(WIDGETS, "b")
    emptying.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(7)
    deleted = [path for path in emptying.written("DELETE") if "widgets" in path]
    assert [path.rsplit("/", 1)[1] for path in deleted] == ["a", "b"]


async def test_content_with_finalizers_is_reported_and_awaited(emptying):
    emptying.add(CONFIG_MAPS, "held", finalizers=["example.com/hold"])
    emptying.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(7)
    told = conditions(emptying)
    assert told["NamespaceContentRemaining"] == (
        "True",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert told["NamespaceFinalizersRemaining"][1].endswith("remaining: example.com/hold in 1 resource instances")
    assert told["NamespaceDeletionContentFailure"][0] == "False"
    assert emptying.store.get(NAMESPACES, "", "ns")["status"]["phase"] == "Terminating"
    emptying.store.delete(CONFIG_MAPS, "ns", "held")
    await asyncio.sleep(10)  # looked at again after half of the estimated 15 seconds
    assert emptying.names(NAMESPACES) == ["other"]


async def test_pods_are_deleted_before_other_content(emptying):
    pod = emptying.add(PODS, "slow", finalizers=["example.com/hold"])
    emptying.store.update(PODS, {**pod, "spec": {"terminationGracePeriodSeconds": 20}, "status": {"phase": "Running"}})
    emptying.add(CONFIG_MAPS, "needed")
    emptying.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(10)
    assert emptying.names(CONFIG_MAPS) == ["needed"]
    emptying.store.delete(PODS, "ns", "slow")
    await asyncio.sleep(8)  # half of the grace period and a second
    assert emptying.names(NAMESPACES) == ["other"]


async def test_failed_deletion_is_reported_and_retried(emptying):
    emptying.add(CONFIG_MAPS, "stubborn")
    emptying.add(DEPLOYMENTS, "web")

    def reject(method: str, path: str) -> errors.StatusError | None:
        if method == "DELETE" and "configmaps" in path:
            return errors.forbidden(CONFIG_MAPS, "", "not now")
        return None

    emptying.reject = reject
    emptying.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(7)
    assert emptying.names(DEPLOYMENTS) == []
    status, message = conditions(emptying)["NamespaceDeletionContentFailure"]
    assert status == "True"
    assert message.startswith("Failed to delete all resource types, 1 remaining: ")
    emptying.reject = lambda method, path: None
    await asyncio.sleep(70)
    assert emptying.names(NAMESPACES) == ["other"]


async def test_failed_discovery_is_reported_and_blocks_deletion(emptying):
    emptying.reject = lambda method, path: errors.internal("boom") if path == "/apis" else None
    emptying.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(20)
    assert conditions(emptying)["NamespaceDeletionDiscoveryFailure"][0] == "True"
    emptying.reject = lambda method, path: None
    await asyncio.sleep(120)
    assert emptying.names(NAMESPACES) == ["other"]


async def test_foreign_finalizer_keeps_empty_namespace(emptying):
    namespace = emptying.store.get(NAMESPACES, "", "ns")
    emptying.store.update(NAMESPACES, {**namespace, "spec": {"finalizers": ["kubernetes", "example.com/mine"]}})
    emptying.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(60)
    assert emptying.store.get(NAMESPACES, "", "ns")["spec"]["finalizers"] == ["example.com/mine"]

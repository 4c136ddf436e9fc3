"""Rounds of deletion of a namespace's content: order, estimates and errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.controllers.namespace.namespaced_resources_deleter import (
    NamespaceContentRemaining,
    NamespacedResourcesDeleter,
)
from kubeloop.devcluster.api import errors
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.objects.resources import CONFIG_MAPS, PODS

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def deleter(fake_apiserver):
    return NamespacedResourcesDeleter(fake_apiserver.client, clock=fake_apiserver.clock)


def reject_path(api: Any, *rejected: str) -> None:
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.forbidden(CONFIG_MAPS, "", "denied") if path.endswith(rejected) else None

    api.transport.reject = reject


async def test_round_empties_namespace_and_reports_nothing(fake_apiserver, deleter):
    fake_apiserver.add(CONFIG_MAPS, "a")
    fake_apiserver.add(CONFIG_MAPS, "b", namespace="other")
    report, seconds = await deleter.delete_all("ns", fake_apiserver.clock.now())
    assert seconds == 0
    assert (report.remaining, report.content_errors, report.discovery_error) == ({}, [], "")
    assert [obj["metadata"]["namespace"] for obj in fake_apiserver.objects(CONFIG_MAPS)] == ["other"]


async def test_other_resources_wait_for_pods_with_finalizers(fake_apiserver, deleter):
    fake_apiserver.add(PODS, "p", finalizers=["example.com/hold"])
    fake_apiserver.add(CONFIG_MAPS, "a")
    report, seconds = await deleter.delete_all("ns", fake_apiserver.clock.now())
    assert report.remaining == {"pods.": 1}
    assert report.finalizers == {"example.com/hold": 1}
    assert seconds == 30  # the grace period of the Pod
    assert fake_apiserver.names(CONFIG_MAPS) == ["a"]


async def test_grace_periods_of_finished_pods_do_not_count(fake_apiserver, deleter):
    fake_apiserver.add(PODS, "running", finalizers=["example.com/hold"])
    fake_apiserver.add(PODS, "finished", finalizers=["example.com/hold"])
    pod = fake_apiserver.store.get(PODS, "ns", "finished")
    spec = {**pod["spec"], "terminationGracePeriodSeconds": 300}
    fake_apiserver.store.update(PODS, {**pod, "spec": spec, "status": {**pod["status"], "phase": "Succeeded"}})
    _, seconds = await deleter.delete_all("ns", fake_apiserver.clock.now())
    assert seconds == 30


async def test_objects_with_finalizers_are_estimated_at_15_seconds(fake_apiserver, deleter):
    fake_apiserver.add(CONFIG_MAPS, "a", finalizers=["example.com/hold"])
    report, seconds = await deleter.delete_all("ns", fake_apiserver.clock.now())
    assert (report.remaining, seconds) == ({"configmaps.": 1}, 15)


async def test_forbidden_deletion_is_reported_and_others_continue(fake_apiserver, deleter):
    fake_apiserver.add(CONFIG_MAPS, "a")
    reject_path(fake_apiserver, "/namespaces/ns/secrets")
    report, _ = await deleter.delete_all("ns", fake_apiserver.clock.now())
    assert [error.endswith("denied") for error in report.content_errors] == [True]
    assert fake_apiserver.names(CONFIG_MAPS) == []


async def test_failed_discovery_uses_resources_of_earlier_round(fake_apiserver, deleter):
    await deleter.delete_all("ns", fake_apiserver.clock.now())
    fake_apiserver.add(CONFIG_MAPS, "a")
    reject_path(fake_apiserver, "/apis")
    report, _ = await deleter.delete_all("ns", fake_apiserver.clock.now())
    assert "denied" in report.discovery_error
    assert fake_apiserver.names(CONFIG_MAPS) == []


async def test_concurrent_round_of_other_discovery_changes_no_verbs(fake_apiserver, deleter, monkeypatch):
    """A definition may be deleted between the discoveries of two namespaces in deletion."""
    fake_apiserver.add(CONFIG_MAPS, "a")
    maps = [await ResourceMap.discover(fake_apiserver.client), ResourceMap([], {})]

    async def discover(client: Any) -> ResourceMap:
        return maps.pop(0)

    monkeypatch.setattr(ResourceMap, "discover", discover)
    async with asyncio.TaskGroup() as group:
        rounds = [
            group.create_task(deleter.delete_all(namespace, fake_apiserver.clock.now()))
            for namespace in ("ns", "other")
        ]
    assert [round_.result()[0].content_errors for round_ in rounds] == [[], []]
    assert not maps
    assert fake_apiserver.names(CONFIG_MAPS) == []


@pytest.mark.parametrize(
    ("messages", "text"),
    [pytest.param(["a"], "a", id="one error"), pytest.param(["a", "b"], "[a, b]", id="several errors")],
)
def test_remaining_content_error_lists_messages(messages, text):
    assert str(NamespaceContentRemaining(messages)) == text

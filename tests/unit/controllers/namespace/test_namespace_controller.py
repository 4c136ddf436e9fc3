"""The namespace controller with an API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.controllers.namespace.namespace_controller import NamespaceController
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.api_types import Namespace, Pod, convert
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS
from support.apiserver.fake_apiserver import WIDGETS
from support.apiserver.faulty_transport import SentRequest

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def apiserver(fake_apiserver, start):
    """Return an API server with the namespaces "ns" and "other" and a running namespace controller."""
    await start(fake_apiserver.informers, NamespaceController(fake_apiserver.context))
    return fake_apiserver


def conditions(api: Any, name: str = "ns") -> dict[str, tuple[str, str]]:
    namespace = api.store.get(NAMESPACES, "", name)
    return {
        condition["type"]: (condition["status"], condition["message"])
        for condition in namespace["status"].get("conditions", ())
    }


def failed_reconciles(api: Any) -> bool:
    return any(api.metrics.values("kubeloop_reconcile_errors").values())


async def test_terminating_namespace_is_emptied_and_removed(apiserver):
    for name in ("ns", "other"):
        apiserver.add(CONFIG_MAPS, "settings", namespace=name)
        apiserver.add(DEPLOYMENTS, "web", namespace=name)
        apiserver.add(WIDGETS, "custom", namespace=name)
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(4)
    assert len(apiserver.names(CONFIG_MAPS)) == 2  # the grace of five seconds
    await asyncio.sleep(3)
    assert apiserver.names(NAMESPACES) == ["other"]
    for resource in (CONFIG_MAPS, DEPLOYMENTS, WIDGETS):
        assert [obj["metadata"]["namespace"] for obj in apiserver.objects(resource)] == ["other"]
    await asyncio.sleep(60)
    assert not failed_reconciles(apiserver)


async def test_active_namespace_is_not_changed(apiserver):
    apiserver.add(CONFIG_MAPS, "settings")
    await asyncio.sleep(600)
    assert apiserver.requests == []


async def test_resources_without_deletecollection_are_deleted_singly(apiserver):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.method_not_allowed() if method == "DELETE" and path.endswith("/widgets") else None

    apiserver.transport.reject = reject
    apiserver.add(WIDGETS, "a")
    apiserver.add(WIDGETS, "b")
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(7)
    deleted = [path for path in apiserver.written("DELETE") if "widgets" in path]
    assert [path.rsplit("/", 1)[1] for path in deleted] == ["a", "b"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_resource_that_is_no_longer_served_does_not_block_deletion(apiserver, method):
    def reject(sent: str, path: str) -> errors.StatusError | None:
        is_collection = path.partition("?")[0].endswith("/namespaces/ns/widgets")
        return errors.path_not_found() if sent == method and is_collection else None

    apiserver.transport.reject = reject
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(7)
    assert apiserver.names(NAMESPACES) == ["other"]
    assert not failed_reconciles(apiserver)


async def test_object_that_is_gone_before_its_deletion_does_not_block_the_namespace(apiserver):
    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.method_not_allowed() if method == "DELETE" and path.endswith("/widgets") else None

    def delete_first(request: SentRequest) -> None:
        if (request.method, request.path) == ("DELETE", WIDGETS.path("ns", "a")):
            apiserver.store.delete(WIDGETS, "ns", "a")

    apiserver.transport.reject, apiserver.transport.on_send = reject, delete_first
    for name in ("a", "b"):
        apiserver.add(WIDGETS, name)
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(7)
    assert apiserver.names(NAMESPACES) == ["other"]
    assert not failed_reconciles(apiserver)


async def test_content_with_finalizers_is_reported_and_awaited(apiserver):
    apiserver.add(CONFIG_MAPS, "held", finalizers=["example.com/hold"])
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(7)
    by_type = conditions(apiserver)
    assert by_type["NamespaceContentRemaining"] == (
        "True",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert by_type["NamespaceFinalizersRemaining"][1].endswith("remaining: example.com/hold in 1 resource instances")
    assert by_type["NamespaceDeletionContentFailure"][0] == "False"
    assert apiserver.store.get(NAMESPACES, "", "ns")["status"]["phase"] == "Terminating"
    apiserver.store.delete(CONFIG_MAPS, "ns", "held")
    await asyncio.sleep(10)  # looked at again after half of the estimated 15 seconds
    assert apiserver.names(NAMESPACES) == ["other"]


async def test_pods_are_deleted_before_other_content(apiserver):
    pod = apiserver.add(PODS, "slow", finalizers=["example.com/hold"])
    apiserver.store.update(PODS, {**pod, "spec": {"terminationGracePeriodSeconds": 20}, "status": {"phase": "Running"}})
    apiserver.add(CONFIG_MAPS, "needed")
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(10)
    assert apiserver.names(CONFIG_MAPS) == ["needed"]
    apiserver.store.delete(PODS, "ns", "slow")
    await asyncio.sleep(8)  # half of the grace period and a second
    assert apiserver.names(NAMESPACES) == ["other"]


async def test_failed_deletion_is_reported_and_retried(apiserver):
    apiserver.add(CONFIG_MAPS, "stubborn")
    apiserver.add(DEPLOYMENTS, "web")

    def reject(method: str, path: str) -> errors.StatusError | None:
        if method == "DELETE" and "configmaps" in path:
            return errors.forbidden(CONFIG_MAPS, "", "not now")
        return None

    apiserver.transport.reject = reject
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(7)
    assert apiserver.names(DEPLOYMENTS) == []
    status, message = conditions(apiserver)["NamespaceDeletionContentFailure"]
    assert status == "True"
    assert message.startswith("Failed to delete all resource types, 1 remaining: ")
    apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(70)
    assert apiserver.names(NAMESPACES) == ["other"]


async def test_failed_discovery_is_reported_and_blocks_deletion(apiserver):
    apiserver.transport.reject = lambda method, path: errors.internal("boom") if path == "/apis" else None
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(20)
    assert conditions(apiserver)["NamespaceDeletionDiscoveryFailure"][0] == "True"
    apiserver.transport.reject = lambda method, path: None
    await asyncio.sleep(120)
    assert apiserver.names(NAMESPACES) == ["other"]


async def test_foreign_finalizer_keeps_empty_namespace(apiserver):
    namespace = apiserver.store.get(NAMESPACES, "", "ns")
    apiserver.store.update(NAMESPACES, {**namespace, "spec": {"finalizers": ["kubernetes", "example.com/mine"]}})
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(60)
    assert apiserver.store.get(NAMESPACES, "", "ns")["spec"]["finalizers"] == ["example.com/mine"]


@pytest.fixture
def before_read(apiserver):
    """Return a function (number, action): call `action` before the read of namespace "ns" with that number, from 1."""

    def at_read(number: int, action: Callable[[], None]) -> None:
        reads = itertools.count(1)

        def on_send(request: SentRequest) -> None:
            if (request.method, request.path) == ("GET", NAMESPACES.path("", "ns")) and next(reads) == number:
                action()

        apiserver.transport.on_send = on_send

    return at_read


async def test_namespace_created_again_keeps_its_finalizer(apiserver, before_read):
    def replace() -> None:
        apiserver.store.delete(NAMESPACES, "", "ns")
        apiserver.add(NAMESPACES, "ns", namespace="")

    before_read(2, replace)  # that of the finalization
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(60)
    assert apiserver.store.get(NAMESPACES, "", "ns")["spec"]["finalizers"] == ["kubernetes"]
    assert not apiserver.written("PUT")


async def test_finalization_is_repeated_after_a_conflict(apiserver):
    rejected: list[str] = []

    def reject(method: str, path: str) -> errors.StatusError | None:
        if method == "PUT" and not rejected:
            rejected.append(path)
            return errors.conflict(NAMESPACES, "ns")
        return None

    apiserver.transport.reject = reject
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(5.001)
    assert apiserver.names(NAMESPACES) == ["other"]
    assert rejected == [f"{NAMESPACES.path('', 'ns')}/finalize"]


async def test_content_that_terminates_is_checked_after_half_its_time_and_a_second(apiserver):
    pod = apiserver.add(PODS, "slow", finalizers=["example.com/hold"])
    apiserver.store.update(PODS, {**pod, "spec": {"terminationGracePeriodSeconds": 40}, "status": {"phase": "Running"}})
    rounds: list[float] = []

    def on_send(request: SentRequest) -> None:
        if (request.method, request.path) == ("DELETE", PODS.path("ns")):
            rounds.append(asyncio.get_running_loop().time())

    apiserver.transport.on_send = on_send
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(40)
    assert rounds[-1] - rounds[-2] == pytest.approx(21)  # the earlier rounds follow from status writes


async def test_failed_rounds_are_repeated_after_milliseconds(apiserver):
    rejected_at: list[float] = []

    def reject(method: str, path: str) -> errors.StatusError | None:
        if method == "DELETE" and path.endswith("/configmaps"):
            rejected_at.append(asyncio.get_running_loop().time())
            return errors.forbidden(CONFIG_MAPS, "", "denied")
        return None

    apiserver.transport.reject = reject
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(10)
    delays = [after - before for before, after in itertools.pairwise(rejected_at)]
    assert delays[:5] == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.08])


async def test_content_that_remains_is_logged_without_traceback(apiserver, caplog):
    """Content without finalizers may take time, too: pods without grace period, while their containers stop."""

    def reject(method: str, path: str) -> errors.StatusError | None:
        return errors.method_not_allowed() if method == "DELETE" and "/widgets" in path else None

    apiserver.transport.reject = reject
    apiserver.add(WIDGETS, "a")
    apiserver.delete(NAMESPACES, "ns", namespace="")
    await asyncio.sleep(6)
    records = [record for record in caplog.records if "unexpected items still remain" in record.getMessage()]
    assert {(record.levelname, record.exc_info) for record in records} == {("WARNING", None)}


@pytest.mark.parametrize(
    ("namespace", "others", "keys"),
    [
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, [], ["ns"], id="last pod"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, ["q"], [], id="another pod remains"),
        pytest.param({}, [], [], id="active namespace"),
        pytest.param(None, [], [], id="unknown namespace"),
    ],
)
async def test_deleted_pod_enqueues_its_terminating_namespace(fake_apiserver, namespace, others, keys):
    controller = NamespaceController(fake_apiserver.context)
    if namespace is not None:
        stored = convert(Namespace, {"metadata": {"name": "ns", **namespace}})
        fake_apiserver.informers.informer(NAMESPACES).store.put("ns", stored)
    pods = fake_apiserver.informers.informer(PODS)
    for name in ("p", *others):
        pods.apply("ADDED", convert(Pod, {"metadata": {"name": name, "namespace": "ns", "uid": name}}), 0)
    pods.apply("DELETED", convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "p"}}), 0)
    assert [controller.queue.take() for _ in range(len(controller.queue))] == keys


@pytest.mark.parametrize("recreated", [False, True])
async def test_namespace_is_marked_terminating_after_a_conflict(fake_apiserver, recreated):
    controller = NamespaceController(fake_apiserver.context)
    stored = fake_apiserver.store.get(NAMESPACES, "", "ns")
    deleted = {**stored, "metadata": {**stored["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    fake_apiserver.store.update(NAMESPACES, deleted)
    if recreated:
        stored = {**stored, "metadata": {**stored["metadata"], "uid": "former"}}
    with pytest.raises(RuntimeError, match="uid has changed") if recreated else contextlib.nullcontext():
        marked = await controller._mark_terminating(convert(Namespace, stored))
        assert (marked.metadata.name, marked.status.phase) == ("ns", "Terminating")
        writes = len(fake_apiserver.requests)
        assert await controller._mark_terminating(marked) is marked
        assert len(fake_apiserver.requests) == writes, "it is marked already"
    phase = fake_apiserver.store.get(NAMESPACES, "", "ns")["status"]["phase"]
    assert phase == ("Active" if recreated else "Terminating")

"""Author's controllers with informers, work queue, metrics and traces."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
import pytest

from kubeloop.controllers.api import (
    BACKOFF,
    Controller,
    ControllerHandle,
    For,
    InIndex,
    NoKindMatchError,
    NotWatched,
    Owns,
    ReconcileOptions,
    Request,
    Result,
    TerminalError,
    TooManyRequests,
    Watches,
    by_label,
    generation_changed,
    merge_patch,
    set_controller_reference,
)
from kubeloop.controllers.api.runner import ControllerRunner, controller_class
from kubeloop.controllers.runtime.other_clusters import OtherClusters
from kubeloop.devcluster.api import errors
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS, SECRETS
from kubeloop.kube.user_error import UserError
from support.apiserver.fake_apiserver import WIDGETS, FakeApiServer
from support.controllers.sites import CRD, SITES

pytestmark = pytest.mark.virtual_time
A, B = Request("ns", "a"), Request("ns", "b")


def used_secrets(widget: dict[str, Any]) -> list[str]:
    secret = widget.get("spec", {}).get("secret")
    return [f"{widget['metadata']['namespace']}/{secret}"] if secret else []


class Widgets(Controller):
    """Records its requests; `act` is its reconcile."""

    name = "widgets"
    watches = (For(WIDGETS, indexes={"secret": used_secrets}), Owns(CONFIG_MAPS))

    def __init__(self, handle: ControllerHandle) -> None:
        super().__init__(handle)
        self.requests: list[Request] = []
        self.act: Callable[[Request], Any] = lambda request: None

    async def reconcile(self, request: Request) -> Result:
        self.requests.append(request)
        result = self.act(request)
        return await result if asyncio.iscoroutine(result) else result

    def taken(self) -> list[Request]:
        """Return the requests since the last call."""
        requests, self.requests = self.requests, []
        return requests


async def started(server: FakeApiServer, start: Any, declared: type[Widgets] = Widgets) -> Widgets:
    runner = ControllerRunner(server.context, declared)
    await start(server.informers, runner)
    assert isinstance(runner.controller, Widgets)
    return runner.controller


def patch(server: FakeApiServer, name: str, **changes: Any) -> None:
    server.api.succeed("PATCH", WIDGETS.path("ns", name), changes)


async def test_events_of_for_and_owns_lead_to_the_object(fake_apiserver, start):
    widget = fake_apiserver.add(WIDGETS, "a")
    controller = await started(fake_apiserver, start)
    assert controller.taken() == [A]
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}}
    fake_apiserver.api.create(CONFIG_MAPS.path("ns"), set_controller_reference(widget, manifest))
    fake_apiserver.add(CONFIG_MAPS, "other")
    await asyncio.sleep(1)
    assert controller.taken() == [A]
    fake_apiserver.delete(CONFIG_MAPS, "c")
    await asyncio.sleep(1)
    assert controller.taken() == [A]
    fake_apiserver.delete(WIDGETS, "a")
    await asyncio.sleep(1)
    assert controller.taken() == [A]


class Indexed(Widgets):
    watches = (
        For(WIDGETS, predicates=[generation_changed], indexes={"secret": used_secrets}),
        Watches(SECRETS, InIndex(WIDGETS, "secret")),
        Watches(CONFIG_MAPS, by_label("widget")),
    )


async def test_events_lead_to_users_in_an_index_and_to_labels(fake_apiserver, start):
    for name in ("a", "b"):
        fake_apiserver.add(WIDGETS, name)
    patch(fake_apiserver, "a", spec={"secret": "s"})
    controller = await started(fake_apiserver, start, Indexed)
    assert sorted(controller.taken()) == [A, B]
    fake_apiserver.add(SECRETS, "s")
    await asyncio.sleep(1)
    assert controller.taken() == [A]
    fake_apiserver.add(CONFIG_MAPS, "c", labels={"widget": "a"})
    await asyncio.sleep(1)
    assert controller.taken() == [A]
    fake_apiserver.api.succeed("PATCH", CONFIG_MAPS.path("ns", "c"), {"metadata": {"labels": {"widget": "b"}}})
    await asyncio.sleep(1)
    assert sorted(controller.taken()) == [A, B]


async def test_event_that_a_predicate_rejects_leads_to_nothing(fake_apiserver, start):
    fake_apiserver.add(WIDGETS, "a")
    controller = await started(fake_apiserver, start, Indexed)
    controller.taken()
    patch(fake_apiserver, "a", metadata={"labels": {"a": "b"}})
    await asyncio.sleep(1)
    assert controller.taken() == []
    patch(fake_apiserver, "a", spec={"size": 1})
    await asyncio.sleep(1)
    assert controller.taken() == [A]


@pytest.mark.parametrize(
    ("result", "seconds"),
    [
        pytest.param(20.0, 20, id="seconds"),
        pytest.param(timedelta(minutes=1), 60, id="timedelta"),
    ],
)
async def test_reconcile_runs_again_after_its_result(fake_apiserver, start, result: Result, seconds: int):
    controller = await started(fake_apiserver, start)
    controller.act = lambda request: result
    fake_apiserver.add(WIDGETS, "a")
    await asyncio.sleep(seconds - 1)
    assert controller.taken() == [A]
    await asyncio.sleep(2)
    assert controller.taken() == [A]
    assert fake_apiserver.metrics.values("controller_runtime_reconcile_total")[",widgets,requeue_after"] == 2


async def test_backoff_delays_grow_and_are_no_errors(fake_apiserver, start):
    controller = await started(fake_apiserver, start)
    controller.act = lambda request: BACKOFF
    fake_apiserver.add(WIDGETS, "a")
    await asyncio.sleep(1)
    first = len(controller.taken())
    assert first > 5
    await asyncio.sleep(1)
    assert len(controller.taken()) < first
    metrics = fake_apiserver.metrics.values("controller_runtime_reconcile_")
    assert metrics["total,widgets,error"] == metrics["errors_total,widgets"] == 0
    assert metrics["total,widgets,requeue"] == metrics["time_seconds_count,widgets"]


async def test_terminal_error_is_logged_and_not_retried(fake_apiserver, start, caplog):
    controller = await started(fake_apiserver, start)

    def act(request: Request) -> Result:
        raise TerminalError("no such size")

    controller.act = act
    with caplog.at_level(logging.ERROR):
        fake_apiserver.add(WIDGETS, "a")
        await asyncio.sleep(600)
    assert controller.taken() == [A]
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "reconcile failed, not retried: widgets ns/a: no such size"
    metrics = fake_apiserver.metrics.values("controller_runtime_")
    assert metrics["terminal_reconcile_errors_total,widgets"] == metrics["reconcile_errors_total,widgets"] == 1
    patch(fake_apiserver, "a", spec={"size": 1})
    await asyncio.sleep(1)
    assert controller.taken() == [A]


async def test_throttled_reconcile_waits_for_retry_after(fake_apiserver, start):
    controller = await started(fake_apiserver, start)
    status = errors.too_many_requests("slow down", retry_after_seconds=30).status

    def act(request: Request) -> Result:
        if len(controller.requests) == 1:
            from msgspec import json

            from kubeloop.kube.errors import from_response

            error = from_response(429, json.encode(status))
            assert isinstance(error, TooManyRequests)
            raise error
        return None

    controller.act = act
    fake_apiserver.add(WIDGETS, "a")
    await asyncio.sleep(29)
    assert controller.requests == [A]
    await asyncio.sleep(2)
    assert controller.requests == [A, A]


async def test_next_reconcile_reads_own_writes(fake_apiserver, start):
    """Watch events are late, so the second event comes before the cache shows the first create."""
    controller = await started(fake_apiserver, start)

    async def create_once(request: Request) -> Result:
        widget = controller.cache.get(WIDGETS, request)
        assert widget is not None
        if not controller.cache.owned_by(CONFIG_MAPS, widget):
            metadata = {"generateName": "c-", "namespace": "ns"}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await controller.client.create(set_controller_reference(widget, manifest))
        return None

    controller.act = create_once
    fake_apiserver.transport.watch_delay_seconds = 20.0
    fake_apiserver.add(WIDGETS, "a")
    for size in range(30):
        await asyncio.sleep(1)
        patch(fake_apiserver, "a", spec={"size": size})
    await asyncio.sleep(60)
    assert len([name for name in fake_apiserver.names(CONFIG_MAPS) if name.startswith("c-")]) == 1


async def test_create_without_response_is_awaited(fake_apiserver, start):
    """The first create succeeds, but its response is lost, and its event is late."""
    controller = await started(fake_apiserver, start)
    lost: list[str] = []

    async def create_once(request: Request) -> Result:
        widget = controller.cache.get(WIDGETS, request)
        assert widget is not None
        if not controller.cache.owned_by(CONFIG_MAPS, widget):
            metadata = {"generateName": "c-", "namespace": "ns"}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await controller.client.create(set_controller_reference(widget, manifest))
        return None

    def lose(method: str, path: str) -> bool:
        lost.append(path)
        return method == "POST" and len([path for path in lost if path.endswith("configmaps")]) == 1

    controller.act = create_once
    fake_apiserver.transport.watch_delay_seconds = 5.0
    fake_apiserver.transport.lose_response = lose
    fake_apiserver.add(WIDGETS, "a")
    await asyncio.sleep(60)
    assert len(controller.requests) >= 2
    assert len([name for name in fake_apiserver.names(CONFIG_MAPS) if name.startswith("c-")]) == 1


@pytest.mark.parametrize("verb", ["POST", "PATCH", "DELETE"])
async def test_write_without_response_waits_for_its_own_event_only(fake_apiserver, start, verb):
    """Writes of other kinds have newer resourceVersions, which no event of ConfigMaps shows."""
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}}
    if verb != "POST":
        fake_apiserver.api.create(CONFIG_MAPS.path("ns"), manifest)
    controller = await started(fake_apiserver, start)
    results: list[str] = []

    async def write_once(request: Request) -> Result:
        if request != A:
            return None
        cached = controller.cache.get(CONFIG_MAPS, Request("ns", "c"))
        results.append("" if cached is None else str(cached.get("data")))
        if len(results) == 1:
            if verb == "POST":
                await controller.client.create(manifest)
            elif verb == "PATCH":
                await controller.client.patch(cached, merge_patch({"data": {"a": "b"}}))
            else:
                await controller.client.delete(cached)
        return None

    def lose(method: str, path: str) -> bool:
        if method != verb or "configmaps" not in path:
            return False
        fake_apiserver.add(WIDGETS, "other")
        return True

    controller.act = write_once
    fake_apiserver.transport.lose_response = lose
    fake_apiserver.add(WIDGETS, "a")
    await asyncio.sleep(5)
    assert results[1:2] == [{"POST": "None", "PATCH": "{'a': 'b'}", "DELETE": ""}[verb]], results


class Optional(Widgets):
    watches = (For(WIDGETS), Owns(SITES, optional=True))


async def test_optional_watch_begins_within_seconds_of_a_late_definition(fake_apiserver, start, caplog):
    widget = fake_apiserver.add(WIDGETS, "a")
    controller = await started(fake_apiserver, start, Optional)
    await asyncio.sleep(300)
    assert controller.taken() == [A]
    assert [record.levelname for record in caplog.records if record.getMessage() == "cannot list"] == ["WARNING"]
    fake_apiserver.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    manifest = {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "s", "namespace": "ns"}}
    fake_apiserver.api.create(SITES.path("ns"), set_controller_reference(widget, manifest))
    await asyncio.sleep(5)
    assert controller.taken() == [A]
    assert len(controller.cache.owned_by(SITES, widget)) == 1


async def test_watch_can_be_added_in_a_reconcile(fake_apiserver, start):
    widget = fake_apiserver.add(WIDGETS, "a")
    controller = await started(fake_apiserver, start)
    controller.taken()
    seen: list[int] = []

    async def add_watch(request: Request) -> Result:
        try:
            await controller.watch(Owns(SITES))
        except NoKindMatchError:
            return 10.0
        seen.append(len(controller.cache.list(SITES)))
        return None

    controller.act = add_watch
    patch(fake_apiserver, "a", spec={"size": 1})
    await asyncio.sleep(5)
    fake_apiserver.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    manifest = {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "s", "namespace": "ns"}}
    fake_apiserver.api.create(SITES.path("ns"), set_controller_reference(widget, manifest))
    await asyncio.sleep(60)
    assert set(seen) == {1}
    controller.taken()
    fake_apiserver.delete(SITES, "s")
    await asyncio.sleep(5)
    assert controller.taken() == [A]


@pytest.fixture
async def west(fake_apiserver) -> FakeApiServer:
    """Another cluster, the context "west" of the kubeconfig."""
    other = FakeApiServer(seed=2)
    other.api.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})

    async def connect(kubeconfig: str | None, context: str | None) -> Any:
        assert (kubeconfig, context) == (None, "west")
        return other.transport

    clusters = OtherClusters(fake_apiserver.clock, random.Random(3), connect)
    fake_apiserver.context = msgspec.structs.replace(fake_apiserver.context, clusters=clusters)
    return other


async def test_reconcile_writes_to_another_cluster(fake_apiserver, start, west):
    controller = await started(fake_apiserver, start)

    async def copy(request: Request) -> Result:
        client = await controller.connect(context="west")
        metadata = {"name": request.name, "namespace": "ns"}
        await client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        return None

    controller.act = copy
    for name in ("a", "b"):
        fake_apiserver.add(WIDGETS, name)
    await asyncio.sleep(5)
    assert {"a", "b"} <= {*west.names(CONFIG_MAPS)}


class OfDeployments(Widgets):
    watches = (For(WIDGETS), Owns(DEPLOYMENTS))


async def test_object_is_created_then_patched_where_it_differs(fake_apiserver, start):
    widget = fake_apiserver.add(WIDGETS, "a")
    controller = await started(fake_apiserver, start, OfDeployments)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "extra"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "web", "image": "a:1"}]},
            },
        },
    }

    async def write(**spec: Any) -> list[str]:
        """Return the methods of the requests, after the cache has received the changes."""
        before = len(fake_apiserver.transport.sent)
        await controller.create_or_patch(widget, {**deployment, "spec": {**deployment["spec"], **spec}})
        methods = [request.method for request in fake_apiserver.transport.sent[before:] if "/extra" in request.target]
        await asyncio.sleep(5)
        return methods

    def extra() -> Any:
        return fake_apiserver.store.get(DEPLOYMENTS, "ns", "extra")

    assert await write() == []  # a POST to the collection
    assert [owner["kind"] for owner in extra()["metadata"]["ownerReferences"]] == ["Widget"]
    assert await write() == []
    generation = extra()["metadata"]["generation"]
    assert await write(replicas=3) == ["PATCH"]
    container = extra()["spec"]["template"]["spec"]["containers"][0]
    assert (extra()["spec"]["replicas"], container["image"]) == (3, "a:1")
    assert extra()["metadata"]["generation"] == generation + 1
    fake_apiserver.api.succeed("PATCH", DEPLOYMENTS.path("ns", "extra"), {"spec": {"replicas": 9}})
    await asyncio.sleep(5)
    assert await write(replicas=3) == ["PATCH"]
    assert extra()["spec"]["replicas"] == 3


class OfSeveral(Widgets):
    watches = (
        For(WIDGETS, indexes={"secret": used_secrets}),
        Watches(CONFIG_MAPS, InIndex(WIDGETS, "secret", lambda obj: obj["data"]["secrets"].split())),
    )


async def test_event_leads_to_the_users_of_several_index_values(fake_apiserver, start):
    for name, secret in (("a", "s"), ("b", "t")):
        fake_apiserver.add(WIDGETS, name)
        patch(fake_apiserver, name, spec={"secret": secret})
    controller = await started(fake_apiserver, start, OfSeveral)
    controller.taken()
    body = {"metadata": {"name": "c"}, "data": {"secrets": "ns/s ns/t"}}
    fake_apiserver.api.create(CONFIG_MAPS.path("ns"), body)
    await asyncio.sleep(1)
    assert sorted(controller.taken()) == [A, B]


class Mirrors(Widgets):
    """Maintains a ConfigMap in another cluster for each widget."""

    watches = (For(WIDGETS), Watches(CONFIG_MAPS, by_label("widget"), cluster="west"))

    async def reconcile(self, request: Request) -> Result:
        self.requests.append(request)
        west = self.cluster("west")
        if self.cache.get(WIDGETS, request) and not west.cache.list(CONFIG_MAPS, label_selector="widget"):
            metadata = {"generateName": "c-", "namespace": "ns", "labels": {"widget": request.name}}
            await west.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        return None


async def test_objects_of_another_cluster_are_watched(fake_apiserver, start, west):
    fake_apiserver.add(WIDGETS, "a")
    west.transport.watch_delay_seconds = 2.0
    await start(fake_apiserver.context.clusters)
    controller = await started(fake_apiserver, start, Mirrors)
    await asyncio.sleep(20)
    assert await controller.connect(context="west") is controller.cluster("west").client
    [name] = [name for name in west.names(CONFIG_MAPS) if name.startswith("c-")]  # a second create reads the first one
    assert not [name for name in fake_apiserver.names(CONFIG_MAPS) if name.startswith("c-")]
    controller.taken()
    west.delete(CONFIG_MAPS, name)
    await asyncio.sleep(20)
    assert set(controller.taken()) == {A}
    assert len([name for name in west.names(CONFIG_MAPS) if name.startswith("c-")]) == 1


async def test_watch_of_another_cluster_can_be_added_in_a_reconcile(fake_apiserver, start, west):
    fake_apiserver.add(WIDGETS, "a")
    west.add(CONFIG_MAPS, "c", labels={"widget": "a"})
    await start(fake_apiserver.context.clusters)
    controller = await started(fake_apiserver, start)
    with pytest.raises(NotWatched, match="add Watches"):
        controller.cluster("west")

    cached: list[Any] = []

    async def add_watch(request: Request) -> Result:
        await controller.watch(Watches(CONFIG_MAPS, by_label("widget"), cluster="west"))
        cached.append(controller.cluster("west").cache.get(CONFIG_MAPS, Request("ns", "c")))
        return None

    controller.act = add_watch
    patch(fake_apiserver, "a", spec={"size": 1})
    await asyncio.sleep(5)
    assert cached[0] is not None
    controller.taken()
    west.delete(CONFIG_MAPS, "c")
    await asyncio.sleep(5)
    assert controller.taken() == [A]
    assert cached[-1] is None


class Resynced(Widgets):
    options: ClassVar[ReconcileOptions] = ReconcileOptions(resync_seconds=100.0, max_concurrent_reconciles=2)


async def test_objects_are_reconciled_at_each_resync(fake_apiserver, start):
    fake_apiserver.add(WIDGETS, "a")
    controller = await started(fake_apiserver, start, Resynced)
    controller.taken()
    await asyncio.sleep(250)
    assert controller.taken() == [A, A]
    assert fake_apiserver.metrics.values("controller_runtime_max_concurrent_reconciles") == {",widgets": 2}


async def test_reconcile_in_progress_ends_before_the_controller_stops(fake_apiserver):
    runner = ControllerRunner(fake_apiserver.context, Widgets)
    controller = runner.controller
    assert isinstance(controller, Widgets)
    ended: list[Request] = []

    async def slow(request: Request) -> Result:
        await asyncio.sleep(5)
        ended.append(request)
        return None

    controller.act = slow
    informers, running = asyncio.ensure_future(fake_apiserver.informers.run()), asyncio.ensure_future(runner.run())
    for name in ("a", "b"):
        fake_apiserver.add(WIDGETS, name)
    await asyncio.sleep(2)
    running.cancel()
    await asyncio.wait([running])
    assert ended == [A]
    assert controller.requests == [A]
    informers.cancel()
    await asyncio.wait([informers])


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        pytest.param({"watches": ()}, "watches nothing", id="no watches"),
        pytest.param({"name": ""}, "has no name", id="no name"),
        pytest.param({"watches": (For(WIDGETS), For(SECRETS))}, "has two For", id="two For"),
        pytest.param({"watches": (Owns(WIDGETS),)}, "has Owns without For", id="Owns without For"),
    ],
)
def test_incomplete_declaration_is_a_user_error(members: dict[str, Any], problem: str):
    with pytest.raises(UserError, match=problem):
        controller_class(type("Broken", (Widgets,), members))

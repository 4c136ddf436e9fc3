"""The reflector keeps the store in sync with the API server, whatever faults streams have."""

from __future__ import annotations

import asyncio
import random

import pytest
from msgspec.structs import replace

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.informers.reflector import STEPS_PER_TURN, Reflector, yield_to_event_loop
from kubeloop.kube.objects.resources import CONFIG_MAPS, PODS, RESOURCE_CLAIMS

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def harness(make_harness):
    return make_harness()


async def test_watch_list_stream_continues_as_watch(harness):
    harness.server.create("a")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.create("b")
        await asyncio.sleep(1)
        harness.server.update("a")
        harness.server.delete("b")
        await asyncio.sleep(1)
        harness.assert_in_sync()
    assert len(harness.server.requests) == 1
    assert harness.handler.calls == [
        ("add", "default/a", True),
        ("add", "default/b", False),
        ("update", "default/a", harness.server.version_after(3)),
        ("delete", "default/b", False),
    ]


@pytest.mark.parametrize("code", [400, 403, 404, 405, 415, 422])
async def test_refused_watch_list_falls_back_to_list_permanently(harness, fault, code):
    harness.server.responses.watch_list_refusal = code
    harness.server.create("a")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.create("b")
        await asyncio.sleep(1)
        harness.assert_in_sync()
        harness.server.transport.watch_faults.append(fault("expired"))
        harness.server.compact()
        await asyncio.sleep(3000)
        harness.assert_in_sync()
    assert sum("sendInitialEvents" in request for request in harness.server.requests) == 1


async def test_endless_initial_events_fall_back_to_list(harness):
    harness.server.responses.watch_list_refusal = "ignore"
    harness.server.create("a")
    async with harness.run_informers():
        await asyncio.sleep(120)
        assert harness.pods.has_synced
        harness.server.create("b")
        await asyncio.sleep(1)
        harness.assert_in_sync()


async def test_slow_initial_events_are_awaited(harness):
    harness.server.responses.initial_bookmark_seconds = 20
    harness.server.create("a")
    async with harness.run_informers():
        await asyncio.sleep(19)
        assert not harness.pods.has_synced
        assert harness.handler.calls == []
        await asyncio.sleep(2)
        harness.assert_in_sync()
    assert len(harness.server.requests) == 1


async def test_list_is_paged(harness):
    harness.server.responses.watch_list_refusal = 422
    harness.server.responses.page_limit = 3
    for number in range(10):
        harness.server.create(f"p{number}")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.assert_in_sync()
    lists = [request for request in harness.server.requests if "watch=1" not in request]
    assert len(lists) == 4
    assert all("limit=500" in request for request in lists)


async def test_expired_continue_token_loses_and_duplicates_nothing(harness):
    harness.server.responses.watch_list_refusal = 422
    harness.server.responses.page_limit = 3
    harness.server.responses.expired_tokens = 1
    for number in range(10):
        harness.server.create(f"p{number}")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        await asyncio.sleep(1)
        harness.assert_in_sync()


async def test_object_deleted_between_pages_of_a_restarted_list_is_not_added(harness):
    server = harness.server
    server.responses.watch_list_refusal = 422
    server.responses.page_limit = 3
    server.responses.expired_tokens = 1
    for number in range(10):
        server.create(f"p{number}")

    def delete_first_pod(request):
        if "continue=" in request.target and "default/p0" in server.pods:
            server.delete("p0")

    server.transport.on_send = delete_first_pod
    async with harness.run_informers():
        await harness.informers.wait_synced()
        assert "default/p0" not in server.pods
        harness.assert_in_sync()


@pytest.mark.parametrize("watch_list_refusal", [None, 422])
async def test_lists_are_never_older_than_the_newest_version(harness, fault, watch_list_refusal):
    """resourceVersion=0 would allow a list from a cache that is older than what the informer has seen."""
    harness.server.responses.watch_list_refusal = watch_list_refusal
    harness.server.transport.watch_faults.append(fault("expired", lines=1))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.create("a")
        await asyncio.sleep(60)
        harness.assert_in_sync()
    lists = harness.server.lists()
    assert len(lists) >= 2
    assert not [request for request in lists if "resourceVersion=" in request]


@pytest.mark.parametrize("watch_list_refusal", [None, 422])
async def test_refused_list_is_repeated_after_its_retry_after(harness, watch_list_refusal):
    harness.server.responses.watch_list_refusal = watch_list_refusal
    loop = asyncio.get_running_loop()
    start, refused_at = loop.time(), []

    def refuse(method, path):
        if loop.time() - start >= 60:
            return None
        refused_at.append(loop.time())
        return StatusError(503, "ServiceUnavailable", "overloaded", headers=(("Retry-After", "120"),))

    harness.server.transport.reject = refuse
    async with harness.run_informers():
        await harness.informers.wait_synced()
    assert refused_at[-1] - start < 10  # retries of the client
    assert loop.time() - refused_at[-1] >= 120


async def test_refused_watch_is_repeated_after_its_retry_after(harness, fault):
    harness.server.transport.watch_faults.append(fault("close", lines=1))
    loop, attempts = asyncio.get_running_loop(), []

    def refuse_once(method, path):
        attempts.append(loop.time())
        if len(attempts) != 2:
            return None
        return StatusError(503, "ServiceUnavailable", "overloaded", headers=(("Retry-After", "120"),))

    harness.server.transport.reject = refuse_once
    async with harness.run_informers():
        await harness.informers.wait_synced()
        await asyncio.sleep(200)
        harness.assert_in_sync()
    assert len(attempts) == 5  # the version has become old: it is renewed by a list and a short watch first
    assert attempts[2] - attempts[1] >= 120
    assert len(harness.server.lists()) == 1


async def test_closed_stream_resumes_at_last_version_without_list(harness, fault):
    harness.server.transport.watch_faults.append(fault("close", lines=2))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        await asyncio.sleep(5)
        harness.server.create("a")
        harness.server.create("b")  # the stream closes before this one
        await asyncio.sleep(0.01)
        harness.assert_in_sync()
    assert len(harness.server.requests) == 2
    assert f"resourceVersion={harness.server.version_after(1)}" in harness.server.requests[1]


async def test_stream_broken_mid_line_is_resumed(harness, fault):
    harness.server.transport.watch_faults.append(fault("reset", lines=1))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        await asyncio.sleep(5)
        harness.server.create("a")
        await asyncio.sleep(3)
        harness.assert_in_sync()
    assert len(harness.server.lists()) == 1


async def test_watch_times_out_after_5_to_10_minutes_and_resumes(harness):
    async with harness.run_informers():
        await harness.informers.wait_synced()
        await asyncio.sleep(3600)
        harness.server.create("a")
        await asyncio.sleep(1)
        harness.assert_in_sync()
    watches = harness.server.watches()
    assert 6 < len(watches) < 14
    seconds = {int(watch.partition("timeoutSeconds=")[2].partition("&")[0]) for watch in watches}
    assert all(300 <= watch_seconds <= 600 for watch_seconds in seconds)
    assert len(seconds) > 3
    assert len(harness.server.lists()) == 1


async def test_bookmark_advances_the_resume_version(harness):
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.store.revision = 5000  # other resources change
        await asyncio.sleep(61)
        assert harness.pods.last_resource_version == "5000"
        harness.server.compact()
        await asyncio.sleep(1200)
    assert len(harness.server.lists()) == 1


@pytest.mark.parametrize("watch_list_refusal", [None, 422])
async def test_list_after_410_notifies_missed_changes_only(harness, fault, watch_list_refusal):
    server = harness.server
    server.responses.watch_list_refusal = watch_list_refusal
    for name in ("gone", "changed", "same", "replaced"):
        server.create(name)
    async with harness.run_informers():
        await harness.informers.wait_synced()
        last = harness.pods.store["default/gone"]
        harness.handler.calls.clear()
        server.transport.watch_faults.append(fault("refuse", code=410))
        server.transport.down = True
        server.create("wakes the stream up")
        await asyncio.sleep(1)
        server.delete("wakes the stream up")
        server.delete("gone")
        server.update("changed")
        server.delete("replaced")
        server.create("replaced")
        server.create("new")
        server.compact()
        server.transport.down = False
        await asyncio.sleep(60)
        harness.assert_in_sync()
        assert last.key not in harness.handler.objects
    calls = {key: [call[0] for call in harness.handler.calls if call[1] == key] for key in harness.handler.objects}
    assert calls == {
        "default/changed": ["update"],
        "default/same": [],
        "default/replaced": ["delete", "add"],
        "default/new": ["add"],
    }
    assert ("delete", "default/gone", True) in harness.handler.calls
    assert ("add", "default/new", False) in harness.handler.calls


@pytest.mark.parametrize("kind", ["expired", "error"])
async def test_error_event_causes_list_after_backoff(harness, fault, kind):
    harness.server.transport.watch_faults.append(fault(kind, lines=2))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.create("a")
        harness.server.create("b")
        await asyncio.sleep(0.5)
        assert len(harness.server.lists()) == 1
        await asyncio.sleep(2)
        harness.assert_in_sync()
    assert len(harness.server.lists()) == 2


async def test_throttled_stream_resumes_without_list(harness, fault):
    harness.server.transport.watch_faults.append(fault("throttled", lines=2))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.create("a")
        harness.server.create("b")
        await asyncio.sleep(3)
        harness.assert_in_sync()
    assert len(harness.server.lists()) == 1


async def test_server_restored_to_older_version_is_relisted(harness):
    server = harness.server
    server.create("a")
    server.create("b")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        server.transport.down = True
        await asyncio.sleep(0.1)
        server.restore("a")
        server.transport.down = False
        await asyncio.sleep(60)
        harness.assert_in_sync()
        assert harness.pods.last_resource_version == server.version_after(1)


async def test_unreachable_server_is_retried_with_backoff(harness):
    harness.server.transport.down = True
    async with harness.run_informers():
        await asyncio.sleep(600)
        request_count = len(harness.server.requests)
        assert 12 <= request_count <= 120  # the client tries each list five times
        harness.server.transport.down = False
        harness.server.create("a")
        await asyncio.sleep(70)
        harness.assert_in_sync()


async def test_refused_streams_do_not_flood_server(harness, fault):
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.transport.watch_faults.extend(fault("refuse", code=503) for _ in range(1000))
        harness.server.transport.down = True
        harness.server.create("a")
        await asyncio.sleep(1)
        harness.server.transport.down = False
        await asyncio.sleep(600)
    assert len(harness.server.requests) < 60


async def test_successful_streams_reset_backoff(harness, fault):
    for _ in range(10):
        harness.server.transport.watch_faults.extend([fault("close", lines=1), fault("refuse", code=500)])
    harness.server.transport.watch_faults.pop(0)  # the stream that brings the list is whole
    harness.server.transport.watch_faults.insert(0, fault("close", lines=2))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        for number in range(20):
            harness.server.create(f"a{number}")
            await asyncio.sleep(1.7)  # the longest first pause is 1.6
            harness.assert_in_sync()
    assert not any(fault_.code for fault_ in harness.server.transport.watch_faults)


async def test_silent_stream_is_closed_and_resumed(harness, fault):
    harness.server.transport.watch_faults.append(fault("silence", lines=1))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.create("a")
        await asyncio.sleep(250)
        harness.assert_in_sync()
    assert len(harness.server.lists()) == 1


async def test_repeated_events_are_notified_once(harness, fault):
    harness.server.transport.watch_faults.append(fault("close", lines=4))
    harness.server.responses.repeated_events = 3
    async with harness.run_informers():
        await harness.informers.wait_synced()
        await asyncio.sleep(5)
        harness.server.create("a")
        harness.server.update("a")
        harness.server.update("a")
        harness.server.update("a")
        await asyncio.sleep(3)
        harness.assert_in_sync()
    assert [call[0] for call in harness.handler.calls] == ["add", "update", "update", "update"]


async def test_unreadable_object_is_logged_and_stream_continues(harness, caplog):
    server = harness.server
    server.create("broken at first", spec={"nodeName": 7})
    server.create("good")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        assert list(harness.pods.store) == ["default/good"]
        server.create("bad", spec={"nodeName": ["x"]})
        server.update("good", spec={"nodeName": 1})
        server.create("later")
        await asyncio.sleep(1)
        assert set(harness.pods.store) == {"default/good", "default/later"}
        server.update("bad", spec={"nodeName": "n"})
        server.update("good", spec={"nodeName": "n"})
        server.update("later", spec={"nodeName": 1})
        server.delete("later")
        await asyncio.sleep(1)
        assert set(harness.pods.store) == {"default/good", "default/bad"}
    assert len(harness.server.requests) == 1
    assert ("delete", "default/later", True) in harness.handler.calls
    keys = {record.key for record in caplog.records if record.message == "cannot read an object"}
    assert keys == {"default/broken at first", "default/bad", "default/good", "default/later"}


async def test_unreadable_list_item_keeps_cached_state(harness, fault):
    server = harness.server
    server.responses.watch_list_refusal = 422
    server.create("known")
    server.create("unknown", spec={"nodeName": 7})
    async with harness.run_informers():
        await harness.informers.wait_synced()
        assert list(harness.pods.store) == ["default/known"]
        known = harness.pods.store["default/known"]
        server.transport.down = True
        server.create("wake")
        await asyncio.sleep(0.1)
        server.update("known", spec={"nodeName": 7})
        server.compact()
        server.transport.down = False
        await asyncio.sleep(60)
        assert harness.pods.store["default/known"] is known
        assert "default/wake" in harness.pods.store


async def test_object_of_megabytes_is_received(harness):
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.responses.rng.randint = lambda low, high: 65_536
        harness.server.create("large", metadata2="x" * 5_000_000)
        await asyncio.sleep(1)
        harness.assert_in_sync()


async def test_long_list_yields_to_other_tasks(harness):
    for number in range(2_000):
        harness.server.create(f"p{number}")
    turn_count = 0

    async def other_task():
        nonlocal turn_count
        while not harness.pods.has_synced:
            turn_count += 1
            await asyncio.sleep(0)

    async with harness.run_informers():
        await other_task()
        harness.assert_in_sync()
    assert turn_count >= 2 * 2_000 // 64


async def test_list_items_have_kind_and_api_version(harness):
    harness.server.responses.watch_list_refusal = 422
    harness.server.create("a")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        pod = harness.pods.store["default/a"]
        assert (pod.kind, pod.api_version) == ("Pod", "v1")


@pytest.mark.parametrize("watch_list_refusal", [None, 422])
async def test_managed_fields_of_dicts_are_dropped(harness, watch_list_refusal):
    harness.server.responses.watch_list_refusal = watch_list_refusal
    harness.server.create("a", "shop", CONFIG_MAPS)
    config_maps = harness.informers.informer(CONFIG_MAPS)
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.create("b", "shop", CONFIG_MAPS)
        await asyncio.sleep(1)
        assert [key for key in sorted(config_maps.store) if key.startswith("shop/")] == ["shop/a", "shop/b"]
        assert all("managedFields" not in config_map["metadata"] for config_map in config_maps.store.list())
        assert all(config_map["kind"] for config_map in config_maps.store.list())


class RecordingCache:
    """Cache, and receiver of its lists, that records the calls of a reflector."""

    def __init__(self, clock):
        self.clock = clock
        self.calls = []

    def start_list(self, *, same_history):
        self.calls.append("list of the same history" if same_history else "list")
        return self

    def missed(self):
        self.calls.append("missed")

    def put(self, key, obj):
        self.calls.append(("put", key))

    def put_unreadable(self, obj):
        self.calls.append(("put unreadable", obj.key))

    def remove(self, key, uid):
        self.calls.append(("remove", key))

    async def finish(self, resource_version):
        self.calls.append("finish")

    def apply(self, event_type, obj, arrived_ns):
        assert arrived_ns == self.clock.time_ns()
        self.calls.append((event_type, obj.key))

    def connected(self):
        self.calls.append("connected")

    def disconnected(self, received_until_ns):
        ago_seconds = (self.clock.time_ns() - received_until_ns) // 1_000_000_000 if received_until_ns else None
        self.calls.append(("disconnected", ago_seconds))

    def unchanged(self, until_ns):
        self.calls.append(("unchanged", (self.clock.time_ns() - until_ns) // 1_000_000_000))


async def test_cache_receives_list_then_events_then_bookmark(harness):
    cache = RecordingCache(harness.server.clock)
    harness.server.create("a")
    harness.server.create("b")
    reflector = Reflector(harness.client, PODS, cache, rng=random.Random(1))
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(1)
    harness.server.create("c")
    harness.server.delete("a")
    await asyncio.sleep(61)
    task.cancel()
    assert cache.calls == [
        "list",
        ("put", "default/a"),
        ("put", "default/b"),
        "finish",
        "connected",
        ("ADDED", "default/c"),
        ("DELETED", "default/a"),
    ]
    assert reflector.resource_version == harness.server.version_after(4)


async def test_cache_receives_connections_and_until_when_events_arrived(harness, fault):
    cache = RecordingCache(harness.server.clock)
    reflector = Reflector(harness.client, PODS, cache, rng=random.Random(1))
    harness.server.transport.watch_faults += [fault("close", lines=2), fault("silence", lines=0)]
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(1)
    harness.server.create("a")
    harness.server.create("b")  # the stream closes before this one, and the next one is silent
    await asyncio.sleep(1)
    assert cache.calls == ["list", "finish", "connected", ("ADDED", "default/a"), ("disconnected", 0), "connected"]
    await asyncio.sleep(250)
    assert cache.calls[6:] == [("disconnected", None), "connected", ("ADDED", "default/b")]
    task.cancel()


async def test_broken_watch_had_received_events_until_its_last_line(harness):
    cache = RecordingCache(harness.server.clock)
    reflector = Reflector(harness.client, PODS, cache, rng=random.Random(1))
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(1)
    harness.server.create("a")
    await asyncio.sleep(20)
    harness.server.transport.break_watches()
    harness.server.create("b")
    await asyncio.sleep(1)
    assert cache.calls[3:] == [("ADDED", "default/a"), ("disconnected", 20), "connected", ("ADDED", "default/b")]
    task.cancel()


async def test_resource_of_a_later_release_is_empty_until_the_server_serves_it(harness, caplog):
    claims = harness.informers.informer(replace(RESOURCE_CLAIMS, version="v9"))  # a path that the server does not have
    harness.server.create("a")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        assert claims.store.list() == []
        await asyncio.sleep(200)
        requests = [request for request in harness.server.requests if "resourceclaims" in request]
    assert 4 <= len(requests) <= 10
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "not served by this API server, none is assumed"
    ]


async def test_reflector_selects_by_namespace_and_label(harness):
    cache = RecordingCache(harness.server.clock)
    harness.server.responses.watch_list_refusal = 422
    selectors = {"label_selector": "app=web"}
    task = asyncio.create_task(
        Reflector(harness.client, PODS, cache, rng=random.Random(1), namespace="shop", selectors=selectors).run()
    )
    await asyncio.sleep(1)
    task.cancel()
    assert len(harness.server.requests) == 3
    for request in harness.server.requests:
        assert request.startswith("/api/v1/namespaces/shop/pods?")
        assert "labelSelector=app%3Dweb" in request


async def test_yield_to_event_loop_gives_turn_after_64_steps():
    steps, turns = 0, []
    asyncio.get_running_loop().call_soon(turns.append, True)
    for _ in range(STEPS_PER_TURN):
        steps = await yield_to_event_loop(steps)
    assert turns == []
    assert await yield_to_event_loop(steps) == 0
    assert turns == [True]


async def quiet_hour(harness, cache, between=lambda minute: None):
    """Watch a resource for an hour in which only other resources change, and versions expire as with etcd's defaults.

    Returns the calls to the cache but those of the connections.
    """
    server = harness.server
    server.responses.sends_bookmarks = False
    server.create("a")
    reflector = Reflector(harness.client, PODS, cache, rng=random.Random(1))
    task = asyncio.create_task(reflector.run())
    last_version = 0
    for minute in range(60):
        if minute % 5 == 0:
            server.transport.compacted_version, last_version = last_version, server.store.revision
        server.create(f"other-{minute}", resource=CONFIG_MAPS)
        between(minute)
        await asyncio.sleep(60)
    task.cancel()
    return [call for call in cache.calls if call != "connected" and call[0] != "disconnected"]


async def test_quiet_watch_without_bookmarks_is_resumed_for_an_hour(harness):
    calls = await quiet_hour(harness, RecordingCache(harness.server.clock))
    assert calls[:3] == ["list", ("put", "default/a"), "finish"]
    assert calls[3:] == [("unchanged", 5)] * len(harness.server.renewals())
    assert len(calls) > 3 + 60 // 4 - 1  # every 2 to 4 minutes
    assert len(harness.server.lists()) == 1


async def test_streams_that_a_proxy_ends_when_idle_are_resumed_for_an_hour(harness):
    def end_streams(minute):
        harness.server.transport.break_watches()

    calls = await quiet_hour(harness, RecordingCache(harness.server.clock), end_streams)
    assert {call[0] for call in calls[3:]} == {"unchanged"}
    assert len(harness.server.lists()) == 1


async def test_change_during_a_renewal_is_received(harness):
    changes = []

    def create_during_renewals(minute):
        if len(harness.server.renewals()) > len(changes):
            changes.append(harness.server.create(f"b{len(changes)}"))

    calls = await quiet_hour(harness, RecordingCache(harness.server.clock), create_during_renewals)
    added = [call[1] for call in calls if call[0] == "ADDED"]
    assert added == [f"default/b{number}" for number in range(len(changes))]
    assert len(changes) > 5
    assert len(harness.server.lists()) == 1


@pytest.mark.parametrize("resource", [CONFIG_MAPS, PODS])
async def test_expired_watch_lists_what_changed_since_its_last_event(harness, resource):
    server, cache = harness.server, RecordingCache(harness.server.clock)
    server.create("a")
    reflector = Reflector(harness.client, PODS, cache, rng=random.Random(1))
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(1)
    cache.calls.clear()
    server.transport.down = True
    server.create("b", resource=resource)
    server.create("c", resource=CONFIG_MAPS)
    server.compact()
    server.transport.down = False
    await asyncio.sleep(5)
    task.cancel()
    listed = [("put", "default/a"), *(["missed", ("put", "default/b")] if resource is PODS else [])]
    calls = [call for call in cache.calls if call[0] != "disconnected"]
    assert calls == ["list of the same history", *listed, "finish", "connected"]

"""Handlers receive consistent calls per key, whenever they are added and whatever faults the server injects."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.client.current_span import current_span, request_traceparent
from kubeloop.kube.objects.api_types import PartialObjectMetadata, Pod, convert
from kubeloop.kube.objects.resources import NODES, PODS
from kubeloop.testing import virtual_time
from kubeloop.tracing.spans.traceparent import TraceContext


@pytest.fixture
async def harness(make_harness):
    return make_harness()


@pytest.mark.virtual_time
async def test_late_handler_receives_initial_adds_then_changes(harness, make_handler):
    harness.server.create("a")
    harness.server.create("b")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        late_handler = make_handler()
        calls_before_synced = []
        registration = harness.pods.add_handler(
            late_handler, synced=lambda: calls_before_synced.append(len(late_handler.calls))
        )
        assert late_handler.calls == []
        assert not registration.has_synced
        await registration.wait_synced()
        assert registration.has_synced
        assert len(late_handler.calls) == 2
        assert calls_before_synced == [2]
        harness.server.delete("a")
        await asyncio.sleep(1)
        assert late_handler.calls == [
            ("add", "default/a", True),
            ("add", "default/b", True),
            ("delete", "default/a", False),
        ]


@pytest.mark.virtual_time
async def test_informer_does_not_keep_the_span_of_the_task_that_started_it(harness):
    current_span.set(TraceContext("1" * 32, "2" * 16, True))
    harness.server.create("a")
    spans = []
    harness.pods.add_handler(ResourceEventHandlerFuncs(on_add=lambda pod, initial: spans.append(request_traceparent())))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        await asyncio.sleep(1)
    assert spans == [""]


@pytest.mark.virtual_time
async def test_event_delivers_pending_add_of_its_key_first(harness, make_handler):
    for number in range(200):
        harness.server.create(f"p{number}")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        late_handler = make_handler()
        harness.pods.add_handler(late_handler)
        harness.pods.apply("DELETED", harness.pods.store["default/p150"], 0)
        newer = harness.pods.store["default/p151"]
        metadata = msgspec.structs.replace(newer.metadata, resource_version="999999")
        harness.pods.apply("MODIFIED", msgspec.structs.replace(newer, metadata=metadata), 0)
        await asyncio.sleep(1)
        assert late_handler.calls[:4] == [
            ("add", "default/p150", True),
            ("delete", "default/p150", False),
            ("add", "default/p151", True),
            ("update", "default/p151", "999999"),
        ]
        assert late_handler.objects == {pod.key: pod for pod in harness.pods.store.list()}


@pytest.mark.virtual_time
async def test_removed_handler_is_not_called(harness, make_handler):
    harness.server.create("a")
    async with harness.run_informers():
        await harness.informers.wait_synced()
        handler = make_handler()
        registration = harness.pods.add_handler(handler)
        await registration.wait_synced()
        registration.remove()
        harness.server.create("b")
        await asyncio.sleep(1)
        assert handler.calls == [("add", "default/a", True)]
        never = harness.pods.add_handler(handler)
        never.remove()
        await asyncio.sleep(1)
        assert handler.calls == [("add", "default/a", True)]


@pytest.mark.virtual_time
async def test_failing_handler_is_logged_and_does_not_block_others(harness, caplog):
    def fail(*args):
        raise RuntimeError("boom")

    failing = ResourceEventHandlerFuncs(on_add=fail, on_update=fail, on_delete=fail)
    harness.pods.add_handler(failing, synced=fail)
    deleted_keys = []
    harness.pods.add_handler(ResourceEventHandlerFuncs(on_delete=lambda obj, unknown: deleted_keys.append(obj.key)))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.create("a")
        harness.server.update("a")
        harness.server.delete("a")
        await asyncio.sleep(1)
    assert deleted_keys == ["default/a"]
    failures = [record for record in caplog.records if record.message == "handler failed"]
    assert [(record.key, record.method) for record in failures] == [
        ("", "synced"),
        ("default/a", "on_add"),
        ("default/a", "on_update"),
        ("default/a", "on_delete"),
    ]


@pytest.mark.virtual_time
async def test_store_is_updated_before_handlers_are_called(harness):
    results = []
    store = harness.pods.store
    harness.pods.add_handler(
        ResourceEventHandlerFuncs(
            on_add=lambda obj, initial: results.append(store.get(obj.key) is obj),
            on_update=lambda old, new: results.append(store.get(new.key) is new),
            on_delete=lambda obj, unknown: results.append(obj.key not in store),
        )
    )
    async with harness.run_informers():
        await harness.informers.wait_synced()
        harness.server.create("a")
        harness.server.update("a")
        harness.server.delete("a")
        await asyncio.sleep(1)
    assert results == [True, True, True]


@pytest.mark.virtual_time
async def test_resync_notifies_only_handlers_that_requested_it(harness):
    harness.server.create("a")
    resynced, not_resynced = [], []
    harness.pods.add_handler(
        ResourceEventHandlerFuncs(on_update=lambda old, new: resynced.append(old is new)), resync_seconds=60
    )
    harness.pods.add_handler(ResourceEventHandlerFuncs(on_update=lambda old, new: not_resynced.append(new)))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        await asyncio.sleep(599)
    assert resynced == [True] * 9
    assert not_resynced == []


@pytest.mark.virtual_time
async def test_factory_shares_informers_and_starts_late_ones(harness):
    assert harness.informers.informer(PODS) is harness.pods
    async with harness.run_informers():
        await harness.informers.wait_synced()
        late = harness.informers.informer(NODES)
        await late.wait_synced()
        assert late.has_synced


@pytest.mark.virtual_time
async def test_acquired_informer_ends_with_its_last_handler(harness):
    factory, nodes = harness.informers, msgspec.structs.replace(NODES, type=PartialObjectMetadata)
    async with harness.run_informers():
        acquired = factory.acquire_informer(nodes)
        assert factory.acquire_informer(NODES) is acquired
        first, second = (
            acquired.add_handler(ResourceEventHandlerFuncs()),
            acquired.add_handler(ResourceEventHandlerFuncs()),
        )
        await acquired.wait_synced()
        factory.release(first)
        assert acquired in factory.informers
        factory.release(second)
        assert acquired not in factory.informers
        await asyncio.sleep(1)
        assert not [task for task in asyncio.all_tasks() if "nodes" in task.get_name()]
        new_informer = factory.acquire_informer(nodes)
        assert new_informer is not acquired
        await new_informer.wait_synced()


@pytest.mark.virtual_time
async def test_informer_stopped_before_first_list_ends_wait_synced(harness):
    acquired = harness.informers.acquire_informer(NODES)
    registration = acquired.add_handler(ResourceEventHandlerFuncs())
    async with asyncio.TaskGroup() as tasks:  # without run()
        tasks.create_task(harness.informers.wait_synced())
        await asyncio.sleep(1)
        harness.pods.mark_stopped()
        harness.informers.release(registration)


@pytest.mark.virtual_time
async def test_informer_with_store_users_is_not_released(harness):
    factory = harness.informers
    shared = factory.acquire_informer(PODS)
    assert shared is harness.pods
    factory.release(shared.add_handler(ResourceEventHandlerFuncs()))
    acquired = factory.acquire_informer(NODES)
    assert factory.informer(NODES) is acquired
    factory.release(acquired.add_handler(ResourceEventHandlerFuncs()))
    assert {shared, acquired} <= {*factory.informers}


@pytest.mark.parametrize(
    ("version", "remaining"),
    [
        pytest.param("7", [], id="of a newer object, whose creation was missed"),
        pytest.param("3", ["default/a"], id="of an older object"),
    ],
)
async def test_deletion_of_another_object_of_the_same_name(harness, version, remaining):
    def pod(uid, resource_version):
        metadata = {"name": "a", "namespace": "default", "uid": uid, "resourceVersion": resource_version}
        return convert(Pod, {"metadata": metadata})

    harness.pods.apply("ADDED", pod("first", "5"), 0)
    harness.pods.apply("DELETED", pod("second", version), 0)
    assert list(harness.pods.store) == list(harness.handler.objects) == remaining
    assert harness.handler.violations == []


@pytest.mark.virtual_time
async def test_informer_run_again_notifies_only_changes(harness):
    harness.server.create("a")
    harness.server.create("b")
    async with harness.run_informers():
        await harness.informers.wait_synced()
    harness.server.delete("a")
    harness.server.create("c")
    async with harness.run_informers():
        await asyncio.sleep(1)
        harness.assert_in_sync()
    assert harness.handler.calls[-2:] == [("delete", "default/a", True), ("add", "default/c", False)]


names = st.sampled_from(["a", "b", "c", "d"])
faults = st.tuples(
    st.sampled_from(["close", "reset", "silence", "expired", "error", "throttled", "refuse"]),
    st.integers(0, 5),
    st.sampled_from([410, 429, 500, 503]),
)
actions = st.one_of(
    st.tuples(st.just("create"), names),
    st.tuples(st.just("create"), names),
    st.tuples(st.just("update"), names),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 0.5, 3.0, 70.0, 400.0])),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 0.5, 3.0])),
    st.tuples(st.just("fault"), faults),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("down"), st.booleans()),
    st.tuples(st.just("expire tokens"), st.none()),
    st.tuples(st.just("handler"), st.none()),
    st.tuples(st.just("miss a deletion"), names),
    st.tuples(st.just("miss a replacement"), names),
)


@given(
    seed=st.integers(0, 2**32 - 1),
    script=st.lists(actions, max_size=40),
    watch_list_refusal=st.sampled_from([None, 422, 403, "ignore"]),
    repeat=st.integers(0, 4),
    initial_bookmark_seconds=st.sampled_from([0, 5, 100]),
    synced_first=st.booleans(),
)
@settings(max_examples=150)
def test_store_and_handlers_are_consistent_after_any_faults(
    make_harness, make_handler, fault, seed, script, watch_list_refusal, repeat, initial_bookmark_seconds, synced_first
):
    async def main():
        harness = make_harness(seed=seed)
        server = harness.server
        transport, responses = server.transport, server.responses
        responses.watch_list_refusal, responses.repeated_events = watch_list_refusal, repeat
        responses.page_limit, responses.initial_bookmark_seconds = 2, initial_bookmark_seconds
        handlers = [harness.handler]
        for name in "abc":
            server.create(name)
        async with harness.run_informers():
            if synced_first:
                await asyncio.sleep(500)
            for action, detail in script:
                key = f"default/{detail}"
                if action == "create" and key not in server.pods:
                    server.create(detail)
                elif action == "update" and key in server.pods:
                    server.update(detail)
                elif action == "delete" and key in server.pods:
                    server.delete(detail)
                elif action == "wait":
                    await asyncio.sleep(detail)
                elif action == "fault":
                    transport.watch_faults.append(fault(*detail))
                elif action == "compact":
                    server.compact()
                elif action == "down":
                    transport.down = detail
                elif action == "expire tokens":
                    responses.expired_tokens += 1
                elif action.startswith("miss") and key in server.pods:
                    transport.down = True
                    await asyncio.sleep(0.1)
                    server.delete(detail)
                    if action == "miss a replacement":
                        server.create(detail)
                    server.compact()
                    transport.down = False
                elif action == "handler":
                    handlers.append(make_handler())
                    harness.pods.add_handler(handlers[-1])
            transport.down = False
            transport.watch_faults.clear()
            responses.expired_tokens = 0
            await asyncio.sleep(2_000)
            harness.assert_in_sync()
            expected = {pod.key: pod for pod in harness.pods.store.list()}
            for handler in handlers:
                assert {key: obj.metadata.uid for key, obj in handler.objects.items()} == {
                    key: obj.metadata.uid for key, obj in expected.items()
                }
                assert handler.objects == expected
                assert handler.violations == []

    virtual_time.run(main())


@pytest.mark.virtual_time
async def test_functions_of_an_informer_receive_its_events(harness):
    events: list[str] = []

    def key(pod: Pod | None) -> str:
        return "-" if pod is None else pod.metadata.name + pod.metadata.resource_version[-1]

    harness.pods.on_events(
        added=lambda pod: events.append(f"added {key(pod)}"),
        updated=lambda old, new: events.append(f"updated {key(old)} {key(new)}"),
        deleted=lambda pod: events.append(f"deleted {key(pod)}"),
    )
    harness.pods.on_latest(lambda pod: events.append(f"latest {key(pod)}"))
    harness.pods.on_latest(lambda pod: None, deleted=lambda pod: events.append(f"last {key(pod)}"))
    harness.pods.on_changes(lambda old, new: events.append(f"changed {key(old)} {key(new)}"))
    async with harness.run_informers():
        await harness.informers.wait_synced()
        first = key(convert(Pod, harness.server.create("a")))
        await asyncio.sleep(1)
        assert events == [f"added {first}", f"latest {first}", f"changed - {first}"]
        events.clear()
        second = key(convert(Pod, harness.server.update("a")))
        await asyncio.sleep(1)
        assert events == [f"updated {first} {second}", f"latest {second}", f"changed {first} {second}"]
        events.clear()
        deleted = key(convert(Pod, harness.server.delete("a")))
        await asyncio.sleep(1)
        assert events == [f"deleted {deleted}", f"last {deleted}", f"changed {deleted} -"]

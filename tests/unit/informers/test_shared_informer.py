"""Handlers hear one consistent story each, whenever they come and whatever the server does."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.objects.api_types import PartialObjectMetadata
from kubeloop.kube.objects.resources import NODES, PODS
from kubeloop.testing import virtual_time


@pytest.fixture
def world(make_world):
    return make_world()


@pytest.mark.virtual_time
async def test_late_handler_receives_initial_adds_then_changes(world, make_story):
    world.server.create("a")
    world.server.create("b")
    async with world.running():
        await world.informers.wait_synced()
        late = make_story()
        registration = world.pods.add_handler(late)
        assert late.heard == []
        assert not registration.synced
        await registration.wait_synced()
        world.server.delete("a")
        await asyncio.sleep(1)
        assert late.heard == [
            ("add", "default/a", True),
            ("add", "default/b", True),
            ("delete", "default/a", False),
        ]


@pytest.mark.virtual_time
async def test_event_delivers_pending_add_of_its_key_first(world, make_story):
    for number in range(200):
        world.server.create(f"p{number}")
    async with world.running():
        await world.informers.wait_synced()
        late = make_story()
        world.pods.add_handler(late)
        world.pods.apply("DELETED", world.pods.store["default/p150"])
        newer = world.pods.store["default/p151"]
        metadata = msgspec.structs.replace(newer.metadata, resource_version="999999")
        world.pods.apply("MODIFIED", msgspec.structs.replace(newer, metadata=metadata))
        await asyncio.sleep(1)
        assert late.heard[:4] == [
            ("add", "default/p150", True),
            ("delete", "default/p150", False),
            ("add", "default/p151", True),
            ("update", "default/p151", "999999"),
        ]
        assert late.now == {pod.key: pod for pod in world.pods.store.list()}


@pytest.mark.virtual_time
async def test_removed_handler_is_not_called(world, make_story):
    world.server.create("a")
    async with world.running():
        await world.informers.wait_synced()
        story = make_story()
        registration = world.pods.add_handler(story)
        await registration.wait_synced()
        registration.remove()
        world.server.create("b")
        await asyncio.sleep(1)
        assert story.heard == [("add", "default/a", True)]
        never = world.pods.add_handler(story)
        never.remove()
        await asyncio.sleep(1)
        assert story.heard == [("add", "default/a", True)]


@pytest.mark.virtual_time
async def test_failing_handler_is_logged_and_does_not_block_others(world, caplog):
    def fail(*args):
        raise RuntimeError("boom")

    world.pods.add_handler(ResourceEventHandlerFuncs(on_add=fail, on_update=fail, on_delete=fail))
    heard = []
    world.pods.add_handler(ResourceEventHandlerFuncs(on_delete=lambda obj, unknown: heard.append(obj.key)))
    async with world.running():
        await world.informers.wait_synced()
        world.server.create("a")
        world.server.update("a")
        world.server.delete("a")
        await asyncio.sleep(1)
    assert heard == ["default/a"]
    failures = [record for record in caplog.records if record.message == "handler failed"]
    assert [(record.key, record.method) for record in failures] == [
        ("default/a", "on_add"),
        ("default/a", "on_update"),
        ("default/a", "on_delete"),
    ]


@pytest.mark.virtual_time
async def test_store_is_updated_before_handlers_are_called(world):
    seen = []
    store = world.pods.store
    world.pods.add_handler(
        ResourceEventHandlerFuncs(
            on_add=lambda obj, initial: seen.append(store.get(obj.key) is obj),
            on_update=lambda old, new: seen.append(store.get(new.key) is new),
            on_delete=lambda obj, unknown: seen.append(obj.key not in store),
        )
    )
    async with world.running():
        await world.informers.wait_synced()
        world.server.create("a")
        world.server.update("a")
        world.server.delete("a")
        await asyncio.sleep(1)
    assert seen == [True, True, True]


@pytest.mark.virtual_time
async def test_resync_notifies_only_handlers_that_requested_it(world):
    world.server.create("a")
    again, others = [], []
    world.pods.add_handler(
        ResourceEventHandlerFuncs(on_update=lambda old, new: again.append(old is new)), resync_seconds=60
    )
    world.pods.add_handler(ResourceEventHandlerFuncs(on_update=lambda old, new: others.append(new)))
    async with world.running():
        await world.informers.wait_synced()
        await asyncio.sleep(599)
    assert again == [True] * 9
    assert others == []


@pytest.mark.virtual_time
async def test_transform_is_applied_before_storing(world):
    def slim(pod):
        if pod.metadata.name == "odd":
            raise ValueError("cannot")
        return msgspec.structs.replace(pod, spec=type(pod.spec)())

    slimmed = world.informers.informer(PODS, transform=slim)
    assert slimmed is not world.pods
    world.server.create("a", spec={"nodeName": "n"})
    world.server.create("odd")
    async with world.running():
        await world.informers.wait_synced()
        world.server.create("b", spec={"nodeName": "n"})
        await asyncio.sleep(1)
        assert sorted(slimmed.store) == ["default/a", "default/b"]
        assert {pod.spec.node_name for pod in slimmed.store.list()} == {""}


@pytest.mark.virtual_time
async def test_factory_shares_informers_and_starts_late_ones(world):
    assert world.informers.informer(PODS) is world.pods
    assert world.informers.informer(PODS, namespace="x") is not world.pods
    async with world.running():
        await world.informers.wait_synced()
        late = world.informers.informer(NODES)
        await late.wait_synced()
        assert late.has_synced


@pytest.mark.virtual_time
async def test_acquired_informer_ends_with_its_last_handler(world):
    factory, nodes = world.informers, dataclasses.replace(NODES, type=PartialObjectMetadata)
    async with world.running():
        lent = factory.acquire_informer(nodes)
        assert factory.acquire_informer(NODES) is lent
        first, second = lent.add_handler(ResourceEventHandlerFuncs()), lent.add_handler(ResourceEventHandlerFuncs())
        await lent.wait_synced()
        factory.release(first)
        assert lent in factory.informers
        factory.release(second)
        assert lent not in factory.informers
        await asyncio.sleep(1)
        assert not [task for task in asyncio.all_tasks() if "nodes" in task.get_name()]
        again = factory.acquire_informer(nodes)
        assert again is not lent
        await again.wait_synced()


@pytest.mark.virtual_time
async def test_informer_stopped_before_first_list_ends_wait_synced(world):
    lent = world.informers.acquire_informer(NODES)
    handler = lent.add_handler(ResourceEventHandlerFuncs())
    async with asyncio.TaskGroup() as waiting:  # run() is not running
        waiting.create_task(world.informers.wait_synced())
        await asyncio.sleep(1)
        world.pods.mark_stopped()
        world.informers.release(handler)


@pytest.mark.virtual_time
async def test_informer_with_store_users_is_not_released(world):
    factory = world.informers
    found = factory.acquire_informer(PODS)
    assert found is world.pods
    factory.release(found.add_handler(ResourceEventHandlerFuncs()))
    lent = factory.acquire_informer(NODES)
    assert factory.informer(NODES) is lent
    factory.release(lent.add_handler(ResourceEventHandlerFuncs()))
    assert {found, lent} <= {*factory.informers}


@pytest.mark.virtual_time
async def test_informer_run_again_notifies_only_changes(world):
    world.server.create("a")
    world.server.create("b")
    async with world.running():
        await world.informers.wait_synced()
    world.server.delete("a")
    world.server.create("c")
    async with world.running():
        await asyncio.sleep(1)
        world.assert_level()
    assert world.story.heard[-2:] == [("delete", "default/a", True), ("add", "default/c", False)]


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
    refuse_watch_list=st.sampled_from([None, 422, 403, "ignore"]),
    repeat=st.integers(0, 4),
    initial_bookmark_seconds=st.sampled_from([0, 5, 100]),
    synced_first=st.booleans(),
)
@settings(max_examples=150)
def test_store_and_handlers_are_consistent_after_any_faults(
    make_world, make_story, fault, seed, script, refuse_watch_list, repeat, initial_bookmark_seconds, synced_first
):
    async def main():
        world = make_world(seed=seed)
        server = world.server
        server.refuse_watch_list, server.repeat, server.page_limit = refuse_watch_list, repeat, 2
        server.initial_bookmark_seconds = initial_bookmark_seconds
        stories = [world.story]
        for name in "abc":
            server.create(name)
        async with world.running():
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
                    server.faults.append(fault(*detail))
                elif action == "compact":
                    server.compact()
                elif action == "down":
                    server.down = detail
                    server.wake()
                elif action == "expire tokens":
                    server.expire_tokens += 1
                elif action.startswith("miss") and key in server.pods:
                    server.down = True
                    server.wake()
                    await asyncio.sleep(0.1)
                    server.delete(detail)
                    if action == "miss a replacement":
                        server.create(detail)
                    server.compact()
                    server.down = False
                elif action == "handler":
                    stories.append(make_story())
                    world.pods.add_handler(stories[-1])
            server.down = False
            server.faults.clear()
            server.expire_tokens = 0
            await asyncio.sleep(2_000)
            world.assert_level()
            expected = {pod.key: pod for pod in world.pods.store.list()}
            for story in stories:
                assert {key: obj.metadata.uid for key, obj in story.now.items()} == {
                    key: obj.metadata.uid for key, obj in expected.items()
                }
                assert story.now == expected
                assert story.problems == []

    virtual_time.run(main())

"""The reflector keeps a store level with the server, whatever the server does to its streams."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.kube.objects.resources import CONFIG_MAPS

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def world(make_world):
    return make_world()


async def test_watch_list_stream_continues_as_watch(world):
    world.server.create("a")
    async with world.running():
        await world.informers.wait_synced()
        world.server.create("b")
        await asyncio.sleep(1)
        world.server.update("a")
        world.server.delete("b")
        await asyncio.sleep(1)
        world.assert_level()
    assert len(world.server.requests) == 1
    assert world.story.heard == [
        ("add", "default/a", True),
        ("add", "default/b", False),
        ("update", "default/a", "103"),
        ("delete", "default/b", False),
    ]


@pytest.mark.parametrize("code", [400, 403, 404, 405, 415, 422])
async def test_refused_watch_list_falls_back_to_list_permanently(world, fault, code):
    world.server.refuse_watch_list = code
    world.server.create("a")
    async with world.running():
        await world.informers.wait_synced()
        world.server.create("b")
        await asyncio.sleep(1)
        world.assert_level()
        world.server.faults.append(fault("expired"))
        world.server.compact()
        await asyncio.sleep(3000)
        world.assert_level()
    assert sum("sendInitialEvents" in each for each in world.server.requests) == 1


async def test_endless_initial_events_fall_back_to_list(world):
    world.server.refuse_watch_list = "ignore"
    world.server.create("a")
    async with world.running():
        await asyncio.sleep(120)
        assert world.pods.has_synced
        world.server.create("b")
        await asyncio.sleep(1)
        world.assert_level()


async def test_slow_initial_events_are_awaited(world):
    world.server.initial_bookmark_seconds = 20
    world.server.create("a")
    async with world.running():
        await asyncio.sleep(19)
        assert not world.pods.has_synced
        assert world.story.heard == []
        await asyncio.sleep(2)
        world.assert_level()
    assert len(world.server.requests) == 1


async def test_list_is_paged(world):
    world.server.refuse_watch_list = 422
    world.server.page_limit = 3
    for number in range(10):
        world.server.create(f"p{number}")
    async with world.running():
        await world.informers.wait_synced()
        world.assert_level()
    lists = [each for each in world.server.requests if "watch=1" not in each]
    assert len(lists) == 4
    assert all("limit=500" in each for each in lists)


async def test_expired_continue_token_loses_and_duplicates_nothing(world):
    world.server.refuse_watch_list = 422
    world.server.page_limit = 3
    world.server.expire_tokens = 1
    for number in range(10):
        world.server.create(f"p{number}")
    async with world.running():
        await world.informers.wait_synced()
        await asyncio.sleep(1)
        world.assert_level()


async def test_closed_stream_resumes_at_last_version_without_list(world, fault):
    world.server.faults.append(fault("close", lines=2))
    async with world.running():
        await world.informers.wait_synced()
        await asyncio.sleep(5)
        world.server.create("a")
        world.server.create("b")  # the stream closes before this one
        await asyncio.sleep(0.01)
        world.assert_level()
    assert len(world.server.requests) == 2
    assert "resourceVersion=101" in world.server.requests[1]


async def test_stream_broken_mid_line_is_resumed(world, fault):
    world.server.faults.append(fault("reset", lines=1))
    async with world.running():
        await world.informers.wait_synced()
        await asyncio.sleep(5)
        world.server.create("a")
        await asyncio.sleep(3)
        world.assert_level()
    assert len(world.server.lists()) == 1


async def test_watch_times_out_after_5_to_10_minutes_and_resumes(world):
    async with world.running():
        await world.informers.wait_synced()
        await asyncio.sleep(3600)
        world.server.create("a")
        await asyncio.sleep(1)
        world.assert_level()
    watches = world.server.watches()
    assert 6 < len(watches) < 14
    seconds = {int(each.partition("timeoutSeconds=")[2].partition("&")[0]) for each in watches}
    assert all(300 <= each <= 600 for each in seconds)
    assert len(seconds) > 3
    assert len(world.server.lists()) == 1


async def test_bookmark_advances_the_resume_version(world):
    async with world.running():
        await world.informers.wait_synced()
        world.server.version = 5000  # other resources change
        await asyncio.sleep(61)
        assert world.pods.last_resource_version == "5000"
        world.server.compact()
        await asyncio.sleep(1200)
    assert len(world.server.lists()) == 1


@pytest.mark.parametrize("refuse_watch_list", [None, 422])
async def test_list_after_410_notifies_missed_changes_only(world, fault, refuse_watch_list):
    server = world.server
    server.refuse_watch_list = refuse_watch_list
    for name in ("gone", "changed", "same", "replaced"):
        server.create(name)
    async with world.running():
        await world.informers.wait_synced()
        last = world.pods.store["default/gone"]
        world.story.heard.clear()
        server.faults.append(fault("refuse", code=410))
        server.down = True
        server.create("wakes the stream up")
        await asyncio.sleep(1)
        server.delete("wakes the stream up")
        server.delete("gone")
        server.update("changed")
        server.delete("replaced")
        server.create("replaced")
        server.create("new")
        server.compact()
        server.down = False
        await asyncio.sleep(60)
        world.assert_level()
        assert last.key not in world.story.now
    heard = {key: [each[0] for each in world.story.heard if each[1] == key] for key in world.story.now}
    assert heard == {
        "default/changed": ["update"],
        "default/same": [],
        "default/replaced": ["delete", "add"],
        "default/new": ["add"],
    }
    assert ("delete", "default/gone", True) in world.story.heard
    assert ("add", "default/new", False) in world.story.heard


@pytest.mark.parametrize("kind", ["expired", "error"])
async def test_error_event_causes_list_after_backoff(world, fault, kind):
    world.server.faults.append(fault(kind, lines=2))
    async with world.running():
        await world.informers.wait_synced()
        world.server.create("a")
        world.server.create("b")
        await asyncio.sleep(0.5)
        assert len(world.server.lists()) == 1
        await asyncio.sleep(2)
        world.assert_level()
    assert len(world.server.lists()) == 2


async def test_throttled_stream_resumes_without_list(world, fault):
    world.server.faults.append(fault("throttled", lines=2))
    async with world.running():
        await world.informers.wait_synced()
        world.server.create("a")
        world.server.create("b")
        await asyncio.sleep(3)
        world.assert_level()
    assert len(world.server.lists()) == 1


async def test_server_restored_to_older_version_is_relisted(world):
    server = world.server
    server.create("a")
    server.create("b")
    async with world.running():
        await world.informers.wait_synced()
        server.down = True
        server.wake()
        await asyncio.sleep(0.1)
        del server.pods["default/b"]
        server.restore(7)
        server.down = False
        await asyncio.sleep(60)
        world.assert_level()
        assert world.pods.last_resource_version == "7"


async def test_unreachable_server_is_retried_with_backoff(world):
    world.server.down = True
    async with world.running():
        await asyncio.sleep(600)
        asked = len(world.server.requests)
        assert 12 <= asked <= 120  # a list is tried five times each
        world.server.down = False
        world.server.create("a")
        await asyncio.sleep(70)
        world.assert_level()


async def test_refused_streams_do_not_flood_server(world, fault):
    async with world.running():
        await world.informers.wait_synced()
        world.server.faults.extend(fault("refuse", code=503) for _ in range(1000))
        world.server.down = True
        world.server.create("a")
        await asyncio.sleep(1)
        world.server.down = False
        await asyncio.sleep(600)
    assert len(world.server.requests) < 60


async def test_successful_streams_reset_backoff(world, fault):
    for _ in range(10):
        world.server.faults.extend([fault("close", lines=1), fault("refuse", code=500)])
    world.server.faults.popleft()  # the stream that brings the list is whole
    world.server.faults.appendleft(fault("close", lines=2))
    async with world.running():
        await world.informers.wait_synced()
        for number in range(20):
            world.server.create(f"a{number}")
            await asyncio.sleep(1.7)  # the longest first pause is 1.6
            world.assert_level()
    assert not any(each.code for each in world.server.faults)


async def test_silent_stream_is_closed_and_resumed(world, fault):
    world.server.faults.append(fault("silence", lines=1))
    async with world.running():
        await world.informers.wait_synced()
        world.server.create("a")
        await asyncio.sleep(250)
        world.assert_level()
    assert len(world.server.lists()) == 1


async def test_repeated_events_are_notified_once(world, fault):
    world.server.faults.append(fault("close", lines=4))
    world.server.repeat = 3
    async with world.running():
        await world.informers.wait_synced()
        await asyncio.sleep(5)
        world.server.create("a")
        world.server.update("a")
        world.server.update("a")
        world.server.update("a")
        await asyncio.sleep(3)
        world.assert_level()
    assert [each[0] for each in world.story.heard] == ["add", "update", "update", "update"]


async def test_unreadable_object_is_logged_and_stream_continues(world, caplog):
    server = world.server
    server.create("broken at first", spec={"nodeName": 7})
    server.create("good")
    async with world.running():
        await world.informers.wait_synced()
        assert list(world.pods.store) == ["default/good"]
        server.create("bad", spec={"nodeName": ["x"]})
        server.update("good", spec={"nodeName": 1})
        server.create("later")
        await asyncio.sleep(1)
        assert set(world.pods.store) == {"default/good", "default/later"}
        server.update("bad", spec={"nodeName": "n"})
        server.update("good", spec={"nodeName": "n"})
        server.update("later", spec={"nodeName": 1})
        server.delete("later")
        await asyncio.sleep(1)
        assert set(world.pods.store) == {"default/good", "default/bad"}
    assert len(world.server.requests) == 1
    assert ("delete", "default/later", True) in world.story.heard
    keys = {record.key for record in caplog.records if record.message == "cannot read an object"}
    assert keys == {"default/broken at first", "default/bad", "default/good", "default/later"}


async def test_unreadable_list_item_keeps_cached_state(world, fault):
    server = world.server
    server.refuse_watch_list = 422
    server.create("known")
    server.create("unknown", spec={"nodeName": 7})
    async with world.running():
        await world.informers.wait_synced()
        assert list(world.pods.store) == ["default/known"]
        known = world.pods.store["default/known"]
        server.down = True
        server.create("wake")
        await asyncio.sleep(0.1)
        server.update("known", spec={"nodeName": 7})
        server.compact()
        server.down = False
        await asyncio.sleep(60)
        assert world.pods.store["default/known"] is known
        assert "default/wake" in world.pods.store


async def test_object_of_megabytes_is_received(world):
    async with world.running():
        await world.informers.wait_synced()
        world.server.rng.randint = lambda low, high: 65_536
        world.server.create("large", metadata2="x" * 5_000_000)
        await asyncio.sleep(1)
        world.assert_level()


async def test_long_list_yields_to_other_tasks(world):
    for number in range(2_000):
        world.server.create(f"p{number}")
    turns = 0

    async def others():
        nonlocal turns
        while not world.pods.has_synced:
            turns += 1
            await asyncio.sleep(0)

    async with world.running():
        await others()
        world.assert_level()
    assert turns >= 2 * 2_000 // 64


async def test_list_items_have_kind_and_api_version(world):
    world.server.refuse_watch_list = 422
    world.server.create("a")
    async with world.running():
        await world.informers.wait_synced()
        pod = world.pods.store["default/a"]
        assert (pod.kind, pod.api_version) == ("Pod", "v1")


@pytest.mark.parametrize("refuse_watch_list", [None, 422])
async def test_managed_fields_of_dicts_are_dropped(world, refuse_watch_list):
    world.server.refuse_watch_list = refuse_watch_list
    world.server.create("a")
    config_maps = world.informers.informer(CONFIG_MAPS)
    async with world.running():
        await world.informers.wait_synced()
        world.server.create("b")
        await asyncio.sleep(1)
        assert sorted(config_maps.store) == ["default/a", "default/b"]
        assert all("managedFields" not in each["metadata"] for each in config_maps.store.list())
        assert all(each["kind"] for each in config_maps.store.list())


async def test_selectors_and_namespace_are_sent_with_list_and_watch(world, fault):
    from kubeloop.kube.objects.resources import PODS

    world.server.refuse_watch_list = 422
    world.informers.informer(PODS, namespace="kube-system", label_selector="a=b,c", field_selector="spec.nodeName=n")
    async with world.running():
        await world.informers.wait_synced()
        await asyncio.sleep(1)
    own = [each for each in world.server.requests if "/namespaces/kube-system/pods" in each]
    assert len(own) == 3
    assert all("labelSelector=a%3Db%2Cc" in each and "fieldSelector=spec.nodeName%3Dn" in each for each in own)

"""Differences between the ends of two runs."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES
from kubeloop.testing.faults.state import StoredState, Variations, stable, variations_between
from support.apiserver.api_requests import InProcessApi


def state(*objects: dict[str, Any]) -> StoredState:
    api = InProcessApi()
    since = api.server.store.revision
    for obj in objects:
        api.create(CONFIG_MAPS.path("default"), obj)
    return StoredState(api.server.store, since)


def config_map(name: str = "a", owner: str = "", **data: str) -> dict[str, Any]:
    references = [{"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": owner}] if owner else []
    return {"metadata": {"name": name, "ownerReferences": references}, "data": data}


async def test_same_objects_have_no_differences():
    assert state(config_map(a="1")).differences(state(config_map(a="1"))) == []
    assert state(config_map("a-x2x7b")).differences(state(config_map("a-bcdfg"))) == []


async def test_objects_too_many_and_too_few_are_named():
    one, two = state(config_map("a-x2x7b")), state(config_map("a-x2x7b"), config_map("a-bcdfg"), config_map("c"))
    assert two.differences(one) == [
        "a second ConfigMap default/a-* was created and never deleted",
        "ConfigMap default/c was created and never deleted",
    ]
    assert one.differences(two) == [
        "ConfigMap default/a-* does not exist in the end",
        "ConfigMap default/c does not exist in the end",
    ]


async def test_changed_fields_are_named():
    assert state(config_map(a="1")).differences(state(config_map(a="2"))) == [
        'ConfigMap default/a has data.a "1" instead of "2" in the end'
    ]


async def test_object_of_an_owner_that_is_gone_does_not_count():
    owner = "0683e049-2f4e-40bd-9b85-50cfe6a3b7f7"
    assert state(config_map(owner=owner)).differences(state()) == []


def test_times_uids_and_random_names_are_replaced():
    value = {"at": "2026-01-01T00:00:00Z", "ref": "0683e049-2f4e-40bd-9b85-50cfe6a3b7f7", "names": ["b-x2x7b", "a"]}
    assert stable(value) == {"ref": "UID", "names": ["a", "b-*"]}


async def test_annotations_of_bookkeeping_do_not_count():
    assert stable({"kopf.zalando.org/last-handled-configuration": "{}", "a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("conditions", "is_same"),
    [
        ({"Ready": "True"}, True),
        ({"Ready": "True", "Progressing": "False"}, True),
        ({"Ready": "True", "Progressing": "Unknown"}, False),
        ({"Ready": "False"}, False),
    ],
)
async def test_false_condition_equals_none(conditions: dict[str, str], is_same: bool):
    def namespace(conditions: dict[str, str]) -> StoredState:
        api = InProcessApi()
        created = api.create(NAMESPACES.path(), {"metadata": {"name": "a"}})
        entries = [{"type": type_, "status": status} for type_, status in conditions.items()]
        body = {**created, "status": {"conditions": entries}}
        api.succeed("PUT", f"{NAMESPACES.path()}/a/status", body)
        return StoredState(api.server.store, 0, {"namespaces"})

    assert (namespace(conditions).differences(namespace({"Ready": "True"})) == []) == is_same


async def test_long_values_are_shortened_in_sentences():
    (sentence,) = state(config_map(a="x" * 500)).differences(state(config_map(a="1")))
    assert len(sentence) < 250


async def test_object_in_deletion_differs_from_one_that_is_not():
    api = InProcessApi()
    api.create(CONFIG_MAPS.path("default"), {"metadata": {"name": "a", "finalizers": ["x/y"]}})
    before = StoredState(api.server.store, 0)
    api("DELETE", CONFIG_MAPS.path("default", "a"))
    (sentence,) = StoredState(api.server.store, 0).differences(before)
    assert sentence == "ConfigMap default/a has metadata.deletionTimestamp true instead of null in the end"


async def test_fields_that_vary_between_runs_are_left_out():
    runs = [state(config_map(key=key, a="1")) for key in ("x", "y")]
    variations = variations_between(runs)
    assert variations == Variations(fields=frozenset({"ConfigMap.data.key"}))
    assert runs[0].differences(runs[1]) == []
    other = state(config_map(key="z", a="2"))
    other.leave_out(variations)
    assert other.differences(runs[0]) == ['ConfigMap default/a has data.a "2" instead of "1" in the end']


async def test_names_that_vary_between_runs_become_a_beginning():
    runs = [state(config_map(f"job-{text}"), config_map("fixed")) for text in ("1764", "1799")]
    variations = variations_between(runs)
    assert variations.names == {("ConfigMap", "default", "job-")}
    assert variations.stable_name("ConfigMap", "default", "job-5") == "job-*"
    assert variations.stable_name("Secret", "default", "job-5") == "job-5"
    assert runs[0].differences(runs[1]) == []


async def test_states_with_other_objects_still_differ():
    runs = [state(config_map("a")), state(config_map("a"), config_map("b"))]
    variations_between(runs)
    assert runs[0].differences(runs[1]) == ["ConfigMap default/b does not exist in the end"]


async def test_state_after_an_earlier_one_shows_what_changed():
    api = InProcessApi()
    for name in ("a", "b"):
        api.create(CONFIG_MAPS.path("default"), {"metadata": {"name": name}, "data": {"x": "1"}})
    before = StoredState(api.server.store, 0)
    api("PUT", CONFIG_MAPS.path("default", "a"), {"metadata": {"name": "a"}, "data": {"x": "2"}})
    after = StoredState(api.server.store, 0, earlier=before)
    assert after.differences(before) == ['ConfigMap default/a has data.x "2" instead of "1" in the end']
    assert StoredState(api.server.store, 0).differences(after) == []

"""The store and its indexes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.informers.store import Store
from kubeloop.kube.objects import api_types


def pod(name, *, namespace="default", node="", owner="", version="1"):
    owners = [{"uid": "not this one"}, {"uid": owner, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": namespace, "resourceVersion": version, "ownerReferences": owners}
    return api_types.convert(api_types.Pod, {"metadata": metadata, "spec": {"nodeName": node}})


def test_built_in_indexes_return_matching_objects():
    store = Store()
    pods = [pod("a", node="n1", owner="rs"), pod("b", namespace="other", owner="rs"), pod("c", node="n1")]
    for obj in pods:
        store.put(obj.key, obj)
    a, b, c = pods
    assert store.by_index("namespace", "default") == [a, c]
    assert store.by_index("owner", "rs") == [a, b]
    assert store.by_index("owner", "not this one") == []
    assert store.by_index("node", "n1") == [a, c]
    assert store.by_index("node", "") == []
    assert store.count("node", "n1") == 2
    assert [*store.view("node", "n1")] == [a, c]
    assert [*store.view("node", "nowhere")] == []


def test_changed_object_moves_in_indexes():
    store = Store()
    store.add_index("node")
    store.put("default/a", pod("a", node="n1"))
    moved = pod("a", node="n2")
    store.put("default/a", moved)
    assert store.by_index("node", "n1") == []
    assert store.by_index("node", "n2") == [moved]
    assert store.remove("default/a") is moved
    assert store.remove("default/a") is None


def test_unknown_index_and_duplicate_index_name_raise():
    store = Store()
    with pytest.raises(KeyError):
        store.by_index("colour", "red")
    store.add_index("colour", lambda obj: ["red"])
    with pytest.raises(ValueError, match="colour"):
        store.add_index("colour", lambda obj: ["blue"])
    store.add_index("node")
    store.add_index("node")


keys = st.sampled_from([f"ns/{letter}" for letter in "abcdef"])
steps = st.lists(st.tuples(keys, st.none() | st.tuples(st.sampled_from(["", "n1", "n2"]), st.sampled_from(["", "x"]))))


@given(steps=steps, added_at_step=st.integers(0, 20))
def test_indexes_match_objects_whenever_added(steps, added_at_step):
    store, plain = Store(), {}
    store.add_index("owner")
    for number, (key, change) in enumerate(steps):
        if number == added_at_step:
            store.add_index("node")
            store.add_index("both", lambda obj: [obj.spec.node_name, *(o.uid for o in obj.metadata.owner_references)])
        if change is None:
            assert store.remove(key) is plain.pop(key, None)
        else:
            obj = pod(key[3:], namespace="ns", node=change[0], owner=change[1])
            assert store.put(key, obj) is plain.get(key)
            plain[key] = obj
        store.check()
    assert dict(zip(store.keys(), store.list(), strict=True)) == plain
    assert {obj.key for obj in store.by_index("node", "n1")} == {
        key for key, obj in plain.items() if obj.spec.node_name == "n1"
    }

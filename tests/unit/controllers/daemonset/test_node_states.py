"""Which nodes a sync considers, and the pods of a node."""

from __future__ import annotations

from datetime import timedelta

from kubeloop.controllers.daemonset.daemon_pods import PodPlacement
from kubeloop.controllers.daemonset.node_states import NodeState, NodeTracker, PodsByNode, Revision, is_complete
from kubeloop.kube.objects.api_types import Pod, convert
from support.objects.daemon_sets import NEW, NOW, daemon_set, node, pod, state


def owned(name: str, node_name: str, kind: str = "DaemonSet") -> Pod:
    owner = {"kind": kind, "name": "agent", "uid": "u", "controller": True}
    metadata = {"name": name, "namespace": "ns", "ownerReferences": [owner]}
    return convert(Pod, {"metadata": metadata, "spec": {"nodeName": node_name}})


def test_node_is_complete_with_one_available_pod_of_the_revision():
    assert is_complete(state("n", pod("a")), NEW, NOW)
    assert not is_complete(state("n", pod("a", ready_seconds=5)), Revision("new", None, 10), NOW)
    for incomplete in (
        state("n"),
        state("n", pod("a"), pod("b")),
        state("n", pod("a", "old")),
        state("n", pod("a", ready=False)),
        state("n", pod("a", deleted=True)),
        state("n", pod("a", phase="Failed")),
        state("n", pod("a"), runs=False),
    ):
        assert not is_complete(incomplete, NEW, NOW)


def test_tracker_returns_only_nodes_with_work_until_they_change():
    tracker = NodeTracker()
    by_name = {"done": state("done", pod("a")), "idle": state("idle", runs=False), "todo": state("todo")}
    placement = PodPlacement(daemon_set(), comparison_operators=False)
    tracker.update(1, lambda: placement, by_name)

    def considered() -> tuple[list[str], int]:
        nodes = tracker.states(by_name.__getitem__, NEW, NOW)
        return [each.name for each in nodes.states], nodes.complete

    assert considered() == (["todo"], 1)
    assert considered() == (["todo"], 1)
    assert tracker.states(by_name.__getitem__, NEW, NOW).desired == 2
    tracker.update(1, lambda: placement, by_name)
    assert tracker.unsettled.keys() == {"todo"}
    by_name["done"] = state("done", pod("a", ready=False))
    tracker.pods_changed("done")
    assert considered() == (["todo", "done"], 0)
    tracker.update(2, lambda: placement, by_name)
    assert tracker.unsettled.keys() == by_name.keys()


def test_tracker_computes_the_state_of_a_node_again_only_after_a_change():
    tracker = NodeTracker()
    tracker.update(1, lambda: PodPlacement(daemon_set(), comparison_operators=False), ("a", "b"))
    computed: list[str] = []

    def state_of(name: str) -> NodeState:
        computed.append(name)
        return state(name, pod(name, ready_seconds=5))

    revision = Revision("new", None, 10)
    assert len(tracker.states(state_of, revision, NOW).states) == 2
    tracker.pods_changed("b")
    assert tracker.states(state_of, revision, NOW).complete == 0
    assert computed == ["a", "b", "b"]
    assert tracker.states(state_of, revision, NOW + timedelta(seconds=5)).complete == 2
    assert computed == ["a", "b", "b"]


def test_eligibility_is_computed_again_after_a_change_of_the_node():
    tracker = NodeTracker()
    ds = daemon_set(pod={"nodeSelector": {"disk": "ssd"}})
    tracker.update(1, lambda: PodPlacement(ds, comparison_operators=False), ())
    assert tracker.eligibility(node("n", labels={"disk": "ssd"})).should_run
    assert tracker.eligibility(node("n")).should_run
    tracker.node_changed("n")
    assert not tracker.eligibility(node("n")).should_run


def test_pods_by_node_follow_the_events():
    pods = PodsByNode()
    first, second, other = owned("a", "n"), owned("b", "n"), owned("c", "n", kind="ReplicaSet")
    for each in (first, second, other, owned("unbound", "")):
        pods.add(each)
    (owner, node_name) = pods.add(first) or ("", "")
    assert node_name == "n"
    assert pods.nodes(owner) == {"n": {"ns/a": first, "ns/b": second}}
    pods.check([first, second, other])
    pods.remove(first)
    pods.remove(first)
    pods.remove(second)
    assert pods.nodes(owner) == {}
    pods.check([])

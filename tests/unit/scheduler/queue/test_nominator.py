"""Nominator: nominations by node, and the log of changes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.queue.nominator import UNCHANGED, WITHDRAWN, Nomination, Nominator
from support.scheduling.plugin_cluster import make_pod


@pytest.fixture
def pods() -> dict[str, Pod]:
    """Newest versions of pods, by key."""
    return {f"default/{name}": make_pod(name) for name in "abc"}


@pytest.fixture
def nominator(pods: dict[str, Pod]) -> Nominator:
    return Nominator(pods.get)


def info(name: str, nominated: str = "", **fields: Any) -> PodInfo:
    return PodInfo(make_pod(name, status={"nominatedNodeName": nominated}, **fields))


@pytest.mark.parametrize(
    ("in_status", "node_name", "expected"),
    [
        pytest.param("", None, "", id="none"),
        pytest.param("n1", None, "n1", id="node of the status"),
        pytest.param("n1", "n2", "n2", id="given node takes precedence"),
        pytest.param("n1", "", "", id="withdrawn although the status has it"),
    ],
)
def test_add_nominates_to_given_node_or_status(
    nominator: Nominator, in_status: str, node_name: str | None, expected: str
) -> None:
    nominator.add(info("a", in_status), node_name)
    assert nominator.node_of("a") == expected
    assert [pod.uid for pod in nominator.pods_on("n1")] == (["a"] if expected == "n1" else [])
    nominator.check()


@pytest.mark.parametrize("newest", [pytest.param(None, id="deleted"), pytest.param(make_pod("a", "n9"), id="bound")])
def test_deleted_or_bound_pod_is_not_nominated(nominator: Nominator, pods: dict[str, Pod | None], newest: Any) -> None:
    pods["default/a"] = newest
    nominator.add(info("a"), "n1")
    assert nominator.node_of("a") == ""
    assert nominator.nodes() == set()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("", "", "n1", id="not in a status yet: preserved"),
        pytest.param("", "n2", "n2", id="moved by the new status"),
        pytest.param("n1", "", "", id="removed from the status"),
    ],
)
def test_update_follows_status(nominator: Nominator, old: str, new: str, expected: str) -> None:
    before = info("a", old)
    nominator.add(before, "n1")
    nominator.update(before.pod, info("a", new))
    assert nominator.node_of("a") == expected
    nominator.check()


def test_changed_since_names_nodes_until_log_is_cut(nominator: Nominator) -> None:
    nominator.add(info("a"), "n1")
    version = nominator.version
    nominator.add(info("a"), "n2")
    assert nominator.changed_since(version) == {"n1", "n2"}
    assert nominator.changed_since(nominator.version) == set()
    for number in range(3000):
        nominator.add(info("a"), f"m{number % 2}")
    assert nominator.changed_since(version) is None
    assert nominator.changed_since(nominator.version - 2) == {"m0", "m1"}
    nominator.check()


def test_only_an_unchanged_nomination_has_no_new_node():
    assert [nomination.new_node_name for nomination in (Nomination("n"), WITHDRAWN, UNCHANGED)] == ["n", "", None]


def test_remove_leaves_the_other_nominations(nominator: Nominator) -> None:
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        nominator.add(info(name), node)
    version = nominator.version
    nominator.remove("a")
    assert nominator.version == version + 1
    assert nominator.changed_since(version) == {"n1"}
    assert [pod.uid for pod in nominator.pods_on("n1")] == ["b"]
    assert (nominator.node_of("a"), nominator.node_of("b"), nominator.node_of("c")) == ("", "n1", "n2")
    nominator.remove("a")
    assert nominator.version == version + 1, "it is not nominated"
    nominator.remove("b")
    assert (nominator.nodes(), nominator.pods_on("n1")) == ({"n2"}, [])
    nominator.check()


def test_log_of_changes_is_halved_when_it_is_full(nominator: Nominator) -> None:
    for number in range(2048):  # one change to the first node, then two for each move
        nominator.add(info("a"), f"m{number}")
    assert nominator.version == 4095
    assert nominator.changed_since(0) == {f"m{number}" for number in range(2048)}
    nominator.remove("a")
    assert nominator.changed_since(0) is not None, "4096 changes are logged"
    nominator.add(info("a"), "n")
    assert nominator.version == 4097
    assert (nominator.changed_since(2047), nominator.changed_since(4096)) == (None, {"n"})
    assert nominator.changed_since(2048) is not None
    assert len(nominator._changed) == 2049

"""Compiled topology spread constraints and the selectors of default constraints."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import (
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    TopologySpreadConstraint,
    convert,
)
from kubeloop.kube.selectors.selectors import Selector
from kubeloop.scheduler.plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    DefaultSelectors,
    compile_constraints,
    default_selector,
)

CONSTRAINT: dict[str, Any] = {
    "maxSkew": 2,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def test_constraints_of_one_action_are_compiled() -> None:
    constraints = (
        convert(TopologySpreadConstraint, CONSTRAINT),
        convert(TopologySpreadConstraint, CONSTRAINT | {"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1}),
    )
    (hard,) = compile_constraints(constraints, {}, DO_NOT_SCHEDULE)
    (soft,) = compile_constraints(constraints, {}, SCHEDULE_ANYWAY)
    assert (hard.max_skew, soft.max_skew) == (2, 1)
    assert (hard.min_domains, hard.honors_node_affinity, hard.honors_node_taints) == (1, True, False)


def test_match_label_keys_extend_the_selector() -> None:
    constraint = convert(TopologySpreadConstraint, CONSTRAINT | {"matchLabelKeys": ["revision", "missing"]})
    (compiled,) = compile_constraints([constraint], {"app": "web", "revision": "2"}, DO_NOT_SCHEDULE)
    assert compiled.selector.matches({"app": "web", "revision": "2"})
    assert not compiled.selector.matches({"app": "web", "revision": "1"})


def test_default_selector_combines_services_and_controller(plugin_cluster: Any, pod: Any) -> None:
    cluster = plugin_cluster()
    metadata = {"name": "web", "namespace": "default"}
    cluster.put("services", convert(Service, {"metadata": metadata, "spec": {"selector": {"app": "web"}}}))
    replica_set = {"metadata": metadata, "spec": {"selector": {"matchLabels": {"hash": "1"}}}}
    cluster.put("replica_sets", convert(ReplicaSet, replica_set))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    labels = {"app": "web", "hash": "1"}
    selector = default_selector(pod("p", labels=labels, owner=[owner]), cluster.listers)
    assert selector.matches(labels)
    assert not selector.matches({"app": "web"})
    assert default_selector(pod("q", labels={"app": "other"}), cluster.listers).empty


def test_cached_selector_is_replaced_after_a_service_changes(plugin_cluster: Any, pod: Any) -> None:
    cluster = plugin_cluster()
    selectors, incoming = DefaultSelectors(cluster.listers), pod("p", labels={"app": "web"})
    assert selectors.of(incoming, 1).empty
    metadata = {"name": "web", "namespace": "default"}
    cluster.put("services", convert(Service, {"metadata": metadata, "spec": {"selector": {"app": "web"}}}))
    assert selectors.of(incoming, 1).matches({"app": "web"})


@pytest.mark.parametrize(
    ("lister", "type_", "api_version", "kind", "selector"),
    [
        pytest.param(
            "replica_sets", ReplicaSet, "apps/v1", "ReplicaSet", {"matchLabels": {"hash": "1"}}, id="ReplicaSet"
        ),
        pytest.param(
            "stateful_sets", StatefulSet, "apps/v1", "StatefulSet", {"matchLabels": {"hash": "1"}}, id="StatefulSet"
        ),
        pytest.param(
            "replication_controllers",
            ReplicationController,
            "v1",
            "ReplicationController",
            {"hash": "1"},
            id="ReplicationController",
        ),
    ],
)
def test_default_selector_is_that_of_the_owner(
    lister: str, type_: Any, api_version: str, kind: str, selector: Any, plugin_cluster: Any, pod: Any
) -> None:
    cluster = plugin_cluster()
    owner = {"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u", "controller": True}
    labels = {"hash": "1"}

    def of_owner(**changes: str) -> Selector:
        return default_selector(pod("p", labels=labels, owner=[owner | changes]), cluster.listers)

    assert of_owner().empty, "the owner is not in the cache"
    cluster.put(
        lister, convert(type_, {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": selector}})
    )
    assert of_owner().matches({"hash": "1"})
    assert not of_owner().matches({"hash": "2"})
    assert of_owner(name="other").empty
    assert of_owner(apiVersion="example.com/v1").empty, "an owner of another group"

"""Options of test clusters."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.testing.cluster_options import ClusterOptions, Options, cluster_options
from support.controllers.sites import Sites


def test_options_and_cluster_options_have_the_same_fields():
    assert set(Options.__annotations__) == set(ClusterOptions.__struct_fields__)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"node": 3}, "a cluster has no option 'node'", id="unknown"),
        pytest.param({"nodes": "3"}, "nodes", id="not a number"),
        pytest.param({"nodes": -1}, "at least 0", id="too few"),
        pytest.param({"service_cluster_ip_range": "10.0.0.1/24"}, "10.0.0.1/24 has host bits set", id="host bits"),
        pytest.param({"service_cluster_ip_range": "10.0.0.0/30"}, "prefix length 30", id="range too small"),
        pytest.param({"scheduler_config": "nowhere.yaml"}, "cannot read nowhere.yaml", id="no such file"),
    ],
)
def test_invalid_options_are_rejected(options: Any, message: str):
    with pytest.raises(UserError, match=message):
        cluster_options(options)


def test_options_take_precedence_over_defaults():
    defaults = cluster_options({"nodes": 5, "node_cpu": "2"})
    changed = cluster_options({"nodes": 1, "faults": {"error": 0.5, "seed": 3}}, defaults=defaults)
    assert (changed.nodes, changed.node_cpu, changed.faults) == (1, "2", "error=0.5,seed=3")


@pytest.mark.parametrize(
    "gates", [{"PodDeletionCost": False, "MemoryQoS": True}, "PodDeletionCost=false,MemoryQoS=true"]
)
def test_feature_gates_are_text_or_a_mapping(gates):
    options = cluster_options({"feature_gates": gates})
    assert not options.parsed_feature_gates().enabled("PodDeletionCost")
    assert options.settings().feature_gates.enabled("MemoryQoS")


def test_gang_scheduling_enables_its_gates_unless_they_are_set():
    options = cluster_options({"gang_scheduling": True, "feature_gates": {"WorkloadWithJob": False}})
    gates = options.parsed_feature_gates()
    assert [gates.enabled(name) for name in ("GangScheduling", "WorkloadWithJob")] == [True, False]


def test_invalid_feature_gate_is_rejected_before_a_cluster_starts():
    with pytest.raises(UserError, match="unrecognized feature gate: NoSuchGate"):
        cluster_options({"feature_gates": {"NoSuchGate": True}})


def test_controllers_by_name_are_imported_and_classes_are_rejected():
    settings = cluster_options({"controllers": ["deployment", "support.controllers.sites:Sites"]}).settings()
    assert (settings.controllers, settings.custom_controllers) == ({"deployment"}, (Sites,))
    with pytest.raises(UserError, match="controllers: not a sequence of texts"):
        cluster_options({"controllers": [Sites]})

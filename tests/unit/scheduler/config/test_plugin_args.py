"""Defaults of plugin arguments."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.scheduler.config.plugin_args import (
    ARGS_TYPES,
    CPU_AND_MEMORY,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourcesArgs,
    ResourceSpec,
    ScoringStrategy,
    VolumeBindingArgs,
    with_defaults,
)
from kubeloop.scheduler.legacy_policy.plugins import ALL_PLUGINS

GPU = ResourceSpec(name="gpu", weight=3)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param(
            NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type="MostAllocated", resources=())),
            NodeResourcesFitArgs(scoring_strategy=ScoringStrategy(type="MostAllocated", resources=CPU_AND_MEMORY)),
            id="no resources",
        ),
        pytest.param(
            ResourcesArgs(resources=(ResourceSpec(name="cpu", weight=0), GPU)),
            ResourcesArgs(resources=(ResourceSpec(name="cpu", weight=1), GPU)),
            id="weight zero",
        ),
        pytest.param(
            PodTopologySpreadArgs(defaulting_type=""), PodTopologySpreadArgs(defaulting_type="System"), id="type"
        ),
        pytest.param(
            VolumeBindingArgs(bind_timeout_seconds=0),
            VolumeBindingArgs(bind_timeout_seconds=0),
            id="zero timeout is a value",
        ),
    ],
)
def test_with_defaults_replaces_empty_fields(args: Any, expected: Any) -> None:
    assert with_defaults(args, DEFAULT_FEATURE_GATES) == expected


def test_every_in_tree_plugin_has_arguments() -> None:
    assert ARGS_TYPES.keys() == ALL_PLUGINS.keys()


@pytest.mark.parametrize(
    ("plugin", "defaults"),
    [
        ("DefaultPreemption", {"min_candidate_nodes_percentage": 10, "min_candidate_nodes_absolute": 100}),
        ("DynamicResources", {"filter_timeout": "10s", "binding_timeout": "10m0s"}),
        ("InterPodAffinity", {"hard_pod_affinity_weight": 1, "ignore_preferred_terms_of_existing_pods": False}),
        ("PodTopologySpread", {"default_constraints": (), "defaulting_type": "System"}),
        ("VolumeBinding", {"bind_timeout_seconds": 600, "shape": ()}),
    ],
)
def test_defaults_are_those_of_kube_scheduler(plugin: str, defaults: dict[str, Any]) -> None:
    args = with_defaults(ARGS_TYPES[plugin](), DEFAULT_FEATURE_GATES)
    assert {field: getattr(args, field) for field in args.__struct_fields__} == defaults


def test_default_strategy_of_node_resources_fit_is_least_allocated() -> None:
    strategy = ScoringStrategy(type="LeastAllocated", resources=(ResourceSpec("cpu", 1), ResourceSpec("memory", 1)))
    args = with_defaults(NodeResourcesFitArgs(), DEFAULT_FEATURE_GATES)
    assert args == NodeResourcesFitArgs(scoring_strategy=strategy)

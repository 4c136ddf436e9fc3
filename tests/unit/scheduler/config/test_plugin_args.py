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
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS

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
    assert ARGS_TYPES.keys() == IN_TREE_PLUGINS.keys()

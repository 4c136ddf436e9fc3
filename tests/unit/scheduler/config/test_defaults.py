"""Default plugins and their weights, as the documentation of the scheduler configuration lists them."""

from __future__ import annotations

import pytest

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.scheduler.config.defaults import DEFAULT_PLUGINS, default_plugins

WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


def test_weights_of_default_plugins():
    assert {ref.name: ref.weight for ref in DEFAULT_PLUGINS if ref.weight} == WEIGHTS


@pytest.mark.parametrize(
    ("gates", "added", "removed"),
    [
        pytest.param({"NodeDeclaredFeatures": True}, set(), set(), id="all default plugins"),
        pytest.param({"NodeDeclaredFeatures": False}, set(), {"NodeDeclaredFeatures"}, id="NodeDeclaredFeatures off"),
        pytest.param(
            {"NodeDeclaredFeatures": True, "GenericWorkload": True, "GangScheduling": True},
            {"GangScheduling"},
            set(),
            id="GangScheduling",
        ),
    ],
)
def test_feature_gates_add_and_remove_plugins(gates: dict[str, bool], added: set[str], removed: set[str]):
    names = {ref.name for ref in DEFAULT_PLUGINS}
    assert {ref.name for ref in default_plugins(FeatureGates(gates))} == names - removed | added

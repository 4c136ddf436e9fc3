"""The resources that the scheduler lists besides pods and nodes."""

from __future__ import annotations

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import POD_GROUPS
from kubeloop.scheduler.lister_resources import lister_resources


def test_pod_groups_are_listed_if_their_gate_is_on():
    for enabled in (True, False):
        resources = lister_resources(FeatureGates({"GenericWorkload": enabled}))
        assert (resources.get("pod_groups") is POD_GROUPS) is enabled

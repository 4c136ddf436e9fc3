"""APIs that --runtime-config switches off."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.runtime_config import disabled_apis
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.user_error import UserError
from support.apiserver.api_requests import InProcessApi


@pytest.mark.parametrize(
    ("settings", "disabled"),
    [
        ({}, set()),
        ({"apps/v1": "false"}, {"-apps/v1"}),
        ({"apps/v1": "true", "batch/v1": ""}, set()),
        ({"v1": "false"}, {"-/v1"}),
        ({"apps/v1/deployments": "false"}, {"-apps/v1/deployments"}),
        ({"api/all": "true", "api/alpha": "true"}, set()),
        ({"api/beta": "false", "resource.k8s.io/v1beta2": "true"}, {"-storagemigration.k8s.io/v1beta1"}),
        ({"api/alpha": "false"}, {"-scheduling.k8s.io/v1alpha2"}),
        ({"apps/v1beta1": "false"}, set()),
    ],
)
def test_disabled_versions_and_resources(settings: dict[str, str], disabled: set[str]):
    assert disabled_apis(settings) == disabled


def test_stage_is_overridden_by_version_and_all_by_stage():
    disabled = disabled_apis({"api/all": "false", "api/ga": "true", "scheduling.k8s.io/v1alpha2": "true"})
    assert disabled == {"-resource.k8s.io/v1beta2", "-storagemigration.k8s.io/v1beta1"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"apps/v1beta1": "true"}, "kubeloop does not serve apps/v1beta1"),
        ({"apps/v1/things": "true"}, "kubeloop does not serve apps/v1/things"),
        ({"foo/v1": "true"}, "unknown api groups foo"),
        ({"apps/v1": "maybe"}, "invalid value apps/v1=maybe"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], problem: str):
    with pytest.raises(UserError, match=f"--runtime-config: {problem}"):
        disabled_apis(settings)


async def test_disabled_apis_are_not_served():
    settings = ServingSettings(
        disabled_apis=disabled_apis({"batch/v1": "false", "apps/v1/deployments": "false"}),
        feature_gates=FeatureGates.parse({}),
    )
    api = InProcessApi(settings=settings)
    assert api("GET", "/apis/batch/v1/jobs")[0] == api("GET", "/apis/batch/v1")[0] == 404
    assert api("GET", "/apis/apps/v1/deployments")[0] == 404
    assert api("GET", "/apis/apps/v1/replicasets")[0] == 200
    groups = [group["name"] for group in api("GET", "/apis")[1]["groups"]]
    assert ("batch" in groups, "apps" in groups) == (False, True)
    names = [resource["name"] for resource in api("GET", "/apis/apps/v1")[1]["resources"]]
    assert ("deployments" in names, "replicasets" in names) == (False, True)

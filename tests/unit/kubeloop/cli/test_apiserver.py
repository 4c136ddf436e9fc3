"""Options of `kubeloop apiserver`."""

import pytest

from kubeloop.cli.apiserver import serve
from kubeloop.cli.options import DevClusterOptions, FeatureGateOptions, ServeOptions
from kubeloop.kube.errors import UserError


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (DevClusterOptions(node_cpu="0"), "--node-cpu 0: must be more than 0"),
        (DevClusterOptions(node_memory="much"), "--node-memory much"),
    ],
)
def test_invalid_capacity_is_rejected_before_the_start(options, problem):
    with pytest.raises(UserError, match=problem):
        serve(options, ServeOptions(), FeatureGateOptions())


def test_missing_stage_file_is_rejected_before_the_start(tmp_path):
    with pytest.raises(UserError, match=r"stages\.yaml: No such file"):
        serve(DevClusterOptions(stages=(tmp_path / "stages.yaml",)), ServeOptions(), FeatureGateOptions())

"""Options of `kubeloop run`."""

import pytest

from kubeloop.cli.options import (
    ControllerOptions,
    ElectionOptions,
    FeatureGateOptions,
    ProcessOptions,
    RunOptions,
    ServerOptions,
)
from kubeloop.cli.run import run
from kubeloop.kube.errors import UserError


def test_inconsistent_election_options_are_rejected():
    election = ElectionOptions(leader_elect=True, leader_elect_resource_name="")
    with pytest.raises(UserError, match="--leader-elect-resource-name is empty"):
        run(ServerOptions(), ProcessOptions(), ControllerOptions(), RunOptions(), election, FeatureGateOptions())

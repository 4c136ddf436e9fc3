"""Options of leader election in `kubeloop run`."""

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


@pytest.mark.parametrize(
    ("election", "problem"),
    [
        ({"leader_elect_resource_name": ""}, "--leader-elect-resource-name is empty"),
        ({"leader_elect_resource_namespace": ""}, "--leader-elect-resource-namespace is empty"),
        (
            {"leader_elect_lease_duration": 10.0, "leader_elect_renew_deadline": 10.0},
            "the lease duration must be longer than the renew deadline",
        ),
        (
            {"leader_elect_renew_deadline": 2.0, "leader_elect_retry_period": 2.0},
            "the renew deadline must be longer than 1.2 times the retry period",
        ),
    ],
)
def test_inconsistent_election_options_are_rejected(election, problem):
    options = ElectionOptions(leader_elect=True, **election)
    with pytest.raises(UserError, match=problem):
        run(ServerOptions(), ProcessOptions(), ControllerOptions(), RunOptions(), options, FeatureGateOptions())

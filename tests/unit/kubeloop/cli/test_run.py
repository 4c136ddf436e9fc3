"""Options of `kubeloop run`."""

import pytest

from kubeloop.cli.options.options import (
    ControllerOptions,
    ElectionOptions,
    FeatureGateOptions,
    ProcessOptions,
    RunOptions,
    ServerOptions,
)
from kubeloop.cli.run import run
from kubeloop.kube.user_error import UserError


def test_inconsistent_election_options_are_rejected():
    election = ElectionOptions(leader_elect=True, leader_elect_resource_name="")
    with pytest.raises(UserError, match="--leader-elect-resource-name is empty"):
        run(ServerOptions(), ProcessOptions(), ControllerOptions(), RunOptions(), election, FeatureGateOptions())


def test_signing_controller_alone_needs_an_authority():
    server = ServerOptions(controllers="csrsigning")
    arguments = (ProcessOptions(), ControllerOptions(), RunOptions(), ElectionOptions(), FeatureGateOptions())
    with pytest.raises(UserError, match="csrsigning needs --cluster-signing-cert-file"):
        run(server, *arguments)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param({}, "serviceaccount-token needs --service-account-private-key-file", id="no key"),
        pytest.param(
            {"service_account_private_key_file": "/nonexistent"},
            "--service-account-private-key-file: cannot read /nonexistent",
            id="missing file",
        ),
    ],
)
def test_token_controller_alone_needs_a_key(options, problem):
    server = ServerOptions(controllers="serviceaccount-token-controller")
    with pytest.raises(UserError, match=problem):
        run(
            server,
            ProcessOptions(),
            ControllerOptions(**options),
            RunOptions(),
            ElectionOptions(),
            FeatureGateOptions(),
        )

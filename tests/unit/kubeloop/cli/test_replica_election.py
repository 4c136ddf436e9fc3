"""Options of leader election."""

import pytest

from kubeloop.cli.options.options import ElectionOptions, ObserveElectionOptions
from kubeloop.cli.replica_election import check_election, election_settings
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.control_plane import Settings, settings_within_lease


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
    with pytest.raises(UserError, match=problem):
        check_election(ElectionOptions(leader_elect=True, **election))


def test_bindings_finish_before_the_lease_expires():
    election = election_settings(ElectionOptions(leader_elect_lease_duration=8.0, leader_elect_renew_deadline=7.0))
    assert settings_within_lease(Settings(), election).scheduler.drain_seconds == 1.0
    assert settings_within_lease(Settings(), election).drain_seconds == 1.0
    long = election_settings(ElectionOptions(leader_elect_lease_duration=60.0))
    assert settings_within_lease(Settings(), long).scheduler.drain_seconds == Settings().scheduler.drain_seconds


def test_observe_and_run_elect_on_different_leases():
    assert ObserveElectionOptions().leader_elect_resource_name != ElectionOptions().leader_elect_resource_name
    check_election(ObserveElectionOptions())
    check_election(ElectionOptions())

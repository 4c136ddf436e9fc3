"""Options of leader election."""

import pytest

from kubeloop.cli.options import ElectionOptions, ObserveElectionOptions
from kubeloop.cli.replica_election import check_election
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
    with pytest.raises(UserError, match=problem):
        check_election(ElectionOptions(leader_elect=True, **election))


def test_observe_and_run_elect_on_different_leases():
    assert ObserveElectionOptions().leader_elect_resource_name != ElectionOptions().leader_elect_resource_name
    check_election(ObserveElectionOptions())
    check_election(ElectionOptions())

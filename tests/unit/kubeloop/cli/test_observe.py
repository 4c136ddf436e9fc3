"""Options of `kubeloop observe`."""

import pytest

from kubeloop.cli.observe import observe
from kubeloop.cli.options.options import ObserveElectionOptions, ObserveOptions
from kubeloop.kube.user_error import UserError


@pytest.mark.parametrize(
    ("options", "election", "problem"),
    [
        ({"namespace": "shop", "all_namespaces": True}, {}, "-n and -A are mutually exclusive"),
        ({"trace_tail_sampling": "sometimes"}, {}, "sometimes"),
        ({}, {"leader_elect": True, "leader_elect_resource_name": ""}, "--leader-elect-resource-name is empty"),
    ],
)
def test_invalid_options_are_rejected(options, election, problem):
    with pytest.raises(UserError, match=problem):
        observe(ObserveOptions(**options), ObserveElectionOptions(**election))


def test_missing_kubeconfig_is_reported(tmp_path):
    with pytest.raises(UserError, match="no kubeconfig"):
        observe(ObserveOptions(kubeconfig=tmp_path / "none"), ObserveElectionOptions())

"""Options of `kubeloop apiserver`."""

import pytest

from kubeloop.cli.apiserver import node_settings, serve
from kubeloop.cli.options.options import DevClusterOptions, FeatureGateOptions, ServeOptions
from kubeloop.kube.user_error import UserError


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (DevClusterOptions(node_cpu="0"), "--node-cpu 0: must be more than 0"),
        (DevClusterOptions(node_memory="much"), "--node-memory much"),
        (DevClusterOptions(service_cluster_ip_range="x"), "--service-cluster-ip-range: Expected 4 octets in 'x'"),
    ],
)
def test_error_of_an_option_names_it_once(options, problem):
    with pytest.raises(UserError, match=f"^{problem}"):
        serve(options, ServeOptions(), FeatureGateOptions())


def test_missing_stage_file_is_rejected_before_the_start(tmp_path):
    with pytest.raises(UserError, match=r"stages\.yaml: No such file"):
        serve(DevClusterOptions(stages=(tmp_path / "stages.yaml",)), ServeOptions(), FeatureGateOptions())


def test_options_set_the_behaviour_of_simulated_pods():
    settings = node_settings(DevClusterOptions(start_delay=2.0, start_spread=3.0, probe_delays=True), 50.0)
    assert (settings.start_delay_seconds, settings.start_delay_spread_seconds) == (2.0, 2.0)
    assert settings.stop_delay_seconds == 1.0
    assert settings.probe_delays


@pytest.mark.parametrize(("grace_seconds", "renew_seconds"), [(50.0, 10.0), (200.0, 10.0), (2.0, 0.4), (0.0, 0.1)])
def test_kubelets_renew_their_leases_every_fifth_of_the_grace_period(grace_seconds: float, renew_seconds: float):
    assert node_settings(DevClusterOptions(), grace_seconds).lease_renew_seconds == renew_seconds

"""Options of `kubeloop apiserver`."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeloop.cli.apiserver import _audit_log, _read_proxy_certificate, node_settings, serve
from kubeloop.cli.options.options import DevClusterOptions, FeatureGateOptions, ServeOptions
from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from kubeloop.kube.user_error import UserError
from support.objects.client_certificates import client_certificate


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


@pytest.mark.parametrize(
    ("options", "supervised", "problem"),
    [
        ({"audit_policy_file": Path("p")}, False, "no audit log is written without --audit-log-path"),
        ({"audit_log_path": Path("l")}, False, "no audit log is written without --audit-policy-file"),
        ({"audit_policy_file": Path("p"), "audit_log_path": Path("-")}, True, "--audit-log-path: stdout is that of"),
        ({"audit_policy_file": Path("/none"), "audit_log_path": Path("-")}, False, "cannot read the audit policy"),
    ],
)
def test_incomplete_options_of_an_audit_log_are_refused(options: dict[str, Path], supervised: bool, problem: str):
    with pytest.raises(UserError, match=problem):
        _audit_log(DevClusterOptions(**options), supervised=supervised)


def test_audit_log_has_policy_and_path(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")
    audit = _audit_log(DevClusterOptions(audit_policy_file=policy, audit_log_path=tmp_path / "log"), supervised=True)
    assert audit is not None
    assert (audit.policy.rules[0].level, audit.path) == ("Metadata", str(tmp_path / "log"))
    assert _audit_log(DevClusterOptions(), supervised=False) is None


def test_certificate_of_the_front_proxy_needs_both_files(tmp_path):
    pem = client_certificate(CertificateAuthority.create(datetime.now(UTC)), "front-proxy-client").pem
    file = tmp_path / "proxy.pem"
    file.write_bytes(pem)
    options = DevClusterOptions(proxy_client_cert_file=file, proxy_client_key_file=file)
    assert pem in _read_proxy_certificate(options)
    assert _read_proxy_certificate(DevClusterOptions()) == b""
    for name in ("proxy_client_cert_file", "proxy_client_key_file"):
        with pytest.raises(UserError, match="must be specified together"):
            _read_proxy_certificate(DevClusterOptions(**{name: file}))

"""Flags of kube-apiserver as settings of the API server, and its TLS contexts."""

from __future__ import annotations

import contextlib
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeloop.devcluster.admission.plugin_settings import DEFAULT_PLUGINS, WITHOUT_ACCOUNTS
from kubeloop.devcluster.aggregation.proxy_settings import ProxySettings
from kubeloop.kube.auth.certificate_authority import CertificateAuthority
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.user_error import UserError
from kubeloop.testing.envtest.flags import flag_table, parse_flags
from kubeloop.testing.envtest.serving_options import ServingOptions
from support.objects.client_certificates import client_certificate

REQUIRED = "--etcd-servers=http://127.0.0.1:2379"


def options(folder: Path, *arguments: str) -> ServingOptions:
    flags = parse_flags(flag_table("kube-apiserver"), [REQUIRED, f"--cert-dir={folder}", *arguments])
    return ServingOptions(flags, SystemClock())


def test_flags_of_envtest(tmp_path):
    settings = options(
        tmp_path,
        "--disable-admission-plugins=ServiceAccount",
        "--service-cluster-ip-range=10.9.0.0/24",
        "--service-account-issuer=https://127.0.0.1:1/",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        "--event-ttl=5m",
        "--etcd-compaction-interval=0",
        "--feature-gates=GenericWorkload=true",
        "--runtime-config=api/all=true,batch/v1=false",
        "--advertise-address=192.0.2.7",
        "--service-node-port-range=31000+9",
        "--default-not-ready-toleration-seconds=5",
        "--min-request-timeout=7",
    ).settings(6443, runs_controllers=False)
    assert settings.admission.plugins == WITHOUT_ACCOUNTS
    assert str(settings.service_range) == "10.9.0.0/24"
    assert settings.tokens.issuers == ("https://127.0.0.1:1/",)
    assert (settings.authorization_modes, settings.accepts_anonymous) == (("Node", "RBAC"), False)
    assert (settings.event_seconds, settings.compaction_seconds) == (300, 365 * 24 * 3600)
    assert settings.feature_gates.enabled("GenericWorkload")
    assert settings.disabled_apis == {"-batch/v1"}
    assert (settings.node_ports, settings.toleration_seconds) == (range(31000, 31010), (5, 300))
    assert settings.watches.min_seconds == 7
    assert (settings.identity.address, settings.identity.port) == ("192.0.2.7", 6443)
    assert (settings.root_ca, settings.audit, settings.serves_metrics) == (None, None, False)


def test_users_of_tokens_and_front_proxies(tmp_path):
    (tmp_path / "tokens.csv").write_text('secret,jane,1,"a,b"\n')
    (tmp_path / "ca.crt").write_text("CA")
    settings = options(
        tmp_path,
        f"--token-auth-file={tmp_path}/tokens.csv",
        "--enable-bootstrap-token-auth",
        f"--requestheader-client-ca-file={tmp_path}/ca.crt",
        "--requestheader-allowed-names=a,b",
        "--requestheader-username-headers=X-User",
    ).settings(1, runs_controllers=False)
    assert settings.static_tokens["secret"]["username"] == "jane"
    assert settings.accepts_bootstrap_tokens
    assert settings.front_proxy is not None
    front_proxy = settings.front_proxy
    assert (front_proxy.ca, front_proxy.allowed_names) == ("CA", ("a", "b"))
    assert (front_proxy.username_headers, front_proxy.group_headers) == (("X-User",), ())


def test_certificate_of_the_front_proxy_needs_both_files(tmp_path, caplog):
    pem = client_certificate(CertificateAuthority.create(datetime.now(UTC)), "front-proxy-client").pem
    (tmp_path / "proxy.pem").write_bytes(pem)
    files = [f"--proxy-client-{kind}-file={tmp_path / 'proxy.pem'}" for kind in ("cert", "key")]
    settings = options(tmp_path, *files, "--aggregator-reject-forwarding-redirect=false").settings(
        1, runs_controllers=False
    )
    assert pem in settings.proxy.client_pem
    assert not settings.proxy.refuses_redirects
    assert options(tmp_path, files[0]).settings(1, runs_controllers=False).proxy == ProxySettings()
    options(tmp_path, "--requestheader-group-headers=X-Group").settings(1, runs_controllers=False)
    assert "--requestheader-group-headers is set without specifying the standard X-Remote-Group header" in caplog.text


def test_authority_of_clients_is_not_that_of_front_proxies_without_names(tmp_path):
    (tmp_path / "ca.crt").write_text(CertificateAuthority.create(datetime.now(UTC)).certificate_pem)
    (tmp_path / "other.crt").write_text(CertificateAuthority.create(datetime.now(UTC)).certificate_pem)
    clients, proxies = (f"--{name}={tmp_path}/ca.crt" for name in ("client-ca-file", "requestheader-client-ca-file"))
    with pytest.raises(UserError, match="--client-ca-file contain overlapping certificates"):
        options(tmp_path, clients, proxies).settings(1, runs_controllers=False)
    for arguments in (
        (clients, proxies, "--requestheader-allowed-names=front-proxy-client"),
        (clients, f"--requestheader-client-ca-file={tmp_path}/other.crt"),
    ):
        assert options(tmp_path, *arguments).settings(1, runs_controllers=False).front_proxy is not None


def test_default_values_are_those_of_kube_apiserver(tmp_path):
    settings = options(tmp_path).settings(6443, runs_controllers=False)
    assert settings.admission.plugins == DEFAULT_PLUGINS.keys()
    assert (settings.event_seconds, settings.compaction_seconds) == (3600, 300)
    assert settings.tokens.issuers == ("https://kubernetes.default.svc",)
    assert (settings.authorization_modes, settings.accepts_anonymous) == (("AlwaysAllow",), True)
    assert options(tmp_path).headers() == b"Cache-Control: no-cache, private\r\n"


def test_audit_log_needs_path_and_policy(tmp_path, caplog):
    policy = tmp_path / "policy.yaml"
    policy.write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")
    path = f"--audit-log-path={tmp_path / 'audit.log'}"
    audit = options(
        tmp_path, path, f"--audit-policy-file={policy}", "--audit-log-maxsize=1", "--audit-log-compress"
    ).settings(1, runs_controllers=False).audit  # fmt: skip
    assert audit is not None
    assert (audit.rotation.max_megabytes, audit.rotation.max_backups, audit.rotation.compress) == (1, 100, True)
    assert options(tmp_path, path).settings(1, runs_controllers=False).audit is None
    assert "no audit log is written without --audit-policy-file" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--emulated-version=1.35"], "--emulated-version=1.35 is not supported"),
        (["--audit-log-format=legacy"], "--audit-log-format=legacy is not supported"),
        (["--audit-log-version=audit.k8s.io/v1beta1"], "is not supported"),
        (["--enable-admission-plugins=ImagePolicyWebhook"], "kubeloop has no plugin ImagePolicyWebhook"),
        (["--enable-admission-plugins=Foo"], 'enable-admission-plugins plugin "Foo" is unknown'),
        (["--disable-admission-plugins=Foo"], 'disable-admission-plugins plugin "Foo" is unknown'),
        (["--service-cluster-ip-range=x"], "--service-cluster-ip-range"),
        (["--authorization-mode=ABAC"], "authorization-mode: the mode ABAC is not supported"),
        (["--feature-gates=Bogus=true"], "unrecognized feature gate: Bogus"),
        (["--service-node-port-range=2-1"], "--service-node-port-range=2-1 is no range of ports"),
        (["--secure-port=99999"], "--secure-port=99999 must be between 0 and 65535"),
        (["--client-ca-file=/none"], "--client-ca-file: cannot read /none: No such file or directory"),
        (["--requestheader-username-headers= "], 'empty value in "requestheader-username-headers"'),
        (["--requestheader-allowed-names=a, ,b"], 'empty value in "requestheader-allowed-names"'),
        (["--requestheader-uid-headers=X-Uid"], "--requestheader-uid-headers is set without specifying the standard"),
        (
            ["--proxy-client-cert-file=/none", "--proxy-client-key-file=/none"],
            "--proxy-client-cert-file: no certificate",
        ),
        (["--service-account-key-file=/none"], "cannot read /none"),
        (["--tls-cert-file=/none"], "--tls-cert-file and --tls-private-key-file must be specified together"),
        (["--tls-min-version=x"], "--tls-min-version: unknown tls version 'x'"),
        (["--tls-cipher-suites=x"], "--tls-cipher-suites: no known suite in x"),
        (["--audit-policy-file=/none", "--audit-log-path=-"], "cannot read the audit policy /none"),
    ],
)
def test_wrong_values_are_refused(tmp_path, arguments: list[str], problem: str):
    with pytest.raises(UserError) as raised:
        start(options(tmp_path, *arguments))
    assert problem in str(raised.value)


def start(serving: ServingOptions) -> None:
    """Evaluate all flags as a start of the server does."""
    from kubeloop.devcluster.authentication.service_account_token_key import TokenKey

    serving.listener().close()
    TokenKey(settings=serving.settings(1, runs_controllers=False).tokens)
    serving.tls_context()


def test_etcd_servers_are_required():
    with pytest.raises(UserError, match="--etcd-servers must be specified"):
        ServingOptions(parse_flags(flag_table("kube-apiserver"), []), SystemClock())


def test_certificate_is_created_in_the_folder_and_used_again(tmp_path):
    folder = tmp_path / "new"
    options(folder).tls_context()
    created = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(created) == ["apiserver.crt", "apiserver.key"]
    assert (folder / "apiserver.key").stat().st_mode & 0o777 == 0o600
    options(folder).tls_context()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == created


def test_whole_cluster_publishes_its_certificate(tmp_path):
    settings = options(tmp_path).settings(1, runs_controllers=True)
    assert settings.serves_metrics
    assert settings.root_ca == (tmp_path / "apiserver.crt").read_text()


def test_tls_version_and_suites_are_set(tmp_path):
    suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_256_GCM_SHA384"
    context = options(tmp_path, "--tls-min-version=VersionTLS12", f"--tls-cipher-suites={suites}").tls_context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    names = {suite["name"] for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"}
    assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256", "AES256-GCM-SHA384"}


def test_certificate_is_selected_by_server_name(tmp_path):
    options(tmp_path / "a").tls_context()
    options(tmp_path / "b").tls_context()
    files = f"{tmp_path}/b/apiserver.crt,{tmp_path}/b/apiserver.key"
    server = options(tmp_path / "a", f"--tls-sni-cert-key={files}:b.example,*.c.example").tls_context()
    certificates = {name: served_certificate(server, name) for name in ("a.example", "b.example", "x.c.example")}
    expected = {folder: ssl.PEM_cert_to_DER_cert((tmp_path / folder / "apiserver.crt").read_text()) for folder in "ab"}
    assert certificates == {"a.example": expected["a"], "b.example": expected["b"], "x.c.example": expected["b"]}


def served_certificate(server: ssl.SSLContext, name: str) -> bytes | None:
    """Return the certificate that a server sends to a client that names it."""
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (one, other):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return one.getpeercert(binary_form=True)


def test_strict_transport_security_is_a_header_of_responses(tmp_path):
    headers = options(tmp_path, "--strict-transport-security-directives=max-age=9,includeSubDomains").headers()
    assert headers.endswith(b"Strict-Transport-Security: max-age=9; includeSubDomains\r\n")

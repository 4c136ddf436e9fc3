"""Flags of kube-apiserver as settings of the development API server."""

from __future__ import annotations

import logging
import re
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from kubeloop import KUBERNETES_VERSION
from kubeloop.devcluster.admission.default_toleration_seconds import TolerationSeconds
from kubeloop.devcluster.admission.plugin_settings import DEFAULT_PLUGINS, parse_plugins
from kubeloop.devcluster.aggregation.proxy_settings import ProxySettings, read_client_pem
from kubeloop.devcluster.api.runtime_config import disabled_apis
from kubeloop.devcluster.audit.log_file import AuditLog, Rotation
from kubeloop.devcluster.audit.policy import read_policy
from kubeloop.devcluster.authentication.front_proxy import FrontProxySettings
from kubeloop.devcluster.authentication.service_account_token_key import ISSUER, TokenSettings
from kubeloop.devcluster.authentication.static_tokens import read_static_tokens
from kubeloop.devcluster.authorization.mode_names import parse_authorization_modes
from kubeloop.devcluster.handlers.reading.watch import WatchSettings
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.server.bootstrap import Identity
from kubeloop.devcluster.server.listener import PortTaken, listening_socket, machine_identity
from kubeloop.devcluster.server.tls import create_certificate, server_context
from kubeloop.kube.client.tls_verification import load_certificates
from kubeloop.kube.clock import Clock
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.durations import parse_duration_seconds
from kubeloop.process.control_plane.service_range import parse_service_range
from kubeloop.testing.envtest.flags import Flags

log = logging.getLogger(__name__)

_TLS_VERSIONS = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
_FRONT_PROXY_FLAGS = {
    "username-headers": "X-Remote-User",
    "group-headers": "X-Remote-Group",
    "extra-headers-prefix": "X-Remote-Extra-",
    "allowed-names": "",
    "uid-headers": "X-Remote-Uid",
}
"""Flags `requestheader-NAME`, and the header that must be among their values."""
_FOREVER_SECONDS = 365 * 24 * 3600.0
_MINOR_VERSION = ".".join(KUBERNETES_VERSION.removeprefix("v").split(".")[:2])


class ServingOptions:
    """The settings that flags select. Methods raise UserError for values that the API server cannot have."""

    def __init__(self, flags: Flags, clock: Clock) -> None:
        self._flags = flags
        self._clock = clock
        self._serving_pem = b""  # certificate and key
        self._check()

    def _check(self) -> None:
        """Check the flags with which this server is started or not."""
        flags = self._flags
        if not flags.strings("etcd-servers"):
            raise UserError("--etcd-servers must be specified", hint="start etcd of the same folder, and name its URL")
        for version in flags.strings("emulated-version"):
            if version.removeprefix("kube=") != _MINOR_VERSION:
                problem = f"--emulated-version={version} is not supported by kubeloop"
                raise UserError(problem, hint=f"it serves Kubernetes {_MINOR_VERSION}; leave it out")
        log_format, version = flags.text("audit-log-format"), flags.text("audit-log-version")
        if log_format != "json":
            raise UserError(f"--audit-log-format={log_format} is not supported by kubeloop", hint="use json")
        if version != "audit.k8s.io/v1":
            raise UserError(f"--audit-log-version={version} is not supported by kubeloop", hint="use audit.k8s.io/v1")

    def listener(self) -> socket.socket:
        """Return the socket of --bind-address and --secure-port."""
        address, port = self._flags.text("bind-address").strip(), self._integer("secure-port", 0, 65535)
        try:
            return listening_socket(port, address)
        except PortTaken as error:
            raise UserError(f"--secure-port: {error}", hint="choose another port") from None

    def headers(self) -> bytes:
        """Return the headers of every response."""
        headers = b"Cache-Control: no-cache, private\r\n"
        if directives := self._flags.strings("strict-transport-security-directives"):
            headers += f"Strict-Transport-Security: {'; '.join(directives)}\r\n".encode()
        return headers

    # --- TLS ----------------------------------------------------------------------------------------------------------

    def tls_context(self) -> ssl.SSLContext:
        """Return the context of connections, with the certificates of files, or a new one in --cert-dir."""
        flags = self._flags
        context = self._context(self._serving_certificate(), "--tls-cert-file")
        others: dict[str, ssl.SSLContext] = {}
        for text in flags.all_texts("tls-sni-cert-key"):
            files, _, names = text.partition(":")
            certificate, _, key = files.partition(",")
            pem = self._read(certificate, "tls-sni-cert-key") + self._read(key, "tls-sni-cert-key")
            other = self._context(pem, "--tls-sni-cert-key")
            for name in names.split(",") if names else _host_names(pem):
                others[name] = other
        if others:

            def choose(connection: ssl.SSLObject, server_name: str | None, _: ssl.SSLContext) -> None:
                chosen = others.get(server_name or "") or others.get(f"*.{(server_name or '').partition('.')[2]}")
                if chosen is not None:
                    connection.context = chosen

            context.sni_callback = choose
        return context

    def _context(self, pem: bytes, flag: str) -> ssl.SSLContext:
        flags = self._flags
        try:
            context = server_context(pem, self._text("client-ca-file") + self._text("requestheader-client-ca-file"))
        except (ssl.SSLError, ValueError) as error:
            hint = "name a file with a certificate, and one with its key, in PEM"
            raise UserError(f"{flag}: no certificate and key: {error}", hint=hint) from None
        if version := flags.text("tls-min-version"):
            if version not in _TLS_VERSIONS:
                raise UserError(f"--tls-min-version: unknown tls version {version!r}", hint=", ".join(_TLS_VERSIONS))
            context.minimum_version = _TLS_VERSIONS[version]
        if suites := flags.strings("tls-cipher-suites"):
            try:
                context.set_ciphers(":".join(map(_openssl_name, suites)))
            except ssl.SSLError:
                hint = "use names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
                raise UserError(f"--tls-cipher-suites: no known suite in {','.join(suites)}", hint=hint) from None
        return context

    def _serving_certificate(self) -> bytes:
        """Return certificate and key in PEM."""
        if not self._serving_pem:
            flags = self._flags
            certificate, key = flags.text("tls-cert-file"), flags.text("tls-private-key-file")
            if bool(certificate) != bool(key):
                problem = "--tls-cert-file and --tls-private-key-file must be specified together"
                raise UserError(problem, hint="name both files, or none for a certificate in --cert-dir")
            if certificate:
                self._serving_pem = self._read(certificate, "tls-cert-file") + self._read(key, "tls-private-key-file")
            else:
                self._serving_pem = self._certificate_in_folder(Path(flags.text("cert-dir")))
        return self._serving_pem

    def _certificate_in_folder(self, folder: Path) -> bytes:
        """Return certificate and key of the folder; create both if one is missing."""
        certificate, key = folder / "apiserver.crt", folder / "apiserver.key"
        if not (certificate.exists() and key.exists()):
            created = create_certificate(self._clock).pem
            end = created.index(b"-----BEGIN", 1)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                certificate.write_bytes(created[:end])
                key.touch(mode=0o600)
                key.write_bytes(created[end:])
            except OSError as error:
                problem = f"--cert-dir: cannot write a certificate to {folder}: {error.strerror}"
                raise UserError(problem, hint="choose another folder, or use --tls-cert-file") from None
        return self._read(str(certificate), "cert-dir") + self._read(str(key), "cert-dir")

    def _root_ca(self) -> str:
        """Return the certificates of the server without its key; one that is in a bundle itself is accepted."""
        blocks = re.findall(
            rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", self._serving_certificate(), re.S
        )
        return b"".join(blocks).decode()

    def _proxy(self) -> ProxySettings:
        flags = self._flags
        certificate, key = flags.text("proxy-client-cert-file"), flags.text("proxy-client-key-file")
        return ProxySettings(
            client_pem=read_client_pem(Path(certificate), Path(key)) if certificate and key else b"",
            refuses_redirects=flags.boolean("aggregator-reject-forwarding-redirect"),
        )

    def _check_front_proxies(self) -> None:
        """Check the flags of headers by which front proxies name users."""
        flags = self._flags
        hint = "name headers, or leave the flag out"
        for name, standard in _FRONT_PROXY_FLAGS.items():
            values = flags.strings(f"requestheader-{name}")
            if any(not value.strip() for value in values):
                raise UserError(f'empty value in "requestheader-{name}"', hint=hint)
            if standard and values and standard.lower() not in map(str.lower, values):
                kind = "header prefix" if standard.endswith("-") else "header"
                problem = f"--requestheader-{name} is set without specifying the standard {standard} {kind}"
                problem += " - API aggregation will not work"
                if name == "uid-headers":
                    raise UserError(problem, hint=hint)
                log.warning(problem)
        own, proxies = (self._text(flag) for flag in ("client-ca-file", "requestheader-client-ca-file"))
        if not flags.strings("requestheader-allowed-names") and _share_certificates(own, proxies):
            raise UserError(
                "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates;"
                " --requestheader-allowed-names must be specified to ensure regular client certificates cannot set"
                " authenticating proxy headers for arbitrary users",
                hint="name the certificates of front proxies, or use another authority",
            )

    def _front_proxy(self) -> FrontProxySettings | None:
        flags = self._flags
        self._check_front_proxies()
        if not flags.text("requestheader-client-ca-file"):
            return None
        return FrontProxySettings(
            ca=self._text("requestheader-client-ca-file"),
            allowed_names=tuple(flags.strings("requestheader-allowed-names")),
            username_headers=tuple(flags.strings("requestheader-username-headers")),
            uid_headers=tuple(flags.strings("requestheader-uid-headers")),
            group_headers=tuple(flags.strings("requestheader-group-headers")),
            extra_prefixes=tuple(flags.strings("requestheader-extra-headers-prefix")),
        )

    # --- settings of the API server -----------------------------------------------------------------------------------

    def settings(self, port: int, *, runs_controllers: bool) -> ServingSettings:
        """Return the settings. port: the server listens on it."""
        flags = self._flags
        gates = FeatureGates.parse(flags.all_texts("feature-gates"))
        for warning in gates.warnings:
            log.warning(warning)
        identity = machine_identity(port)
        advertised = flags.text("advertise-address") or flags.text("bind-address")
        if not (ip_address(advertised).is_loopback or ip_address(advertised).is_unspecified):
            identity = Identity(identity.name, advertised, port)
        tokens = flags.text("token-auth-file")
        settings = ServingSettings(
            compaction_seconds=self._seconds("etcd-compaction-interval") or _FOREVER_SECONDS,
            event_seconds=self._seconds("event-ttl"),
            identity=identity,
            feature_gates=gates,
            client_ca=self._text("client-ca-file"),
            front_proxy=self._front_proxy(),
            proxy=self._proxy(),
            static_tokens=read_static_tokens(Path(tokens)) if tokens else {},
            authorization_modes=parse_authorization_modes(flags.text("authorization-mode")),
            accepts_anonymous=flags.boolean("anonymous-auth"),
            accepts_bootstrap_tokens=flags.boolean("enable-bootstrap-token-auth"),
            admission=parse_plugins(
                flags.all_texts("enable-admission-plugins"),
                flags.all_texts("disable-admission-plugins"),
                frozenset(DEFAULT_PLUGINS),
                flags.text("admission-control-config-file"),
            ),
            toleration_seconds=TolerationSeconds(
                self._integer("default-not-ready-toleration-seconds"),
                self._integer("default-unreachable-toleration-seconds"),
            ),
            watches=WatchSettings(min_seconds=self._integer("min-request-timeout", 1)),
            node_ports=self._node_ports(),
            disabled_apis=disabled_apis(flags.pairs("runtime-config")),
            serves_metrics=runs_controllers,
            root_ca=self._root_ca() if runs_controllers else None,
            audit=self._audit_log(),
            tokens=self._token_settings(),
        )
        if text := flags.text("service-cluster-ip-range"):
            service_range = parse_service_range(text, "--service-cluster-ip-range")
            settings = msgspec.structs.replace(settings, service_range=service_range)
        return settings

    def _node_ports(self) -> range:
        """Return the ports of a range such as 30000-32767 or 30000+100."""
        text = self._flags.text("service-node-port-range")
        first, sign, last = re.split(r"([-+])", text) if re.search("[-+]", text) else (text, "-", text)
        ports = range(int(first), int(last) + 1 + (int(first) if sign == "+" else 0))
        if not ports or ports.start < 1 or ports.stop > 65536:
            hint = "use a range of ports between 1 and 65535, such as 30000-32767"
            raise UserError(f"--service-node-port-range={text} is no range of ports", hint=hint)
        return ports

    def _audit_log(self) -> AuditLog | None:
        flags = self._flags
        path, policy = flags.text("audit-log-path"), flags.text("audit-policy-file")
        if not (path and policy):
            if path or policy:
                missing = "audit-policy-file" if path else "audit-log-path"
                log.warning("no audit log is written without --%s", missing)
            return None
        rotation = Rotation(
            max_megabytes=self._integer("audit-log-maxsize"),
            max_backups=self._integer("audit-log-maxbackup"),
            max_days=self._integer("audit-log-maxage"),
            compress=flags.boolean("audit-log-compress"),
        )
        return AuditLog(read_policy(Path(policy)), path, rotation)

    def _token_settings(self) -> TokenSettings:
        flags = self._flags
        signing_key = flags.text("service-account-signing-key-file")
        return TokenSettings(
            issuers=tuple(flags.all_texts("service-account-issuer")) or (ISSUER,),
            audiences=tuple(flags.strings("api-audiences")),
            signing_key=Path(signing_key) if signing_key else None,
            verification_keys=tuple(map(Path, flags.all_texts("service-account-key-file"))),
            max_seconds=int(self._seconds("service-account-max-token-expiration")),
            extends_expiration=flags.boolean("service-account-extend-token-expiration"),
            key_set_uri=flags.text("service-account-jwks-uri"),
        )

    # --- values -------------------------------------------------------------------------------------------------------

    def _integer(self, name: str, least: int = 0, most: int | None = None) -> int:
        value = int(self._flags.text(name) or "0", 0)
        if value < least or (most is not None and value > most):
            limits = f"at least {least}" if most is None else f"between {least} and {most}"
            raise UserError(f"--{name}={value} must be {limits}", hint=f"change --{name}")
        return value

    def _seconds(self, name: str) -> float:
        return parse_duration_seconds(self._flags.text(name) or "0s")

    def _text(self, name: str) -> str:
        """Return the content of the file that a flag names, "" if it is not set."""
        path = self._flags.text(name)
        return self._read(path, name).decode() if path else ""

    def _read(self, path: str, flag: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except OSError as error:
            problem = f"--{flag}: cannot read {path}: {error.strerror}"
            raise UserError(problem, hint="name a readable file") from None


def _host_names(pem: bytes) -> list[str]:
    """Return the DNS names of a certificate."""
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.DNSName)


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; suites of TLS 1.3 stay on."""
    name = suite.removeprefix("TLS_").removeprefix("RSA_WITH_").replace("_WITH_", "_").replace("_CBC_", "_")
    name = name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return name.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_", "-")


def _share_certificates(first: str, second: str) -> bool:
    """Return True if a certificate is in both bundles."""
    bundles = [{certificate.fingerprint(SHA256()) for certificate in load_certificates(pem)} for pem in (first, second)]
    return not bundles[0].isdisjoint(bundles[1])

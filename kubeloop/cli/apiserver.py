"""`kubeloop apiserver`: run the development cluster alone, API server and simulated nodes on loopback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from kubeloop.cli.options.gate_warnings import log_gate_warnings
from kubeloop.cli.options.options import DevClusterOptions, FeatureGateOptions, ServeOptions
from kubeloop.devcluster.admission.plugin_settings import KUBEADM_PLUGINS, parse_plugins
from kubeloop.devcluster.aggregation.proxy_settings import ProxySettings, read_client_pem
from kubeloop.devcluster.authentication.front_proxy import FrontProxySettings
from kubeloop.devcluster.authentication.static_tokens import read_static_tokens
from kubeloop.devcluster.authorization.mode_names import parse_authorization_modes
from kubeloop.devcluster.outgoing.service_addresses import parse_addresses
from kubeloop.devcluster.server.faults import parse_faults
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.devcluster.storage.private_files import CERTIFICATE_AUTHORITY, SERVICE_ACCOUNT_KEY, read_or_create_token
from kubeloop.kube.client.tls_verification import load_certificates
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.service_range import parse_service_range
from kubeloop.process.development_cluster.development_cluster import ApiServerSettings, serve_cluster
from kubeloop.process.development_cluster.node_options import (
    node_capacity,
    read_device_pools,
    read_stage_files,
    zone_names,
)
from kubeloop.process.logs import configure_logging
from kubeloop.process.process_files import runtime_directory
from kubeloop.process.signals import run_until_interrupted

if TYPE_CHECKING:
    from kubeloop.devcluster.audit.log_file import AuditLog

_NODES_WITH_EVENTS = 500  # larger clusters record no kubelet events
_MIN_RENEW_SECONDS, _RENEW_SECONDS = 0.1, 10.0  # between renewals of a Lease; 10 s is kubelet's default


def serve(cluster: DevClusterOptions, options: ServeOptions, gate_options: FeatureGateOptions) -> int:
    """Run the command and return its exit code. Raises UserError for invalid input."""
    configure_logging("warning", options.log_format)
    gates = gate_options.parsed()
    if not options.supervised:  # the process that starts this one logs them
        log_gate_warnings(gates)
    settings = node_settings(cluster, options.node_monitor_grace_period)
    stages, answers = read_stage_files(cluster.stages)
    faults = parse_faults(options.faults) if options.faults else None
    temporary_kubeconfig = cluster.kubeconfig is None
    path = cluster.kubeconfig or runtime_directory() / f"kubeconfig-{os.getpid()}.yaml"
    data_directory = None if cluster.data_dir is None else DataDirectory(cluster.data_dir)
    temporary_authority = runtime_directory() / f"certificate-authority-{os.getpid()}.pem"
    temporary_key = runtime_directory() / f"service-account-{os.getpid()}.key"
    api = ApiServerSettings(
        port=cluster.port,
        kubeconfig=path,
        token=options.token or read_or_create_token(cluster.data_dir),
        faults=faults,
        data_directory=data_directory,
        compaction_seconds=options.compaction_interval,
        service_range=parse_service_range(cluster.service_cluster_ip_range, "--service-cluster-ip-range"),
        supervised=options.supervised,
        feature_gates=gates,
        container_answers=answers,
        service_account_key=temporary_key if cluster.data_dir is None else cluster.data_dir / SERVICE_ACCOUNT_KEY,
        certificate_authority=(
            temporary_authority if cluster.data_dir is None else cluster.data_dir / CERTIFICATE_AUTHORITY
        ),
        client_ca=_read_certificates(cluster.client_ca_file, "--client-ca-file"),
        front_proxy=FrontProxySettings(
            _read_certificates(cluster.requestheader_client_ca_file, "--requestheader-client-ca-file"),
            tuple(filter(None, ",".join(cluster.requestheader_allowed_names).split(","))),
        ),
        proxy=ProxySettings(_read_proxy_certificate(cluster)),
        static_tokens=read_static_tokens(cluster.token_auth_file) if cluster.token_auth_file else {},
        accepts_bootstrap_tokens=cluster.enable_bootstrap_token_auth,
        authorization_modes=parse_authorization_modes(cluster.authorization_mode),
        audit=_audit_log(cluster, supervised=options.supervised),
        admission=parse_plugins(
            cluster.enable_admission_plugins,
            cluster.disable_admission_plugins,
            KUBEADM_PLUGINS,
            str(cluster.admission_control_config_file or ""),
        ),
        resolved_addresses=parse_addresses(cluster.resolve),
    )
    try:
        return run_until_interrupted(serve_cluster(settings, stages, api), interrupted=0)
    finally:
        if data_directory is not None:
            data_directory.close()
        if temporary_kubeconfig:
            path.unlink(missing_ok=True)
        temporary_key.unlink(missing_ok=True)
        temporary_authority.unlink(missing_ok=True)


def _audit_log(cluster: DevClusterOptions, *, supervised: bool) -> AuditLog | None:
    """Return the audit log, None without options. Raises UserError."""
    policy, path = cluster.audit_policy_file, cluster.audit_log_path
    if policy is None and path is None:
        return None
    if policy is None or path is None:
        missing = "--audit-policy-file" if policy is None else "--audit-log-path"
        raise UserError(
            f"no audit log is written without {missing}", hint="set --audit-policy-file and --audit-log-path"
        )
    if supervised and str(path) == "-":
        raise UserError("--audit-log-path: stdout is that of kubeloop up", hint="name a file")
    from kubeloop.devcluster.audit.log_file import AuditLog
    from kubeloop.devcluster.audit.policy import read_policy

    return AuditLog(read_policy(policy), str(path))


def _read_proxy_certificate(cluster: DevClusterOptions) -> bytes:
    """Return certificate and key of the cluster as a front proxy, b"" without options. Raises UserError."""
    certificate, key = cluster.proxy_client_cert_file, cluster.proxy_client_key_file
    if certificate is None and key is None:
        return b""
    if certificate is None or key is None:
        problem = "--proxy-client-cert-file and --proxy-client-key-file must be specified together"
        raise UserError(problem, hint="name both files, or none for a certificate of the cluster")
    return read_client_pem(certificate, key)


def _read_certificates(path: Path | None, option: str) -> str:
    """Return the certificates of a PEM file, "" without a file. Raises UserError."""
    if path is None:
        return ""
    try:
        text = path.read_text()
        if not load_certificates(text):
            raise ValueError
    except (OSError, ValueError):
        raise UserError(
            f"{path} contains no certificate that can be read", hint=f"{option} takes a file in PEM"
        ) from None
    return text


def node_settings(cluster: DevClusterOptions, grace_seconds: float) -> NodeSettings:
    """Return the settings of the simulated nodes. grace_seconds: --node-monitor-grace-period. Raises UserError."""
    return NodeSettings(
        count=cluster.nodes,
        every_node=cluster.nodes > 0,  # with --nodes 0, Nodes may have other kubelets
        capacity=node_capacity(cluster.node_cpu, cluster.node_memory, cluster.node_pods, option="--node-{}"),
        zones=zone_names(cluster.zones),
        devices=read_device_pools(cluster.devices),
        start_delay_seconds=cluster.start_delay,
        start_delay_spread_seconds=min(cluster.start_spread, cluster.start_delay),
        stop_delay_seconds=cluster.stop_delay,
        job_run_seconds=cluster.job_duration,
        probe_delays=cluster.probe_delays,
        complete_bare_pods=cluster.complete_bare_pods,
        command_exits=cluster.command_exits,
        missing_images=tuple(filter(None, cluster.missing_images)),
        lease_renew_seconds=max(_MIN_RENEW_SECONDS, min(_RENEW_SECONDS, grace_seconds / 5)),
        events=cluster.nodes <= _NODES_WITH_EVENTS,
    )

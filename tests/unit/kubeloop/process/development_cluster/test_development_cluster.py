"""The development cluster of `kubeloop apiserver`."""

import socket
from ipaddress import IPv4Network

import pytest

from kubeloop.devcluster.admission.plugin_settings import DEFAULT_PLUGINS, PluginSettings
from kubeloop.devcluster.aggregation.proxy_settings import ProxySettings
from kubeloop.devcluster.authentication.front_proxy import FrontProxySettings
from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.user_error import UserError
from kubeloop.process.development_cluster.development_cluster import ApiServerSettings, serve_cluster


async def test_port_in_use_is_an_error_with_a_hint(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = ApiServerSettings(
            port=other.getsockname()[1],
            kubeconfig=tmp_path / "kubeconfig.yaml",
            token="secret",
            faults=None,
            data_directory=None,
            compaction_seconds=300,
            service_range=IPv4Network("10.96.0.0/16"),
            supervised=False,
            container_answers=ContainerAnswers(),
            feature_gates=DEFAULT_FEATURE_GATES,
            authorization_modes=("Node", "RBAC"),
            audit=None,
            admission=PluginSettings(frozenset(DEFAULT_PLUGINS)),
            resolved_addresses={},
            client_ca="",
            front_proxy=FrontProxySettings(),
            proxy=ProxySettings(),
            static_tokens={},
            accepts_bootstrap_tokens=False,
            certificate_authority=tmp_path / "ca.pem",
            service_account_key=tmp_path / "service-account.key",
        )
        with pytest.raises(UserError) as raised:
            await serve_cluster(NodeSettings(count=1), [], settings)
    assert "--port" in raised.value.hint
    assert not settings.kubeconfig.exists()

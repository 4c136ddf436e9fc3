"""The process that runs clusters for tests."""

import os

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.testing.cluster_options import cluster_options
from kubeloop.testing.host.host_process import ClusterEnded, HostProcess


def test_host_process_starts_and_stops_a_cluster():
    host = HostProcess()
    try:
        address = host.portal.wait(host.start(cluster_options({"nodes": 1})))
        assert host.is_running
        assert address.server.startswith("https://")
        assert host.why_ended(address.cluster) is None
        host.portal.wait(host.stop(address.cluster))
    finally:
        host.close()
    assert not host.is_running
    host.close()  # idempotent


def test_killed_host_process_is_the_reason_of_the_end():
    host = HostProcess()
    try:
        os.kill(host.pid, 9)
        with pytest.raises(ClusterEnded, match="the host process has ended"):
            host.portal.wait(host.start(cluster_options({"nodes": 1})))
        assert "exit code -9" in (host.why_ended(1) or "")
    finally:
        host.close()


def test_rejected_options_are_a_user_error():
    host = HostProcess()
    try:
        with pytest.raises(UserError):
            host.portal.wait(host.start(cluster_options({"scheduler_config": {"kind": "Unknown"}})))
    finally:
        host.close()

"""Clusters in a process of their own, used outside their block."""

import pytest

from kubeloop.testing.cluster import Cluster


def test_cluster_outside_its_block_is_not_running():
    cluster = Cluster(nodes=1)
    assert "(not running)" in repr(cluster)
    with pytest.raises(RuntimeError, match="use it inside its with block"):
        print(cluster.kubeconfig)

"""Clusters inside tests: the pytest plugin, a context manager, and a cluster in virtual time.

    Cluster          a cluster in a separate process, with sockets and a kubeconfig; `with` or `async with`
    memory_cluster   a cluster on the test's own event loop, without sockets; also in virtual time
    plugin           pytest's fixtures; loaded into every pytest run, so this package imports its modules on first use

`virtual_time` and `portal` import the standard library only; the other modules may import `process` and the packages
below it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubeloop.testing.cluster import AsyncCluster, AsyncNamespace, Cluster, Namespace
    from kubeloop.testing.cluster_options import Options
    from kubeloop.testing.host_process import ClusterEnded
    from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
    from kubeloop.testing.operations import WaitTimeout

__all__ = [
    "AsyncCluster",
    "AsyncNamespace",
    "Cluster",
    "ClusterEnded",
    "MemoryCluster",
    "Namespace",
    "Options",
    "WaitTimeout",
    "memory_cluster",
]

_MODULES = {
    "AsyncCluster": "cluster",
    "AsyncNamespace": "cluster",
    "Cluster": "cluster",
    "ClusterEnded": "host_process",
    "MemoryCluster": "in_memory",
    "Namespace": "cluster",
    "Options": "cluster_options",
    "WaitTimeout": "operations",
    "memory_cluster": "in_memory",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

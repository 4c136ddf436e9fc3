"""Clusters inside tests: the pytest plugin, a context manager, and a cluster in virtual time.

    Cluster          a cluster in a separate process, with sockets and a kubeconfig; `with` or `async with`
    memory_cluster   a cluster on the test's own event loop, without sockets; also in virtual time
    plugin           pytest's fixtures; loaded into every pytest run, so this package imports its modules on first use

The process of pytest, and that of its clusters

    plugin.py             fixtures and options
    session.py            implementation of the fixtures for one pytest process
    report.py             report of a failed test
    host/                 the host process, which runs the clusters

Controllers under faults

    faults/               check: crashes, stale caches, refused and lost requests, two leaders
    operator_faults/      the same for an operator of any language, as an external process

Executables for controller-runtime's envtest

    envtest/              kube-apiserver, etcd, kubectl

Clusters

    cluster.py            Cluster and its namespaces
    in_memory.py          memory_cluster
    assembly.py           API server, nodes and control plane on one event loop
    cluster_options.py    options of all forms
    operations.py         apply, wait_for, get, ...
    wait_conditions.py    conditions of wait_for
    description.py        state of a namespace as text
    clients.py            clients of Kubernetes libraries
    memory_transport.py   transport without sockets
    portal.py             coroutines for callers that block or await
    virtual_time.py       event loop in virtual time

`virtual_time` and `portal` import the standard library only; the other modules may import `process` and the packages
below it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubeloop.testing.cluster import AsyncCluster, AsyncNamespace, Cluster, ClusterNamespace
    from kubeloop.testing.cluster_options import Options
    from kubeloop.testing.host.host_process import ClusterEnded
    from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
    from kubeloop.testing.operations import ServerWarning, WaitFailed, WaitTimeout

__all__ = [
    "AsyncCluster",
    "AsyncNamespace",
    "Cluster",
    "ClusterEnded",
    "ClusterNamespace",
    "MemoryCluster",
    "Options",
    "ServerWarning",
    "WaitFailed",
    "WaitTimeout",
    "memory_cluster",
]

_MODULES = {
    "AsyncCluster": "cluster",
    "AsyncNamespace": "cluster",
    "Cluster": "cluster",
    "ClusterEnded": "host.host_process",
    "ClusterNamespace": "cluster",
    "MemoryCluster": "in_memory",
    "Options": "cluster_options",
    "ServerWarning": "operations",
    "WaitFailed": "operations",
    "WaitTimeout": "operations",
    "memory_cluster": "in_memory",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

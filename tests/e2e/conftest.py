"""Fixtures of the end-to-end tests; what drives the processes is `support.processes.cli_processes`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.processes.cli_processes import WEB, Kubectl, Kubeloop, KubeloopProcess, running_cluster


@pytest.fixture
def kubeloop(tmp_path) -> Kubeloop:
    return Kubeloop(tmp_path)


@pytest.fixture(scope="module")
def web(tmp_path_factory) -> Iterator[tuple[Kubeloop, KubeloopProcess, Kubectl]]:
    """One development cluster with the web example, shared by the tests of a module; its containers stop fast."""
    folder = tmp_path_factory.mktemp("web")
    kubeloop = Kubeloop(folder)
    with running_cluster(kubeloop, folder, "-f", WEB, "--stop-delay=100ms") as (up, kubectl):
        yield kubeloop, up, kubectl

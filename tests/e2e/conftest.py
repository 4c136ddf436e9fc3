"""Fixtures of the end-to-end tests; what drives the processes is `support.driving`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.driving import WEB, Kubectl, Kubeloop, Running, cluster_up


@pytest.fixture
def kubeloop(tmp_path) -> Kubeloop:
    return Kubeloop(tmp_path)


@pytest.fixture(scope="module")
def web(tmp_path_factory) -> Iterator[tuple[Kubeloop, Running, Kubectl]]:
    """One development cluster with the web example, shared by the tests of a module."""
    folder = tmp_path_factory.mktemp("web")
    kubeloop = Kubeloop(folder)
    with cluster_up(kubeloop, folder, "-f", WEB) as (up, kubectl):
        yield kubeloop, up, kubectl

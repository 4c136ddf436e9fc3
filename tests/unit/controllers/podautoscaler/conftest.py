"""Fixtures of the autoscaler's tests: an API server that serves the metrics API."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.resources import NAMESPACES
from support.apiserver.fake_apiserver import FakeApiServer


@pytest.fixture
async def metrics_apiserver() -> FakeApiServer:
    server = FakeApiServer(serves_metrics=True)
    server.add(NAMESPACES, "ns")
    return server

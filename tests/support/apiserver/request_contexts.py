"""Contexts of requests, for tests of handlers and admission without an API server."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.request_info import route
from kubeloop.devcluster.api.slow_work import ComputeThread
from kubeloop.devcluster.authorization.modes import AllowAll
from kubeloop.kube.clock import Clock
from support.apiserver.api_requests import request
from support.simulation.set_clock import SetClock


def request_context(
    method: str, path: str, body: Any = None, *, clock: Clock | None = None, **headers: str
) -> RequestContext:
    """Return the context of a request for a built-in resource. clock: default: 2026-01-01."""
    sent = request(method, path, body, **headers)
    sent.route = info = route(sent.path)
    assert info is not None
    clock = clock or SetClock(datetime(2026, 1, 1, tzinfo=UTC))
    return RequestContext(sent, info, clock, random.Random(1), ComputeThread(), AllowAll())

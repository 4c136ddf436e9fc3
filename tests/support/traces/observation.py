"""An observation of a cluster in memory."""

from __future__ import annotations

import random

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import Transport
from kubeloop.process.metrics.metrics_registry import MetricsRegistry
from kubeloop.process.observation.observation import Observation, ObservationSettings
from kubeloop.testing.virtual_time import VirtualClock
from kubeloop.tracing.observation.clock_skew import ClockSkew


def new_observation(transport: Transport, clock: VirtualClock) -> Observation:
    """Return an observation of all pods, with fixed seeds."""
    return Observation(
        ApiClient(transport, clock=clock, rng=random.Random(2)),
        ObservationSettings(),
        clock=clock,
        rng=random.Random(3),
        registry=MetricsRegistry(),
        skew=ClockSkew(),
    )

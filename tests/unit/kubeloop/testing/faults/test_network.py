"""The network of a run under faults."""

from __future__ import annotations

import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kubeloop.testing.faults.fault_plan import FaultPlan, PlannedFault
from kubeloop.testing.faults.network import FaultyConnection, FaultyNetwork, _Watch


@pytest.mark.virtual_time
async def test_broken_watches_end_in_the_order_of_their_start():
    cluster: Any = SimpleNamespace(name="", server=SimpleNamespace(handle=None))
    stream: Any = None
    fault = PlannedFault("disconnect", seconds=1.0)
    network, ended = FaultyNetwork(cluster, FaultPlan((fault,)), random.Random(1)), []
    connection = FaultyConnection(network, lambda: None)
    for number in range(20):
        watch: Any = _Watch("pods", stream)
        watch.reset = partial(ended.append, number)
        connection.watches[watch] = None
    network.begin(fault)
    assert ended == list(range(20))

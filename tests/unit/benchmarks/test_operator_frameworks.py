"""benchmarks/operator_frameworks: its operator for kubeloop, and what is lost or doubled."""

from __future__ import annotations

import asyncio
import importlib.machinery
import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.objects.resources import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS
from kubeloop.manager import Manager
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.api_requests import InProcessApi

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, which has no suffix, as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "operators"))
    loader = importlib.machinery.SourceFileLoader("operator_frameworks", str(BENCHMARKS / "operator_frameworks"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)  # msgspec resolves the types of the Structs there
    loader.exec_module(module)
    return module


@pytest.mark.virtual_time
async def test_lost_and_doubled_children_are_counted(benchmark_module, monkeypatch, tmp_path):
    counted = tmp_path / "reconciles"
    counted.touch()
    monkeypatch.setenv("RECONCILES", str(counted))
    from kubeloop_operator import Sites

    clock = VirtualClock()
    server = InProcessApi(clock=clock)
    server.create(CUSTOM_RESOURCE_DEFINITIONS.path(), yaml.safe_load((BENCHMARKS / "operators/sites.yaml").read_text()))
    transport = MemoryTransport(server.server.handle)
    load = benchmark_module.Load(ApiClient(transport, clock=clock, rng=random.Random(1)), 3)
    watching = asyncio.ensure_future(load.watch())
    async with Manager([Sites], transport=transport, clock=clock, rng=random.Random(1)):
        for phase in (1, 2):
            load.expect(phase)
            reconciled = asyncio.ensure_future(load.wait_reconciled(3))
            await asyncio.sleep(0)
            assert not reconciled.done()
            await load.write(phase)
            await asyncio.wait_for(reconciled, 60)
            assert await load.errors(phase) == {"lost": 0, "doubled": 0}
            assert (await load.errors(phase + 1))["lost"] == 6
    watching.cancel()
    assert counted.stat().st_size >= 6
    copied = server.server.store.get(CONFIG_MAPS, "default", "site-00001")
    metadata = {"name": "copy", "ownerReferences": copied["metadata"]["ownerReferences"]}
    server.create(CONFIG_MAPS.path("default"), {"metadata": metadata, "data": copied["data"]})
    server.succeed("DELETE", CONFIG_MAPS.path("default", "site-00002"))
    assert await load.errors(2) == {"lost": 1, "doubled": 1}

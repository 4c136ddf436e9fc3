"""Assembly of API server, simulated nodes and their controllers, in virtual time."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from kubeloop.devcluster.api.served_resources import LIMIT_RANGES
from kubeloop.devcluster.kubelet.stages.files import read_stages
from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.simulation.node_objects import NodeSettings
from kubeloop.kube.objects.resources import NODES, STORAGE_CLASSES
from kubeloop.process.development_cluster.cluster_assembly import running_cluster
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.api_requests import InProcessApi
from support.objects.stages import DELETE, SELECT_ALL, stage_text

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("every_node", [pytest.param(True, id="all nodes"), pytest.param(False, id="other kubelets")])
async def test_default_storage_class_exists_if_every_node_is_simulated(clock: VirtualClock, every_node):
    api = InProcessApi(clock=clock)
    settings = NodeSettings(count=2, every_node=every_node)
    async with running_cluster(api.server, settings, [], token=None, clock=clock, rng=random.Random(1)):
        assert len(api.server.store.list(NODES)) == 2
        assert bool(api.server.store.list(STORAGE_CLASSES)) == every_node


async def test_stages_of_other_kinds_are_played(clock: VirtualClock, tmp_path: Path):
    file = tmp_path / "stages.yaml"
    file.write_text(stage_text(kind="LimitRange", spec=SELECT_ALL + DELETE))
    api = InProcessApi(clock=clock)
    async with running_cluster(
        api.server, NodeSettings(count=0), read_stages([file]), token=None, clock=clock, rng=random.Random(1)
    ):
        api.create(LIMIT_RANGES.path(namespace="default"), {"metadata": {"name": "t"}, "spec": {"limits": []}})
        await asyncio.sleep(60)
        assert api.server.store.list(LIMIT_RANGES) == []


async def test_crash_of_a_part_ends_the_context(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch):
    async def crash(self: ApiServer) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(ApiServer, "run", crash)
    api = InProcessApi(clock=clock)
    with pytest.raises(ExceptionGroup) as raised:
        async with running_cluster(
            api.server, NodeSettings(count=0), [], token=None, clock=clock, rng=random.Random(1)
        ):
            await asyncio.sleep(60)
    assert raised.group_contains(RuntimeError, match="broken")

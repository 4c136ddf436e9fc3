"""The copy of a cluster has its objects, and no other that decides about pods."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from kubeloop.kube.objects.resources import STORAGE_CLASSES
from kubeloop.planning.cluster_copy import running_copy
from kubeloop.recording.changes import ClusterState
from kubeloop.testing.virtual_time import run


def test_copy_has_no_storage_class_that_the_cluster_does_not_have():
    async def classes() -> list[str]:
        state = ClusterState(datetime(2026, 1, 1, tzinfo=UTC))
        async with running_copy(state, configuration=None, pod_markers=lambda pod: {}) as copy:
            await asyncio.sleep(10.0)
            return sorted(copy.objects(STORAGE_CLASSES))

    assert run(classes()) == []

"""Fixture: queued pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.cache.node_info import PodInfo


@pytest.fixture
def queued() -> Callable[..., QueuedPodInfo]:
    """queued(name, priority=0, **fields): a queued pod with these fields of QueuedPodInfo."""

    def make(name: str, priority: int = 0, **fields: Any) -> QueuedPodInfo:
        metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}"}
        info = QueuedPodInfo(PodInfo(convert(Pod, {"metadata": metadata, "spec": {"priority": priority}})), 0)
        for field, value in fields.items():
            setattr(info, field, value)
        return info

    return make

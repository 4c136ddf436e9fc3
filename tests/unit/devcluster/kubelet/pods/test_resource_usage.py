"""Simulated resource usage of pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kubelet.pods.resource_usage import container_usage, invalid_usage, total_usage


def pod(phase: str = "Running", containers: int = 1, **usage: str) -> dict[str, Any]:
    annotations = {f"kwok.x-k8s.io/usage-{resource}": text for resource, text in usage.items()}
    return {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": str(number)} for number in range(containers)]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("subject", "usage"),
    [
        pytest.param(pod(cpu="250m", memory="64Mi"), {"cpu": "250m", "memory": "64Mi"}, id="both"),
        pytest.param(pod(cpu="1"), {"cpu": "1"}, id="one"),
        pytest.param(pod(), {}, id="none"),
        pytest.param(pod("Pending", cpu="1"), {}, id="not running"),
        pytest.param(pod(cpu="much", memory="-1"), {}, id="invalid"),
    ],
)
def test_container_usage(subject, usage):
    assert {name: str(quantity) for name, quantity in container_usage(subject).items()} == usage


def test_total_is_the_sum_over_all_containers():
    total = total_usage([pod(cpu="250m", containers=2), pod(cpu="1", memory="1Mi"), pod()])
    assert {name: quantity.canonical() for name, quantity in total.items()} == {"cpu": "1500m", "memory": "1Mi"}


def test_invalid_values_are_reported():
    assert invalid_usage(pod(cpu="1")) == []
    assert invalid_usage(pod(cpu="much", memory="-1")) == [
        "kwok.x-k8s.io/usage-cpu: 'much' is not a quantity of 0 or more, such as 250m or 64Mi; it is ignored",
        "kwok.x-k8s.io/usage-memory: '-1' is not a quantity of 0 or more, such as 250m or 64Mi; it is ignored",
    ]

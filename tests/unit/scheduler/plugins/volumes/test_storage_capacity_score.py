"""Scores of nodes by storage capacity."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.api_types import Node, convert
from kubeloop.kube.objects.storage_types import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from kubeloop.scheduler.config.plugin_args import STORAGE_CAPACITY_SHAPE, UtilizationShapePoint
from kubeloop.scheduler.plugins.volumes.storage_capacity_score import ClassAmounts, StorageCapacityScorer, class_amounts
from kubeloop.scheduler.plugins.volumes.volume_binder import PodVolumes

PREFER_FULL = (UtilizationShapePoint(utilization=0, score=0), UtilizationShapePoint(utilization=100, score=10))
STEEPER_ABOVE_70 = (
    UtilizationShapePoint(utilization=0, score=0),
    UtilizationShapePoint(utilization=70, score=5),
    UtilizationShapePoint(utilization=100, score=10),
)


@pytest.mark.parametrize(
    ("shape", "amounts", "score"),
    [
        pytest.param(PREFER_FULL, {}, 0, id="no class"),
        pytest.param(PREFER_FULL, {"a": (30, 100)}, 30, id="linear"),
        pytest.param(STEEPER_ABOVE_70, {"a": (85, 100)}, 75, id="between two points"),
        pytest.param(STORAGE_CAPACITY_SHAPE, {"a": (30, 100)}, 70, id="default shape"),
        pytest.param(PREFER_FULL, {"a": (30, 100), "b": (35, 100)}, 33, id="mean, rounded up from a half"),
        pytest.param(STORAGE_CAPACITY_SHAPE, {"a": (0, 0), "b": (2, 1)}, 0, id="no capacity, too much requested"),
    ],
)
def test_score(shape: tuple[UtilizationShapePoint, ...], amounts: ClassAmounts, score: int) -> None:
    assert StorageCapacityScorer(shape).score(amounts) == score


def claim(name: str, size: str, storage_class: str = "fast") -> PersistentVolumeClaim:
    spec = {"storageClassName": storage_class, "resources": {"requests": {"storage": size}}}
    return convert(PersistentVolumeClaim, {"metadata": {"name": name, "namespace": "n"}, "spec": spec})


def volume(size: str) -> PersistentVolume:
    spec = {"storageClassName": "fast", "capacity": {"storage": size}}
    return convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": spec})


class CapacityBinder:
    """A VolumeBinder that finds 100 bytes of capacity for the class "fast", and none for any other."""

    def node_capacity(self, claim: PersistentVolumeClaim, node: Node) -> CSIStorageCapacity | None:
        return CSIStorageCapacity(capacity="100") if claim.spec.storage_class_name == "fast" else None


@pytest.mark.parametrize(
    ("pod_volumes", "amounts"),
    [
        pytest.param(
            PodVolumes(static_bindings=[(volume("10"), claim("a", "5")), (volume("20"), claim("b", "20"))]),
            {"fast": (25, 30)},
            id="volumes to bind: sum of their capacities",
        ),
        pytest.param(
            PodVolumes(dynamic_provisions=[claim("a", "5"), claim("b", "20"), claim("c", "1", "slow")]),
            {"fast": (25, 100)},
            id="volumes to provision: they share the capacity of their class",
        ),
        pytest.param(
            PodVolumes(static_bindings=[(volume("10"), claim("a", "5"))], dynamic_provisions=[claim("b", "7")]),
            {"fast": (5, 10)},
            id="with volumes to bind, provisions do not count",
        ),
        pytest.param(PodVolumes(), {}, id="no unbound claims"),
    ],
)
def test_class_amounts(pod_volumes: PodVolumes, amounts: ClassAmounts) -> None:
    assert class_amounts(pod_volumes, CapacityBinder(), Node()) == amounts  # type: ignore[arg-type]

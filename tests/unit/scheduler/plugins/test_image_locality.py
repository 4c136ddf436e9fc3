"""ImageLocality: scores by size and spread of the images that a node has."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.image_locality import ImageLocality

MIB = 1 << 20


def test_large_images_score_and_small_ones_do_not(plugin_cluster: Any, node: Any, pod: Any) -> None:
    images = {"a": ("app:1", 1000 * MIB), "b": ("app:1", 1000 * MIB), "c": ("other:1", 1000 * MIB)}
    nodes = [node(name, images=[{"names": [image], "sizeBytes": size}]) for name, (image, size) in images.items()]
    cluster = plugin_cluster([*nodes, *[node(name) for name in "def"]])
    plugin = ImageLocality(plugin_args.NoArgs(), cluster)
    incoming, snapshot = PodInfo(pod("p")), cluster.snapshot  # its image is app:1
    scores = plugin.score_rows(CycleState(), incoming, snapshot, snapshot.all_rows).tolist()
    assert scores == [plugin.score(CycleState(), incoming, info) for info in snapshot.node_infos]
    # two of six nodes have the image: 1000 MiB / 3, between 23 MiB (score 0) and 1000 MiB (score 100)
    assert dict(zip([info.name for info in snapshot.node_infos], scores, strict=True)) == {
        **dict.fromkeys("ab", 31),
        **dict.fromkeys("cdef", 0),
    }


def test_image_that_no_node_has_does_not_hide_the_next(plugin_cluster: Any, node: Any, pod: Any) -> None:
    """1,000 MiB of two containers, of which at most 1,000 MiB each count: (1000 - 23) / (2000 - 23)."""
    cluster = plugin_cluster([node("a", images=[{"names": ["app:1"], "sizeBytes": 1000 * MIB}])])
    plugin, snapshot = ImageLocality(plugin_args.NoArgs(), cluster), cluster.snapshot
    for images in (["missing:1", "app:1"], ["app:1", "missing:1"]):
        containers = [{"name": image[:3], "image": image} for image in images]
        incoming = PodInfo(pod("p", containers=containers))
        assert plugin.score_rows(CycleState(), incoming, snapshot, snapshot.all_rows).tolist() == [49]

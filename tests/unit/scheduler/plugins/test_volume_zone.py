"""VolumeZone: zone labels of bound volumes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.storage_types import PersistentVolume
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.volume_zone import VolumeZone
from support.plugin_cluster import rejections
from support.plugin_volumes import make_claim

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "rejected"),
    [
        pytest.param({ZONE: "a"}, {"in-b"}, id="GA label"),
        pytest.param({BETA_ZONE: "a"}, {"in-b"}, id="beta label on GA nodes"),
        pytest.param({ZONE: "a__b"}, set(), id="several zones"),
        pytest.param({ZONE: "a__"}, set(), id="malformed label"),
        pytest.param({}, set(), id="no label"),
    ],
)
def test_nodes_in_other_zones_are_rejected(
    labels: dict[str, str], rejected: set[str], plugin_cluster: Any, node: Any, pod: Any
) -> None:
    cluster = plugin_cluster([node("in-a", labels={ZONE: "a"}), node("in-b", labels={ZONE: "b"}), node("no-zone")])
    cluster.put("persistent_volumes", convert(PersistentVolume, {"metadata": {"name": "pv", "labels": labels}}))
    cluster.put("persistent_volume_claims", make_claim("data", "pv"))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    plugin = VolumeZone(plugin_args.NoArgs(), cluster)
    assert rejections(plugin, cluster, pod("p", volumes=volumes)).keys() == rejected

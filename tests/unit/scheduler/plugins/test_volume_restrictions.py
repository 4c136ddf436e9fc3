"""VolumeRestrictions: disks that cannot be shared, and ReadWriteOncePod claims."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.kube.objects.api_types import convert, to_json
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from kubeloop.scheduler.api.events import POD, Hint
from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.volume_restrictions import VolumeRestrictions, has_disk_conflict
from support.plugin_cluster import rejections
from support.plugin_volumes import make_claim


@pytest.mark.parametrize(
    ("source", "other", "conflict"),
    [
        pytest.param({"pdName": "d"}, {"pdName": "d"}, True, id="same disk"),
        pytest.param({"pdName": "d"}, {"pdName": "e"}, False, id="other disk"),
        pytest.param({"pdName": "d", "readOnly": True}, {"pdName": "d", "readOnly": True}, False, id="both read-only"),
        pytest.param({"pdName": "d", "readOnly": True}, {"pdName": "d"}, True, id="one read-only"),
    ],
)
def test_gce_disk_conflict(source: dict[str, Any], other: dict[str, Any], conflict: bool, pod: Any) -> None:
    first, second = (
        pod(name, volumes=[{"name": "v", "gcePersistentDisk": disk}]) for name, disk in (("p", source), ("q", other))
    )
    assert has_disk_conflict(first, [second]) == conflict


def test_read_write_once_pod_claim_in_use(plugin_cluster: Any, node: Any, pod: Any) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster = plugin_cluster([node("a"), node("b")], [pod("existing", "a", volumes=volumes)])
    document = to_json(make_claim("data"))
    document["spec"]["accessModes"] = ["ReadWriteOncePod"]
    cluster.put("persistent_volume_claims", convert(PersistentVolumeClaim, document))
    plugin = VolumeRestrictions(plugin_args.NoArgs(), cluster)
    assert rejections(plugin, cluster, pod("p", volumes=volumes)).keys() == {"a", "b"}
    missing = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
    assert rejections(plugin, cluster, pod("q", volumes=missing)) == {
        "": ('persistentvolumeclaim "missing" not found',)
    }


def hint(plugin: VolumeRestrictions, resource: str) -> Any:
    """Return the queueing hint that the plugin registers for the deletion of a resource."""
    return next(registered.hint for registered in plugin.events_to_register() if registered.event.resource == resource)


@pytest.mark.parametrize("namespace", ["default", "other"])
@pytest.mark.parametrize(
    "source", [{"persistentVolumeClaim": {"claimName": "data"}}, {"gcePersistentDisk": {"pdName": "disk"}}]
)
def test_deleted_pod_wakes_pods_of_its_namespace_only(
    source: dict[str, Any], namespace: str, plugin_cluster: Any, node: Any, pod: Any
) -> None:
    plugin = VolumeRestrictions(plugin_args.NoArgs(), plugin_cluster([node("a")], []))
    waiting = pod("p", volumes=[{"name": "v", **source}])
    deleted = pod("q", "a", volumes=[{"name": "v", **source}])
    deleted = replace(deleted, metadata=replace(deleted.metadata, namespace=namespace))
    expected = Hint.QUEUE if namespace == waiting.metadata.namespace else Hint.SKIP
    assert hint(plugin, POD)(waiting, deleted, None) == expected

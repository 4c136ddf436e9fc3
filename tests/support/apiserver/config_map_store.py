"""A store of ConfigMaps for tests of storage and watches."""

from __future__ import annotations

from kubeloop.devcluster.storage.store import ObjectStore, Table
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import CONFIG_MAPS


def config_map(name: str, namespace: str = "ns", **labels: str) -> JSON:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}


class ConfigMapStore:
    """A store of ConfigMaps with a manual clock, of which changes older than 10 seconds are compacted."""

    def __init__(self, max_changes: int = 100) -> None:
        self.now = 0.0
        self.store = ObjectStore(seconds=lambda: self.now, max_changes=max_changes, compaction_seconds=10.0)

    @property
    def table(self) -> Table:
        return self.store.table(CONFIG_MAPS)

    def write(self, name: str, namespace: str = "ns", **labels: str) -> JSON:
        obj = config_map(name, namespace, **labels)
        if self.store.get(CONFIG_MAPS, namespace, name) is None:
            return self.store.create(CONFIG_MAPS, obj)
        return self.store.update(CONFIG_MAPS, obj)

"""Order of the node list compared with kube-scheduler while nodes are added, change zones and are removed."""

from __future__ import annotations

from kubeloop.kube.objects.api_types import Node, convert
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.snapshot import Snapshot


def names(snapshot: Snapshot) -> list[str]:
    return [info.name for info in snapshot.node_infos]


def test_node_order_matches_kube_scheduler(records):
    compared = 0
    for record in records("scheduler/node_order.jsonl.gz"):
        cache, snapshot, nodes = SchedulerCache(lambda: 0.0), Snapshot(), {}
        for number, operation in enumerate(record["operations"]):
            if operation["op"] == "remove":
                cache.remove_node(nodes.pop(operation["name"]))
            else:
                node = convert(Node, operation["node"])
                name = node.metadata.name
                if operation["op"] == "add":
                    cache.add_node(node)
                else:
                    cache.update_node(nodes[name], node)
                nodes[name] = node
            if "order" in operation:
                cache.update_snapshot(snapshot)
                assert names(snapshot) == operation["order"], f"{record['name']} operation {number}"
                compared += 1
        cache.update_snapshot(snapshot)
        assert names(snapshot) == record["finalOrder"], record["name"]
    assert compared > 0

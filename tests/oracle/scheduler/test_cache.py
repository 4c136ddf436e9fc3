"""The cache and its snapshot against kube-scheduler's, operation by operation (README of the records: cache)."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.cache.cache import Cache, CacheError
from kubeloop.scheduler.cache.node_info import NodeInfo
from kubeloop.scheduler.cache.snapshot import Snapshot

RESOURCES = {"cpu": "milliCPU", "memory": "memory", "ephemeral-storage": "ephemeralStorage"}


def keys(pods: Any) -> list[str]:
    return sorted(pod.key for pod in pods)


def resources(amounts: dict[str, int]) -> dict[str, Any]:
    return {name: amounts.get(key, 0) for key, name in RESOURCES.items()}


def scalars(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name not in RESOURCES and name != "pods"}


def allocatable(amounts: dict[str, int]) -> dict[str, Any]:
    shown = resources(amounts) | {"allowedPodNumber": amounts.get("pods", 0)}
    return shown | {"scalarResources": scalars(amounts)} if scalars(amounts) else shown


def images(states: Any) -> dict[str, Any]:
    return {name: {"size": state.size, "numNodes": state.num_nodes} for name, state in states.items()}


def content(info: NodeInfo) -> dict[str, Any]:
    shown = {
        "exists": info.node is not None,
        "requested": resources(info.requested),
        "nonZeroRequested": {"milliCPU": info.non_zero_milli_cpu, "memory": info.non_zero_memory},
        "pods": keys(info.pods.values()),
        "podsWithAffinity": keys(info.pods_with_affinity.values()),
        "podsWithRequiredAntiAffinity": keys(info.pods_with_required_anti_affinity.values()),
        "usedPorts": sorted(f"{ip} {protocol} {port}" for ip, protocol, port in info.used_ports),
    }
    if info.node is not None:
        shown["allocatable"] = allocatable(info.allocatable)
        shown["imageStates"] = images(info.image_states)
    return shown


def run(cache: Cache, snapshot: Snapshot, operation: dict[str, Any]) -> list[str] | None:
    """Returns the refreshed nodes for updateSnapshot."""

    def pod(field: str) -> Pod:
        return convert(Pod, operation[field])

    def node(field: str) -> Node:
        return convert(Node, operation[field])

    match operation["op"]:
        case "addNode":
            cache.add_node(node("node"))
        case "updateNode":
            cache.update_node(node("oldNode"), node("newNode"))
        case "removeNode":
            cache.remove_node(node("nodeObject"))
        case "assumePod":
            cache.assume_pod(pod("pod"))
        case "forgetPod":
            cache.forget_pod(pod("pod"))
        case "addPod":
            cache.add_pod(pod("pod"))
        case "updatePod":
            cache.update_pod(pod("oldPod"), pod("newPod"))
        case "removePod":
            cache.remove_pod(pod("pod"))
        case "updateSnapshot":
            return cache.update_snapshot(snapshot)
        case unknown:
            raise AssertionError(unknown)
    return None


def used_claims(snapshot: Snapshot) -> list[str]:
    return sorted({claim for info in snapshot.node_infos for claim in info.pvc_ref_counts})


def test_the_cache_does_what_kube_schedulers_does(records):
    operations = 0
    for record in records("scheduler/cache.jsonl.gz"):
        cache, snapshot = Cache(lambda: 0.0), Snapshot()
        # The recorder kept the maps themselves (claims, scalar resources) of each node entry, and wrote them out in the
        # end: all records of an entry show what it held last. So the entry's own maps are compared in the end, too.
        live: list[tuple[str, NodeInfo, dict[str, Any]]] = []
        for number, operation in enumerate(record["operations"]):
            where = f"{record['name']} operation {number} {operation['op']}"
            refreshed, failed = None, False
            try:
                refreshed = run(cache, snapshot, operation)
            except CacheError:
                failed = True
            operations += 1
            cache.check()
            assert failed == ("error" in operation), where
            assert keys(cache.assumed_pods()) == operation["assumedPods"], where
            order = [info.name + ("" if info.node else " (gone)") for info in cache.nodes()]
            assert order == operation["nodesMostRecentlyChangedFirst"], where
            if "isAssumedPod" in operation:
                pod = convert(Pod, operation.get("pod") or operation.get("newPod"))
                cached = cache.get_pod(pod.metadata.uid)
                assert cache.is_assumed(pod) == operation["isAssumedPod"], where
                assert (cached.spec.node_name if cached else None) == operation.get("cachedPodNode"), where
                version = cached.metadata.resource_version if cached else None
                assert version == operation.get("cachedPodResourceVersion"), where
            for name, expected in (operation.get("changedNodes") or {}).items():
                info = cache.get_node(name)
                if expected is None:
                    assert info is None, where
                    continue
                assert info is not None, where
                wanted = {key: value for key, value in expected.items() if key != "pvcRefCounts"}
                wanted["requested"] = {
                    key: value for key, value in wanted["requested"].items() if key != "scalarResources"
                }
                assert content(info) == wanted, f"{where} {name}"
                live.append((f"{where} {name}", info, expected))
                if "scalarResources" not in expected["requested"]:  # the map did not exist yet
                    assert not scalars(info.requested), where
            if "snapshot" in operation:
                expected = operation["snapshot"]
                infos = snapshot.node_infos
                assert [info.name for info in infos] == expected["nodeList"], where
                assert [i.name for i in infos if i.pods_with_affinity] == expected["havePodsWithAffinityList"], where
                assert [info.name for info in snapshot.nodes_with_affinity_pods] == expected["havePodsWithAffinityList"]
                having = [info.name for info in infos if info.pods_with_required_anti_affinity]
                assert having == expected["havePodsWithRequiredAntiAffinityList"], where
                assert used_claims(snapshot) == expected["usedPVCs"], where
                assert sorted(refreshed or []) == sorted(expected["refreshedNodes"]), where
                shown = {info.name: images(info.image_states) for info in infos if info.image_states}
                assert shown == expected["imageStates"], where
                differing = [i.name for i in infos if not same_but_for_images(i, cache.get_node(i.name))]
                assert differing == expected["nodesDifferingFromCache"], where
        for where, info, expected in live:
            assert info.pvc_ref_counts == expected["pvcRefCounts"], where
            if "scalarResources" in expected["requested"]:
                assert scalars(info.requested) == expected["requested"]["scalarResources"], where
    assert operations > 0


def same_but_for_images(copy: NodeInfo, live: NodeInfo | None) -> bool:
    if live is None:
        return False
    ours, theirs = content(copy), content(live)
    ours["imageStates"] = theirs["imageStates"] = {}
    return ours == theirs

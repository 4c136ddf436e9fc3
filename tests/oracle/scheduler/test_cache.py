"""Cache and snapshot compared with kube-scheduler after every operation (README of the records: cache)."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.api_types import Node, Pod, convert
from kubeloop.scheduler.cache.cache import CacheError, SchedulerCache
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot

RESOURCES = {"cpu": "milliCPU", "memory": "memory", "ephemeral-storage": "ephemeralStorage"}


def keys(pods: Any) -> list[str]:
    return sorted(pod.key for pod in pods)


def resources(quantities: dict[str, int]) -> dict[str, Any]:
    return {name: quantities.get(key, 0) for key, name in RESOURCES.items()}


def scalars(quantities: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in quantities.items() if name not in RESOURCES and name != "pods"}


def allocatable(quantities: dict[str, int]) -> dict[str, Any]:
    document = resources(quantities) | {"allowedPodNumber": quantities.get("pods", 0)}
    return document | {"scalarResources": scalars(quantities)} if scalars(quantities) else document


def images(states: Any) -> dict[str, Any]:
    return {name: {"size": state.size, "numNodes": state.num_nodes} for name, state in states.items()}


def node_document(info: NodeInfo) -> dict[str, Any]:
    document = {
        "exists": info.node is not None,
        "requested": resources(info.requested),
        "nonZeroRequested": {"milliCPU": info.non_zero_milli_cpu, "memory": info.non_zero_memory},
        "pods": keys(info.pods.values()),
        "podsWithAffinity": keys(with_affinity(info)),
        "podsWithRequiredAntiAffinity": keys(with_required_anti_affinity(info)),
        "usedPorts": sorted(f"{ip} {protocol} {port}" for ip, protocol, port in info.used_ports),
    }
    if info.node is not None:
        document["allocatable"] = allocatable(info.allocatable)
        document["imageStates"] = images(info.image_states)
    return document


def apply(cache: SchedulerCache, snapshot: Snapshot, operation: dict[str, Any]) -> list[str] | None:
    """Apply one operation. Returns the refreshed nodes for updateSnapshot."""

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
            cache.assume_pod(PodInfo(pod("pod")))
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
        case operation_name:
            raise AssertionError(operation_name)
    return None


def used_claims(snapshot: Snapshot) -> list[str]:
    return sorted({claim for info in snapshot.node_infos for claim in info.pvc_ref_counts})


def with_affinity(info: NodeInfo) -> list[PodInfo]:
    return [pod for pod in info.pods.values() if pod.has_affinity]


def with_required_anti_affinity(info: NodeInfo) -> list[PodInfo]:
    return [pod for pod in info.pods.values() if pod.affinity_class.required_anti_affinity_terms]


def node_in(cache: SchedulerCache, name: str) -> NodeInfo | None:
    return next((info for info in cache.nodes() if info.name == name), None)


def test_cache_matches_kube_scheduler(records):
    operations = 0
    for record in records("scheduler/cache.jsonl.gz"):
        cache, snapshot = SchedulerCache(lambda: 0.0), Snapshot()
        # The recorder kept references to each node entry's maps (claims, scalar resources) and wrote them at the end,
        # so that all records of an entry show its last state. Therefore these maps are compared at the end, too.
        entries: list[tuple[str, NodeInfo, dict[str, Any]]] = []
        for number, operation in enumerate(record["operations"]):
            context = f"{record['name']} operation {number} {operation['op']}"
            refreshed, raised = None, False
            try:
                refreshed = apply(cache, snapshot, operation)
            except CacheError:
                raised = True
            operations += 1
            cache.check()
            assert raised == ("error" in operation), context
            assert keys(cache.assumed_pods()) == operation["assumedPods"], context
            order = [info.name + ("" if info.node else " (gone)") for info in cache.nodes()]
            assert order == operation["nodesMostRecentlyChangedFirst"], context
            if "isAssumedPod" in operation:
                pod = convert(Pod, operation.get("pod") or operation.get("newPod"))
                cached = cache.get_pod(pod.metadata.uid)
                assert cache.is_assumed(pod) == operation["isAssumedPod"], context
                assert (cached.spec.node_name if cached else None) == operation.get("cachedPodNode"), context
                version = cached.metadata.resource_version if cached else None
                assert version == operation.get("cachedPodResourceVersion"), context
            for name, expected in (operation.get("changedNodes") or {}).items():
                info = node_in(cache, name)
                if expected is None:
                    assert info is None, context
                    continue
                assert info is not None, context
                expected_now = {key: value for key, value in expected.items() if key != "pvcRefCounts"}
                expected_now["requested"] = {
                    key: value for key, value in expected_now["requested"].items() if key != "scalarResources"
                }
                assert node_document(info) == expected_now, f"{context} {name}"
                entries.append((f"{context} {name}", info, expected))
                if "scalarResources" not in expected["requested"]:  # the map did not exist yet
                    assert not scalars(info.requested), context
            if "snapshot" in operation:
                expected = operation["snapshot"]
                infos = snapshot.node_infos
                assert [info.name for info in infos] == expected["nodeList"], context
                assert [i.name for i in infos if i.affinity_counts] == expected["havePodsWithAffinityList"], context
                with_anti_affinity = [info.name for info in infos if with_required_anti_affinity(info)]
                assert with_anti_affinity == expected["havePodsWithRequiredAntiAffinityList"], context
                assert used_claims(snapshot) == expected["usedPVCs"], context
                assert sorted(refreshed or []) == sorted(expected["refreshedNodes"]), context
                document = {info.name: images(info.image_states) for info in infos if info.image_states}
                assert document == expected["imageStates"], context
                differing = [i.name for i in infos if not equal_except_images(i, node_in(cache, i.name))]
                assert differing == expected["nodesDifferingFromCache"], context
        for context, info, expected in entries:
            assert info.pvc_ref_counts == expected["pvcRefCounts"], context
            if "scalarResources" in expected["requested"]:
                assert scalars(info.requested) == expected["requested"]["scalarResources"], context
    assert operations > 0


def equal_except_images(copy: NodeInfo, entries: NodeInfo | None) -> bool:
    if entries is None:
        return False
    ours, theirs = node_document(copy), node_document(entries)
    ours["imageStates"] = theirs["imageStates"] = {}
    return ours == theirs

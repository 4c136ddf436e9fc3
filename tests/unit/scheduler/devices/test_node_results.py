"""Search results per node: which nodes are searched again."""

from __future__ import annotations

import numpy as np
import pytest

from kubeloop.scheduler.devices.allocator import SearchSettings
from kubeloop.scheduler.devices.errors import AllocationError, AllocationTimeout
from kubeloop.scheduler.devices.node_results import KeptResults, NodeResults, SearchesLeft
from kubeloop.scheduler.devices.requests import claim_requests
from support.objects.devices import FilledDevices, allocated, claim, device, device_class, device_slice, request, typed


class Search:
    """Searches for one claim on the nodes of a cluster."""

    def __init__(self, cluster, devices, *requests):
        self.cluster, self.devices = cluster, devices
        entry = claim_requests(
            typed(claim("c", *requests)), devices.device_class, devices.features, devices.selector_lists
        )
        self.results = NodeResults([entry], devices.pools, devices.usage)
        self.settings = SearchSettings(devices.features, devices.selectors, devices.usage.pool, lambda: 0, 1.0)

    def run(self, rows=None):
        """Return (feasible nodes, number of nodes that were searched)."""
        snapshot, before = self.cluster.snapshot, self.results.searched
        rows = snapshot.all_rows if rows is None else np.array(rows)
        self.results.refresh(snapshot)
        feasible = self.results.feasible(snapshot, rows, self.settings)
        return [snapshot.node_infos[row].name for row in rows[feasible]], self.results.searched - before


def local_devices(*nodes):
    return FilledDevices(device_class(), *(device_slice(name, device("d"), device("e")) for name in nodes))


def test_only_nodes_with_changes_are_searched_again(plugin_cluster, node):
    cluster, devices = plugin_cluster([node(name) for name in "abc"]), local_devices("a", "b")
    search = Search(cluster, devices, request(count=2))
    assert search.run() == (["a", "b"], 3)
    assert search.run() == (["a", "b"], 0)
    devices.apply(claim("used", status=allocated(("a", "d"))))
    assert search.run() == (["b"], 1)
    devices.apply(device_slice("c", device("d"), device("e")))
    assert search.run() == (["b", "c"], 1)
    devices.delete(claim("used", version="2"))
    assert search.run() == (["a", "b", "c"], 1)
    devices.delete(device_slice("b"))
    assert search.run() == (["a", "c"], 0)  # no pools: the result is known


def test_only_requested_rows_are_searched(plugin_cluster, node):
    search = Search(plugin_cluster([node(name) for name in "abc"]), local_devices("a", "b", "c"), request())
    assert search.run([1]) == (["b"], 1)
    assert search.run() == (["a", "b", "c"], 2)


def test_results_stay_when_a_node_is_added(plugin_cluster, node):
    cluster = plugin_cluster([node("a"), node("c")])
    search = Search(cluster, local_devices("a", "b"), request())
    assert search.run() == (["a"], 2)
    cluster.cache.add_node(node("b"))
    cluster.refresh()
    feasible, searched = search.run()
    assert (sorted(feasible), searched) == (["a", "b"], 1)


def test_nodes_with_the_same_shared_pools_are_searched_once(plugin_cluster, node):
    cluster = plugin_cluster([node(name, labels={"zone": "a" if name != "c" else "b"}) for name in "abc"])
    zone_a = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    devices = FilledDevices(device_class(), device_slice(None, device("d"), nodeSelector=zone_a))
    search = Search(cluster, devices, request())
    assert search.run() == (["a", "b"], 2)
    devices.apply(claim("used", status=allocated(("shared", "d"))))
    assert search.run() == ([], 2)


def test_labels_of_nodes_decide_about_shared_pools(plugin_cluster, node):
    cluster = plugin_cluster([node("a"), node("b")])
    labelled = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    search = Search(
        cluster, FilledDevices(device_class(), device_slice(None, device("d"), nodeSelector=labelled)), request()
    )
    assert search.run()[0] == []
    cluster.cache.update_node(node("b"), node("b", labels={"gpu": "yes"}))
    cluster.refresh()
    assert search.run()[0] == ["b"]


def test_results_before_an_error_stay(plugin_cluster, node):
    cluster = plugin_cluster([node("a"), node("b")])
    devices = FilledDevices(device_class(), device_slice("a", device("d")), device_slice("b", device("d"), count=2))
    search = Search(cluster, devices, request(allocationMode="All"))
    for _ in range(2):
        with pytest.raises(AllocationError, match="currently being updated"):
            search.run()
    assert search.results.searched == 3


def test_invalid_pools(plugin_cluster, node):
    devices = FilledDevices(device_class(), device_slice("a", device("d"), device("d")))
    search = Search(plugin_cluster([node("a"), node("b")]), devices, request())
    assert search.run()[0] == []
    assert [search.results.has_invalid_pools(row) for row in (0, 1)] == [True, False]


def test_kept_results_drop_the_least_recently_used():
    kept, results = KeptResults(), NodeResults([], FilledDevices().pools, FilledDevices().usage)
    for number in range(64):
        kept.put(number, results)
    assert kept.get(0) is results
    kept.put("new", results)
    assert (kept.get(0), kept.get(1)) == (results, None)


class _Ticks:
    """A clock that advances by `step_seconds` each time that it is read."""

    def __init__(self, step_seconds):
        self.now, self.step = 0, int(step_seconds * 1e9)

    def __call__(self):
        self.now += self.step
        return self.now


async def searched_in_slices(search, cluster, clock, timeout_seconds=None):
    """Search as a scheduling cycle does; return whether it had to pause, and the feasible nodes."""
    snapshot, devices, results = cluster.snapshot, search.devices, search.results
    settings = SearchSettings(devices.features, devices.selectors, devices.usage.pool, clock, timeout_seconds)
    results.refresh(snapshot)
    paused = False
    try:
        feasible = results.feasible(snapshot, snapshot.all_rows, settings, in_slices=True)
    except SearchesLeft:
        paused = True
        await results.search_others(snapshot, snapshot.all_rows, settings)
        feasible = results.feasible(snapshot, snapshot.all_rows, settings, in_slices=True)
    return paused, [snapshot.node_infos[row].name for row in snapshot.all_rows[feasible]]


@pytest.mark.parametrize(
    ("step_seconds", "paused"),
    [
        pytest.param(0.0, False, id="cheap searches do not pause"),
        pytest.param(0.005, True, id="many searches pause"),
        pytest.param(0.02, True, id="a long search runs in a thread"),
    ],
)
async def test_searches_in_slices(step_seconds, paused, plugin_cluster, node):
    cluster = plugin_cluster([node(name) for name in "abcd"])
    search = Search(cluster, local_devices("a", "b", "d"), request(count=2))
    assert await searched_in_slices(search, cluster, _Ticks(step_seconds)) == (paused, ["a", "b", "d"])
    assert search.results.searched <= 5  # at most one of them twice


def long_search(cluster):
    """Return a search without a solution, which compares many combinations."""
    devices = [device(f"d{number}", attributes={"numa": number % 2}) for number in range(18)]
    filled = FilledDevices(device_class(), device_slice("a", *devices))
    search = Search(cluster, filled, request(count=10))
    entry = claim("c", request(count=10), constraints=[{"matchAttribute": "gpu.example.com/numa"}])
    search.results.claims = [claim_requests(typed(entry), filled.device_class, filled.features, filled.selector_lists)]
    return search


async def test_long_search_ends_after_the_configured_timeout(plugin_cluster, node):
    cluster = plugin_cluster([node("a")])
    with pytest.raises(AllocationTimeout):
        await searched_in_slices(long_search(cluster), cluster, _Ticks(0.5), timeout_seconds=2.0)


async def test_long_search_without_a_timeout_ends_with_its_result(plugin_cluster, node):
    cluster = plugin_cluster([node("a")])
    assert await searched_in_slices(long_search(cluster), cluster, _Ticks(0.5)) == (True, [])

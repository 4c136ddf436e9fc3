"""VersionedCache: one computation per key and version, and a bounded number of results."""

from __future__ import annotations

from kubeloop.scheduler.framework.versioned_cache import VersionedCache


def test_result_is_computed_once_per_key_and_version() -> None:
    cache: VersionedCache[str, str] = VersionedCache(10)
    computed: list[str] = []

    def compute(result: str) -> str:
        computed.append(result)
        return result

    results = [
        cache.get(key, version, lambda result=f"{key}{version}": compute(result))
        for key, version in [("a", 1), ("a", 1), ("b", 1), ("a", 2), ("b", 1), ("a", 2), ("a", 1)]
    ]
    assert results == ["a1", "a1", "b1", "a2", "b1", "a2", "a1"]
    assert computed == ["a1", "b1", "a2", "a1"]


def test_all_results_are_dropped_when_there_are_more_than_the_size() -> None:
    cache: VersionedCache[int, int] = VersionedCache(2)
    sizes = []
    for key in range(5):
        cache.get(key, None, lambda: 0)
        sizes.append(len(cache))
    assert sizes == [1, 2, 1, 2, 1]

"""Unschedulable pods by the plugins that rejected them, and by the ResourceClaims that they use."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from kubeloop.kube.objects.pod_claims import claim_keys
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo


class UnschedulablePods:
    """Rejected or gated pods, until an event may make them schedulable.

    Indexed so that an event visits only the pods it concerns.
    """

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPodInfo] = {}
        self._numbers: dict[str, int] = {}  # pod key -> position in the order they were added
        self._by_plugin: dict[str, dict[str, QueuedPodInfo]] = {}  # "" has pods that no plugin rejected
        self._plugins_of: dict[str, tuple[str, ...]] = {}
        self._by_claim: dict[str, dict[str, QueuedPodInfo]] = {}
        self._claims_of: dict[str, tuple[str, ...]] = {}  # of pods that use any
        self._counter = itertools.count()

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, key: str) -> bool:
        return key in self._pods

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return iter(list(self._pods.values()))

    def get(self, key: str) -> QueuedPodInfo | None:
        return self._pods.get(key)

    def put(self, queued: QueuedPodInfo) -> None:
        """Add the pod, or update the plugins that rejected it and its claims."""
        key = queued.key
        if key in self._pods:
            self._unindex(key)
        else:
            self._numbers[key] = next(self._counter)
        self._pods[key] = queued
        plugins = tuple(queued.rejectors) or ("",)
        self._plugins_of[key] = plugins
        for plugin in plugins:
            self._by_plugin.setdefault(plugin, {})[key] = queued
        if queued.pod.spec.resource_claims:
            claims = self._claims_of[key] = claim_keys(queued.pod)
            for claim in claims:
                self._by_claim.setdefault(claim, {})[key] = queued

    def discard(self, key: str) -> QueuedPodInfo | None:
        queued = self._pods.pop(key, None)
        if queued is not None:
            del self._numbers[key]
            self._unindex(key)
        return queued

    def rejected_by(self, plugins: Collection[str], claim: str | None = None) -> list[QueuedPodInfo]:
        """Return the pods that one of `plugins` or no plugin rejected, in the order they were added.

        claim: "namespace/name" of a ResourceClaim; of the pods that a plugin rejected, only those that use it.
        """
        if not self._pods:
            return []
        rejected: dict[str, QueuedPodInfo] = dict(self._by_plugin.get("", {}))
        if claim is not None:
            users = self._by_claim.get(claim, {}).items()
            rejected.update((key, pod) for key, pod in users if not set(plugins).isdisjoint(self._plugins_of[key]))
        for plugin in plugins if claim is None else ():
            rejected.update(self._by_plugin.get(plugin, {}))
        return [rejected[key] for key in sorted(rejected, key=self._numbers.__getitem__)]

    def _unindex(self, key: str) -> None:
        plugins, claims = self._plugins_of.pop(key), self._claims_of.pop(key, ())
        for index, terms in ((self._by_plugin, plugins), (self._by_claim, claims)):
            for term in terms:
                del index[term][key]
                if not index[term]:
                    del index[term]

    def check(self) -> None:
        """Assert that the indexes have every pod under exactly the plugins that rejected it, and its claims."""
        assert self._pods.keys() == self._numbers.keys() == self._plugins_of.keys()
        assert {(key, plugin) for plugin, pods in self._by_plugin.items() for key in pods} == {
            (key, plugin) for key, plugins in self._plugins_of.items() for plugin in plugins
        }
        assert {(key, claim) for claim, pods in self._by_claim.items() for key in pods} == {
            (key, claim) for key, queued in self._pods.items() for claim in claim_keys(queued.pod)
        }

"""Generations of the EndpointSlices that the controller has written: is a cached one older?

Source: staging/src/k8s.io/endpointslice/util/endpointslice_tracker.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.controllers.runtime.services.endpoint_slices import service_key
from kubeloop.kube.objects.api_types import JSONValue

_DELETED = -1


class EndpointSliceTracker:
    """Newest generation per slice (by UID) of each Service (by key)."""

    def __init__(self) -> None:
        self._generations: dict[str, dict[str, int]] = {}

    def forget(self, service_key: str) -> None:
        self._generations.pop(service_key, None)

    def written(self, endpoint_slice: JSONValue) -> None:
        """Record a created or updated slice, as the API server returned it."""
        self._set(endpoint_slice, generation_of(endpoint_slice))

    def deleted(self, endpoint_slice: JSONValue) -> None:
        """Record a slice that the controller has deleted."""
        self._set(endpoint_slice, _DELETED)

    def _set(self, endpoint_slice: JSONValue, generation: int) -> None:
        generations = self._generations.setdefault(service_key(endpoint_slice), {})
        generations[endpoint_slice["metadata"]["uid"]] = generation

    def is_new(self, endpoint_slice: JSONValue) -> bool:
        """Return True if the slice was created or changed by another writer."""
        generation = self._generation(endpoint_slice)
        return generation is None or generation_of(endpoint_slice) > generation

    def pop_foreign_deletion(self, endpoint_slice: JSONValue) -> bool:
        """Forget a slice that no longer exists. Returns True if another client has deleted it."""
        generations = self._generations.get(service_key(endpoint_slice), {})
        return generations.pop(endpoint_slice["metadata"]["uid"], _DELETED) != _DELETED

    def is_stale(self, service: str, slices: Iterable[JSONValue]) -> bool:
        """Return True if the cached slices of a Service do not show all of the controller's writes."""
        generations = self._generations.get(service)
        if not generations:
            return False
        cached = {it["metadata"]["uid"]: generation_of(it) for it in slices}
        for uid, generation in generations.items():
            if generation == _DELETED:
                if uid in cached:
                    return True
            elif uid not in cached or generation > cached[uid]:
                return True
        return False

    def _generation(self, endpoint_slice: JSONValue) -> int | None:
        return self._generations.get(service_key(endpoint_slice), {}).get(endpoint_slice["metadata"]["uid"])


def generation_of(endpoint_slice: JSONValue) -> int:
    generation: int = endpoint_slice["metadata"].get("generation", 0)
    return generation

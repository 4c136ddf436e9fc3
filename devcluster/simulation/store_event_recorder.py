"""Events of simulated nodes and controllers, written directly to the store."""

from __future__ import annotations

import random

from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import EVENTS
from kubeloop.kube.uids import new_uid

_NAME_OFFSET_NS = 500


class StoreEventRecorder:
    """Writes one Event per occurrence, without aggregation: simulated kubelets rarely repeat one."""

    def __init__(self, store: ObjectStore, *, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._last_ns = 0

    def record(
        self, pod: JSON, type_: str, reason: str, message: str, *, component: str, field_path: str = "", host: str = ""
    ) -> None:
        """Record an event about `pod` (of any kind), or its container that `field_path` names."""
        metadata = pod["metadata"]
        namespace = metadata.get("namespace", "default")
        now = rfc3339(self._clock.now())
        # Names must not repeat within a tick, nor be those of a client's events at the same instant of virtual time.
        self._last_ns = max(self._last_ns + 1, self._clock.time_ns() + _NAME_OFFSET_NS)
        while self._store.get(EVENTS, namespace, f"{metadata['name']}.{self._last_ns:x}") is not None:
            self._last_ns += 1
        involved: JSON = {
            "kind": pod["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "apiVersion": pod["apiVersion"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        }
        if "namespace" in metadata:
            involved["namespace"] = namespace
        if field_path:
            involved["fieldPath"] = field_path
        source = {"component": component}
        if component == "kubelet":
            source["host"] = host
        self._store.create(
            EVENTS,
            {
                "kind": "Event",
                "apiVersion": "v1",
                "metadata": {
                    "name": f"{metadata['name']}.{self._last_ns:x}",
                    "namespace": namespace,
                    "uid": new_uid(self._rng),
                    "creationTimestamp": now,
                },
                "involvedObject": involved,
                "reason": reason,
                "message": message,
                "source": source,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
                "type": type_,
                "eventTime": None,
                "reportingComponent": component,
                "reportingInstance": host if component == "kubelet" else "",
            },
        )

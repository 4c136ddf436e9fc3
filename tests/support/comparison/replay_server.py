"""A server that replays recorded syncs, and the comparison of its calls with those of Kubernetes' controllers.

The comparison is that of ../shared/oracle/controllers/README.md, with two exceptions:

- An update may be sent as a patch that sets the same fields to the same values. `ReplayServer` applies a merge
  or JSON patch to the object that the decision was based on, and records an "update" with the result.
- A write that v1.36 repeats identically within one sync may be sent once. Ours is repeated as well.

Zero values equal absent ones unless the Go field is a pointer (see `plain`).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.owners.adoption import ClaimErrors
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.devcluster.api import request_info
from kubeloop.devcluster.api.request import ApiRequest, Response, json_response
from kubeloop.devcluster.serializer.patches import json_patch, merge_patch
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.metadata_accessor import is_older
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.errors import ApiError, from_status
from kubeloop.kube.objects.api_types import ApiStatus, convert
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from kubeloop.kube.schema import TypeRef, type_ref
from kubeloop.testing.memory_transport import MemoryTransport
from support.simulation.recorded_events import RecordedEvents
from support.simulation.set_clock import SetClock
from support.traces.disabled_recorders import DisabledPodRecorder, DisabledReconcileRecorder

Json = Any


def plain(value: Json, type_: str) -> Json:
    """Return `value` of an API type without zero values that equal absent ones."""
    return _plain(value, type_ref(type_))


def _plain(value: Json, ref: TypeRef) -> Json:
    if ref.kind == "struct" and isinstance(value, dict):
        assert ref.struct is not None
        fields = ref.struct.json
        result = {}
        for name, raw in value.items():
            if name not in fields:
                result[name] = raw
                continue
            member = _plain(raw, fields[name].type)
            if member is not None and (fields[name].type.pointer or member not in ("", 0, False, [], {})):
                result[name] = member
        return result
    if ref.kind == "list" and isinstance(value, list | tuple) and ref.element is not None:
        return [_plain(item, ref.element) for item in value]
    if ref.kind == "map" and isinstance(value, dict) and ref.element is not None:
        return {name: _plain(member, ref.element) for name, member in value.items()}
    return value


def comparable_error(error: Exception | None) -> Json:
    """Return an error in the form that the records compare."""
    if error is None:
        return None
    if isinstance(error, ClaimErrors):
        return {"aggregate": sorted((comparable_error(inner) for inner in error.errors), key=str)}
    if isinstance(error, ApiError):
        causes = [cause.reason for cause in error.status.details.causes] if error.status.details else []
        return {"reason": error.reason, "code": error.code, "causes": causes}
    return "an error"


def recorded_error(error: Json) -> Json:
    if error is None:
        return None
    if "aggregate" in error:
        return {"aggregate": sorted((recorded_error(inner) for inner in error["aggregate"]), key=str)}
    if "reason" in error:
        return {"reason": error["reason"], "code": error["code"], "causes": error.get("causes", [])}
    return "an error"


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def comparable_events(recorder: RecordedEvents) -> list[dict[str, Json]]:
    """Return the events in the form of the records."""
    return [
        {
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "object": f"{event.regarding.kind}/{event.regarding.metadata.namespace}/{event.regarding.metadata.name}",
        }
        for event in recorder.events
    ]


@dataclass
class RecordingQueue:
    """A work queue that only records its calls."""

    requeue_count: int = 0
    calls: list[dict[str, Json]] = field(default_factory=list)

    def add(self, key: str, reason: str = "") -> None:
        self.calls.append({"op": "add", "key": key})

    def pop_reasons(self, key: str) -> str:
        return ""

    def add_after(self, key: str, seconds: float) -> None:
        self.calls.append({"op": "add_after", "key": key, "after_seconds": seconds})

    def add_rate_limited(self, key: str, *, failed: bool = True, at_least_seconds: float = 0.0) -> None:
        self.calls.append({"op": "add_rate_limited", "key": key})

    def forget(self, key: str) -> None:
        self.calls.append({"op": "forget", "key": key})

    def num_requeues(self, key: str) -> int:
        return self.requeue_count


class ReplayContext(ControllerContext, frozen=True, kw_only=True):
    """The context of a controller under test, whose only queue records its calls."""

    queue: RecordingQueue = msgspec.field(default_factory=RecordingQueue)

    def new_queue(self, name: str, limiter: Any = None) -> Any:
        return self.queue


class ReplayServer:
    """Responds to `client` with the objects of a record, fails as recorded, and records every call.

    It cannot be the fake API server: a sync is replayed with caches that differ from the server's objects, and each
    call is compared with its recorded counterpart. The client does not retry.
    """

    def __init__(self, record: Json, *, versions: bool = False) -> None:
        """versions: responses to creates and status updates have new resourceVersions, as in replicaset_sync."""
        state, server = record["state"], record.get("api_server") or {}
        self.live: dict[tuple[str, str], Json] = {}
        self.cached: dict[tuple[str, str], Json] = {}  # the state of the caches, with the writes since then
        for resource in ("deployments", "replicasets", "pods"):
            for obj in state.get(resource, []):
                self.live[resource, key_of(obj)] = obj
                self.cached[resource, key_of(obj)] = copy.deepcopy(obj)
            for obj in server.get(resource, []):
                self.live[resource, key_of(obj)] = obj
            for key in server.get(f"missing_{resource}", []):
                self.live.pop((resource, key), None)
        self.faults = record.get("faults") or []
        self.counts = [0] * len(self.faults)
        self.versions = versions
        self.calls: list[dict[str, Json]] = []
        self.reads: list[dict[str, Json]] = []
        self._creates = self._status_updates = 0
        no_retries = RetryPolicy(tries=1, throttled_tries=0)
        self.client = ApiClient(
            MemoryTransport(self._handle), clock=SystemClock(), rng=random.Random(0), retries=no_retries
        )

    async def _handle(self, request: ApiRequest) -> Response:
        info = request_info.route(request.path)
        assert info is not None, request.path
        resource = info.served.resource
        call = {
            "verb": {"GET": "get", "POST": "create", "PATCH": "update", "DELETE": "delete"}[request.method],
            "group": resource.group,
            "resource": resource.plural,
            "subresource": info.subresource,
            "namespace": info.namespace,
            "name": info.name,
        }
        body = msgspec.json.decode(request.body) if request.body else None
        match request.method:
            case "GET":
                error, content = self._get(call)
            case "POST":
                error, content = self._create(call, body)
            case "PATCH":
                error, content = self._patch(call, body, PatchType(request.headers["content-type"]))
            case _:
                self.calls.append(call)
                error, content = self._error(call), {}
        if error is not None:
            return json_response(error["code"], {"kind": "Status", "apiVersion": "v1", **error})
        return json_response(200, content)

    def _get(self, call: dict[str, Json]) -> tuple[Json, Json]:
        """Return the recorded error, or the object."""
        self.reads.append(call)
        stored = call["resource"], f"{call['namespace']}/{call['name']}"
        error = self._error(call)
        if error is None:
            self.cached[stored] = copy.deepcopy(self.live[stored])
        return error, self.live.get(stored)

    def _create(self, call: dict[str, Json], obj: Json) -> tuple[Json, Json]:
        """Return the recorded error, or the created object."""
        call |= {"name": obj["metadata"].get("name", ""), "object": obj}
        self.calls.append(call)
        error = self._error(call)
        if error is not None:
            return error, None
        self._creates += 1
        created = copy.deepcopy(obj)
        if self.versions:
            created["metadata"]["resourceVersion"] = str(500000 + self._creates)
        created["metadata"].setdefault("namespace", call["namespace"])
        if call["name"]:
            self.cached[call["resource"], key_of(created)] = created
        return None, created

    def _patch(self, call: dict[str, Json], body: Json, patch_type: PatchType) -> tuple[Json, Json]:
        """Return the recorded error, or the patched object. A merge or JSON patch is recorded as an update."""
        self.calls.append(call)
        stored = call["resource"], f"{call['namespace']}/{call['name']}"
        if patch_type is PatchType.STRATEGIC:
            call |= {"verb": "patch", "patch_type": patch_type.value, "patch": body}
            return self._error(call), self.live.get(stored)
        base = self.cached[stored]
        version = body[0]["value"] if patch_type is PatchType.JSON else body["metadata"].get("resourceVersion")
        assert version == base["metadata"].get("resourceVersion"), (
            "a write must contain the resourceVersion of the cached object"
        )
        patched = merge_patch if patch_type is PatchType.MERGE else json_patch
        call["object"] = patched(copy.deepcopy(base), body)
        error = self._error(call)
        if error is not None:
            return error, None
        response = copy.deepcopy(call["object"])
        self.cached[stored] = response
        if self.versions:
            self._status_updates += 1
            response["metadata"]["resourceVersion"] = str(600000 + self._status_updates)
        return None, response

    def _error(self, call: dict[str, Json]) -> Json:
        """Return the Status with which the call fails, which is noted in the call; None if it succeeds."""
        error: Json = None
        for position, fault in enumerate(self.faults):
            if any(
                fault.get(name) not in (None, "", call.get(name, ""))
                for name in ("verb", "resource", "subresource", "name")
            ) or fault.get("subresource", "") != call.get("subresource", ""):
                continue
            self.counts[position] += 1
            count = self.counts[position]
            if fault.get("nth") in (None, count) and count >= fault.get("from", 0):
                error = error or fault["error"]
        key = key_of(call["object"]) if call["verb"] == "create" else f"{call['namespace']}/{call['name']}"
        exists = (call["resource"], key) in self.live
        if error is None and call["verb"] != "create" and not exists:
            error = status_json(call, "NotFound", 404)
        if error is None and call["verb"] == "create" and exists:
            error = status_json(call, "AlreadyExists", 409)
        if error is not None:
            call["error"] = comparable_error(from_status(convert(ApiStatus, error)))
        return error


def key_of(obj: Json) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def status_json(call: Json, reason: str, code: int) -> Json:
    return {"status": "Failure", "reason": reason, "code": code, "message": f"{call['resource']} {call['name']}"}


def replay_context(api: ReplayServer, clock: SetClock, queue: RecordingQueue) -> ReplayContext:
    """Return the context of a controller. `fill` fills its informers after handlers are added."""
    informers = InformerFactory(api.client, clock=clock, rng=random.Random(0))
    traces = DisabledReconcileRecorder()
    return ReplayContext(
        client=informers.client,
        informers=informers,
        clock=clock,
        traces=traces,
        pod_traces=DisabledPodRecorder(),
        events=RecordedEvents(),
        queue=queue,
    )


def fill(informers: InformerFactory, state: Json) -> None:
    """Put the state into the stores and deliver it to handlers as events."""
    for resource in (DEPLOYMENTS, REPLICA_SETS, PODS):
        informer = informers.informer(resource)
        for obj in state.get(resource.plural, []):
            informer.apply("ADDED", convert(resource.type, obj), 0)


def runs_of_patches_sorted(actions: Iterable[Json]) -> list[Json]:
    """Return the actions with each run of patches sorted by name: adoptions and releases are in map order."""
    result: list[Json] = []
    run: list[Json] = []
    for action in actions:
        if action["verb"] == "patch":
            run.append(action)
            continue
        result += sorted(run, key=lambda action: action["name"])
        run = []
        result.append(action)
    return result + sorted(run, key=lambda action: action["name"])


TYPES = {"pods": "core/v1.Pod", "replicasets": "apps/v1.ReplicaSet", "deployments": "apps/v1.Deployment"}
COMPARED_METADATA = ("name", "generateName", "labels", "annotations", "ownerReferences", "finalizers")


def comparable_object(obj: Json, resource: str, subresource: str, verb: str) -> Json:
    """Return the fields that a call can change, and the resourceVersion of an update."""
    type_, metadata = TYPES[resource], obj["metadata"]
    members = ("annotations",) if subresource == "status" else COMPARED_METADATA
    result = {
        "metadata": plain({name: metadata.get(name) for name in members}, "meta/v1.ObjectMeta"),
        "resourceVersion": metadata.get("resourceVersion", "") if verb == "update" else "",
    }
    changed = "status" if subresource == "status" else "spec"
    result[changed] = plain(obj.get(changed) or {}, f"{type_}{changed.title()}")
    return result


def comparable_call(call: Json) -> Json:
    """Return a recorded call or a call of ReplayServer for comparison."""
    names = ("verb", "group", "resource", "subresource", "namespace", "name", "patch_type")
    result = {name: call.get(name, "") for name in names}
    result["patch"] = call.get("patch")
    if "object" in call:
        result["object"] = comparable_object(
            call["object"], call["resource"], call.get("subresource", ""), call["verb"]
        )
    return result


def recorded_call(call: Json) -> Json:
    return {**comparable_call(call), "error": recorded_error(call.get("error"))}


def sent_call(call: Json) -> Json:
    return {**comparable_call(call), "error": call.get("error")}


def restore_expectations(expectations: Any, clock: SetClock, key: str, expected: Json) -> None:
    """Restore the recorded expectations and the observations recorded for them."""
    now = clock.moment
    clock.moment = now - timedelta(seconds=expected["age_seconds"])
    if expected["kind"] == "creations":
        expectations.expect_creations(key, expected["count"])
        for _ in range(expected["observed"]):
            expectations.creation_observed(key)
    else:
        expectations.expect_deletions(key, expected["keys"])
        for pod in expected["keys"][: expected["observed"]]:
            expectations.deletion_observed(key, pod)
    clock.moment = now


def expectations_state(expectations: Any, key: str) -> Json:
    expected = expectations._expected.get(key)
    return {
        "exists": expected is not None,
        "add": expected.creations if expected else 0,
        "del": expected.deletions if expected else 0,
        "keys": sorted(expectations._pending_deletions.get(key, ())),
        "satisfied": expectations.met(key),
    }


def comparable_versions(consistency: ConsistencyStore, record: Json) -> dict[str, str]:
    """Return the stored resourceVersions of the record's key that the record contains (`wrote_rv`).

    The recording determined them by checking whether caches with certain versions are current, Pods first if Pods were
    written before or during the sync. Versions that cannot be compared never make a cache outdated. If no version of
    Pods is stored after the sync, that first check succeeds and clears all versions.
    """
    writes = consistency._writes.get(record["key"])
    comparable = {
        name: version
        for name, version in (writes.versions if writes is not None else {}).items()
        if version == "1" or is_older("1", version)
    }
    expect, pods = record["expect"], PODS.group_resource
    pods_checked = (
        bool((record["consistency"].get("written") or {}).get(pods))
        or expect["creates"]["calls"] > expect["creates"]["failed"]
        or any(not patch.get("error") for patch in expect["patches"])
    )
    return {} if pods_checked and pods not in comparable else comparable

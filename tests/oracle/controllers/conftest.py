"""An API server that remembers what it was asked, and the comparison of that with the records.

The comparison takes the one liberty the issue names that we use, here and nowhere else: an update may be sent as a
patch that sets the same fields to the same values. `FakeApi` renders a merge or JSON patch onto the object it was
decided on, and notes an "update" of the result. (A write that v1.36 repeats within one sync is repeated by us too.)
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kubeloop.controllers.claims import ClaimErrors
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client import PatchType
from kubeloop.kube.errors import ApiError, from_status
from kubeloop.kube.objects import Status, convert
from kubeloop.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Resource

Json = Any

# Go pointers: 0 and absent differ. (spec.replicas is one, status.replicas is not.)
POINTERS = {
    "terminatingReplicas",
    "collisionCount",
    "progressDeadlineSeconds",
    "revisionHistoryLimit",
    "maxSurge",
    "maxUnavailable",
    "terminationGracePeriodSeconds",
}
POINTERS_TO_STRUCTS = {"securityContext"}


def plain(value: Json, path: tuple[str, ...] = ()) -> Json:
    """`value` with zero and absent written alike: neither is there."""
    if isinstance(value, Mapping):
        result = {}
        for name, raw in value.items():
            member = plain(raw, (*path, name))
            pointer = name in POINTERS or (name == "replicas" and path[-1:] == ("spec",))
            kept = (pointer and member == 0) or (name in POINTERS_TO_STRUCTS and member == {})
            if kept or member not in (None, "", 0, False, [], {}):
                result[name] = member
        return result
    if isinstance(value, (list, tuple)):
        return [plain(member, path) for member in value]
    return value


def error_of(error: Exception | None) -> Json:
    """An error as the records compare it."""
    if error is None:
        return None
    if isinstance(error, ClaimErrors):
        return {"aggregate": sorted((error_of(each) for each in error.errors), key=str)}
    if isinstance(error, ApiError):
        causes = [cause.reason for cause in error.status.details.causes] if error.status.details else []
        return {"reason": error.reason, "code": error.code, "causes": causes}
    return "an error"


def recorded_error(error: Json) -> Json:
    if error is None:
        return None
    if "aggregate" in error:
        return {"aggregate": sorted((recorded_error(each) for each in error["aggregate"]), key=str)}
    if "reason" in error:
        return {"reason": error["reason"], "code": error["code"], "causes": error.get("causes", [])}
    return "an error"


def merged(target: Json, patch: Json) -> Json:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def json_patched(target: Json, operations: Json) -> Json:
    """The part of RFC 6902 that a rollback needs."""
    target = copy.deepcopy(target)
    for operation in operations:
        *parents, last = operation["path"].strip("/").split("/")
        parent = target
        for name in parents:
            parent = parent[name]
        assert operation["op"] in ("add", "replace")
        parent[last] = operation["value"]
    return target


@dataclass
class SetClock:
    """A clock that stands still where it is put."""

    moment: datetime

    def now(self) -> datetime:
        return self.moment

    def time_ns(self) -> int:
        return int(self.moment.timestamp()) * 10**9


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@dataclass
class Events:
    """An event sink that remembers."""

    seen: list[dict[str, Json]] = field(default_factory=list)

    def event(self, about: Any, type_: str, reason: str, message: str) -> None:
        name = f"{about.kind}/{about.metadata.namespace}/{about.metadata.name}"
        self.seen.append({"type": type_, "reason": reason, "message": message, "object": name})


@dataclass
class Queue:
    """A work queue that only remembers what is done with it."""

    num_requeues: int = 0
    done: list[dict[str, Json]] = field(default_factory=list)

    def add(self, key: str) -> None:
        self.done.append({"op": "add", "key": key})

    def add_after(self, key: str, seconds: float) -> None:
        self.done.append({"op": "add_after", "key": key, "after_seconds": seconds})

    def add_rate_limited(self, key: str, *, failed: bool = True) -> None:
        self.done.append({"op": "add_rate_limited", "key": key})

    def forget(self, key: str) -> None:
        self.done.append({"op": "forget", "key": key})

    def requeues(self, key: str) -> int:
        return self.num_requeues


class FakeApi:
    """Stands in for the client: keeps objects, fails as told, and notes every call."""

    def __init__(self, record: Json, *, versions: bool = False) -> None:
        """versions: creates and status updates are answered with new resourceVersions, as replicaset_sync has it."""
        state, server = record["state"], record.get("api_server") or {}
        self.live: dict[tuple[str, str], Json] = {}
        self.decided_on: dict[tuple[str, str], Json] = {}  # what the caches hold, with what was written since
        for resource in ("deployments", "replicasets", "pods"):
            for obj in state.get(resource, []):
                self.live[resource, key_of(obj)] = obj
                self.decided_on[resource, key_of(obj)] = copy.deepcopy(obj)
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

    def _check(self, call: dict[str, Json], key: str, *, must_exist: bool) -> None:
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
        exists = (call["resource"], key) in self.live
        if error is None and must_exist and not exists:
            error = status_json(call, "NotFound", 404)
        if error is None and call["verb"] == "create" and exists:
            error = status_json(call, "AlreadyExists", 409)
        if error is not None:
            failure = from_status(convert(Status, error))
            call["error"] = error_of(failure)
            raise failure

    def _call(
        self, verb: str, resource: Resource[Any], namespace: str, name: str, subresource: str = ""
    ) -> dict[str, Json]:
        return {
            "verb": verb,
            "resource": resource.plural,
            "subresource": subresource,
            "namespace": namespace,
            "name": name,
        }

    async def get(self, resource: Resource[Any], name: str, namespace: str = "") -> Any:
        call = self._call("get", resource, namespace, name)
        self.reads.append(call)
        key = f"{namespace}/{name}"
        self._check(call, key, must_exist=True)
        obj = self.live[resource.plural, key]
        self.decided_on[resource.plural, key] = copy.deepcopy(obj)
        return convert(resource.type, obj)

    async def create(self, resource: Resource[Any], body: Json, namespace: str = "", *, headers: Any = None) -> Any:
        obj = msgspec.json.decode(msgspec.json.encode(body))
        call = self._call("create", resource, namespace, obj["metadata"].get("name", ""))
        call["object"] = obj
        self.calls.append(call)
        self._check(call, key_of(obj), must_exist=False)
        self._creates += 1
        answer = copy.deepcopy(obj)
        if self.versions:
            answer["metadata"]["resourceVersion"] = str(500000 + self._creates)
        answer["metadata"].setdefault("namespace", namespace)
        if call["name"]:
            self.decided_on[resource.plural, key_of(answer)] = answer
        return convert(resource.type, answer)

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        body: Json,
        patch_type: PatchType,
        namespace: str = "",
        *,
        subresource: str = "",
        headers: Any = None,
        lane: str = "",
    ) -> Any:
        body = msgspec.json.decode(msgspec.json.encode(body))
        key = f"{namespace}/{name}"
        if patch_type is PatchType.STRATEGIC:
            call = self._call("patch", resource, namespace, name, subresource)
            call |= {"patch_type": patch_type.value, "patch": body}
            self.calls.append(call)
            self._check(call, key, must_exist=True)
            return convert(resource.type, self.live[resource.plural, key])
        # An update, sent as a patch.
        call = self._call("update", resource, namespace, name, subresource)
        base = self.decided_on[resource.plural, key]
        version = body[0]["value"] if patch_type is PatchType.JSON else body["metadata"].get("resourceVersion")
        assert version == base["metadata"].get("resourceVersion"), "a write must be pinned to what it was decided on"
        call["object"] = merged(base, body) if patch_type is PatchType.MERGE else json_patched(base, body)
        self.calls.append(call)
        self._check(call, key, must_exist=True)
        answer = copy.deepcopy(call["object"])
        self.decided_on[resource.plural, key] = answer
        if self.versions:
            self._status_updates += 1
            answer["metadata"]["resourceVersion"] = str(600000 + self._status_updates)
        return convert(resource.type, answer)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        precondition_uid: str = "",
        headers: Any = None,
    ) -> Json:
        call = self._call("delete", resource, namespace, name)
        self.calls.append(call)
        self._check(call, f"{namespace}/{name}", must_exist=True)
        return {}


def key_of(obj: Json) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def status_json(call: Json, reason: str, code: int) -> Json:
    return {"status": "Failure", "reason": reason, "code": code, "message": f"{call['resource']} {call['name']}"}


def filled_informers(api: FakeApi, state: Json, clock: SetClock) -> InformerFactory:
    """Informers for the three kinds, to be filled by `fill` once handlers are there."""
    return InformerFactory(api, clock=clock, rng=random.Random(0))  # type: ignore[arg-type]


def fill(informers: InformerFactory, state: Json) -> None:
    """Put the state into the stores; handlers hear of it as of events."""
    for resource in (DEPLOYMENTS, REPLICA_SETS, PODS):
        informer = informers.informer(resource)
        for obj in state.get(resource.plural, []):
            informer.apply("ADDED", convert(resource.type, obj))


def runs_of_patches_sorted(actions: Iterable[Json]) -> list[Json]:
    """Adoptions and releases come out of map order: each run of them sorted by name."""
    result: list[Json] = []
    run: list[Json] = []
    for action in actions:
        if action["verb"] == "patch":
            run.append(action)
            continue
        result += sorted(run, key=lambda each: each["name"])
        run = []
        result.append(action)
    return result + sorted(run, key=lambda each: each["name"])


def comparable_object(obj: Json, resource: str, subresource: str, verb: str) -> Json:
    """What a call can change."""
    metadata = obj["metadata"]
    result: dict[str, Json] = {"annotations": metadata.get("annotations")}
    if subresource == "status":
        return plain({**result, "status": obj.get("status"), "resourceVersion": metadata.get("resourceVersion")})
    result |= {name: metadata.get(name) for name in ("name", "generateName", "labels", "ownerReferences", "finalizers")}
    result["spec"] = obj.get("spec")
    if verb == "update":
        result["resourceVersion"] = metadata.get("resourceVersion")
    return plain(result)


def comparable_call(call: Json) -> Json:
    """A call of the records or of FakeApi, for ==."""
    result = {
        name: call.get(name, "") for name in ("verb", "resource", "subresource", "namespace", "name", "patch_type")
    }
    result["patch"] = call.get("patch")
    if "object" in call:
        result["object"] = comparable_object(
            call["object"], call["resource"], call.get("subresource", ""), call["verb"]
        )
    return result


def of_record(call: Json) -> Json:
    return {**comparable_call(call), "error": recorded_error(call.get("error"))}


def of_ours(call: Json) -> Json:
    return {**comparable_call(call), "error": call.get("error")}


def recall_expectations(expectations: Any, clock: SetClock, key: str, expected: Json) -> None:
    """Note what the record had noted, and observe of it what had been observed."""
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


def state_of(expectations: Any, key: str) -> Json:
    expected = expectations.get(key)
    return {
        "exists": expected is not None,
        "add": expected.creations if expected else 0,
        "del": expected.deletions if expected else 0,
        "keys": sorted(expectations.awaited_deletions(key)),
        "satisfied": expectations.met(key),
    }


@pytest.fixture
def harness() -> Any:
    """This module, for tests that cannot import it (every test file is a module of its own)."""
    return sys.modules[__name__]

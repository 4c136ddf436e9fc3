"""A fake API server of pods that injects faults, and an event handler that checks the consistency of its calls."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import pytest

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.client.transport import HttpResponse, StreamedResponse, TransportError
from kubeloop.kube.objects.resources import PODS
from kubeloop.testing.virtual_time import VirtualClock

BOOKMARK_SECONDS = 60


@dataclass
class Fault:
    """Fault of one stream after it has sent `lines` lines.

    kind: "close" (clean end), "reset" (connection reset in the middle of the next line), "silence" (no more data),
    "expired" (ERROR event 410), "error" (ERROR event 500), "throttled" (ERROR event 429), "refuse" (the stream is
    refused with `code`).
    """

    kind: str
    lines: int = 0
    code: int = 500


class FaultyApiServer:
    """Transport that serves the pods of all namespaces; each write increments the resource version."""

    def __init__(self, *, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.version = 100
        self.pods: dict[str, dict] = {}
        self.log: list[tuple[int, str, dict]] = []
        self.compacted_version = 0  # events up to this version are not available any more
        self.watch_list_refusal: int | str | None = None  # a status code, or "ignore": sendInitialEvents unsupported
        self.down = False
        self.faults: deque[Fault] = deque()  # of the next streams, in order
        self.repeat = 0  # number of events that a resumed stream sends again
        self.initial_bookmark_seconds = 0.0
        self.page_limit = 0
        self.list_body: bytes | None = None
        self.expired_tokens = 0  # number of continue tokens to reject with 410
        self.requests: list[str] = []
        self.changed = asyncio.Event()
        self.uids = 0

    # --- writes of users ---

    def create(self, name: str, namespace: str = "default", **more: object) -> dict:
        self.uids += 1
        pod = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{self.uids}", "managedFields": [{"a": 1}]},
            **more,
        }
        return self._record_event("ADDED", pod)

    def update(self, name: str, namespace: str = "default", **more: object) -> dict:
        return self._record_event("MODIFIED", {**self.pods[f"{namespace}/{name}"], **more})

    def delete(self, name: str, namespace: str = "default") -> dict:
        return self._record_event("DELETED", self.pods[f"{namespace}/{name}"])

    def restore(self, version: int) -> None:
        """Restore an older version, as from a backup: all objects get that version, and newer events are lost."""
        self.version, self.compacted_version = version, 0
        self.log.clear()
        for key, pod in self.pods.items():
            self.pods[key] = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(version)}}

    def compact(self) -> None:
        self.compacted_version = self.version

    def _record_event(self, type_: str, pod: dict) -> dict:
        self.version += 1
        pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.version)}}
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if type_ == "DELETED":
            del self.pods[key]
        else:
            self.pods[key] = pod
        self.log.append((self.version, type_, pod))
        self.wake_streams()
        return pod

    def wake_streams(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    # --- requests of clients ---

    def lists(self) -> list[str]:
        return [request for request in self.requests if "watch=1" not in request or "sendInitialEvents" in request]

    def watches(self) -> list[str]:
        return [request for request in self.requests if "watch=1" in request]

    async def request(self, method, target, *, headers, body=b"", timeout_seconds=None) -> HttpResponse:
        self.requests.append(target)
        if self.down:
            raise TransportError("connection refused", request_sent=False)
        if self.list_body is not None:
            return HttpResponse(200, self.list_body)
        query = dict(parse_qsl(urlsplit(target).query))
        pods, version, start = [*self.pods.values()], self.version, 0
        if "continue" in query:
            if self.expired_tokens:
                self.expired_tokens -= 1
                return HttpResponse(410, status(410, "Expired"))
            token = json.loads(base64.b64decode(query["continue"]))
            pods, version, start = token["pods"], token["version"], token["start"]
        limit = int(query.get("limit", "0"))
        limit = min(limit, self.page_limit) if self.page_limit and limit else limit
        metadata = {"resourceVersion": str(version)}
        page = pods[start:]
        if limit and len(page) > limit:
            page = page[:limit]
            token = {"pods": pods, "version": version, "start": start + limit}
            metadata["continue"] = base64.b64encode(json.dumps(token).encode()).decode()
        items = [{name: value for name, value in pod.items() if name not in ("kind", "apiVersion")} for pod in page]
        return HttpResponse(200, json.dumps({"kind": "PodList", "metadata": metadata, "items": items}).encode())

    @asynccontextmanager
    async def stream(self, method, target, *, headers, body=b""):
        self.requests.append(target)
        if self.down:
            raise TransportError("connection refused", request_sent=False)
        query = dict(parse_qsl(urlsplit(target).query))
        initial = query.get("sendInitialEvents") == "true"
        fault = self.faults.popleft() if self.faults else None
        refusal = 0
        version = int(query.get("resourceVersion", "0") or 0)
        if initial and isinstance(self.watch_list_refusal, int):
            refusal = self.watch_list_refusal
        elif fault and fault.kind == "refuse":
            refusal = fault.code
        elif not initial and version < self.compacted_version:
            refusal = 410
        elif not initial and version > self.version:
            refusal = 504
        if refusal:
            yield StreamedResponse(refusal, {}, one_chunk(status(refusal)))
            return
        chunks = self._chunks(query, initial, version, fault)
        try:
            yield StreamedResponse(200, {}, chunks)
        finally:
            await chunks.aclose()

    async def close(self) -> None:
        pass

    async def _chunks(self, query, initial, version, fault):
        sent = 0
        async for line in self._lines(query, initial, version):
            if line and fault and sent >= fault.lines:
                if fault.kind == "reset":
                    yield line[: max(1, len(line) // 2)]
                    raise TransportError("connection reset", request_sent=True)
                if fault.kind == "close":
                    return
                if fault.kind == "silence":
                    await asyncio.sleep(1e9)
                if fault.kind in ("expired", "error", "throttled"):
                    code = {"expired": 410, "error": 500, "throttled": 429}[fault.kind]
                    yield json.dumps({"type": "ERROR", "object": json.loads(status(code))}).encode() + b"\n"
                    return
            sent += 1
            rest = line
            while rest:  # chunks end at random positions
                size = self.rng.randint(1, 2 * len(line))
                yield rest[:size]
                rest = rest[size:]

    async def _lines(self, query, initial, version):
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + float(query.get("timeoutSeconds", "3600"))
        if initial:
            version = self.version
            for pod in [*self.pods.values()]:
                yield frame("ADDED", pod)
            if self.watch_list_refusal != "ignore":
                await asyncio.sleep(self.initial_bookmark_seconds)
                yield bookmark(version, {"k8s.io/initial-events-end": "true"})
        elif self.repeat:
            version = max(self.compacted_version, version - self.repeat)
        bookmark_at = loop.time() + BOOKMARK_SECONDS
        while loop.time() < ends_at:
            changed = self.changed
            for event_version, type_, pod in [logged for logged in self.log if logged[0] > version]:
                if event_version <= self.compacted_version and version < self.compacted_version:
                    yield json.dumps({"type": "ERROR", "object": json.loads(status(410))}).encode() + b"\n"
                    return
                yield frame(type_, pod)
                version = event_version
            if self.down:
                raise TransportError("connection reset", request_sent=True)
            try:
                async with asyncio.timeout_at(min(ends_at, bookmark_at)):
                    await changed.wait()
            except TimeoutError:
                if loop.time() >= bookmark_at and not any(logged[0] > version for logged in self.log):
                    bookmark_at += BOOKMARK_SECONDS
                    version = self.version
                    yield bookmark(version, {})


def frame(type_: str, obj: dict) -> bytes:
    return json.dumps({"type": type_, "object": obj}).encode() + b"\n"


def bookmark(version: int, annotations: dict) -> bytes:
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    return frame("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata})


async def one_chunk(body: bytes):
    yield body


def status(code: int, reason: str = "") -> bytes:
    reason = reason or {
        400: "BadRequest",
        403: "Forbidden",
        410: "Expired",
        422: "Invalid",
        429: "TooManyRequests",
        504: "Timeout",
    }.get(code, "InternalError")
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason}
    if code == 504:
        body["details"] = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    return json.dumps({**body, "message": f"answered {code}"}).encode()


class RecordingHandler:
    """An event handler that records its calls, and checks that those of each key are consistent.

    Inconsistencies go to `violations`, because informers catch exceptions of handlers.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.objects: dict[str, object] = {}
        self.calls: list[tuple] = []

    def on_add(self, obj, initial):
        self._expect(obj.key not in self.objects, f"{obj.key} added twice")
        self.objects[obj.key] = obj
        self.calls.append(("add", obj.key, initial))

    def on_update(self, old, new):
        self._expect(self.objects.get(new.key) is old, f"{new.key} changed from an unknown state")
        self._expect(old.metadata.uid == new.metadata.uid, f"{new.key} became another object")
        self.objects[new.key] = new
        self.calls.append(("update", new.key, new.metadata.resource_version))

    def on_delete(self, obj, final_state_unknown):
        last = self.objects.pop(obj.key, None)
        self._expect(last is not None and last.metadata.uid == obj.metadata.uid, f"{obj.key} deleted but never added")
        self._expect(last is obj or not final_state_unknown, f"{obj.key} deleted with a state other than the last one")
        self.calls.append(("delete", obj.key, final_state_unknown))

    def _expect(self, condition: bool, violation: str) -> None:
        if not condition:
            self.violations.append(violation)

    def versions(self):
        return {key: obj.metadata.resource_version for key, obj in self.objects.items()}


class InformerHarness:
    """A fake API server, and the informers of a process that run inside run_informers()."""

    def __init__(self, *, seed: int = 0) -> None:
        self.server = FaultyApiServer(seed=seed)
        clock, rng = VirtualClock(), random.Random(seed)
        self.client = Client(self.server, clock=clock, rng=rng)
        self.informers = InformerFactory(self.client, clock=clock, rng=rng)
        self.pods = self.informers.informer(PODS)
        self.handler = RecordingHandler()
        self.registration = self.pods.add_handler(self.handler)

    @asynccontextmanager
    async def run_informers(self):
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.informers.run())
            yield self
            task.cancel()

    def versions(self):
        return {pod.key: pod.metadata.resource_version for pod in self.pods.store.list()}

    def assert_in_sync(self):
        expected = {key: pod["metadata"]["resourceVersion"] for key, pod in self.server.pods.items()}
        assert self.versions() == expected
        assert self.handler.versions() == expected
        assert self.handler.violations == []
        self.pods.store.check()


@pytest.fixture(scope="session")
def make_harness():
    return InformerHarness


@pytest.fixture(scope="session")
def make_handler():
    return RecordingHandler


@pytest.fixture(scope="session")
def fault():
    return Fault

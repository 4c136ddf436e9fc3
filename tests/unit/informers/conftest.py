"""A scripted API server of pods, behind the Transport seam, that can misbehave; and a handler that checks its story."""

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
from kubeloop.kube.client.transport import Response, StreamedResponse, TransportError
from kubeloop.kube.objects.resources import PODS
from kubeloop.testing.virtual_time import VirtualClock

BOOKMARK_SECONDS = 60


@dataclass
class Fault:
    """What happens to one stream after it has sent `lines` lines: "close" (cleanly), "reset" (in the middle of the
    next line), "silence", "expired" (an ERROR event 410), "error" (an ERROR event 500), "throttled" (429),
    "refuse" (the stream is answered with `code`)."""

    kind: str
    lines: int = 0
    code: int = 500


class ApiServer:
    """Pods in all namespaces; resource versions count up by one. Implements Transport."""

    def __init__(self, *, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.version = 100
        self.pods: dict[str, dict] = {}
        self.log: list[tuple[int, str, dict]] = []
        self.compacted = 0  # events up to here are forgotten
        self.refuse_watch_list: int | str | None = None  # a code, or "ignore": as a server that never heard of it
        self.down = False
        self.faults: deque[Fault] = deque()  # of the next streams
        self.repeat = 0  # events sent again at the start of a stream
        self.initial_bookmark_seconds = 0.0
        self.page_limit = 0
        self.list_body: bytes | None = None
        self.expire_tokens = 0  # so many continue tokens are answered with 410
        self.requests: list[str] = []
        self.changed = asyncio.Event()
        self.uids = 0

    # --- what users do ---

    def create(self, name: str, namespace: str = "default", **more: object) -> dict:
        self.uids += 1
        pod = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{self.uids}", "managedFields": [{"a": 1}]},
            **more,
        }
        return self._happened("ADDED", pod)

    def update(self, name: str, namespace: str = "default", **more: object) -> dict:
        return self._happened("MODIFIED", {**self.pods[f"{namespace}/{name}"], **more})

    def delete(self, name: str, namespace: str = "default") -> dict:
        return self._happened("DELETED", self.pods[f"{namespace}/{name}"])

    def restore(self, version: int) -> None:
        """From a backup: every object and the whole server are of an older version, and nobody knows the newer ones."""
        self.version, self.compacted = version, 0
        self.log.clear()
        for key, pod in self.pods.items():
            self.pods[key] = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(version)}}

    def compact(self) -> None:
        self.compacted = self.version

    def _happened(self, type_: str, pod: dict) -> dict:
        self.version += 1
        pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.version)}}
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if type_ == "DELETED":
            del self.pods[key]
        else:
            self.pods[key] = pod
        self.log.append((self.version, type_, pod))
        self.wake()
        return pod

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    # --- what clients ask ---

    def lists(self) -> list[str]:
        return [each for each in self.requests if "watch=1" not in each or "sendInitialEvents" in each]

    def watches(self) -> list[str]:
        return [each for each in self.requests if "watch=1" in each]

    async def request(self, method, target, *, headers, body=b"", timeout_seconds=None) -> Response:
        self.requests.append(target)
        if self.down:
            raise TransportError("connection refused", request_sent=False)
        if self.list_body is not None:
            return Response(200, self.list_body)
        query = dict(parse_qsl(urlsplit(target).query))
        pods, version, start = [*self.pods.values()], self.version, 0
        if "continue" in query:
            if self.expire_tokens:
                self.expire_tokens -= 1
                return Response(410, status(410, "Expired"))
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
        return Response(200, json.dumps({"kind": "PodList", "metadata": metadata, "items": items}).encode())

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
        if initial and isinstance(self.refuse_watch_list, int):
            refusal = self.refuse_watch_list
        elif fault and fault.kind == "refuse":
            refusal = fault.code
        elif not initial and version < self.compacted:
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
            while rest:  # chunks end anywhere
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
            if self.refuse_watch_list != "ignore":
                await asyncio.sleep(self.initial_bookmark_seconds)
                yield bookmark(version, {"k8s.io/initial-events-end": "true"})
        elif self.repeat:
            version = max(self.compacted, version - self.repeat)
        bookmark_at = loop.time() + BOOKMARK_SECONDS
        while loop.time() < ends_at:
            changed = self.changed
            for event_version, type_, pod in [each for each in self.log if each[0] > version]:
                if event_version <= self.compacted and version < self.compacted:
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
                if loop.time() >= bookmark_at and not any(each[0] > version for each in self.log):
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
    answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason}
    if code == 504:
        answer["details"] = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    return json.dumps({**answer, "message": f"answered {code}"}).encode()


class Story:
    """A handler that checks that what it is told of each key makes sense, and keeps it.

    `problems` holds what did not: an informer catches what its handlers raise.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.now: dict[str, object] = {}
        self.heard: list[tuple] = []

    def on_add(self, obj, initial):
        self._expect(obj.key not in self.now, f"{obj.key} added twice")
        self.now[obj.key] = obj
        self.heard.append(("add", obj.key, initial))

    def on_update(self, old, new):
        self._expect(self.now.get(new.key) is old, f"{new.key} changed from a state never told")
        self._expect(old.metadata.uid == new.metadata.uid, f"{new.key} became another object")
        self.now[new.key] = new
        self.heard.append(("update", new.key, new.metadata.resource_version))

    def on_delete(self, obj, final_state_unknown):
        last = self.now.pop(obj.key, None)
        self._expect(last is not None and last.metadata.uid == obj.metadata.uid, f"{obj.key} deleted, but was not told")
        self._expect(last is obj or not final_state_unknown, f"{obj.key} deleted in another state than the last known")
        self.heard.append(("delete", obj.key, final_state_unknown))

    def _expect(self, truth: bool, problem: str) -> None:
        if not truth:
            self.problems.append(problem)

    def versions(self):
        return {key: obj.metadata.resource_version for key, obj in self.now.items()}


class World:
    """One API server and the informers of one process, running while the context is open."""

    def __init__(self, *, seed: int = 0) -> None:
        self.server = ApiServer(seed=seed)
        clock, rng = VirtualClock(), random.Random(seed)
        self.client = Client(self.server, clock=clock, rng=rng)
        self.informers = InformerFactory(self.client, clock=clock, rng=rng)
        self.pods = self.informers.informer(PODS)
        self.story = Story()
        self.registration = self.pods.add_handler(self.story)

    @asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.informers.run())
            yield self
            task.cancel()

    def versions(self):
        return {pod.key: pod.metadata.resource_version for pod in self.pods.store.list()}

    def assert_level(self):
        expected = {key: pod["metadata"]["resourceVersion"] for key, pod in self.server.pods.items()}
        assert self.versions() == expected
        assert self.story.versions() == expected
        assert self.story.problems == []
        self.pods.store.check()


@pytest.fixture(scope="session")
def make_world():
    return World


@pytest.fixture(scope="session")
def make_story():
    return Story


@pytest.fixture(scope="session")
def fault():
    return Fault

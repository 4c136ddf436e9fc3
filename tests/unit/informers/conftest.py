"""A fake API server of pods whose responses may be faulty, and an event handler that checks its calls."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import asynccontextmanager

import msgspec
import pytest

from kubeloop.devcluster.api import errors
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import HttpResponse, StreamedResponse
from kubeloop.kube.objects.resources import PODS, Resource
from support.apiserver.fake_apiserver import FakeApiServer
from support.apiserver.faulty_transport import FaultyTransport, WatchFault, error_response, injected_error, single_chunk

INITIAL_EVENTS_END = b'"k8s.io/initial-events-end":"true"'


class OtherServerTransport:
    """A transport that changes responses to those of other API servers, and splits watches into chunks at random.

    watch_list_refusal: status code of watches with initial events, or "ignore": their end is not marked.
    initial_bookmark_seconds: delay of the bookmark that ends initial events.
    page_limit: maximum number of objects in a page of a list.
    expired_tokens: number of continue tokens to reject with 410.
    repeated_events: number of versions that a resumed watch sends again.
    sends_bookmarks: False for a server that has no watch cache for the resource, such as kube-apiserver for Events.
    """

    def __init__(self, inner: FaultyTransport, rng: random.Random, newest_version) -> None:
        self._inner = inner
        self._newest_version = newest_version
        self.rng = rng
        self.watch_list_refusal: int | str | None = None
        self.initial_bookmark_seconds = 0.0
        self.page_limit = 0
        self.expired_tokens = 0
        self.repeated_events = 0
        self.sends_bookmarks = True
        self.requests: list[str] = []
        self.server = inner.server
        self.close = inner.close

    async def send(self, request) -> HttpResponse:
        self.requests.append(request.target)
        if self.page_limit:
            target = re.sub(r"(?<=limit=)\d+", str(self.page_limit), request.target)
            request = msgspec.structs.replace(request, target=target)
        response = await self._inner.send(request)
        if "continue=" in request.target and self.expired_tokens:
            self.expired_tokens -= 1
            return error_response(injected_error(410))
        return response

    @asynccontextmanager
    async def stream(self, request):
        self.requests.append(request.target)
        initial = "sendInitialEvents" in request.target
        refusal = None
        if initial and isinstance(self.watch_list_refusal, int):
            refusal = injected_error(self.watch_list_refusal)
        version = re.search(r"(?<=resourceVersion=)\d+", request.target)
        if version and int(version[0]) > self._newest_version():
            refusal = errors.too_large_revision(int(version[0]), self._newest_version())
        compacted = self._inner.compacted_version
        if version and int(version[0]) >= compacted:
            repeated = max(compacted, int(version[0]) - self.repeated_events)
            target = request.target.replace(version[0], str(repeated))
            request = msgspec.structs.replace(request, target=target)
        async with self._inner.stream(request) as response:
            if refusal is not None and response.status == 200:
                refused = error_response(refusal)
                yield StreamedResponse(refused.status, refused.headers, single_chunk(refused.body))
            elif response.status != 200:
                yield response
            else:
                yield StreamedResponse(200, response.headers, self._chunks(response.chunks))

    async def _chunks(self, lines):
        async for line in lines:
            if not self.sends_bookmarks and b'"BOOKMARK"' in line and INITIAL_EVENTS_END not in line:
                continue
            if INITIAL_EVENTS_END in line:
                if self.watch_list_refusal == "ignore":
                    continue
                await asyncio.sleep(self.initial_bookmark_seconds)
            rest = line
            while rest:  # chunks end at random positions
                size = self.rng.randint(1, 2 * len(line))
                yield rest[:size]
                rest = rest[size:]


class PodServer:
    """A fake API server, with short forms for writes of pods; pods are not validated."""

    def __init__(self, *, seed: int = 0) -> None:
        self._api = FakeApiServer(seed=seed)
        self.first_version = self.store.revision
        self.transport = self._api.transport
        self.responses = OtherServerTransport(self.transport, random.Random(seed), lambda: self.store.revision)
        self._uids = 0

    @property
    def store(self):
        return self._api.store

    @property
    def clock(self):
        return self._api.clock

    @property
    def pods(self) -> dict[str, dict]:
        return {stored.key: stored.object for stored in self.store.table(PODS).list()}

    @property
    def requests(self) -> list[str]:
        return self.responses.requests

    def lists(self) -> list[str]:
        """Return the requests for all objects, as a list or as initial events."""
        return [
            request
            for request in self.requests
            if "sendInitialEvents" in request or ("watch=1" not in request and not self._is_renewal(request))
        ]

    def watches(self) -> list[str]:
        return [request for request in self.requests if "watch=1" in request]

    def renewals(self) -> list[str]:
        """Return the requests for the newest resourceVersion."""
        return [request for request in self.requests if self._is_renewal(request)]

    def _is_renewal(self, request: str) -> bool:
        return request.endswith("?limit=1")

    def version_after(self, writes: int) -> str:
        """Return the resourceVersion after that many writes."""
        return str(self.first_version + writes)

    def create(self, name: str, namespace: str = "default", resource: Resource = PODS, **more: object) -> dict:
        self._uids += 1
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{self._uids}", "managedFields": [{"a": 1}]}
        return self.store.create(resource, {"kind": resource.kind, "apiVersion": "v1", "metadata": metadata, **more})

    def update(self, name: str, namespace: str = "default", **more: object) -> dict:
        return self.store.update(PODS, {**self.pods[f"{namespace}/{name}"], **more})

    def delete(self, name: str, namespace: str = "default") -> dict:
        return self.store.delete(PODS, namespace, name)

    def compact(self) -> None:
        """Let watches that resume at an older version than the newest fail with 410."""
        self.transport.compacted_version = self.store.revision

    def restore(self, *names: str) -> None:
        """Restore an older version, as from a backup: the pods `names`, without their changes."""
        pods = [self.pods[f"default/{name}"] for name in names]
        self._api.reset()
        for pod in pods:
            self.store.create(PODS, pod)


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
        self.server = PodServer(seed=seed)
        clock, rng = self.server.clock, random.Random(seed)
        self.client = ApiClient(self.server.responses, clock=clock, rng=rng)
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
    return WatchFault

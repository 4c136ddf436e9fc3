"""The network between the processes of a run and the API server, with the faults of the plan."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from urllib.parse import parse_qsl, urlencode

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.storage.watch import WatchStream
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, TransportError
from kubeloop.kube.objects.resources import BY_GROUP_RESOURCE
from kubeloop.testing.faults.cluster import RecordedCluster
from kubeloop.testing.faults.fault_plan import FaultPlan, PlannedFault, cluster_title
from kubeloop.testing.faults.requests import (
    RequestTarget,
    SentRequest,
    error_response,
    header_of,
    injected_error,
    is_numbered,
    request_is_list,
    single_chunk,
    title_of,
)
from kubeloop.testing.memory_transport import MemoryTransport

_LATE_LIST_SECONDS = 25.0  # the client gives up after 30 s
_PAGE_SECONDS = 0.5
_LATENCY_SECONDS = 0.02  # of a request, and of its response, at most; without faults
_EVENT_SECONDS = 0.1  # between two watch events, at most; without faults


def resource_in(path: str) -> str:
    """Return the plural name of the resource, with the subresource ("pods/status"); "" for other paths."""
    target = RequestTarget.of(path)
    return f"{target.resource}/{target.subresource}" if target.subresource else target.resource


@lru_cache(maxsize=1024)
def _options(query: str) -> Mapping[str, str]:
    return dict(parse_qsl(query))


class FaultyNetwork:
    """All connections to one cluster, and the faults that are active.

    own: the network of the controllers' own cluster, if this is another one; their writes are numbered together.
    writes: "POST pods" of each numbered write, in order. titles: the same in words, "create of Pod web"; kinds: by
    plural name, for these. creates: number of created objects by resource. created: UIDs of these in this cluster.
    reached: the faults that had an effect. on_request: called with each numbered write before the server handles it.
    on_send: called with the identity of the process, when it sends a numbered write.
    """

    def __init__(
        self, cluster: RecordedCluster, plan: FaultPlan, rng: random.Random, own: FaultyNetwork | None = None
    ) -> None:
        self.cluster = cluster
        faults = tuple(fault for fault in plan.faults if fault.cluster in (None, cluster.name))
        self.plan = msgspec.structs.replace(plan, faults=faults)
        self.writes: list[str] = []
        self.titles: list[str] = []
        self.kinds = {resource.plural: resource.kind for resource in BY_GROUP_RESOURCE.values()}
        self.reached: set[PlannedFault] = set()
        self.on_request: Callable[[SentRequest], None] = lambda request: None
        self.on_send: Callable[[str, SentRequest], None] = lambda identity, request: None
        self.creates: Counter[str] = Counter()
        self.created: set[str] = set()
        self.compacted_version = 0
        self._rng = rng
        self._inner = MemoryTransport(cluster.server.handle)
        self._active: list[PlannedFault] = []
        self._crashes = {fault.write: fault for fault in reversed(plan.faults) if fault.write}
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: list[FaultyConnection] = []
        if own is not None:
            self.writes, self.titles, self.kinds, self.creates = own.writes, own.titles, own.kinds, own.creates
            self.reached, self._crashes = own.reached, own._crashes

    # --- faults ------------------------------------------------------------------------------------------------------

    def begin(self, fault: PlannedFault) -> None:
        if fault not in self.plan.faults:
            return
        self._active.append(fault)
        self.reached.add(fault)
        if fault.kind in ("blind", "disconnect", "restart-server", "switch-server"):
            self._break_watches(fault.resource)
        if fault.kind == "silent":
            for connection in self.connections:
                for watch in connection.watches:
                    watch.is_silent = True

    def end(self, fault: PlannedFault) -> None:
        if fault not in self.plan.faults:
            return
        if fault in self._active:
            self._active.remove(fault)
        if fault.kind in ("blind", "restart-server", "compact"):
            self.compacted_version = self.cluster.store.revision

    def heal(self) -> None:
        """End all faults."""
        self._active.clear()
        self._crashes.clear()
        for connection in self.connections:
            connection.release()

    def active(self, kind: str, resource: str = "") -> PlannedFault | None:
        """Return an active fault of this kind that affects the resource."""
        for fault in self._active:
            if fault.kind == kind and fault.resource in ("", resource.partition("/")[0]):
                return fault
        return None

    def happens(self, kind: str, resource: str = "") -> bool:
        """Draw whether a fault with a share affects a request or an event."""
        fault = self.active(kind, resource)
        return fault is not None and self._rng.random() < fault.share

    def take_crash(self, number: int) -> PlannedFault | None:
        crash = self._crashes.pop(number, None)
        if crash is not None:
            self.reached.add(crash)
        return crash

    def _break_watches(self, resource: str) -> None:
        for connection in self.connections:
            for watch in connection.watches:
                if resource in ("", watch.resource):
                    watch.reset()

    # --- requests ----------------------------------------------------------------------------------------------------

    def number(self, request: SentRequest) -> int:
        """Return the number of a write, from 1; 0 for other requests."""
        if not is_numbered(request):
            return 0
        self.writes.append(f"{request.method} {resource_in(request.path)}")
        where = f" in {cluster_title(self.cluster.name)}" if self.cluster.name else ""
        self.titles.append(title_of(request, self.kinds) + where)
        return len(self.writes)

    async def latency(self, most_seconds: float = _LATENCY_SECONDS) -> None:
        slow = self.active("slow")
        await asyncio.sleep(self._rng.uniform(0, most_seconds if slow is None else slow.share))

    def refusal(self, request: SentRequest) -> StatusError | None:
        """Return the error of a request that the server refuses."""
        if self.happens("throttle"):
            return errors.too_many_requests("injected error 429", retry_after_seconds=self._rng.choice((1, 5)))
        if self.happens("error"):
            return injected_error(500)
        if request.method not in ("GET", "POST") and self.happens("conflict"):
            return injected_error(409)
        return None

    async def handle(self, request: SentRequest) -> HttpResponse:
        """Let the server handle a request."""
        if is_numbered(request):
            self.on_request(request)
        response = await self._inner.send(request)
        if is_numbered(request):
            header = header_of(response.body)
            if response.status == 201:
                self.creates[resource_in(request.path)] += 1
                self.created.add(header.metadata.uid)
            outcome = header.message[:120] if response.status >= 400 else header.metadata.name
            path = f"{self.cluster.name}:{request.path}" if self.cluster.name else request.path
            self.cluster.tell(f"  {request.method} {path} {response.status} {outcome}")
        return response

    def deliver_later(self, request: SentRequest, seconds: float) -> None:
        """Let the server handle a request whose sender does not wait for the response."""

        async def deliver() -> None:
            await asyncio.sleep(seconds)
            self.cluster.tell("late request:")
            await self.handle(request)

        task = asyncio.ensure_future(deliver())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait until all late requests have arrived."""
        await asyncio.gather(*self._tasks)

    def list_target(self, request: SentRequest, old_seconds: float) -> str:
        """Return the target of a list as the server receives it.

        A list at resourceVersion 0 is answered from a cache that is a minute behind, as kube-apiserver may; other lists
        are consistent, unless the process meets a server that is behind by `old_seconds`.
        """
        path, _, query = request.target.partition("?")
        options = dict(parse_qsl(query))
        if self.active("small-pages") is not None and options.get("limit"):
            options["limit"] = "2"
        if options.get("resourceVersion") == "0" and "continue" not in options:
            old_seconds = max(old_seconds, 60.0)
        if old_seconds and "continue" not in options:
            now = asyncio.get_running_loop().time()
            options["resourceVersion"] = str(self.cluster.revision_at(now - old_seconds))
            options["resourceVersionMatch"] = "Exact"
        return f"{path}?{urlencode(options)}" if options else path

    def stream(self, request: SentRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        return self._inner.stream(request)


class FaultyConnection:
    """Connection of one process to an API server; implements Transport. crash: called when the process must end."""

    def __init__(self, network: FaultyNetwork, crash: Callable[[], None]) -> None:
        self.identity = f"process-{len(network.connections) + 1}"
        self._network = network
        self._crash = crash
        self._started_at = asyncio.get_running_loop().time()
        self._is_first = not network.connections
        self._old_lists = network.plan.of_kind("old-lists")
        self._frozen: asyncio.Future[None] | None = None
        self.has_ended = False
        self.watches: dict[_Watch, None] = {}  # in order: a set's order differs between processes
        network.connections.append(self)

    @property
    def server(self) -> str:
        return "memory://"

    async def close(self) -> None:
        """No-op: there is no connection."""

    def freeze(self) -> None:
        """Hold all requests, responses and events until release()."""
        self._frozen = asyncio.get_running_loop().create_future()

    def release(self) -> None:
        if self._frozen is not None and not self._frozen.done():
            self._frozen.set_result(None)
        self._frozen = None

    def end(self) -> None:
        """Cut the connection: the process has ended."""
        self.has_ended = True

    async def send(self, http_request: HttpRequest) -> HttpResponse:
        request = SentRequest.of(http_request)
        self._check_connected()
        try:
            async with asyncio.timeout(http_request.timeout_seconds):
                return await self._exchange(request)
        except TimeoutError:
            raise TransportError("time-out", request_sent=True) from None

    async def _exchange(self, request: SentRequest) -> HttpResponse:
        network = self._network
        resource = resource_in(request.path)
        number = network.number(request)
        if number:
            network.on_send(self.identity, request)
        crash = network.take_crash(number)
        if crash is not None and crash.kind != "crash-after":
            if crash.kind == "crash-late":
                network.deliver_later(request, crash.seconds)
            await self._die()
        if self._frozen is not None:
            await self._thaw(request)
        await network.latency()
        await self._check_alive()
        if request.method == "GET" and request_is_list(request):
            response = await self._list(request, resource)
        else:
            refusal = network.refusal(request)
            if refusal is not None:
                return error_response(refusal)
            response = await network.handle(request)
            if request.method not in ("GET", "POST") and network.happens("duplicate"):
                await network.handle(request)
        if crash is not None:
            await self._die()
        if request.method != "GET" and network.happens("lost-answer"):
            raise TransportError("the response was lost", request_sent=True)
        await network.latency()
        await self._check_alive()
        return response

    async def _list(self, request: SentRequest, resource: str) -> HttpResponse:
        network = self._network
        refusal = network.refusal(request)
        if refusal is None and "continue=" in request.target and network.happens("small-pages"):
            refusal = injected_error(410)
        if refusal is not None:
            return error_response(refusal)
        target = network.list_target(request, self._age_of_lists(resource))
        response = await network.handle(msgspec.structs.replace(request, target=target))
        if (late := network.active("late-lists", resource)) is not None:
            await asyncio.sleep(min(_LATE_LIST_SECONDS, late.seconds))
        if network.active("small-pages") is not None:
            await asyncio.sleep(_PAGE_SECONDS)
        return response

    def _age_of_lists(self, resource: str) -> float:
        """Return the age of the lists that this process gets: it is restarted, and its API server is behind."""
        now = asyncio.get_running_loop().time()
        for fault in self._old_lists:
            if fault.resource in ("", resource) and not self._is_first and now < self._started_at + 30.0:
                self._network.reached.add(fault)
                return fault.seconds + now - self._started_at
        return 0.0

    async def _thaw(self, request: SentRequest) -> None:
        """Wait for release(). A request whose sender gives up meanwhile reaches the server all the same."""
        assert self._frozen is not None
        frozen = self._frozen
        try:
            await asyncio.shield(frozen)
        except asyncio.CancelledError:
            if request.method != "GET":
                frozen.add_done_callback(lambda _: self._network.deliver_later(request, 0.0))
            raise

    def _check_connected(self) -> None:
        if self.has_ended:
            raise TransportError("the process has ended", request_sent=False)
        network = self._network
        if network.active("disconnect") is not None or network.active("restart-server") is not None:
            raise TransportError("connection refused", request_sent=False)

    async def _check_alive(self) -> None:
        if self.has_ended:
            await asyncio.get_running_loop().create_future()

    async def _die(self) -> None:
        self._crash()
        await asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def stream(self, http_request: HttpRequest) -> AsyncIterator[StreamedResponse]:
        request = SentRequest.of(http_request)
        network = self._network
        resource = resource_in(request.path)
        self._check_connected()
        if network.active("blind", resource) is not None:
            raise TransportError("connection refused", request_sent=False)
        if self._frozen is not None:
            await self._thaw(request)
        await network.latency()
        await self._check_alive()
        refusal = network.refusal(request)
        options = _options(http_request.target.partition("?")[2])
        version = int(options.get("resourceVersion") or 0)
        if "sendInitialEvents" in options:
            if (
                self._age_of_lists(resource)
                or options.get("resourceVersion")
                or network.active("small-pages")
                or network.active("late-lists", resource)
            ):
                refusal = injected_error(400)
        elif 0 < version < network.compacted_version:
            refusal = injected_error(410)
        if refusal is not None:
            refused = error_response(refusal)
            yield StreamedResponse(refused.status, refused.headers, single_chunk(refused.body))
            return
        async with network.stream(request) as response:
            if response.status != 200:
                yield response
                return
            assert isinstance(response.chunks, WatchStream)
            watch = _Watch(resource, response.chunks)
            self.watches[watch] = None
            try:
                yield StreamedResponse(200, response.headers, self._lines(watch))
            finally:
                self.watches.pop(watch, None)

    async def _lines(self, watch: _Watch) -> AsyncIterator[bytes]:
        """Yield the lines of a watch, each late. Raises TransportError after a reset."""
        network = self._network
        async for chunk in watch.stream:
            for line in chunk.splitlines(keepends=True):
                await network.latency(_EVENT_SECONDS)
                while self._frozen is not None or self._holds_events(watch.resource):
                    await asyncio.sleep(0.25)
                    watch.check()
                await self._check_alive()
                if watch.is_silent:
                    await watch.was_reset.wait()
                watch.check()
                yield line
                if network.happens("duplicate-events", watch.resource) and b'"BOOKMARK"' not in line[:30]:
                    yield line
        watch.check()

    def _holds_events(self, resource: str) -> bool:
        network = self._network
        return (
            network.active("late-events", resource) is not None
            or network.active("switch-server", resource) is not None
            or self._age_of_lists(resource) > 0.0
        )


class _Watch:
    """An open watch. is_silent: the connection is broken without a reset. was_reset: set by reset()."""

    def __init__(self, resource: str, stream: WatchStream) -> None:
        self.resource = resource
        self.stream = stream
        self.is_silent = False
        self.was_reset = asyncio.Event()

    def reset(self) -> None:
        """Break the connection: what the server has sent is lost."""
        self.was_reset.set()
        self.stream.cut()

    def check(self) -> None:
        """Raise TransportError after a reset."""
        if self.was_reset.is_set():
            raise TransportError("connection reset", request_sent=True)

"""The development API server, free of sockets: requests in, answers out, and what it does in the background.

`ApiServer.handle` is all that a face needs: `http` on sockets, `kubeloop.testing.memory_transport` without. Its store
is open to the rest of the development cluster in the same process (simulated nodes), past admission and validation.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import sqlite3
import uuid
from collections.abc import AsyncIterator, Hashable
from ipaddress import IPv4Network
from time import perf_counter
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors, request_info
from kubeloop.devcluster.api.deferred_work import Later, RequestClock, Waiting
from kubeloop.devcluster.api.request import JSON_TYPE, Request, Response, json_response, text_response, warning_headers
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.apiextensions.definitions import Definitions
from kubeloop.devcluster.apiextensions.openapi_documents import Documents
from kubeloop.devcluster.authentication.authenticator import Authentication
from kubeloop.devcluster.authentication.impersonation import impersonated
from kubeloop.devcluster.authentication.token_requests import ISSUER
from kubeloop.devcluster.authentication.token_signing import TokenKey
from kubeloop.devcluster.handlers.rest import Rest
from kubeloop.devcluster.registry.service_allocation import NODE_PORTS, SERVICE_RANGE
from kubeloop.devcluster.serializer.responses import failed
from kubeloop.devcluster.server import health_paths
from kubeloop.devcluster.server.api_documents import published
from kubeloop.devcluster.server.bootstrap import Bootstrap, Identity
from kubeloop.devcluster.server.faults import AnswerLost, Fault, Faults, FaultSource
from kubeloop.devcluster.server.metrics import RequestMetrics
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.devcluster.storage.store import Change, Store
from kubeloop.devcluster.storage.watch import BOOKMARK_SECONDS
from kubeloop.kube.clock import Clock
from kubeloop.kube.durations import duration_text
from kubeloop.kube.objects.resources import EVENTS
from kubeloop.kube.quantities import QuantityError

log = logging.getLogger(__name__)

_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_WATCH = ("/watch", "/watch/")
_BARE_WATCH = re.compile(r"(/api/[^/]+|/apis/[^/]+/[^/]+)/watch/?")
_SWEEP_SECONDS = 15.0
_CHECKPOINT_SECONDS = 1.0
_MOST_WAITS = 20
_COLLECTED_AT_ONCE = 500  # about 2 ms


def _loop_seconds() -> float:
    return asyncio.get_running_loop().time()


class ApiServer:
    """One API server with its store; made and used on a running event loop.

    token: what clients must bear, None to let everybody in. faults: what goes wrong on purpose. journal: where the
    store is durable, None for nowhere; closing it is its owner's. compaction_seconds: how long old versions are kept
    for watches and lists. event_seconds: how long an Event lives after its last write (after a restart: after that).
    service_range: where Services get their addresses. identity: what the server tells of itself.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        token: str | None,
        faults: Faults | None = None,
        data_directory: DataDirectory | None = None,
        compaction_seconds: float = 300.0,
        event_seconds: float = 3600.0,
        bookmark_seconds: float = BOOKMARK_SECONDS,
        watch_buffer: int = 16_384,
        service_range: IPv4Network = SERVICE_RANGE,
        identity: Identity | None = None,
    ) -> None:
        self.store = Store(seconds=_loop_seconds, compaction_seconds=compaction_seconds, data_directory=data_directory)
        self._data_directory = data_directory
        self.clock = clock
        self._bootstrap = Bootstrap(self.store, clock, rng, identity or Identity(), service_range)
        self._keys = TokenKey(data_directory.folder if data_directory is not None else None)
        self._authentication = Authentication(self.store, clock, token, self._keys)
        self._faults = None if faults is None else FaultSource(faults)
        self._audit_ids = str(uuid.uuid5(uuid.NAMESPACE_OID, clock.now().isoformat()))[:24]
        self._answers = 0
        self._metrics = RequestMetrics(self.store, clock.now().timestamp())
        self._rng = rng
        self._waiting = Waiting()
        self._request_clock = RequestClock(clock)
        self._rest = Rest(
            self.store,
            clock=self._request_clock,
            rng=rng,
            authentication=self._authentication,
            keys=self._keys,
            bookmark_seconds=bookmark_seconds,
            watch_buffer=watch_buffer,
            addresses=self._bootstrap.addresses,
            waiting=self._waiting,
        )
        self._began = clock.now()
        self._service_range = service_range
        self._event_seconds = event_seconds
        events = self.store.table(EVENTS).list()
        # seconds of the last write by key, oldest first
        self._event_writes: dict[str, float] = dict.fromkeys((each.key for each in events), _loop_seconds())
        self.store.subscribe(EVENTS, self._note_event)
        self._definitions = Definitions(self.store, self._rest.deleter, clock, self._waiting, self._rest.end_watches)
        self._rest.policies.definitions = self._definitions
        self._bootstrap.local_services.settle()
        self._documents = Documents(self._definitions)

    async def run(self) -> None:
        """Compact old versions, expire Events and keep what every cluster has until cancelled; then end all watches.

        Raises ExceptionGroup of NotDurable if what that changes cannot be written to the data directory.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sweep(), name="sweep")
                group.create_task(self._bootstrap.run(), name="bootstrap")
                if self._data_directory is not None:
                    group.create_task(self._keep(self._data_directory), name="data directory")
        finally:
            self._rest.cut_watches()

    async def handle(self, request: Request) -> Response:
        """Answer one request, whatever it is. Raises AnswerLost only, if faults are asked for."""
        if request.later is not None:
            return await self._answer_again(request)
        faults = self._faults
        if faults is None or faults.spares(request.headers.get("user-agent", "")):
            return await self._answer_when_known(request)
        if (seconds := faults.latency_seconds()) > 0:
            await asyncio.sleep(seconds)
        return await self._answer_badly(request, faults)

    # --- answering ----------------------------------------------------------------------------------------------------

    def at_once(self, request: Request) -> Response | None:
        """Answer one request, unless it takes time, or things go wrong on purpose: then `handle` is to be asked."""
        return self._unless_later(request) if self._faults is None else None

    def _unless_later(self, request: Request, results: dict[Hashable, Any] | None = None) -> Response | None:
        """The answer; None, and `request.later`, if it has to wait for something. results: what it has waited for."""
        request.later = None
        self._waiting.begin(results or {})
        try:
            return self.answer(request)
        except Later as later:
            request.later = later
            return None
        finally:
            self._waiting.end()

    async def _answer_when_known(self, request: Request) -> Response:
        response = self._unless_later(request)
        return response if response is not None else await self._answer_again(request)

    async def _answer_again(self, request: Request) -> Response:
        """Answer what has to wait, as often as it has to: at one time and with one fortune, so that names, uids,
        addresses and times that it is given, and were waited with, stay.
        """
        moment, seed, results = self.clock.now(), self._rng.getrandbits(128), dict[Hashable, Any]()
        for _ in range(_MOST_WAITS):
            request.warnings.clear()
            outside = self._rng.getstate()
            self._rng.seed(seed)
            self._request_clock.held = moment
            try:
                response = self._unless_later(request, results)
            finally:
                self._rng.setstate(outside)
                self._request_clock.held = None
            if response is not None:
                return response
            assert request.later is not None
            results[request.later.key] = await request.later.work()
        request.warnings.clear()
        return self.answer(request)  # what it is about is another thing each time

    def answer(self, request: Request) -> Response:
        """Answer one request, whatever it is, at once."""
        began = perf_counter()  # the loop's time stands still while it answers
        response = self._answer(request)
        if request.warnings:
            response.headers += warning_headers(request.warnings)
        self._metrics.note(request, response, perf_counter() - began)
        if (
            type(response.body) is bytes
            and response.content_type.startswith(JSON_TYPE)
            and health_paths.for_people(request)
        ):
            response.body = msgspec.json.format(response.body, indent=2)
        response.headers.append(("Audit-Id", request.headers.get("audit-id") or self._next_audit_id()))
        return response

    def _next_audit_id(self) -> str:
        self._answers += 1
        return f"{self._audit_ids}{self._answers & 0xFFFF_FFFF_FFFF:012x}"

    def _answer(self, request: Request) -> Response:
        try:
            self._authenticate(request)
            if (watched := request_info.watched(request.path, request.method)) is not None:
                request.route, request.query = watched, {**request.query, "watch": ["1"]}
                return self._rest.watch(request, watched)
            if request.path.endswith(_WATCH) and _BARE_WATCH.fullmatch(request.path):
                return _no_kind(request.path)
            found = request.route = self._route(request)
            if found is None:
                return self._elsewhere(request)
            if told := found.served.deprecation:
                request.warnings.append(told)
            if found.served.custom is not None:
                found.served.custom.check_accept(request.headers.get("accept", ""))
            response = self._rest.handle(request, found)
            if self._definitions.pending:
                self._definitions.settle()
            if self._bootstrap.local_services.pending:
                self._bootstrap.local_services.settle()
            return response
        except Later:
            raise
        except errors.StatusError as error:
            return failed(request, error)
        except RecursionError:
            refusal = errors.bad_request("exceeded max depth: the body is nested too deeply")
            return failed(request, refusal)
        except QuantityError as error:
            # each amount can be read, but they are too far apart to be added (1e99999 and 1m)
            refusal = errors.bad_request(f"quantities out of range: {error}")
            return failed(request, refusal)
        except Exception:
            log.exception("a request failed", extra={"method": request.method, "path": request.path})
            failure = errors.internal("Internal error occurred: see the server's log", reason="InternalError")
            return failed(request, failure)

    def _route(self, request: Request) -> RequestInfo | None:
        return request_info.route(request.path) or self._definitions.route(request.path, request.method)

    def _authenticate(self, request: Request) -> None:
        if request.path.rstrip("/") not in _OPEN_PATHS:
            user = self._authentication.user(request.headers.get("authorization", ""))
            request.user = impersonated(user, request.headers)

    def _elsewhere(self, request: Request) -> Response:
        path = request.path.rstrip("/")
        if path in ("/metrics", "/metrics/slis"):
            return self._metrics.answer(request, self._rest.watched())
        if (document := published(self._documents, request)) is not None:
            return document
        known = health_paths.openid(request, self._keys) or health_paths.health(request)
        if known is not None:
            return known
        if path in ("", "/index.html"):
            mine = (each.served.resource for each in self._definitions.versions())
            return health_paths.root(f"{each.group}/{each.version}" for each in mine)
        if request.path in ("/flagz", "/statusz"):
            from kubeloop.devcluster.server import zpages  # few ask for them

            if request.path == "/flagz":
                return zpages.flagz(request, self._flags())
            return zpages.statusz(request, self._began, self.clock.now(), health_paths.listed())
        if path.startswith("/api/"):
            raise errors.path_not_found()
        return health_paths.not_found()

    def _flags(self) -> dict[str, str]:
        """The settings that kube-apiserver has, too, by the names of its flags."""
        return {
            "allow-privileged": "true",
            "authorization-mode": "[AlwaysAllow]",
            "enable-priority-and-fairness": "false",
            "etcd-compaction-interval": duration_text(self.store.compaction_seconds),
            "event-ttl": duration_text(self._event_seconds),
            "feature-gates": "",
            "profiling": "false",
            "runtime-config": "",
            "service-account-issuer": f"[{ISSUER}]",
            "service-cluster-ip-range": str(self._service_range),
            "service-node-port-range": f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}",
            "storage-media-type": "application/json",
        }

    # --- misbehaving --------------------------------------------------------------------------------------------------

    async def _answer_badly(self, request: Request, faults: FaultSource) -> Response:
        write = request.method in ("POST", "PUT", "PATCH", "DELETE")
        match faults.draw(write=write):
            case Fault.SILENCE:
                raise AnswerLost
            case Fault.ERROR:
                failure = errors.internal("Internal error occurred: a fault on purpose", reason="InternalError")
                return json_response(failure.code, failure.status)
            case Fault.THROTTLE:
                failure = errors.too_many_requests(
                    "The server is currently unable to handle the request", retry_after_seconds=1
                )
                return json_response(failure.code, failure.status, failure.headers)
            case Fault.CONFLICT:
                return await self._conflict(request)
            case Fault.LOST_ANSWER:
                await self._answer_when_known(request)
                raise AnswerLost
        response = await self._answer_when_known(request)
        if not isinstance(response.body, bytes):
            response.body = _dropping(response.body, faults)
        return response

    async def _conflict(self, request: Request) -> Response:
        try:
            found = self._route(request)
            if found is None or request.method == "POST":
                return await self._answer_when_known(request)
            failure = errors.conflict(found.served.resource, found.name)
        except errors.StatusError as error:
            failure = error
        return json_response(failure.code, failure.status)

    # --- background ---------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self.store.compaction_seconds))
            self.store.compact()
            self._expire_events()

    async def _keep(self, data_directory: DataDirectory) -> None:
        """Keep the data directory small: old versions leave it, and the log goes into the file."""
        failing = False
        while True:
            await asyncio.sleep(_CHECKPOINT_SECONDS)
            try:
                while self.store.purge(_COLLECTED_AT_ONCE):
                    await asyncio.sleep(0)
                if data_directory.needs_checkpoint():
                    await asyncio.to_thread(data_directory.checkpoint)
                failing = False
            except sqlite3.Error as error:
                if not failing:
                    log.warning("the data directory cannot be tidied up, trying again: %s", error)
                failing = True

    def _note_event(self, change: Change) -> None:
        key = change.now.key
        self._event_writes.pop(key, None)
        if change.type != "DELETED":
            self._event_writes[key] = change.seconds

    def _expire_events(self) -> None:
        limit = self.store.seconds() - self._event_seconds
        expired = []
        for key, seconds in self._event_writes.items():
            if seconds > limit:
                break
            expired.append(key)
        for key in expired:
            namespace, _, name = key.partition("/")
            self.store.delete(EVENTS, namespace, name)


def _no_kind(path: str) -> Response:
    """500, as v1.36, for a path of old watches that names nothing."""
    told = f'"{path}": failed to create RequestInfo: unable to determine kind and namespace from url, {path}'
    return text_response(500, f"Internal Server Error: {told}\n")


async def _dropping(chunks: AsyncIterator[bytes], faults: FaultSource) -> AsyncIterator[bytes]:
    """The stream of a watch that ends now and then after an event."""
    try:
        async for chunk in chunks:
            for line in chunk.splitlines(keepends=True):
                yield line
                if faults.drops_watch():
                    return
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()

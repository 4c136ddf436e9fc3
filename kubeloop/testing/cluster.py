"""`Cluster`: a cluster in a separate process, for a `with` or an `async with` block; and its namespaces.

The blocking and the asynchronous form expose the same `Operations`, which run on the loop of a `portal`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack
from urllib.parse import urlencode

import msgspec

from kubeloop.devcluster.server.faults import SPARED_USER_AGENT
from kubeloop.kube.auth.credentials import connect_with_token
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.client.transport import HttpRequest, TransportError
from kubeloop.kube.clock import SystemClock
from kubeloop.testing import clients
from kubeloop.testing.cluster_options import ClusterOptions, Options, cluster_options
from kubeloop.testing.host.host_process import ClusterEnded, HostProcess
from kubeloop.testing.host.messages import ClusterAddress
from kubeloop.testing.operations import Operations
from kubeloop.testing.portal import Portal, awaited, blocking

if TYPE_CHECKING:
    import kr8s
    import kr8s.asyncio
    import kubernetes_asyncio.client
    import lightkube

T = TypeVar("T")

_TIMEOUT_SECONDS = 10.0


class Connection:
    """A client of a running cluster; created and used on the loop of `portal`."""

    def __init__(self, address: ClusterAddress, portal: Portal, *, why_ended: Callable[[], str | None]) -> None:
        self.address = address
        self.portal = portal
        self._client = ApiClient(
            connect_with_token(address.plain_server, address.token),
            clock=SystemClock(),
            rng=random.Random(),
            user_agent=SPARED_USER_AGENT,
        )
        self._endpoint = connect_with_token(address.endpoint, "")
        self.operations = Operations(self._client, self._get_page, "default", why_ended=why_ended)
        self.why_ended = why_ended
        self._deleting_namespaces: list[str] = []
        self._close_callbacks: list[tuple[str, Callable[[], None]]] = []

    def in_namespace(self, namespace: str) -> _ConnectedNamespace:
        return _ConnectedNamespace(
            self, self.operations if namespace == "default" else self.operations.within(namespace)
        )

    async def remove(self, namespace: str) -> None:
        """Delete a namespace in the background; `wait_for_deletion` waits for it."""
        self.address.kubeconfig_of(namespace).unlink(missing_ok=True)
        await self.operations.delete_namespace(namespace)
        self._deleting_namespaces.append(namespace)

    async def wait_for_deletion(self, timeout: float) -> dict[str, str]:
        """Wait for all namespaces passed to `remove`. Returns those left after `timeout` seconds, with the reason."""
        names, self._deleting_namespaces = self._deleting_namespaces, []
        return await self.operations.namespaces_gone(names, timeout) if names else {}

    def on_end(self, namespace: str, close: Callable[[], None]) -> None:
        """Call `close` when the namespace is removed or the connection is closed."""
        self._close_callbacks.append((namespace, close))

    def end(self, namespace: str | None = None) -> None:
        """Call the callbacks of on_end() for this namespace, or for all; blocks."""
        callbacks = [close for name, close in self._close_callbacks if namespace in (None, name)]
        self._close_callbacks = [entry for entry in self._close_callbacks if namespace not in (None, entry[0])]
        for close in callbacks:
            close()

    async def close(self) -> None:
        await self._client.close()
        await self._endpoint.close()

    async def _get_page(self, path: str, query: Mapping[str, str]) -> Any:
        try:
            response = await self._endpoint.send(
                HttpRequest("GET", f"{path}?{urlencode(query)}", headers={}, timeout_seconds=_TIMEOUT_SECONDS)
            )
        except TransportError as error:
            raise LookupError(f"controllers and scheduler do not respond: {error}") from None
        document = msgspec.json.decode(response.body)
        if response.status != 200:
            raise LookupError(document.get("error", f"the endpoint responds {response.status}"))
        return document


class _ConnectedNamespace:
    """A namespace of a running cluster, shared by its blocking and its asynchronous form."""

    def __init__(self, connection: Connection, operations: Operations) -> None:
        self.connection = connection
        self.operations = operations

    @property
    def kubeconfig(self) -> str:
        """Path of the kubeconfig, created on first use; deleted with the cluster or the namespace."""
        address, namespace = self.connection.address, self.operations.namespace
        path = address.kubeconfig_of(namespace)
        if not path.exists():
            address.write_kubeconfig_of(namespace)
        return str(path)


class _View:
    """Address and credentials of the cluster, shared by all forms."""

    def __init__(self, resolve: Callable[[], _ConnectedNamespace]) -> None:
        self._resolve = resolve

    @property
    def _namespace(self) -> _ConnectedNamespace:
        return self._resolve()

    @property
    def _operations(self) -> Operations:
        return self._namespace.operations

    @property
    def _portal(self) -> Portal:
        return self._namespace.connection.portal

    @property
    def name(self) -> str:
        """The default namespace of all operations."""
        return self._namespace.operations.namespace

    @property
    def kubeconfig(self) -> str:
        """Path of a kubeconfig whose context has this namespace."""
        return self._namespace.kubeconfig

    @property
    def url(self) -> str:
        """URL of the API server, with TLS."""
        return self._namespace.connection.address.server

    @property
    def token(self) -> str:
        """Bearer token of a cluster administrator."""
        return self._namespace.connection.address.token

    @property
    def endpoint(self) -> str:
        """URL of the endpoint of controllers and scheduler: /metrics, /traces, /debug/..."""
        return self._namespace.connection.address.endpoint

    def kubernetes_asyncio(self) -> kubernetes_asyncio.client.ApiClient:
        """Return a new client of kubernetes_asyncio, for the running event loop; close it (`async with`)."""
        address = self._namespace.connection.address
        return clients.kubernetes_asyncio_client(address.plain_server, address.token)

    @property
    def address(self) -> ClusterAddress:
        """Address and credentials, in a form for another process of this machine."""
        return self._namespace.connection.address

    def why_ended(self) -> str | None:
        """Return None while the cluster runs, else why it ended."""
        return self._namespace.connection.why_ended()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.url}>"


class ClusterNamespace(_View):
    """A namespace of a cluster, with blocking methods. `aio` has the same as coroutines."""

    apply = blocking(Operations.apply)
    get = blocking(Operations.get)
    delete = blocking(Operations.delete)
    wait_for = blocking(Operations.wait_for)
    events = blocking(Operations.events)
    pods = blocking(Operations.pods)
    trace = blocking(Operations.trace)
    slowest_trace = blocking(Operations.slowest_trace)
    explain = blocking(Operations.explain)

    def describe(self, describe: Callable[[Operations], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function with this namespace's Operations, and block."""
        return self._portal.wait(describe(self._operations))

    @property
    def aio(self) -> AsyncNamespace:
        return AsyncNamespace(self._resolve)

    def kubernetes(self) -> Any:
        """Return a new ApiClient of the library kubernetes."""
        return clients.kubernetes_client(self.kubeconfig)

    def kr8s(self) -> kr8s.Api:
        client = clients.kr8s_client(self.kubeconfig, self.name)
        self._namespace.connection.on_end(self.name, lambda: clients.close_kr8s(client))
        return client

    def lightkube(self) -> lightkube.Client:
        client: lightkube.Client = clients.lightkube_client(self.kubeconfig, self.name, asynchronous=False)
        return client


class AsyncNamespace(_View):
    """A namespace of a cluster, with coroutines for any event loop."""

    apply = awaited(Operations.apply)
    get = awaited(Operations.get)
    delete = awaited(Operations.delete)
    wait_for = awaited(Operations.wait_for)
    events = awaited(Operations.events)
    pods = awaited(Operations.pods)
    trace = awaited(Operations.trace)
    slowest_trace = awaited(Operations.slowest_trace)
    explain = awaited(Operations.explain)

    async def kr8s(self) -> kr8s.asyncio.Api:
        return await clients.kr8s_asyncio_client(self.kubeconfig, self.name)

    def lightkube(self) -> lightkube.AsyncClient:
        """Return a new AsyncClient of the library lightkube."""
        client: lightkube.AsyncClient = clients.lightkube_client(self.kubeconfig, self.name, asynchronous=True)
        return client


class AsyncCluster(AsyncNamespace):
    """A running cluster, with coroutines: its namespace `default`, and methods to create others."""

    @contextlib.asynccontextmanager
    async def namespace(self, name: str = "test") -> AsyncIterator[AsyncNamespace]:
        """Create a namespace with a name that begins with `name`; delete it in the background at the end."""
        connection = self._namespace.connection
        created_name = await self._portal.wait_async(connection.operations.create_namespace(name))
        connected = connection.in_namespace(created_name)
        try:
            yield AsyncNamespace(lambda: connected)
        finally:
            await self._portal.wait_async(connection.remove(created_name))


class Cluster(ClusterNamespace):
    """A cluster with API server, nodes, controllers and scheduler in a separate process, for one block:

        with Cluster(nodes=3) as cluster: cluster.apply(...)
        async with Cluster(nodes=3) as cluster: await cluster.apply(...)

    The keywords are those of `Options`. Entering takes some tenths of a second, the start time of the process; raises
    UserError for invalid options. The process and its files are removed when the block ends, in any way.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        super().__init__(self._connected)
        self._options = cluster_options(options)
        self._shared_address: tuple[ClusterAddress, Portal] | None = None
        self._host: HostProcess | None = None
        self._shares_host = False
        self._connection: Connection | None = None

    @classmethod
    def on_host(cls, host: HostProcess, options: ClusterOptions) -> Self:
        """Return a cluster in a process that also runs others and continues without it."""
        cluster = cls()
        cluster._options, cluster._host, cluster._shares_host = options, host, True
        return cluster

    @classmethod
    def at_address(cls, address: ClusterAddress, portal: Portal) -> Self:
        """Return a cluster that another process runs, and that continues to run."""
        cluster = cls()
        cluster._shared_address = (address, portal)
        return cluster

    @property
    def aio(self) -> AsyncCluster:
        return AsyncCluster(self._resolve)

    @contextlib.contextmanager
    def namespace(self, name: str = "test") -> Iterator[ClusterNamespace]:
        """Create a namespace with a name that begins with `name`; delete it in the background at the end."""
        connection = self._namespace.connection
        created_name = connection.portal.wait(connection.operations.create_namespace(name))
        connected = connection.in_namespace(created_name)
        try:
            yield ClusterNamespace(lambda: connected)
        finally:
            connection.end(created_name)
            connection.portal.wait(connection.remove(created_name))

    def removed_namespaces(self, timeout: float) -> dict[str, str]:
        """Wait until removed namespaces are deleted. Returns those that are not, with the reason."""
        connection = self._namespace.connection
        return connection.portal.wait(connection.wait_for_deletion(timeout))

    def __enter__(self) -> Self:
        portal = self._acquire_host()
        try:
            portal.wait(self._open(portal))
        except BaseException:
            self._close_host()
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        try:
            if self._connection is not None:
                self._connection.end()
            self._portal.wait(self._disconnect())
        finally:
            self._close_host()

    async def __aenter__(self) -> AsyncCluster:
        portal = self._acquire_host()
        try:
            await portal.wait_async(self._open(portal))
        except BaseException:
            await asyncio.to_thread(self._close_host)
            raise
        return self.aio

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        try:
            await self._portal.wait_async(self._disconnect())
        finally:
            await asyncio.to_thread(self._close_host)

    def __repr__(self) -> str:
        return super().__repr__() if self._connection is not None else f"<{type(self).__name__} (not running)>"

    def _connected(self) -> _ConnectedNamespace:
        if self._connection is None:
            raise ClusterEnded("this cluster is not running: use it inside its with block")
        return self._connection.in_namespace("default")

    def _acquire_host(self) -> Portal:
        if self._connection is not None:
            raise RuntimeError("this cluster is already running: create another one for another block")
        if self._shared_address is not None:
            return self._shared_address[1]
        if self._host is None:
            self._host = HostProcess()
        return self._host.portal

    def _close_host(self) -> None:
        if self._host is not None and not self._shares_host:
            self._host.close()
            self._host = None

    async def _open(self, portal: Portal) -> None:
        host = self._host
        if self._shared_address is not None:
            self._connection = Connection(self._shared_address[0], portal, why_ended=lambda: None)
        elif host is not None:
            address = await host.start(self._options)
            self._connection = Connection(address, portal, why_ended=lambda: host.why_ended(address.cluster))

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        await connection.close()
        if self._host is not None:
            await self._host.stop(connection.address.cluster)

"""Scheduler extenders: other programs that take part in filtering, scoring, preemption and binding over HTTP.

Fields are sent under the names of the Go types, as kube-scheduler does: they have no JSON names of their own.
Source: pkg/scheduler/extender.go and k8s.io/kube-scheduler/extender/v1 of v1.36.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kubeloop.kube.errors import ApiError, ServerUnreachable, UserError
from kubeloop.kube.objects.api_types import Pod
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.config.types import ExtenderConfiguration, ExtenderTLS
from kubeloop.scheduler.full_objects import FullObjects

if TYPE_CHECKING:
    import aiohttp

Whole = TypeVar("Whole")


class ExtenderFilterResult(msgspec.Struct, frozen=True):
    """feasible: names of nodes; failed, failed_and_unresolvable: node -> message."""

    feasible: Sequence[str]
    failed: Mapping[str, str] = msgspec.field(default_factory=dict)
    failed_and_unresolvable: Mapping[str, str] = msgspec.field(default_factory=dict)


class HTTPExtender:
    """One extender of the configuration. Its HTTP session opens with the first request; close() ends it."""

    def __init__(self, config: ExtenderConfiguration, objects: FullObjects) -> None:
        """Raises UserError if its certificates cannot be read."""
        self._config = config
        self._objects = objects
        self._tls = tls_context(config)
        self._url = config.url_prefix.rstrip("/")
        self._managed = frozenset(resource.name for resource in config.managed_resources)
        self._session: aiohttp.ClientSession | None = None
        self.name = config.url_prefix
        self.weight = config.weight
        self.ignorable = config.ignorable

    @property
    def filters(self) -> bool:
        return bool(self._config.filter_verb)

    @property
    def prioritizes(self) -> bool:
        return bool(self._config.prioritize_verb)

    @property
    def binds(self) -> bool:
        return bool(self._config.bind_verb)

    @property
    def preempts(self) -> bool:
        return bool(self._config.preempt_verb)

    def is_interested(self, pod: Pod) -> bool:
        """All pods if it manages no resources, else those that ask for one of them."""
        if not self._managed:
            return True
        return any(
            name in self._managed
            for container in (*pod.spec.containers, *pod.spec.init_containers)
            for name in (*container.resources.requests, *container.resources.limits)
        )

    async def filter(self, pod: Pod, nodes: Sequence[NodeInfo]) -> ExtenderFilterResult:
        """Which of `nodes` the extender accepts. Raises ExtenderError."""
        answer = _fields(await self._call(self._config.filter_verb, await self._args(pod, nodes)))
        if answer.get("error"):
            raise ExtenderError(answer["error"])
        offered = {info.name for info in nodes}
        if self._config.node_cache_capable and answer.get("nodenames") is not None:
            feasible = answer["nodenames"]
            unknown = [name for name in feasible if name not in offered]
            if unknown:
                raise ExtenderError(
                    f'extender "{self.name}" claims a filtered node "{unknown[0]}" '
                    "which is not found in the input node list"
                )
        else:
            items = (answer.get("nodes") or {}).get("items") or []
            feasible = [item["metadata"]["name"] for item in items]
        return ExtenderFilterResult(
            [name for name in feasible if name in offered],
            answer.get("failednodes") or {},
            answer.get("failedandunresolvablenodes") or {},
        )

    async def prioritize(self, pod: Pod, nodes: Sequence[NodeInfo]) -> Mapping[str, int]:
        """Node -> score 0 to 10. Raises ExtenderError."""
        answer = await self._call(self._config.prioritize_verb, await self._args(pod, nodes))
        if not isinstance(answer, list):
            raise ExtenderError(f'extender "{self.name}" answered prioritize with something else than a list')
        return {entry.get("host", ""): int(entry.get("score", 0)) for entry in map(_fields, answer)}

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Raises ExtenderError."""
        body = {
            "PodName": pod.metadata.name,
            "PodNamespace": pod.metadata.namespace,
            "PodUID": pod.metadata.uid,
            "Node": node_name,
        }
        answer = _fields(await self._call(self._config.bind_verb, body))
        if answer.get("error"):
            raise ExtenderError(answer["error"])

    async def process_preemption(
        self, pod: Pod, victims: Mapping[str, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[str, tuple[Sequence[str], int]]:
        """node -> (victims, PDB violations) in; node -> (UIDs of the victims left, violations) out.

        Nodes that are left out are no candidates any more. Raises ExtenderError.
        """
        body: dict[str, Any] = {"NodeNameToVictims": None, "NodeNameToMetaVictims": None}
        body["Pod"] = await self._whole(self._objects.pod(pod))
        if self._config.node_cache_capable:
            body["NodeNameToMetaVictims"] = {
                node: {"Pods": [{"UID": each.uid} for each in pods], "NumPDBViolations": violations}
                for node, (pods, violations) in victims.items()
            }
        else:
            body["NodeNameToVictims"] = {
                node: {
                    "Pods": await self._whole(self._objects.pods([each.pod for each in pods])),
                    "NumPDBViolations": violations,
                }
                for node, (pods, violations) in victims.items()
            }
        answer = _fields(await self._call(self._config.preempt_verb, body))
        left = {}
        for node, entry in _fields(answer.get("nodenametometavictims"), lower=False).items():
            victims_left = _fields(entry)
            uids = [_fields(each).get("uid", "") for each in victims_left.get("pods") or []]
            left[node] = (uids, int(victims_left.get("numpdbviolations", 0)))
        return left

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _args(self, pod: Pod, nodes: Sequence[NodeInfo]) -> dict[str, Any]:
        whole = await self._whole(self._objects.pod(pod))
        if self._config.node_cache_capable:
            return {"Pod": whole, "Nodes": None, "NodeNames": [info.name for info in nodes]}
        items = await self._whole(self._objects.nodes([info.node for info in nodes if info.node]))
        return {"Pod": whole, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}

    async def _whole(self, fetching: Awaitable[Whole]) -> Whole:
        try:
            return await fetching
        except (ApiError, ServerUnreachable) as error:
            raise ExtenderError(f"cannot read what extender {self.name} is to be sent: {error}") from error

    async def _call(self, verb: str, body: Any) -> Any:
        import aiohttp  # a tenth of a second, which a scheduler without extenders need not spend

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._config.http_timeout_seconds)
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
            self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        url = f"{self._url}/{verb}"
        try:
            async with self._session.post(
                url,
                data=msgspec.json.encode(body),
                headers={"content-type": "application/json"},
                server_hostname=(self._config.tls.server_name or None) if self._config.tls else None,
            ) as response:
                data = await response.read()
                if response.status != 200:
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
                return msgspec.json.decode(data)
        except TimeoutError as error:
            late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            raise ExtenderError(f'Post "{url}": {late}') from error
        except aiohttp.ClientSSLError as error:
            raise ExtenderError(f'Post "{url}": {error}') from error
        except aiohttp.ClientConnectorError as error:
            why = os.strerror(error.os_error.errno).lower() if error.os_error.errno else str(error)
            raise ExtenderError(f'Post "{url}": dial tcp {error.host}:{error.port}: connect: {why}') from error
        except (aiohttp.ClientError, msgspec.DecodeError) as error:
            raise ExtenderError(f'Post "{url}": {str(error) or type(error).__name__}') from error


def _fields(answer: Any, *, lower: bool = True) -> dict[str, Any]:
    """An object of an answer, its keys in lower case: kube-scheduler finds them in any. Raises ExtenderError."""
    if answer is None:
        return {}
    if not isinstance(answer, dict):
        raise ExtenderError(f"an extender answered {type(answer).__name__} where an object was expected")
    return {key.lower(): value for key, value in answer.items()} if lower else answer


def tls_context(config: ExtenderConfiguration) -> ssl.SSLContext | bool:
    """For aiohttp: a context if anything about TLS is configured, else True (the system's trust). Raises UserError."""
    tls = config.tls or ExtenderTLS()
    if config.tls is None and not config.enable_https:
        return True
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None, cadata=tls.ca_data.decode() or None)
        if tls.cert_file or tls.cert_data:
            _load_certificate(context, tls)
    except (OSError, ValueError) as error:
        raise UserError(
            f"the TLS configuration of extender {config.url_prefix} cannot be used: {error}",
            hint="look at the files and data under tlsConfig",
        ) from error
    # As in kube-scheduler: HTTPS without a CA is not verified.
    if tls.insecure or (config.enable_https and not tls.ca_file and not tls.ca_data):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_certificate(context: ssl.SSLContext, tls: ExtenderTLS) -> None:
    """The client's certificate and key. Data goes before files, and through a file that nobody else can read."""
    if not tls.cert_data:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
        pem.write(tls.cert_data + b"\n" + tls.key_data)
        pem.flush()
        context.load_cert_chain(pem.name)

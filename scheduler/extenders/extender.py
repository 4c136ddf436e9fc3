"""HTTP extenders: services that take part in filtering, scoring, preemption and binding.

Fields are sent under the names of the Go types, as kube-scheduler does: they have no JSON names of their own.
Source: pkg/scheduler/extender.go and k8s.io/kube-scheduler/extender/v1 of v1.36.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kubeloop.kube.client.tls_verification import client_context, verification_message
from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.config.types import ExtenderConfiguration, ExtenderTLS
from kubeloop.scheduler.extenders.full_objects import FullObjects

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")


class ExtenderFilterResult(msgspec.Struct, frozen=True):
    """feasible: names of nodes; failed, failed_and_unresolvable: node -> message."""

    feasible: Sequence[str]
    failed: Mapping[str, str] = msgspec.field(default_factory=dict)
    failed_and_unresolvable: Mapping[str, str] = msgspec.field(default_factory=dict)


class HTTPExtender:
    """One configured extender. Its HTTP session opens with the first request; close() closes it."""

    def __init__(self, config: ExtenderConfiguration, objects: FullObjects) -> None:
        """Raises UserError if the certificates cannot be read."""
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
        """Return True if the extender manages no resources, or one that the pod requests."""
        if not self._managed:
            return True
        return any(
            name in self._managed
            for container in (*pod.spec.containers, *pod.spec.init_containers)
            for name in (*container.resources.requests, *container.resources.limits)
        )

    async def filter(self, pod: Pod, nodes: Sequence[NodeInfo]) -> ExtenderFilterResult:
        """Return which of `nodes` the extender accepts. Raises ExtenderError."""
        result = _fields(await self._call(self._config.filter_verb, await self._args(pod, nodes)))
        if result.get("error"):
            raise ExtenderError(result["error"])
        requested = {info.name for info in nodes}
        if self._config.node_cache_capable and result.get("nodenames") is not None:
            feasible = result["nodenames"]
            unknown = [name for name in feasible if name not in requested]
            if unknown:
                raise ExtenderError(
                    f'extender "{self.name}" claims a filtered node "{unknown[0]}" '
                    "which is not found in the input node list"
                )
        else:
            items = (result.get("nodes") or {}).get("items") or []
            feasible = [item["metadata"]["name"] for item in items]
        return ExtenderFilterResult(
            [name for name in feasible if name in requested],
            result.get("failednodes") or {},
            result.get("failedandunresolvablenodes") or {},
        )

    async def prioritize(self, pod: Pod, nodes: Sequence[NodeInfo]) -> Mapping[str, int]:
        """Return node -> score, 0 to 10. Raises ExtenderError."""
        result = await self._call(self._config.prioritize_verb, await self._args(pod, nodes))
        if not isinstance(result, list):
            raise ExtenderError(f'extender "{self.name}" returned no list for prioritize')
        return {entry.get("host", ""): int(entry.get("score", 0)) for entry in map(_fields, result)}

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind the pod. Raises ExtenderError."""
        body = {
            "PodName": pod.metadata.name,
            "PodNamespace": pod.metadata.namespace,
            "PodUID": pod.metadata.uid,
            "Node": node_name,
        }
        result = _fields(await self._call(self._config.bind_verb, body))
        if result.get("error"):
            raise ExtenderError(result["error"])

    async def process_preemption(
        self, pod: Pod, victims: Mapping[str, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[str, tuple[Sequence[str], int]]:
        """Return the candidates left, by node: (UIDs of the victims, PDB violations).

        victims: node -> (victims, PDB violations). Nodes missing in the result are no candidates any more.
        Raises ExtenderError.
        """
        body: dict[str, Any] = {"NodeNameToVictims": None, "NodeNameToMetaVictims": None}
        body["Pod"] = await self._fetch(self._objects.pod(pod))
        if self._config.node_cache_capable:
            body["NodeNameToMetaVictims"] = {
                node: {"Pods": [{"UID": victim.uid} for victim in pods], "NumPDBViolations": violations}
                for node, (pods, violations) in victims.items()
            }
        else:
            body["NodeNameToVictims"] = {
                node: {
                    "Pods": await self._fetch(self._objects.pods([victim.pod for victim in pods])),
                    "NumPDBViolations": violations,
                }
                for node, (pods, violations) in victims.items()
            }
        result = _fields(await self._call(self._config.preempt_verb, body))
        left = {}
        for node, entry in _fields(result.get("nodenametometavictims"), lower=False).items():
            victims_left = _fields(entry)
            uids = [_fields(victim).get("uid", "") for victim in victims_left.get("pods") or []]
            left[node] = (uids, int(victims_left.get("numpdbviolations", 0)))
        return left

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _args(self, pod: Pod, nodes: Sequence[NodeInfo]) -> dict[str, Any]:
        full_pod = await self._fetch(self._objects.pod(pod))
        if self._config.node_cache_capable:
            return {"Pod": full_pod, "Nodes": None, "NodeNames": [info.name for info in nodes]}
        items = await self._fetch(self._objects.nodes([info.node for info in nodes if info.node]))
        return {"Pod": full_pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}

    async def _fetch(self, fetching: Awaitable[T]) -> T:
        try:
            return await fetching
        except (ApiError, ServerUnreachable) as error:
            raise ExtenderError(f"cannot read the objects for extender {self.name}: {error}") from error

    async def _call(self, verb: str, body: Any) -> Any:
        import aiohttp  # takes a tenth of a second, which a scheduler without extenders saves

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
                server_hostname=(self._config.tls_config.server_name or None) if self._config.tls_config else None,
            ) as response:
                data = await response.read()
                if response.status != 200:
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
                return msgspec.json.decode(data)
        except TimeoutError as error:
            late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            raise ExtenderError(f'Post "{url}": {late}') from error
        except aiohttp.ClientConnectorCertificateError as error:
            cause = error.certificate_error
            message = verification_message(cause) if isinstance(cause, ssl.SSLCertVerificationError) else str(error)
            raise ExtenderError(f'Post "{url}": tls: failed to verify certificate: {message}') from error
        except aiohttp.ClientSSLError as error:
            raise ExtenderError(f'Post "{url}": {error}') from error
        except aiohttp.ClientConnectorError as error:
            why = os.strerror(error.os_error.errno).lower() if error.os_error.errno else str(error)
            raise ExtenderError(f'Post "{url}": dial tcp {error.host}:{error.port}: connect: {why}') from error
        except (aiohttp.ClientError, msgspec.DecodeError) as error:
            raise ExtenderError(f'Post "{url}": {str(error) or type(error).__name__}') from error


def _fields(result: Any, *, lower: bool = True) -> dict[str, Any]:
    """Return an object of a response, its keys in lower case, as kube-scheduler accepts any. Raises ExtenderError."""
    if result is None:
        return {}
    if not isinstance(result, dict):
        raise ExtenderError(f"an extender returned {type(result).__name__} instead of an object")
    return {key.lower(): value for key, value in result.items()} if lower else result


def tls_context(config: ExtenderConfiguration) -> ssl.SSLContext | bool:
    """Return an SSL context for aiohttp if TLS is configured, else True (the system's CAs). Raises UserError."""
    tls = config.tls_config or ExtenderTLS()
    if config.tls_config is None and not config.enable_https:
        return True
    try:
        ca = tls.ca_data or (Path(tls.ca_file).read_bytes() if tls.ca_file else b"")
        # As in kube-scheduler: without a CA, the server's certificate is not verified.
        verify = not tls.insecure and (bool(ca) or not config.enable_https)
        context = client_context(ca.decode("latin-1"), verify=verify)
        if tls.cert_file or tls.cert_data:
            _load_certificate(context, tls)
    except (OSError, ValueError) as error:
        raise UserError(
            f"the TLS configuration of extender {config.url_prefix} cannot be used: {error}",
            hint="look at the files and data under tlsConfig",
        ) from error
    return context


def _load_certificate(context: ssl.SSLContext, tls: ExtenderTLS) -> None:
    """Load the client certificate and key. Data, through a private temporary file, takes precedence over files."""
    if not tls.cert_data:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
        pem.write(tls.cert_data + b"\n" + tls.key_data)
        pem.flush()
        context.load_cert_chain(pem.name)

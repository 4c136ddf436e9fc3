"""The development API server without sockets: handles requests, and runs its background work.

`server.http` serves it on sockets, `kubeloop.testing.memory_transport` without. Its store is open to other parts of the
development cluster in the same process (simulated nodes, controllers), which bypass admission and validation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import sqlite3
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import cached_property, partial
from ipaddress import IPv4Network
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.admission.default_toleration_seconds import DEFAULT_TOLERATION_SECONDS, TolerationSeconds
from kubeloop.devcluster.admission.dynamic_admission import DynamicAdmission
from kubeloop.devcluster.admission.optional import optional_plugins
from kubeloop.devcluster.admission.optional.plugin import PluginEnvironment
from kubeloop.devcluster.admission.plugin_settings import PluginSettings
from kubeloop.devcluster.aggregation.aggregator import Aggregator
from kubeloop.devcluster.aggregation.proxy_settings import ProxySettings
from kubeloop.devcluster.api import errors, request_info
from kubeloop.devcluster.api.authorizer import forbidden, is_privileged
from kubeloop.devcluster.api.request import (
    JSON_TYPE,
    ApiRequest,
    PendingResponse,
    Response,
    json_response,
    text_response,
    warning_headers,
)
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import (
    SERVICE_CIDRS,
    ServedResource,
    api_gates,
    get_served_resource,
    group_versions,
)
from kubeloop.devcluster.api.slow_work import ComputeThread, Handling, Outdated, Suspended, start
from kubeloop.devcluster.apiextensions.definitions import Definitions
from kubeloop.devcluster.authentication.authenticator import ANONYMOUS, Authenticator, take_websocket_token
from kubeloop.devcluster.authentication.client_certificates import ClientCertificates
from kubeloop.devcluster.authentication.front_proxy import FrontProxy, FrontProxySettings
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey, TokenSettings
from kubeloop.devcluster.authorization.access_attributes import access_attributes
from kubeloop.devcluster.authorization.mode_names import ALWAYS_ALLOW, DEFAULT_MODES
from kubeloop.devcluster.authorization.modes import AuthorizationChain
from kubeloop.devcluster.handlers.containers.streams import ContainerStreams
from kubeloop.devcluster.handlers.pod_subresources import PodSubresources
from kubeloop.devcluster.handlers.reading.watch import WatchSettings
from kubeloop.devcluster.handlers.rest import Rest
from kubeloop.devcluster.handlers.writing.create_update import ObjectWriter
from kubeloop.devcluster.kinds.core.cluster_ip_allocation import SERVICE_CIDR
from kubeloop.devcluster.kinds.core.node_port_allocation import NODE_PORT_RANGE
from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers
from kubeloop.devcluster.outgoing.service_addresses import ServiceAddresses
from kubeloop.devcluster.outgoing.webhook_client import WebhookClient
from kubeloop.devcluster.serializer.negotiation import check_custom_resource_is_acceptable
from kubeloop.devcluster.serializer.responses import error_response
from kubeloop.devcluster.server import health_paths, zpages
from kubeloop.devcluster.server.api_documents import ApiDocuments
from kubeloop.devcluster.server.bootstrap import Bootstrap, Identity, contents
from kubeloop.devcluster.server.faults import AnswerLost, Fault, Faults, FaultSource
from kubeloop.devcluster.server.flow_control import FlowControl
from kubeloop.devcluster.server.metrics import RequestMetrics
from kubeloop.devcluster.server.metrics_api import route_metrics
from kubeloop.devcluster.storage.data_directory import DataDirectory
from kubeloop.devcluster.storage.private_files import SERVICE_ACCOUNT_KEY
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock, pause
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import EVENTS, SERVICES
from kubeloop.kube.values.durations import InvalidDuration, duration_text, parse_duration
from kubeloop.kube.values.quantities import QuantityError

if TYPE_CHECKING:
    from kubeloop.devcluster.api.audit_record import AuditRecord
    from kubeloop.devcluster.audit.log_file import AuditLog
    from kubeloop.devcluster.authorization.impersonation import Impersonation
    from kubeloop.devcluster.outgoing.webhook_credentials import WebhookCredentials
    from kubeloop.kube.auth.certificate_authority import CertificateAuthority

log = logging.getLogger(__name__)

_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_METRICS_API = "/apis/metrics.k8s.io/v1beta1/"
_WATCH = ("/watch", "/watch/")
_BARE_WATCH = re.compile(r"(/api/[^/]+|/apis/[^/]+/[^/]+)/watch/?")
_LONG_RUNNING = re.compile(r"/api/v1/(namespaces/[^/]+/)?[^/]+/[^/]+/(attach|exec|log|portforward|proxy)(/.*)?")
_SWEEP_SECONDS = 15.0
_CHECKPOINT_SECONDS = 1.0
_PURGE_BATCH = 500  # about 2 ms


def _loop_seconds() -> float:
    return asyncio.get_running_loop().time()


def _check_timeout(request: ApiRequest) -> None:
    """Raise StatusError 400 if the timeout of a request that is no watch or stream is no duration.

    Source: apiserver pkg/endpoints/filters/request_deadline.go.
    """
    text = request.option("timeout")
    if not text or _LONG_RUNNING.fullmatch(request.path):
        return
    if request.method == "GET" and (request.flag("watch") or "/watch/" in request.path):
        return
    try:
        parse_duration(text)
    except InvalidDuration as error:
        raise errors.bad_request(f"invalid timeout specified in the request URL - {error}") from None


class ServingSettings(msgspec.Struct, frozen=True):
    """Settings of an API server, in the role of kube-apiserver's flags.

    compaction_seconds: age at which old versions are removed. event_seconds: lifetime of Events after their last write
    or the start. service_range, node_ports: of Services. identity: name and addresses. container_answers: answers to
    logs, exec and the like for simulated containers. root_ca: certificates in PEM by which clients verify the server,
    "" without TLS: every namespace has them in a ConfigMap, and a ServiceAccount that pods use by default; None: like
    kube-apiserver without kube-controller-manager. authority: of the cluster; None: created when it is needed.
    client_ca: authorities whose client certificates are accepted, in PEM, "" for those of root_ca. front_proxy,
    static_tokens, accepts_bootstrap_tokens: see Authenticator. proxy: how aggregated API servers are called.
    authorization_modes: authorizers in their order. accepts_anonymous: requests without credentials, unless all
    requests are allowed. admission: the admission plugins. service_account_key: file of the key that signs service
    account tokens, created on first use; None: in the data directory, else in memory. serves_metrics: serve the metrics
    API for simulated pods. resolved_addresses: addresses of Services and other hosts that the server calls, by host.
    toleration_seconds: of default tolerations. disabled_apis: see runtime_config. audit: the audit log, None for none.
    tokens: of service accounts.
    """

    compaction_seconds: float = 300.0
    event_seconds: float = 3600.0
    watches: WatchSettings = msgspec.field(default_factory=WatchSettings)
    service_range: IPv4Network = SERVICE_CIDR
    node_ports: range = NODE_PORT_RANGE
    identity: Identity = msgspec.field(default_factory=Identity)
    feature_gates: FeatureGates = DEFAULT_FEATURE_GATES
    container_answers: ContainerAnswers = msgspec.field(default_factory=ContainerAnswers)
    root_ca: str | None = None
    authority: CertificateAuthority | None = None
    client_ca: str = ""
    front_proxy: FrontProxySettings | None = None
    proxy: ProxySettings = ProxySettings()
    static_tokens: dict[str, JSON] = msgspec.field(default_factory=dict)
    accepts_bootstrap_tokens: bool = False
    authorization_modes: tuple[str, ...] = DEFAULT_MODES
    accepts_anonymous: bool = True
    service_account_key: Path | None = None
    admission: PluginSettings = PluginSettings()
    serves_metrics: bool = False
    resolved_addresses: dict[str, tuple[str, int]] = msgspec.field(default_factory=dict)
    toleration_seconds: TolerationSeconds = DEFAULT_TOLERATION_SECONDS
    disabled_apis: frozenset[str] = frozenset()
    audit: AuditLog | None = None
    tokens: TokenSettings = TokenSettings()


class ApiServer:
    """One API server with its store; created and used on a running event loop.

    root_ca, token_key: certificates in PEM by which clients verify the server, and the key of service account tokens.
    token: bearer token of the administrator, None to accept every request. faults: faults to inject. data_directory:
    makes the store durable; the caller closes it.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        token: str | None,
        faults: Faults | None = None,
        data_directory: DataDirectory | None = None,
        settings: ServingSettings | None = None,
    ) -> None:
        settings = settings or ServingSettings()
        self.store = ObjectStore(
            seconds=_loop_seconds, compaction_seconds=settings.compaction_seconds, data_directory=data_directory
        )
        self._data_directory = data_directory
        self.clock = clock
        self.root_ca = settings.root_ca or ""
        self._authority = settings.authority
        self.feature_gates = gates = settings.feature_gates
        self._api_gates = api_gates(gates, settings.disabled_apis)
        client_ca = settings.client_ca or self.root_ca
        self._front_proxy = None if settings.front_proxy is None else FrontProxy(settings.front_proxy, clock)
        self._bootstrap = Bootstrap(
            self.store,
            clock,
            rng,
            settings.identity,
            settings.service_range,
            settings.root_ca,
            gates,
            partial(_authentication_data, client_ca, self._front_proxy),
            settings.node_ports,
        )
        self._local_services = self._bootstrap.local_services
        self._namespace_defaults = self._bootstrap.namespace_defaults
        key_path = settings.service_account_key
        if key_path is None and data_directory is not None:
            key_path = data_directory.folder / SERVICE_ACCOUNT_KEY
        self.token_key = TokenKey(key_path, settings.tokens)
        self._authentication = Authenticator(
            self.store,
            clock,
            token,
            self.token_key,
            checks_account_uid=gates.enabled("TokenRequestServiceAccountUIDValidation"),
            certificates=(
                ClientCertificates(client_ca, clock, reads_uid=gates.enabled("AllowParsingUserUIDFromCertAuth"))
                if client_ca
                else None
            ),
            front_proxy=self._front_proxy,
            static_tokens=settings.static_tokens,
            accepts_bootstrap_tokens=settings.accepts_bootstrap_tokens,
            accepts_anonymous=settings.accepts_anonymous and ALWAYS_ALLOW not in settings.authorization_modes,
        )
        self._authorization = AuthorizationChain(
            self.store, settings.authorization_modes, partial(contents.node_rules, gates)
        )
        self._faults = None if faults is None else FaultSource(faults)
        self._audit_ids = str(uuid.uuid5(uuid.NAMESPACE_OID, clock.now().isoformat()))[:24]
        self._handled_count = 0
        self._auditor = None
        if settings.audit is not None:
            from kubeloop.devcluster.audit.auditor import Auditor  # with protobuf

            self._auditor = Auditor(settings.audit.policy, settings.audit.open(clock), clock)
        self._metrics = RequestMetrics()
        self._flow_control = FlowControl(self.store)
        self._rng = rng
        self.compresses_responses = gates.enabled("APIResponseCompression")
        self._zpages = frozenset(
            path
            for path, gate in (("/flagz", "ComponentFlagz"), ("/statusz", "ComponentStatusz"))
            if gates.enabled(gate)
        )
        self._writable_service_cidrs = (
            None
            if gates.enabled("ServiceCIDRStatusFieldWiping")
            else replace(get_served_resource(SERVICE_CIDRS), resets_status=False)
        )
        self._compute_thread = ComputeThread()
        addresses = ServiceAddresses(self.store, settings.resolved_addresses)
        self._webhook_client = WebhookClient(addresses, _webhook_credentials(settings.admission))
        self._aggregator = Aggregator(self.store, clock, addresses, self._front_proxy, settings.proxy)
        self._definitions = Definitions(self.store, clock, self._end_watches, self._webhook_client)
        enabled = settings.admission.plugins
        if not gates.enabled("MutatingAdmissionPolicy"):
            enabled -= {"MutatingAdmissionPolicy"}
        environment = PluginEnvironment(self.store, self._definitions, gates, settings.admission.configuration)
        dynamic_admission = self._dynamic_admission = DynamicAdmission(
            self.store, self._definitions, self._webhook_client, enabled, optional_plugins(enabled, environment)
        )
        admission = AdmissionChain(
            self.store, enabled=enabled, gates=gates, toleration_seconds=settings.toleration_seconds
        )
        streams = ContainerStreams(self.store, settings.container_answers, gates)
        self._rest = Rest(
            self.store,
            clock=clock,
            dynamic_admission=dynamic_admission,
            authentication=self._authentication,
            authorization=self._authorization,
            writer=ObjectWriter(self.store, dynamic_admission, {SERVICES: self._bootstrap.addresses}, gates, admission),
            pods=PodSubresources(
                self.store,
                clock=clock,
                admission=admission,
                dynamic_admission=dynamic_admission,
                streams=streams,
                gates=gates,
            ),
            watch_settings=msgspec.structs.replace(
                settings.watches,
                watch_list=gates.enabled("WatchList"),
                shards=gates.enabled("ShardedListAndWatch"),
            ),
        )
        self._began = clock.now()
        self._service_range = settings.service_range
        self._node_ports = settings.node_ports
        self._event_seconds = settings.event_seconds
        events = self.store.table(EVENTS).list()
        # seconds of the last write by key, oldest first
        self._event_writes: dict[str, float] = dict.fromkeys((event.key for event in events), _loop_seconds())
        self.store.subscribe(EVENTS, self._note_event)
        self._local_services.settle()
        self._namespace_defaults.settle()
        self._serves_metrics = settings.serves_metrics
        self._documents = ApiDocuments(
            self._definitions,
            gates,
            self._api_gates,
            serves_metrics=settings.serves_metrics,
            aggregator=self._aggregator,
        )

    @property
    def injects_faults(self) -> bool:
        return self._faults is not None

    async def run(self) -> None:
        """Compact old versions, expire Events and restore start-up objects until cancelled; then end all watches.

        Raises ExceptionGroup of NotDurable if a change cannot be written to the data directory.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sweep(), name="sweep")
                group.create_task(self._bootstrap.run(), name="bootstrap")
                group.create_task(self._aggregator.run(), name="aggregator")
                if self._data_directory is not None:
                    group.create_task(self._maintain(self._data_directory), name="data directory")
        finally:
            self._rest.reader.cut_watches()
            await self._webhook_client.close()
            self.close_audit_log()

    def close_audit_log(self) -> None:
        """Close the file of the audit log, which run() does at its end."""
        if self._auditor is not None:
            self._auditor.close()

    def signing_authority(self, _signer: str) -> CertificateAuthority:
        """Return the certificate authority of the cluster, which is that of all signers."""
        if self._authority is None:
            from kubeloop.kube.auth.certificate_authority import CertificateAuthority

            self._authority = CertificateAuthority.create(self.clock.now())
        return self._authority

    async def handle(self, request: ApiRequest) -> Response:
        """Handle a request of any kind. Raises AnswerLost only, as an injected fault."""
        return await _completed(self.respond(request))

    # --- requests -----------------------------------------------------------------------------------------------------

    def respond(self, request: ApiRequest) -> Response | PendingResponse:
        """Return the response, or a function that completes it if the request has to wait."""
        if self._faults is not None and not self._faults.spares(request.headers.get("user-agent", "")):
            return partial(self._handle_with_faults, request, self._faults)
        return self._handle(request)

    async def handle_in_process(self, request: ApiRequest) -> Response:
        """Handle a request of another part of this process, without injected faults; a handler (see slow_work)."""
        began = perf_counter()
        try:
            self._authenticate(request)
            response = self._dispatch(request)
        except Exception as error:
            return self._complete(request, _failure(request, error), began)
        return await self._await(request, response, began)

    def _handle(self, request: ApiRequest) -> Response | PendingResponse:
        began = perf_counter()  # the loop's time does not advance meanwhile
        try:
            if "timeout" in request.query:
                _check_timeout(request)
            self._authenticate(request)
            response = self._dispatch(request)
            if not isinstance(response, Response):
                finished: Response | Suspended[Response] = start(self._await(request, response, began))
                return finished
            if self._definitions.pending or self._local_services.pending or self._namespace_defaults.pending:
                self._settle()
        except Exception as error:
            response = _failure(request, error)
        return self._complete(request, response, began)

    async def _await(self, request: ApiRequest, response: Response | Handling[Response], began: float) -> Response:
        """Finish a request; handle it again if its inputs have changed while it waited for slow work."""
        try:
            while not isinstance(response, Response):
                try:
                    response = await response
                except Outdated:
                    request.warnings.clear()
                    response = self._dispatch(request)
            if self._definitions.pending or self._local_services.pending or self._namespace_defaults.pending:
                self._settle()
        except Exception as error:
            response = _failure(request, error)
        return self._complete(request, response, began)

    def _settle(self) -> None:
        """Do the work of controllers that a client finds done after its request."""
        if self._definitions.pending:
            self._definitions.settle()
        if self._local_services.pending:
            self._local_services.settle()
        self._namespace_defaults.settle()

    def _complete(self, request: ApiRequest, response: Response, began: float) -> Response:
        """Add what all responses have, and count the request."""
        if request.warnings:
            response.headers += warning_headers(request.warnings)
        self._metrics.note(request, response, perf_counter() - began)
        if (
            type(response.body) is bytes
            and response.content_type.startswith(JSON_TYPE)
            and health_paths.wants_indented_json(request)
        ):
            response.body = msgspec.json.format(response.body, indent=2)
        response.headers += self._flow_control.headers(request)
        audit_id = self._audit_id(request) if request.audit is None else request.audit.audit_id
        response.headers.append(("Audit-Id", audit_id))
        if self._auditor is not None:
            self._auditor.complete(request, response, audit_id)
        return response

    def _audit_id(self, request: ApiRequest) -> str:
        return request.headers.get("audit-id") or self._next_audit_id()

    def _next_audit_id(self) -> str:
        self._handled_count += 1
        return f"{self._audit_ids}{self._handled_count & 0xFFFF_FFFF_FFFF:012x}"

    def _dispatch(self, request: ApiRequest) -> Response | Handling[Response]:
        """Handle an authenticated request as rest.Rest.handle() does."""
        if (old_watch := request_info.route_watch_path(request.path, request.method, self._api_gates)) is not None:
            request.route, request.query = old_watch, {**request.query, "watch": ["1"]}
            context = self._context(request, old_watch)
            return self._rest.reader.watch(context)
        if request.path.endswith(_WATCH) and _BARE_WATCH.fullmatch(request.path):
            return _no_kind(request.path)
        if self._aggregator.backends and (response := self._aggregator.handle(request)) is not None:
            audit_id = self._audit_id(request) if request.audit is None else request.audit.audit_id
            request.headers = {**request.headers, "audit-id": audit_id}
            return response
        info = request.route = self._route(request)
        if info is None:
            return self._non_resource(request)
        if warning := info.served.deprecated:
            request.warnings.append(warning)
        if info.served.crd_version is not None:
            check_custom_resource_is_acceptable(request.headers.get("accept", ""))
            in_pages = bool(request.option("limit")) and not request.flag("watch")
            info.served.crd_version.check_readable(request.method, info.namespace, info.name, in_pages=in_pages)
        context = self._context(request, info)
        return self._rest.handle(context)

    def _context(self, request: ApiRequest, info: RequestInfo) -> RequestContext:
        return RequestContext(request, info, self.clock, self._rng, self._compute_thread, self._authorization)

    def _route(self, request: ApiRequest) -> RequestInfo | None:
        info = request_info.route(request.path, self._api_gates) or self._definitions.route(
            request.path, request.method
        )
        if info is None and self._serves_metrics and request.path.startswith(_METRICS_API):
            return route_metrics(request.path, self.store, self.clock)
        if self._writable_service_cidrs is not None and info is not None and info.served.resource is SERVICE_CIDRS:
            return msgspec.structs.replace(info, served=self._writable_service_cidrs)
        return info

    def _authenticate(self, request: ApiRequest) -> None:
        headers = request.headers
        authorization = headers.get("authorization", "") or take_websocket_token(request)
        is_open = (
            not (authorization or request.certificates)
            and request.path.rstrip("/") in _OPEN_PATHS
            and "impersonate-user" not in headers
        )
        began = 0.0 if self._auditor is None else perf_counter()
        user = ANONYMOUS if is_open else self._authentication.user(request, authorization)
        if self._auditor is not None:
            self._auditor.begin(request, user, self._audit_id(request))
            if request.audit is not None:
                request.audit.note_latency("authentication", perf_counter() - began)
        request.user = user
        if "impersonate-" in ",".join(headers):
            request.user = self._impersonation.user(request)
        reason = "" if is_open or is_privileged(request.user) else self._authorize(request)
        if request.audit is not None:
            _note_decision(request.audit, "allow", reason)

    @cached_property
    def _impersonation(self) -> Impersonation:
        from kubeloop.devcluster.authorization.impersonation import Impersonation

        constrained = self.feature_gates.enabled("ConstrainedImpersonation")
        return Impersonation(self._authorization, constrained=constrained, metrics=self._authorization.metrics)

    def _authorize(self, request: ApiRequest) -> str:
        """Return the reason for which the user may send a request. Raises StatusError 403."""
        began = perf_counter()
        attributes = access_attributes(request)
        decision = self._authorization.authorize(attributes)
        result = "allowed" if decision.allowed else "no-opinion"
        seconds = perf_counter() - began
        self._authorization.metrics.requests.observe((result,), seconds)
        if request.audit is not None:
            request.audit.note_latency("authorization", seconds)
        if not decision.allowed:
            if request.audit is not None:
                _note_decision(request.audit, "forbid", decision.reason)
            with contextlib.suppress(errors.StatusError):
                request.route = self._route(request)  # for metrics and flow control
            raise forbidden(attributes, decision.reason)
        return decision.reason

    def _non_resource(self, request: ApiRequest) -> Response | Handling[Response]:
        path = request.path.rstrip("/")
        if path in ("/metrics", "/metrics/slis"):
            from kubeloop.devcluster.server.metrics_page import metrics_response  # imports prometheus_client

            began = self._began.timestamp()
            gates, seats = self.feature_gates, self._flow_control.nominal_seats()
            watched = self._rest.reader.watched()
            webhooks = self._dynamic_admission.webhook_metrics
            access = self._authorization.metrics
            return metrics_response(request, self._metrics, self.store, webhooks, access, watched, gates, began, seats)
        if (document := self._documents.response(request)) is not None:
            return document
        response = health_paths.openid(request, self.token_key) or health_paths.health(request)
        if response is not None:
            return response
        if path in ("", "/index.html"):
            resources = (version.served.resource for version in self._definitions.versions())
            custom = [(resource.group, resource.version) for resource in resources]
            versions = group_versions(self._api_gates) + custom
            return health_paths.root(versions, self._zpages)
        if request.path in self._zpages:
            if request.path == "/flagz":
                return zpages.flagz(request, self._flags())
            paths = health_paths.listed_paths(group_versions(self._api_gates), self._zpages)
            return zpages.statusz(request, self._began, self.clock.now(), paths)
        if path.startswith("/api/"):
            raise errors.path_not_found()
        return health_paths.not_found()

    def _flags(self) -> dict[str, str]:
        """Return the settings that kube-apiserver has as well, by the names of its flags."""
        return {
            "allow-privileged": "true",
            "authorization-mode": f"[{','.join(self._authorization.modes)}]",
            "enable-priority-and-fairness": "false",
            "etcd-compaction-interval": duration_text(self.store.compaction_seconds),
            "event-ttl": duration_text(self._event_seconds),
            "feature-gates": self.feature_gates.text(),
            "profiling": "false",
            "runtime-config": "",
            "service-account-issuer": f"[{' '.join(self.token_key.settings.issuers)}]",
            "service-cluster-ip-range": str(self._service_range),
            "service-node-port-range": f"{self._node_ports[0]}-{self._node_ports[-1]}",
            "storage-media-type": "application/json",
        }

    def _end_watches(self, served: ServedResource) -> None:
        self._rest.reader.end_watches(served)

    # --- injected faults ----------------------------------------------------------------------------------------------

    async def _handle_with_faults(self, request: ApiRequest, faults: FaultSource) -> Response:
        if (seconds := faults.latency_seconds()) > 0:
            await asyncio.sleep(seconds)
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
                await _completed(self._handle(request))
                raise AnswerLost
        response = await _completed(self._handle(request))
        if not isinstance(response.body, bytes):
            response.body = _drop_at_random(response.body, faults)
        return response

    async def _conflict(self, request: ApiRequest) -> Response:
        try:
            info = self._route(request)
            if info is None or request.method == "POST":
                return await _completed(self._handle(request))
            failure = errors.conflict(info.served.resource, info.name)
        except errors.StatusError as error:
            failure = error
        return json_response(failure.code, failure.status)

    # --- background ---------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            oldest = next(iter(self._event_writes.values()), None)
            due = None if oldest is None else oldest + self._event_seconds
            await pause(min(_SWEEP_SECONDS, self.store.compaction_seconds), due)
            self.store.compact()
            self._expire_events()

    async def _maintain(self, data_directory: DataDirectory) -> None:
        """Remove old versions from the data directory and checkpoint its write-ahead log."""
        failing = False
        while True:
            await asyncio.sleep(_CHECKPOINT_SECONDS)
            try:
                while self.store.purge(_PURGE_BATCH):
                    await asyncio.sleep(0)
                if data_directory.needs_checkpoint():
                    await asyncio.to_thread(data_directory.checkpoint)
                failing = False
            except sqlite3.Error as error:
                if not failing:
                    log.warning("could not compact the data directory, will retry: %s", error)
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


def _webhook_credentials(settings: PluginSettings) -> dict[str, WebhookCredentials]:
    """Return the credentials for the webhooks of each type of call. Raises UserError."""
    credentials: dict[str, WebhookCredentials] = {}
    for call_type, plugin in (("admit", "MutatingAdmissionWebhook"), ("validating", "ValidatingAdmissionWebhook")):
        if path := settings.configuration.get(plugin, {}).get("kubeConfigFile"):
            from kubeloop.devcluster.outgoing.webhook_credentials import WebhookCredentials

            credentials[call_type] = WebhookCredentials(path)
    return credentials


def _note_decision(record: AuditRecord, decision: str, reason: str) -> None:
    record.annotate("authorization.k8s.io/decision", decision)
    record.annotate("authorization.k8s.io/reason", reason)


async def _completed(response: Response | PendingResponse) -> Response:
    return response if isinstance(response, Response) else await response()


def _failure(request: ApiRequest, error: Exception) -> Response:
    """Return the response for an exception of a handler."""
    match error:
        case errors.StatusError():
            return error_response(request, error)
        case RecursionError():
            refusal = errors.bad_request("exceeded max depth: the body is nested too deeply")
            return error_response(request, refusal)
        case QuantityError():
            # each quantity is valid, but their sum is not (1e99999 and 1m)
            return error_response(request, errors.bad_request(f"quantities out of range: {error}"))
    if request.audit is not None:
        request.audit.panic = repr(error)
    log.error("a request failed", exc_info=error, extra={"method": request.method, "path": request.path})
    return error_response(
        request, errors.internal("Internal error occurred: see the server's log", reason="InternalError")
    )


def _authentication_data(client_ca: str, front_proxy: FrontProxy | None) -> dict[str, str]:
    """Return the data of the ConfigMap extension-apiserver-authentication."""
    proxies = {} if front_proxy is None else front_proxy.config_map_data()
    return {**({"client-ca-file": client_ca} if client_ca else {}), **proxies}


def _no_kind(path: str) -> Response:
    """Return v1.36's 500 for a deprecated watch path without kind."""
    message = f'"{path}": failed to create RequestInfo: unable to determine kind and namespace from url, {path}'
    return text_response(500, f"Internal Server Error: {message}\n")


async def _drop_at_random(chunks: AsyncIterator[bytes], faults: FaultSource) -> AsyncIterator[bytes]:
    """Yield a watch's chunks, and end at random after an event."""
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

"""Events of the audit log: one per stage of each request that the policy selects."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import ip_address

import msgspec

from kubeloop.devcluster.api.audit_record import AuditRecord, without_managed_fields
from kubeloop.devcluster.api.request import JSON_TYPE, PROTOBUF_TYPE, ApiRequest, Response
from kubeloop.devcluster.api.request_attributes import RequestAttributes, request_attributes
from kubeloop.devcluster.api.upgraded_connection import UpgradedConnection
from kubeloop.devcluster.audit.log_file import AuditOutput
from kubeloop.devcluster.audit.policy import AuditPolicy, PolicyRule, Stage
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.kube.clock import Clock, rfc3339_micro
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.durations import duration_text
from kubeloop.kube.values.times import seconds_between

log = logging.getLogger(__name__)

_MAX_USER_AGENT = 1024
_SLOW_SECONDS = 0.5
_STREAMS = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_STATUS_FIELDS = ("status", "message", "reason", "details", "code")


class Auditor:
    """Writes the events of one server. output: is closed by close()."""

    def __init__(self, policy: AuditPolicy, output: AuditOutput, clock: Clock) -> None:
        self._policy = policy
        self._output = output
        self.close = output.close
        self._clock = clock

    def begin(self, request: ApiRequest, user: JSON, audit_id: str) -> None:
        """Log that an authenticated request is received, and give it an AuditRecord, if the policy selects it."""
        event = self._event(request, user, audit_id)
        if event is not None:
            event.annotations |= request.annotations or {}
            request.audit = event
            event.log_stage("RequestReceived")

    def complete(self, request: ApiRequest, response: Response, audit_id: str) -> None:
        """Log a response; of a stream its start, and later its end."""
        event = request.audit
        if not isinstance(event, _Event):
            if not request.user:
                self._log_refusal(request, response, audit_id)
            return
        event.log_response(request, response)
        if event.panic:
            event.log_stage("Panic")
            return
        if event.is_long_running:
            event.log_stage("ResponseStarted")
        if (
            request.route is not None
            and request.route.served.deprecated
            and event.annotations.get("authorization.k8s.io/decision") != "forbid"
        ):
            event.annotate("k8s.io/deprecated", "true")
        if response.upgrade is not None:
            response.upgrade = event.logging_end_of_upgrade(response.upgrade)
        elif isinstance(response.body, bytes):
            event.log_stage("ResponseComplete")
        else:
            response.body = event.logging_end_of(response.body)

    def _log_refusal(self, request: ApiRequest, response: Response, audit_id: str) -> None:
        """Log a request that was refused before or by its authentication."""
        event = self._event(request, {}, audit_id)
        if event is not None:
            event.annotations |= request.annotations or {}
            event.log_response(request, response)
            event.log_stage("ResponseStarted")

    def _event(self, request: ApiRequest, user: JSON, audit_id: str) -> _Event | None:
        attributes = request_attributes(request)
        rule = self._policy.rule_for(user, attributes)
        if rule is None:
            return None
        return _Event(self._policy, rule, request, user, attributes, audit_id, self._clock, self._write_event)

    def _write_event(self, event: JSON) -> None:
        try:
            self._output.write(msgspec.json.encode(event) + b"\n")
        except OSError as error:
            log.error("cannot write the audit log: %s", error)


class _Event(AuditRecord):
    """The event of one request, which is logged in several stages."""

    def __init__(
        self,
        policy: AuditPolicy,
        rule: PolicyRule,
        request: ApiRequest,
        user: JSON,
        attributes: RequestAttributes,
        audit_id: str,
        clock: Clock,
        write: Callable[[JSON], None],
    ) -> None:
        logs_objects = rule.level in ("Request", "RequestResponse")
        super().__init__(audit_id, logs_objects, policy.omits_managed_fields(rule), _object_reference(attributes))
        self._omits_stage: Callable[[Stage], bool] = lambda stage: policy.omits_stage(rule, stage)
        self._clock = clock
        self._write = write
        self._began = clock.now()
        self._received = rfc3339_micro(self._began)
        self._response_object = b""
        self.status: JSON | None = None
        self.is_long_running = attributes.verb in ("watch", "proxy") or attributes.subresource in _STREAMS
        self._head: JSON = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": rule.level,
            "auditID": audit_id,
            "stage": "",
            "requestURI": request.target or request.path,
            "verb": attributes.verb,
            "user": user,
        }
        self._sources = _source_addresses(request)
        self._user_agent = _truncated(request.user_agent)

    def log_stage(self, stage: Stage) -> None:
        """Write the event as it is now."""
        if stage == "ResponseComplete" and not self.is_long_running:
            self._annotate_latencies()
        if self._omits_stage(stage):
            return
        now = self._received if stage == "RequestReceived" else rfc3339_micro(self._clock.now())
        optional = {
            "impersonatedUser": self.impersonated_user,
            "authenticationMetadata": self.impersonation_constraint
            and {"impersonationConstraint": self.impersonation_constraint},
            "sourceIPs": self._sources,
            "userAgent": self._user_agent,
            "objectRef": self.object_reference,
            "responseStatus": self.status,
            "requestObject": msgspec.Raw(self.request_object) if self.request_object else None,
            "responseObject": msgspec.Raw(self._response_object) if self._response_object else None,
        }
        event = {**self._head, "stage": stage, **{name: value for name, value in optional.items() if value}}
        event |= {"requestReceivedTimestamp": self._received, "stageTimestamp": now}
        if self.annotations:
            event["annotations"] = self.annotations
        self._write(event)

    def _annotate_latencies(self) -> None:
        """Annotate a slow request with the time it took, and with that of the layers that are measured."""
        seconds = seconds_between(self._began, self._clock.now())
        if seconds > _SLOW_SECONDS:
            for layer, part in (self.latencies | {"total": seconds}).items():
                self.annotate(f"apiserver.latency.k8s.io/{layer}", duration_text(part))

    def log_response(self, request: ApiRequest, response: Response) -> None:
        """Record status and, at level RequestResponse, object of a response."""
        self.status = {"metadata": {}, "code": response.status}
        if self.panic:
            message = f"APIServer panic'd: {self.panic}"
            self.status |= {"status": "Failure", "reason": "InternalError", "message": message}
            return
        if not isinstance(response.body, bytes):
            return
        logs_object = self._head["level"] == "RequestResponse"
        if not logs_object and not _may_be_status(response):
            return
        obj = _response_object(response)
        if obj is None:
            return
        if obj.get("kind") == "Status" and obj.get("apiVersion") == "v1":
            self.status = {"metadata": {}, **{name: obj[name] for name in _STATUS_FIELDS if name in obj}}
            self.status["code"] = response.status
        if logs_object:
            self._response_object = msgspec.json.encode(
                without_managed_fields(obj) if self.omits_managed_fields else obj
            )

    async def logging_end_of(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the chunks of a stream, then log its end."""
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
            self.log_stage("ResponseComplete")

    def logging_end_of_upgrade(
        self, upgrade: Callable[[UpgradedConnection], Awaitable[None]]
    ) -> Callable[[UpgradedConnection], Awaitable[None]]:
        """Return a function that serves an upgraded connection, then logs its end."""

        async def serve(connection: UpgradedConnection) -> None:
            try:
                await upgrade(connection)
            finally:
                self.log_stage("ResponseComplete")

        return serve


def _object_reference(attributes: RequestAttributes) -> JSON:
    if not attributes.is_resource_request:
        return {}
    reference = {
        "resource": attributes.resource,
        "namespace": attributes.namespace,
        "name": attributes.name,
        "apiGroup": attributes.group,
        "apiVersion": attributes.version,
        "subresource": attributes.subresource,
    }
    return {name: value for name, value in reference.items() if value}


def _may_be_status(response: Response) -> bool:
    """Return False for a response that is certainly no Status, without decoding it."""
    if response.content_type.startswith(JSON_TYPE):
        return b'"kind":"Status"' in response.body[:64]  # type: ignore[index]
    return b"Status" in response.body[:64]  # type: ignore[index]


def _response_object(response: Response) -> JSON | None:
    """Return the object of a response; None for text."""
    body, media_type = response.body, response.content_type.partition(";")[0]
    assert isinstance(body, bytes)
    if media_type == JSON_TYPE:
        obj = msgspec.json.decode(body)
    elif media_type == PROTOBUF_TYPE:
        obj = codec.decode(body)
    elif media_type == "application/yaml":
        from kubeloop.kube.yaml import read_first  # imports PyYAML

        obj, _ = read_first(body)
    else:
        return None
    return obj if isinstance(obj, dict) and "kind" in obj else None


def _source_addresses(request: ApiRequest) -> list[str]:
    """Return the addresses of proxies and the client. Source: apimachinery pkg/util/net/http.go."""
    headers = request.headers
    forwarded = [_address(text) for text in headers.get("x-forwarded-for", "").split(",")]
    addresses = list(filter(None, forwarded))
    real = _address(headers.get("x-real-ip", ""))
    if real and real not in addresses:
        addresses.append(real)
    client = _address(request.client_address)
    if client and addresses[-1:] != [client]:
        addresses.append(client)
    return addresses


def _address(text: str) -> str:
    try:
        return str(ip_address(text.strip()))
    except ValueError:
        return ""


def _truncated(user_agent: str) -> str:
    return user_agent if len(user_agent) <= _MAX_USER_AGENT else f"{user_agent[:_MAX_USER_AGENT]}...TRUNCATED"

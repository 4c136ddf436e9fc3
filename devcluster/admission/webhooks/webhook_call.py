"""One call of a webhook: the request, its time limit, the verified response, metrics and audit annotations.

Source: callHook and callAttrMutatingHook of apiserver pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from kubeloop.devcluster.admission.attributes import Attributes
from kubeloop.devcluster.admission.webhooks.admission_review import (
    AdmissionResponse,
    InvalidResponse,
    UndecodableResponse,
    admission_review,
    review_version,
    verified_response,
)
from kubeloop.devcluster.admission.webhooks.webhook import Webhook
from kubeloop.devcluster.admission.webhooks.webhook_metrics import WebhookMetrics
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.outgoing.webhook_client import CallFailed, WebhookClient
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.durations import parse_duration

log = logging.getLogger(__name__)

R = TypeVar("R")

_REQUEST_SECONDS = 60.0  # kube-apiserver's --request-timeout
_TIMER_SECONDS = 0.01  # by which a timer may fire early
_BAD_REQUEST = 400


class CallError(Exception):
    """A webhook cannot be called, or its response is invalid; its failurePolicy decides. code: shown in metrics."""

    def __init__(self, webhook: Webhook, reason: str, code: int = 503) -> None:
        super().__init__(f"failed calling webhook {quoted(webhook.name)}: {reason}")
        self.code = code


class Rejected(Exception):
    """A webhook denied the request."""

    def __init__(self, status: errors.StatusError) -> None:
        super().__init__(status.message)
        self.status = status


def request_deadline(context: RequestContext) -> float:
    """Return the loop time at which a request, whose handling begins now, times out."""
    text = context.request.option("timeout")
    seconds = parse_duration(text) / 1e9 if text else 0.0
    return asyncio.get_running_loop().time() + (seconds or _REQUEST_SECONDS)


@dataclass(frozen=True, slots=True)
class WebhookCalls:
    """Calls the webhooks of one server for one request. deadline: loop time at which the request times out."""

    client: WebhookClient
    metrics: WebhookMetrics
    context: RequestContext
    deadline: float

    async def send(
        self, webhook: Webhook, request: Attributes, matched: ServedResource, obj: JSON | None, old: JSON | None
    ) -> AdmissionResponse:
        """Call a webhook, and return the response that allows the request. Runs in a task.

        obj, old: in the version of `matched`. Raises CallError, Rejected; StatusError 400 for a dry run that it does
        not support.
        """
        if request.dry_run and webhook.spec.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise errors.bad_request(f"admission webhook {quoted(webhook.name)} does not support dry run")
        version = review_version(webhook.spec["admissionReviewVersions"])
        if not version:
            known = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            raise CallError(webhook, f"could not create admission objects: {known}", _BAD_REQUEST)
        uid = self.context.new_uid()
        body = admission_review(version, uid, request, matched, obj, old)
        left = self.deadline - asyncio.get_running_loop().time()
        seconds = min(webhook.spec.get("timeoutSeconds") or math.inf, max(left, 0.0))
        try:
            content = await self.client.post(webhook.spec["clientConfig"], body, seconds, webhook.call_type)
            response = verified_response(content, version, uid, mutates=webhook.call_type == "admit")
        except (CallFailed, UndecodableResponse) as error:
            code = error.code if isinstance(error, CallFailed) else 503
            raise CallError(webhook, f"failed to call webhook: {error}", code) from None
        except InvalidResponse as error:
            raise CallError(webhook, f"received invalid webhook response: {error}") from None
        for key, value in response.audit_annotations.items():
            self.context.annotate(f"{webhook.name}/{key}", value)
        self.context.request.warnings += response.warnings
        if not response.allowed:
            raise Rejected(_denial(webhook, response.status))
        return response

    async def observed(
        self, webhook: Webhook, operation: str, call: Callable[[], Awaitable[R]], fail_open_key: str
    ) -> R | None:
        """Return the result of `call`, a call of the webhook; None if it failed and the failure is ignored.

        fail_open_key: of the audit annotation of an ignored failure. Raises StatusError for a denial or a failure.
        """
        labels, began, metrics = (webhook.name, webhook.call_type, operation), perf_counter(), self.metrics

        def called(seconds: float, code: int, *, rejected: bool) -> None:
            metrics.called(labels, seconds, code, rejected=rejected)
            if self.context.request.audit is not None:
                layer = "mutating-webhook" if webhook.call_type == "admit" else "validating-webhook"
                self.context.request.audit.note_latency(layer, seconds)

        try:
            result = await call()
        except CallError as error:
            called(perf_counter() - began, error.code, rejected=not webhook.ignores_failures)
            log.warning("%s", error, extra={"webhook": webhook.name, "ignored": webhook.ignores_failures})
            if not webhook.ignores_failures:
                metrics.rejected(labels, "calling_webhook_error", error.code)
                raise errors.internal_error(str(error)) from error
            metrics.fail_open[labels[:2]] += 1
            self.context.annotate(fail_open_key, webhook.name)
            if asyncio.get_running_loop().time() >= self.deadline - _TIMER_SECONDS:
                raise errors.timeout("request did not complete within requested timeout") from error
            return None
        except Rejected as rejection:
            called(perf_counter() - began, rejection.status.code, rejected=True)
            metrics.rejected(labels, "no_error", rejection.status.code)
            raise rejection.status from None
        except errors.StatusError:
            called(perf_counter() - began, 0, rejected=True)
            metrics.rejected(labels, "apiserver_internal_error", 0)
            raise
        called(perf_counter() - began, 200, rejected=False)
        return result


def _denial(webhook: Webhook, status: JSON | None) -> errors.StatusError:
    """Return the error of a denied request. Source: errors/statuserror.go."""
    status = status or {}
    denied = f"admission webhook {quoted(webhook.name)} denied the request"
    explanation = status.get("message") or status.get("reason")
    message = f"{denied}: {explanation}" if explanation else f"{denied} without explanation"
    code = max(int(status.get("code") or 0), _BAD_REQUEST)
    return errors.StatusError(code, status.get("reason") or "", message, details=status.get("details"))

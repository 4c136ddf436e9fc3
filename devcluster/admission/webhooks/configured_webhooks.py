"""The webhooks of a store, in the order of their configurations' names, called for the current request.

Mutating webhooks are called one after the other, each with the result of those before, validating webhooks at the same
time. Source: apiserver pkg/admission/plugin/webhook/{generic,mutating,validating}.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import msgspec
from msgspec.structs import replace

from kubeloop.devcluster.admission.attributes import (
    Attributes,
    CustomResources,
    Operation,
    admission_attributes,
    equivalent_versions,
    hidden_until_stored,
    set_connect_options,
    store_changes,
    written_resource,
)
from kubeloop.devcluster.admission.policies.expression_evaluation import OutOfBudget
from kubeloop.devcluster.admission.policies.matcher import Matcher
from kubeloop.devcluster.admission.policies.policy_dispatcher import MatchConditionError
from kubeloop.devcluster.admission.policies.request_variables import authorizer_value, request_value
from kubeloop.devcluster.admission.webhooks.object_patches import (
    UndecodablePatch,
    decode_patch,
    in_request_form,
    patched_object,
)
from kubeloop.devcluster.admission.webhooks.webhook import CallType, Webhook
from kubeloop.devcluster.admission.webhooks.webhook_call import CallError, WebhookCalls, request_deadline
from kubeloop.devcluster.admission.webhooks.webhook_metrics import WebhookMetrics
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    ServedResource,
)
from kubeloop.devcluster.api.slow_work import SlowWork
from kubeloop.devcluster.outgoing.webhook_client import WebhookClient
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.validation.field_errors import quoted

_MUTATION_ANNOTATION = "mutation.webhook.admission.k8s.io/"
_PATCH_ANNOTATION = "patch.webhook.admission.k8s.io/"
_VALIDATION_ANNOTATION = "validating.webhook.admission.k8s.io/"
_UNCONVERTIBLE_SCALE = "request to convert CR to an invalid group/version: autoscaling/v1"
"""v1.36's error for a webhook that changes the Scale of a custom resource."""


@dataclass(slots=True)
class Reinvocations:
    """Which mutating webhooks are called again in the second round. Source: mutating/reinvocationcontext.go.

    is_changed: a webhook has changed the object. invoked: those called since the last change that ask to be called
    again after one. required: those to call again. output: the object after the last round.
    """

    is_changed: bool = False
    is_second_round: bool = False
    invoked: set[str] = field(default_factory=set)
    required: set[str] = field(default_factory=set)
    output: JSON | None = None

    def require_invoked(self) -> None:
        self.required |= self.invoked
        self.invoked.clear()


class ConfiguredWebhooks:
    """The webhooks of one store. definitions: the custom resources."""

    def __init__(
        self, store: ObjectStore, definitions: CustomResources, client: WebhookClient, metrics: WebhookMetrics
    ) -> None:
        self._store = store
        self._client = client
        self._metrics = metrics
        self._matcher = Matcher(store, partial(equivalent_versions, definitions))
        self.mutating: Sequence[Webhook] = ()
        self.validating: Sequence[Webhook] = ()

    def update(self, *, mutates: bool, validates: bool) -> None:
        """Read the configurations of the store. mutates, validates: the kinds that are enabled."""
        if mutates:
            self.mutating = self._webhooks(MUTATING_WEBHOOK_CONFIGURATIONS, self.mutating, "admit")
        if validates:
            self.validating = self._webhooks(VALIDATING_WEBHOOK_CONFIGURATIONS, self.validating, "validating")

    def _webhooks(self, kind: Resource[JSON], before: Sequence[Webhook], call_type: CallType) -> list[Webhook]:
        known = {webhook.uid: webhook for webhook in before}
        webhooks = []
        for configuration in sorted(self._store.list(kind), key=lambda obj: obj["metadata"]["name"]):
            name = configuration["metadata"]["name"]
            for index, spec in enumerate(configuration.get("webhooks") or ()):
                webhook = known.get(f"{name}/{index}")
                if webhook is None or webhook.spec != spec:
                    webhook = Webhook(name, index, spec, call_type)
                webhooks.append(webhook)
        return webhooks

    def _calls(self, context: RequestContext) -> WebhookCalls:
        return WebhookCalls(self._client, self._metrics, context, request_deadline(context))

    # --- matching -----------------------------------------------------------------------------------------------------

    async def _matched(self, webhook: Webhook, context: RequestContext, request: Attributes) -> ServedResource | None:
        """Return the resource as which a webhook gets a request; None if it does not match.

        Raises StatusError 403 for failed match conditions, 404 for a missing namespace.
        """
        if not webhook.match["resourceRules"]:
            return None
        matched = self._matcher.match(webhook.match, request)
        if matched is None or webhook.conditions is None:
            return matched
        obj, old = await request.seen_as(matched)
        value = request_value(request, matched)
        values = {
            "object": obj,
            "oldObject": old,
            "request": {**value, "resource": value["requestResource"]},
            "authorizer": authorizer_value(request),
        }
        labels = (
            webhook.name, "webhook", "admit" if webhook.call_type == "admit" else "validate", request.operation
        )  # fmt: skip
        began = perf_counter()
        try:
            is_met = await context.compute(partial(webhook.conditions.are_met, values))
        except (MatchConditionError, OutOfBudget) as error:
            self._metrics.condition_errors[labels] += 1
            if webhook.ignores_failures:
                return None
            raise errors.forbidden(request.served.resource, request.name, str(error)) from None
        finally:
            self._metrics.condition_durations.observe(labels, perf_counter() - began)
        if not is_met:
            self._metrics.condition_exclusions[labels] += 1
            return None
        return matched

    # --- validating ---------------------------------------------------------------------------------------------------

    async def check(self, context: RequestContext, request: Attributes) -> None:
        """Call the validating webhooks that match a request. Raises StatusError if one denies it."""
        sends: list[Callable[[], Awaitable[object]]] = []
        calls = self._calls(context)
        for webhook in self.validating:
            matched = await self._matched(webhook, context, request)
            if matched is None:
                continue
            objects = await request.seen_as(matched)
            key = f"failed-open.{_VALIDATION_ANNOTATION}round_0_index_{len(sends)}"
            send = partial(calls.send, webhook, request, matched, *objects)
            sends.append(partial(calls.observed, webhook, request.operation, send, key))
        if sends:
            failures: list[errors.StatusError] = []

            async def call(send: Callable[[], Awaitable[object]]) -> None:
                try:
                    await send()
                except errors.StatusError as failure:
                    failures.append(failure)

            async def call_all() -> None:
                async with asyncio.TaskGroup() as group:
                    for send in sends:
                        group.create_task(call(send))

            await SlowWork(call_all)
            if failures:
                raise failures[0]

    # --- mutating -----------------------------------------------------------------------------------------------------

    async def admit_other(self, context: RequestContext, request: Attributes) -> Attributes:
        """Call the mutating webhooks for a deletion, or for a stream and return it with the options that they set."""
        reinvocations = Reinvocations()
        admitted = await self._admit(context, request, reinvocations)
        if reinvocations.is_changed:
            reinvocations.is_second_round = True
            admitted = await self._admit(context, admitted, reinvocations)
            if admitted.object is not None:
                set_connect_options(context.request, admitted.object)
        return admitted

    async def mutate(
        self,
        context: RequestContext,
        operation: Operation,
        obj: JSON,
        old: JSON | None,
        reinvocations: Reinvocations | None,
    ) -> Reinvocations:
        """Call a round of mutating webhooks for the object of a request, in place; see DynamicAdmission.mutate().

        reinvocations: None in the first round; its result in the second, in which webhooks are called again.
        """
        visible, hidden = hidden_until_stored(obj, old)
        request = admission_attributes(context, operation, visible, old, None, None)
        if reinvocations is None:
            reinvocations = Reinvocations()
        else:
            reinvocations.is_second_round = True
            if request.object != reinvocations.output:
                reinvocations.require_invoked()
        changed = (await self._admit(context, request, reinvocations)).object
        if changed is not None and changed is not visible:
            store_changes(obj, changed, hidden)
        reinvocations.output = changed
        return reinvocations

    async def _admit(self, context: RequestContext, request: Attributes, reinvocations: Reinvocations) -> Attributes:
        """Call a round of webhooks; return the request with the changed object."""
        calls, round_ = self._calls(context), int(reinvocations.is_second_round)
        for index, webhook in enumerate(self.mutating):
            matched = await self._matched(webhook, context, request)
            if matched is None or (round_ and webhook.uid not in reinvocations.required):
                continue
            suffix = f"round_{round_}_index_{index}"
            send = partial(self._changed_object, calls, webhook, request, matched, suffix)
            key = f"failed-open.{_MUTATION_ANNOTATION}{suffix}"
            result = await calls.observed(webhook, request.operation, send, key)
            if result is not None:
                obj, is_changed = result
                request = replace(request, object=obj)
                if is_changed:
                    reinvocations.require_invoked()
                    reinvocations.is_changed = True
            if webhook.is_reinvoked:
                reinvocations.invoked.add(webhook.uid)
        return request

    async def _changed_object(
        self, calls: WebhookCalls, webhook: Webhook, request: Attributes, matched: ServedResource, suffix: str
    ) -> tuple[JSON | None, bool]:
        """Return the object after a call of a mutating webhook, and True if it has changed.

        Raises CallError, Rejected, StatusError.
        """
        is_changed = False
        annotation: JSON = {"configuration": webhook.configuration, "webhook": webhook.name}
        try:
            obj, old = await request.seen_as(matched)
            response = await SlowWork(partial(calls.send, webhook, request, matched, obj, old))
            if not response.patch:
                return request.object, False
            try:
                operations = decode_patch(response.patch)
            except UndecodablePatch as error:
                reason = f"received undecodable patch in webhook response: {error}"
                raise CallError(webhook, reason) from None
            if not operations:
                return request.object, False
            if obj is None:
                attempted = f"admission webhook {quoted(webhook.name)} attempted to modify the object"
                raise errors.internal_error(f"{attempted}, which is not supported for this operation")
            if response.patch_type != "JSONPatch":
                raise CallError(webhook, f"unsupported patch type {quoted(response.patch_type)}", 400)
            written, requested = (written_resource(served, request.subresource) for served in (matched, request.served))
            changed, is_changed = patched_object(written, obj, operations)
            patch = {**annotation, "patch": operations, "patchType": "JSONPatch"}
            calls.context.annotate(_PATCH_ANNOTATION + suffix, msgspec.json.encode(patch).decode(), with_objects=True)
            if request.subresource == "scale" and request.served.crd_version is not None:
                raise errors.internal(_UNCONVERTIBLE_SCALE)
            return await in_request_form(requested, written, changed), is_changed
        finally:
            mutated = msgspec.json.encode({**annotation, "mutated": is_changed}).decode()
            calls.context.annotate(_MUTATION_ANNOTATION + suffix, mutated)

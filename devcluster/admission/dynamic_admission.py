"""Dynamic admission of one store: admission policies and webhooks, which users configure by objects.

Optional plugins run before them, as they see the same requests. Policies and webhooks are compiled on the first request
after they have changed; while there are none, a request checks one flag, and nothing else of `policies` and `webhooks`
is imported. Order as in kube-apiserver: MutatingAdmissionPolicy, MutatingAdmissionWebhook; ValidatingAdmissionPolicy,
ValidatingAdmissionWebhook. Source: apiserver pkg/admission/reinvocation.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from kubeloop.devcluster.admission.attributes import CustomResources, Operation, admission_attributes
from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin
from kubeloop.devcluster.admission.plugin_settings import DEFAULT_PLUGINS
from kubeloop.devcluster.admission.webhooks.webhook_metrics import WebhookMetrics
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import (
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from kubeloop.devcluster.managedfields.field_sets import managed_fields_problem
from kubeloop.devcluster.outgoing.webhook_client import WebhookClient
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.devcluster.admission.policies.compiled_policies import CompiledPolicies
    from kubeloop.devcluster.admission.webhooks.configured_webhooks import ConfiguredWebhooks
    from kubeloop.devcluster.api.delete_options import DeleteOptions

_POLICIES = (
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
)
_WEBHOOKS = (VALIDATING_WEBHOOK_CONFIGURATIONS, MUTATING_WEBHOOK_CONFIGURATIONS)
_EXEMPT_RESOURCES = frozenset(resource.group_resource for resource in (*_POLICIES, *_WEBHOOKS))
"""Resources that policies and webhooks do not apply to, so that a faulty one can be deleted."""


_INVALID_MANAGED_FIELDS = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests: "
)


def _no_plugins() -> None:
    """Stand for the mutating plugins of a request that has none."""


class DynamicAdmission:
    """The policies and webhooks of one store. definitions: the custom resources. client: calls the webhooks."""

    def __init__(
        self,
        store: ObjectStore,
        definitions: CustomResources,
        client: WebhookClient,
        enabled: Collection[str] = DEFAULT_PLUGINS,
        plugins: Sequence[OptionalPlugin] = (),
    ) -> None:
        """enabled: names of the admission plugins that run. plugins: the optional ones of them."""
        self._store = store
        self._client = client
        self._enabled = enabled
        self._plugins = plugins
        self._definitions = definitions
        self._policies: CompiledPolicies | None = None
        self._webhooks: ConfiguredWebhooks | None = None
        self.webhook_metrics = WebhookMetrics()
        self._changed_policies = self._changed_webhooks = False
        for resource in _POLICIES:
            self._changed_policies = self._changed_policies or len(store.table(resource)) > 0
            store.subscribe(resource, self._policies_changed)
        for resource in _WEBHOOKS:
            self._changed_webhooks = self._changed_webhooks or len(store.table(resource)) > 0
            store.subscribe(resource, self._webhooks_changed)
        self._is_changed = self._changed_policies or self._changed_webhooks
        self._applies = False

    def _policies_changed(self, _change: Change) -> None:
        self._is_changed = self._changed_policies = True

    def _webhooks_changed(self, _change: Change) -> None:
        self._is_changed = self._changed_webhooks = True

    def apply_to(self, context: RequestContext) -> bool:
        """Return True if plugins, policies or webhooks may apply to a request; check() and mutate() must be called."""
        for plugin in self._plugins:  # on the path of every write, hence not any()
            if plugin.applies_to(context):
                return True
        return self._calls_configured(context)

    def _calls_configured(self, context: RequestContext) -> bool:
        """Return True if policies or webhooks may apply to a request."""
        if self._is_changed:
            self._update()
        return self._applies and context.info.served.resource.group_resource not in _EXEMPT_RESOURCES

    def _plugins_for(self, context: RequestContext, operation: Operation) -> Sequence[OptionalPlugin]:
        return [plugin for plugin in self._plugins if operation in plugin.operations and plugin.applies_to(context)]

    def _update(self) -> None:
        """Compile what has changed."""
        enabled = self._is_enabled
        if self._changed_policies:
            from kubeloop.devcluster.admission.policies.compiled_policies import CompiledPolicies

            self._policies = self._policies or CompiledPolicies(self._store, self._definitions)
            self._policies.update(
                mutates=enabled("MutatingAdmissionPolicy"), validates=enabled("ValidatingAdmissionPolicy")
            )
        if self._changed_webhooks:
            from kubeloop.devcluster.admission.webhooks.configured_webhooks import ConfiguredWebhooks

            self._webhooks = self._webhooks or ConfiguredWebhooks(
                self._store, self._definitions, self._client, self.webhook_metrics
            )
            self._webhooks.update(
                mutates=enabled("MutatingAdmissionWebhook"), validates=enabled("ValidatingAdmissionWebhook")
            )
        self._is_changed = self._changed_policies = self._changed_webhooks = False
        self._applies = any(
            plugin is not None and bool(plugin.validating or plugin.mutating)
            for plugin in (self._policies, self._webhooks)
        )

    def _is_enabled(self, plugin: str) -> bool:
        return plugin in self._enabled

    async def check(
        self,
        context: RequestContext,
        operation: Operation,
        obj: JSON | None,
        old: JSON | None,
        deletion: DeleteOptions | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Run the validating plugins, policies and webhooks on a request. Raises StatusError if one denies it.

        obj: to be stored; old: stored; both in the stored version. grace_seconds: default of the object, if the
        deletion's options set none. Mutating plugins and webhooks run first for deletions, whose object they cannot
        change, and for streams to containers, whose options they may change.
        """
        calls_configured, plugins = self._calls_configured(context), self._plugins_for(context, operation)
        if not (calls_configured or plugins):
            return
        policies, webhooks = (self._policies, self._webhooks) if calls_configured else (None, None)
        request = admission_attributes(context, operation, obj, old, deletion, grace_seconds)
        if operation in ("DELETE", "CONNECT"):
            for plugin in plugins:
                plugin.admit(request)
            if webhooks is not None and webhooks.mutating:
                request = await webhooks.admit_other(context, request)
        for plugin in plugins:
            plugin.check(request)
        if policies is not None and policies.validating:
            await policies.check(context, request)
        if webhooks is not None and webhooks.validating:
            await webhooks.check(context, request)

    async def mutate(
        self,
        context: RequestContext,
        operation: Operation,
        obj: JSON,
        old: JSON | None,
        admit: Callable[[], None] = _no_plugins,
    ) -> None:
        """Run the mutating plugins, policies and webhooks on an object, in place. Raises StatusError if one fails.

        obj: what the request writes, for example a Scale. old: the stored object. admit: runs the server's mutating
        plugins on `obj`. If a policy or webhook has changed it, these and those that ask for it run once more.
        """
        plugins = self._plugins_for(context, operation) if self._plugins else ()

        def admit_optional() -> None:
            if plugins:
                request = admission_attributes(context, operation, obj, old, None, None)
                for plugin in plugins:
                    plugin.admit(request)

        def admit_again() -> None:
            admit()
            admit_optional()

        admit_optional()
        if not self._calls_configured(context):
            return
        metadata, managed_fields = obj["metadata"], obj["metadata"].get("managedFields", [])
        await self._admit(context, operation, obj, old, admit_again)
        if metadata.get("managedFields") != managed_fields and (
            problem := managed_fields_problem(metadata.get("managedFields") or [])
        ):
            metadata["managedFields"] = managed_fields
            context.request.warnings.append(_INVALID_MANAGED_FIELDS + problem)

    async def _admit(
        self, context: RequestContext, operation: Operation, obj: JSON, old: JSON | None, admit: Callable[[], None]
    ) -> None:
        """Run one or two rounds of the mutating policies and webhooks."""
        policies = self._policies if self._policies is not None and self._policies.mutating else None
        webhooks = self._webhooks if self._webhooks is not None and self._webhooks.mutating else None
        outcome = round_ = None
        if policies is not None:
            outcome = await policies.mutate(context, operation, obj, old, None)
        if webhooks is not None:
            round_ = await webhooks.mutate(context, operation, obj, old, None)
        if (outcome is None or not outcome.is_changed) and (round_ is None or not round_.is_changed):
            return
        admit()
        if policies is not None and outcome is not None:
            await policies.mutate(context, operation, obj, old, outcome.reinvocable)
        if webhooks is not None and round_ is not None:
            await webhooks.mutate(context, operation, obj, old, round_)

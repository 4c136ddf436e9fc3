"""Compiled admission policies of one store, with their bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from kubeloop.devcluster.admission.policies.attributes import (
    Attributes,
    Operation,
    connect_options,
    equivalent_resources,
)
from kubeloop.devcluster.admission.policies.matcher import Matcher
from kubeloop.devcluster.admission.policies.mutating_admission_policy import MutatingPolicy, PolicyRun, mutate
from kubeloop.devcluster.admission.policies.policy_dispatcher import CompiledPolicy, Dispatcher
from kubeloop.devcluster.admission.policies.validating_admission_policy import ValidatingPolicy, validate
from kubeloop.devcluster.api.delete_options import DeleteOptions
from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import (
    BY_KIND,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    ServedResource,
)
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, Resource


class _Version(Protocol):
    @property
    def served(self) -> ServedResource: ...


class CustomResources(Protocol):
    """The custom resources of one server (apiextensions.definitions.Definitions)."""

    def versions(self) -> Iterable[_Version]: ...


P = TypeVar("P", bound=CompiledPolicy)
PoliciesWithBindings = list[tuple[P, Sequence[JSON]]]


class CompiledPolicies:
    """The policies of a store that have bindings. definitions: the custom resources, which may be parameters."""

    def __init__(self, store: ObjectStore, definitions: CustomResources) -> None:
        self._store = store
        self._definitions = definitions
        self._dispatcher = Dispatcher(store, Matcher(store, self._equivalent_resources), self._param_resource)
        self.validating: PoliciesWithBindings[ValidatingPolicy] = []
        self.mutating: PoliciesWithBindings[MutatingPolicy] = []

    def update(self, *, mutates: bool, validates: bool) -> None:
        """Compile new and changed policies, and drop deleted ones. mutates, validates: the kinds that are enabled."""
        if validates:
            self.validating = self._with_bindings(
                VALIDATING_ADMISSION_POLICIES,
                VALIDATING_ADMISSION_POLICY_BINDINGS,
                self.validating,
                ValidatingPolicy,
            )
        if mutates:
            self.mutating = self._with_bindings(
                MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS, self.mutating, MutatingPolicy
            )

    def _with_bindings(
        self,
        kind: Resource[JSON],
        binding_kind: Resource[JSON],
        before: PoliciesWithBindings[P],
        compile_: Callable[[JSON], P],
    ) -> PoliciesWithBindings[P]:
        """Return the policies of a kind with their bindings; policies without a binding are left out."""
        bindings: dict[str, list[JSON]] = {}
        for binding in self._store.list(binding_kind):
            bindings.setdefault(binding["spec"]["policyName"], []).append(binding)
        compiled = {policy.name: policy for policy, _ in before}
        policies: PoliciesWithBindings[P] = []
        for obj in self._store.list(kind) if bindings else ():
            name = obj["metadata"]["name"]
            if name in bindings:
                policy = compiled.get(name)
                is_same = policy is not None and policy.spec == obj["spec"]
                policies.append((policy if policy is not None and is_same else compile_(obj), bindings[name]))
        return policies

    async def check(
        self,
        context: RequestContext,
        operation: Operation,
        obj: JSON | None,
        old: JSON | None,
        deletion: DeleteOptions | None,
        grace_seconds: int | None,
    ) -> None:
        """Run the validating policies on a request; see PolicyPlugin.check()."""
        attributes = _attributes(context, operation, obj, old, deletion, grace_seconds)
        await validate(self.validating, attributes, context, self._dispatcher)

    async def mutate(
        self, context: RequestContext, operation: Operation, obj: JSON, old: JSON | None, admit: Callable[[], None]
    ) -> None:
        """Run the mutating policies on the object of a request; see PolicyPlugin.mutate()."""
        reinvocations = await self._mutate(context, operation, obj, old, None)
        if reinvocations is not None:
            admit()
            await self._mutate(context, operation, obj, old, reinvocations)

    async def _mutate(
        self,
        context: RequestContext,
        operation: Operation,
        obj: JSON,
        old: JSON | None,
        repeated_runs: frozenset[PolicyRun] | None,
    ) -> frozenset[PolicyRun] | None:
        """Run a round of policies, the second one only `repeated_runs`. Returns the runs to repeat, if any changed."""
        metadata = obj["metadata"]
        set_later = {name: metadata[name] for name in _SET_AFTER_ADMISSION if name in metadata} if old is None else {}
        visible = {**obj, "metadata": {name: value for name, value in metadata.items() if name not in set_later}}
        attributes = _attributes(context, operation, visible, old, None, None)
        outcome = await mutate(self.mutating, attributes, context, self._dispatcher, repeated_runs)
        if outcome.object is not visible:
            changed = {**outcome.object["metadata"], **set_later}
            metadata.clear()
            metadata.update(changed)
            obj.clear()
            obj.update(outcome.object, metadata=metadata)
        return outcome.reinvocations

    def _param_resource(self, api_version: str, kind: str) -> ServedResource | None:
        served = BY_KIND.get((api_version, kind))
        if served is not None:
            return served if served.is_stored else None
        for version in self._definitions.versions():
            resource = version.served.resource
            if (resource.api_version, resource.kind) == (api_version, kind):
                return version.served
        return None

    def _equivalent_resources(self, served: ServedResource) -> Sequence[ServedResource]:
        """Return the other API versions of a resource's objects."""
        if served.crd_version is None:
            return equivalent_resources(served)
        versions = (version.served for version in self._definitions.versions())
        name = served.resource.group_resource
        return [other for other in versions if other.resource.group_resource == name and other is not served]


def _attributes(
    context: RequestContext,
    operation: Operation,
    obj: JSON | None,
    old: JSON | None,
    deletion: DeleteOptions | None,
    grace_seconds: int | None,
) -> Attributes:
    request, info = context.request, context.info
    name = info.name
    if not name and operation == "CREATE" and obj is not None:
        name = obj["metadata"].get("name", "")
    options = None
    if operation in ("CREATE", "UPDATE"):
        options = _write_options(request, operation)
    elif deletion is not None:
        options = deletion.document
        if grace_seconds is not None and name:  # the options of a collection's deletion are not changed
            options["gracePeriodSeconds"] = grace_seconds
    elif operation == "CONNECT":
        obj = connect_options(request, info)
    return Attributes(
        operation,
        info.served,
        info.subresource,
        name if info.served.resource is NAMESPACES else info.namespace,
        name,
        obj,
        old,
        options,
        bool((options or {}).get("dryRun")),
        request.user,
    )


_SET_AFTER_ADMISSION = ("uid", "creationTimestamp")
"""Metadata that is set after admission."""


def _write_options(request: Request, operation: Operation) -> JSON:
    """Return the CreateOptions or UpdateOptions of a request, from its query."""
    options: JSON = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if request.query.get("dryRun"):
        options["dryRun"] = list(request.query["dryRun"])
    for option in ("fieldManager", "fieldValidation"):
        if value := request.option(option):
            options[option] = value
    return options

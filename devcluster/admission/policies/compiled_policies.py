"""Compiled admission policies of one store, with their bindings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from kubeloop.devcluster.admission.attributes import (
    Attributes,
    CustomResources,
    Operation,
    admission_attributes,
    equivalent_versions,
    hidden_until_stored,
    resource_of_kind,
    store_changes,
)
from kubeloop.devcluster.admission.policies.matcher import Matcher
from kubeloop.devcluster.admission.policies.mutating_admission_policy import MutatingPolicy, Outcome, PolicyRun, mutate
from kubeloop.devcluster.admission.policies.policy_dispatcher import CompiledPolicy, Dispatcher
from kubeloop.devcluster.admission.policies.validating_admission_policy import ValidatingPolicy, validate
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import (
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    ServedResource,
)
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

P = TypeVar("P", bound=CompiledPolicy)
PoliciesWithBindings = list[tuple[P, Sequence[JSON]]]


class CompiledPolicies:
    """The policies of a store that have bindings. definitions: the custom resources, which may be parameters."""

    def __init__(self, store: ObjectStore, definitions: CustomResources) -> None:
        self._store = store
        self._definitions = definitions
        matcher = Matcher(store, partial(equivalent_versions, definitions))
        self._dispatcher = Dispatcher(store, matcher, self._param_resource)
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

    async def check(self, context: RequestContext, request: Attributes) -> None:
        """Run the validating policies on a request. Raises StatusError if one denies it."""
        await validate(self.validating, request, context, self._dispatcher)

    async def mutate(
        self,
        context: RequestContext,
        operation: Operation,
        obj: JSON,
        old: JSON | None,
        repeated_runs: frozenset[PolicyRun] | None,
    ) -> Outcome:
        """Run a round of policies on the object of a request, in place; the second round only `repeated_runs`."""
        visible, hidden = hidden_until_stored(obj, old)
        attributes = admission_attributes(context, operation, visible, old, None, None)
        outcome = await mutate(self.mutating, attributes, context, self._dispatcher, repeated_runs)
        if outcome.object is not visible:
            store_changes(obj, outcome.object, hidden)
        return outcome

    def _param_resource(self, api_version: str, kind: str) -> ServedResource | None:
        served = resource_of_kind(self._definitions, api_version, kind)
        return served if served is not None and served.is_stored else None

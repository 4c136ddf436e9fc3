"""Admission policies of one store: compile them when they change, and run them on requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import (
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
)
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.devcluster.admission.policies.attributes import Operation
    from kubeloop.devcluster.admission.policies.compiled_policies import CompiledPolicies, CustomResources
    from kubeloop.devcluster.api.delete_options import DeleteOptions


_RESOURCES = (
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
)
_EXEMPT_RESOURCES = frozenset(resource.group_resource for resource in _RESOURCES)
"""Resources that policies do not apply to, so that a faulty policy can be deleted."""


def _no_plugins() -> None:
    """Stand for the mutating plugins of a request that has none."""


class PolicyPlugin:
    """The admission policies of one store. definitions: the custom resources, whose objects may be parameters."""

    def __init__(
        self, store: ObjectStore, definitions: CustomResources, *, mutates: bool = True, validates: bool = True
    ) -> None:
        """mutates, validates: False to ignore MutatingAdmissionPolicies or ValidatingAdmissionPolicies."""
        self._store = store
        self._mutates = mutates
        self._validates = validates
        self._definitions = definitions
        self._compiled: CompiledPolicies | None = None
        self._changed = False
        for resource in _RESOURCES:
            self._changed = self._changed or len(store.table(resource)) > 0
            store.subscribe(resource, self._mark_changed)

    def _mark_changed(self, _change: Change) -> None:
        self._changed = True

    def apply_to(self, context: RequestContext) -> bool:
        """Return True if policies may apply to a request; then check() and mutate() must be called."""
        if self._changed:
            from kubeloop.devcluster.admission.policies.compiled_policies import CompiledPolicies

            self._changed = False
            self._compiled = self._compiled or CompiledPolicies(self._store, self._definitions)
            self._compiled.update(mutates=self._mutates, validates=self._validates)
        if self._compiled is None or not (self._compiled.validating or self._compiled.mutating):
            return False
        return context.info.served.resource.group_resource not in _EXEMPT_RESOURCES

    async def check(
        self,
        context: RequestContext,
        operation: Operation,
        obj: JSON | None,
        old: JSON | None,
        deletion: DeleteOptions | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Run the validating policies on a request. Raises StatusError if one denies it.

        obj: to be stored; old: stored; both in the stored version. grace_seconds: default of the object, if the
        deletion's options set none.
        """
        if self.apply_to(context) and self._compiled is not None and self._compiled.validating:
            await self._compiled.check(context, operation, obj, old, deletion, grace_seconds)

    async def mutate(
        self,
        context: RequestContext,
        operation: Operation,
        obj: JSON,
        old: JSON | None,
        admit: Callable[[], None] = _no_plugins,
    ) -> None:
        """Run the mutating policies on the object of a request, in place. Raises StatusError if one fails.

        obj: what the request writes, for example a Scale. old: the stored object. admit: runs the server's mutating
        plugins on `obj`, again after the first round of policies if one of them has changed it.
        """
        if self.apply_to(context) and self._compiled is not None and self._compiled.mutating:
            await self._compiled.mutate(context, operation, obj, old, admit)

"""Admission policies of one store: compile them when they change, and run them on requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

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
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, Resource

if TYPE_CHECKING:
    from kubeloop.devcluster.admission.policies import mutating_admission_policy, validating_admission_policy
    from kubeloop.devcluster.admission.policies.attributes import Attributes, Operation
    from kubeloop.devcluster.admission.policies.mutating_admission_policy import PolicyRun
    from kubeloop.devcluster.admission.policies.policy_dispatcher import CompiledPolicy, Dispatcher
    from kubeloop.devcluster.api.delete_options import DeleteOptions


class _Version(Protocol):
    @property
    def served(self) -> ServedResource: ...


class CustomResources(Protocol):
    """The custom resources of one server (apiextensions.definitions.Definitions)."""

    def versions(self) -> Iterable[_Version]: ...


P = TypeVar("P", bound="CompiledPolicy")
PoliciesWithBindings = list[tuple[P, Sequence[JSON]]]
Kinds = tuple[Resource[JSON], Resource[JSON]]
_VALIDATING = (VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS)
_MUTATING = (MUTATING_ADMISSION_POLICIES, MUTATING_ADMISSION_POLICY_BINDINGS)
_EXEMPT_RESOURCES = frozenset(
    f"{plural}.admissionregistration.k8s.io"
    for policy in ("validatingadmissionpolic", "mutatingadmissionpolic")
    for plural in (f"{policy}ies", f"{policy}ybindings")
)
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
        self._dispatcher: Dispatcher | None = None
        self._validating: PoliciesWithBindings[validating_admission_policy.ValidatingPolicy] = []
        self._mutating: PoliciesWithBindings[mutating_admission_policy.MutatingPolicy] = []
        self._changed = False
        for resource in (*_VALIDATING, *_MUTATING):
            self._changed = self._changed or len(store.table(resource)) > 0
            store.subscribe(resource, self._mark_changed)

    def _mark_changed(self, _change: Change) -> None:
        self._changed = True

    # --- checks -------------------------------------------------------------------------------------------------------

    def apply_to(self, context: RequestContext) -> bool:
        """Return True if policies may apply to a request; then check() and mutate() must be called."""
        if self._changed:
            self._compile_changed()
        if not self._validating and not self._mutating:
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
        if not self.apply_to(context) or not self._validating:
            return
        from kubeloop.devcluster.admission.policies.validating_admission_policy import validate

        assert self._dispatcher is not None
        attributes = _attributes(context, operation, obj, old, deletion, grace_seconds)
        await validate(self._validating, attributes, context, self._dispatcher)

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
        if not self.apply_to(context) or not self._mutating:
            return
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
        from kubeloop.devcluster.admission.policies.mutating_admission_policy import mutate

        assert self._dispatcher is not None
        metadata = obj["metadata"]
        set_later = {name: metadata[name] for name in _SET_AFTER_ADMISSION if name in metadata} if old is None else {}
        visible = {**obj, "metadata": {name: value for name, value in metadata.items() if name not in set_later}}
        attributes = _attributes(context, operation, visible, old, None, None)
        outcome = await mutate(self._mutating, attributes, context, self._dispatcher, repeated_runs)
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
        from kubeloop.devcluster.admission.policies.attributes import equivalent_resources

        if served.crd_version is None:
            return equivalent_resources(served)
        versions = (version.served for version in self._definitions.versions())
        name = served.resource.group_resource
        return [other for other in versions if other.resource.group_resource == name and other is not served]

    # --- compilation --------------------------------------------------------------------------------------------------

    def _compile_changed(self) -> None:
        """Compile new and changed policies, and drop deleted ones."""
        from kubeloop.devcluster.admission.policies import mutating_admission_policy, validating_admission_policy
        from kubeloop.devcluster.admission.policies.matcher import Matcher
        from kubeloop.devcluster.admission.policies.policy_dispatcher import Dispatcher

        self._changed = False
        if self._dispatcher is None:
            matcher = Matcher(self._store, self._equivalent_resources)
            self._dispatcher = Dispatcher(self._store, matcher, self._param_resource)
        if self._validates:
            self._validating = self._with_bindings(
                _VALIDATING, self._validating, validating_admission_policy.ValidatingPolicy
            )
        if self._mutates:
            self._mutating = self._with_bindings(_MUTATING, self._mutating, mutating_admission_policy.MutatingPolicy)

    def _with_bindings(
        self, kinds: Kinds, before: PoliciesWithBindings[P], compile_: Callable[[JSON], P]
    ) -> PoliciesWithBindings[P]:
        """Return the policies of a kind with their bindings; policies without a binding are left out."""
        bindings: dict[str, list[JSON]] = {}
        for binding in self._store.list(kinds[1]):
            bindings.setdefault(binding["spec"]["policyName"], []).append(binding)
        compiled = {policy.name: policy for policy, _ in before}
        policies: PoliciesWithBindings[P] = []
        for obj in self._store.list(kinds[0]) if bindings else ():
            name = obj["metadata"]["name"]
            if name in bindings:
                policy = compiled.get(name)
                is_same = policy is not None and policy.spec == obj["spec"]
                policies.append((policy if policy is not None and is_same else compile_(obj), bindings[name]))
        return policies


def _attributes(
    context: RequestContext,
    operation: Operation,
    obj: JSON | None,
    old: JSON | None,
    deletion: DeleteOptions | None,
    grace_seconds: int | None,
) -> Attributes:
    from kubeloop.devcluster.admission.policies.attributes import Attributes, connect_options

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

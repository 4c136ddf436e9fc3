"""Which policies there are, and the request that they are asked about.

Everything in this server is synchronous: one request is answered at a time, so what admission must know of its sender
is noted here when it comes, instead of being handed through all that writes. Whatever is written outside of a request
is the server's own doing and no policy's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kubeloop.devcluster.api.deferred_work import DeferredWork
from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import (
    BY_KIND,
    MUTATING_ADMISSION_POLICIES,
    MUTATING_ADMISSION_POLICY_BINDINGS,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    CustomResourceVersion,
    ServedResource,
)
from kubeloop.devcluster.storage.store import Change, Store
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, Resource

if TYPE_CHECKING:
    from kubeloop.devcluster.admission.policies import mutating_admission_policy, validating_admission_policy
    from kubeloop.devcluster.admission.policies.attributes import Attributes, Operation
    from kubeloop.devcluster.admission.policies.mutating_admission_policy import PolicyRun
    from kubeloop.devcluster.admission.policies.policy_dispatcher import CompiledPolicy, PolicyContext
    from kubeloop.devcluster.api.delete_options import DeleteOptions


class CustomResources(Protocol):
    """The custom resources of one server (apiextensions.definitions.Definitions)."""

    def versions(self) -> Iterable[CustomResourceVersion]: ...


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
"""What policies are not asked about, so that a wrong one can be taken back."""


class PolicyPlugin:
    """The policies of one store.

    asked: the request that is being answered, with its route; None between requests. definitions: of custom resources,
    whose objects may be parameters, once there are any.
    """

    def __init__(self, store: Store, deferred_work: DeferredWork) -> None:
        self._store = store
        self._deferred_work = deferred_work
        self.current_request: Request | None = None
        self.definitions: CustomResources | None = None
        self._surroundings: PolicyContext | None = None
        self._validating: PoliciesWithBindings[validating_admission_policy.ValidatingPolicy] = []
        self._mutating: PoliciesWithBindings[mutating_admission_policy.MutatingPolicy] = []
        self._changed = False
        for each in (*_VALIDATING, *_MUTATING):
            self._changed = self._changed or len(store.table(each)) > 0
            store.subscribe(each, self._note)

    def _note(self, _change: Change) -> None:
        self._changed = True

    # --- asking -------------------------------------------------------------------------------------------------------

    def check(
        self,
        operation: Operation,
        obj: JSON | None,
        old: JSON | None,
        deletion: DeleteOptions | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Ask all policies about what the request is about to do. Raises StatusError if one refuses it.

        obj: what is to be stored; old: what is there; as they are stored. What is evicted was asked about before.
        grace_seconds: what the object is given where the deletion's options leave it open.
        """
        request = self._judged()
        if request is None or not self._validating or (operation == "DELETE" and _route(request).subresource):
            return
        from kubeloop.devcluster.admission.policies.validating_admission_policy import validate

        assert self._surroundings is not None
        about = _attributes(request, _route(request), operation, obj, old, deletion, grace_seconds)
        validate(self._validating, about, request.warnings, self._surroundings)

    def mutate(
        self, operation: Operation, obj: JSON, old: JSON | None, only: frozenset[PolicyRun] | None = None
    ) -> frozenset[PolicyRun] | None:
        """Let all policies change, in place, what is about to be stored. Raises StatusError if one cannot.

        Returns what is to be run again after the server's own changes, None if nothing has been run. only: that, then.
        """
        request = self._judged()
        if request is None or not self._mutating or _route(request).subresource == "scale":
            return None
        from kubeloop.devcluster.admission.policies.mutating_admission_policy import mutate

        assert self._surroundings is not None
        metadata = obj["metadata"]
        kept = {name: metadata[name] for name in _SET_AFTER_ADMISSION if name in metadata} if old is None else {}
        seen = {**obj, "metadata": {name: each for name, each in metadata.items() if name not in kept}}
        about = _attributes(request, _route(request), operation, seen, old, None, None)
        outcome = mutate(self._mutating, about, self._surroundings, only)
        if outcome.object is not seen:
            changed = {**outcome.object["metadata"], **kept}
            metadata.clear()
            metadata.update(changed)
            obj.clear()
            obj.update(outcome.object, metadata=metadata)
        return outcome.again

    def _judged(self) -> Request | None:
        """The request, if there are policies that may be asked about it."""
        request = self.current_request
        if request is None:
            return None
        if self._changed:
            self._read()
        if not self._validating and not self._mutating:
            return None
        return None if _route(request).served.resource.group_resource in _EXEMPT_RESOURCES else request

    def _served(self, api_version: str, kind: str) -> ServedResource | None:
        found = BY_KIND.get((api_version, kind))
        if found is not None or self.definitions is None:
            return found if found is not None and found.is_stored else None
        for version in self.definitions.versions():
            resource = version.served.resource
            if (resource.api_version, resource.kind) == (api_version, kind):
                return version.served
        return None

    def _others(self, served: ServedResource) -> Sequence[ServedResource]:
        """Other versions of a resource's objects."""
        from kubeloop.devcluster.admission.policies.attributes import equivalent_resources

        if served.crd_version is None:
            return equivalent_resources(served)
        assert self.definitions is not None
        mine = (version.served for version in self.definitions.versions())
        name = served.resource.group_resource
        return [each for each in mine if each.resource.group_resource == name and each is not served]

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Compile what is new, forget what has gone."""
        from kubeloop.devcluster.admission.policies import mutating_admission_policy, validating_admission_policy
        from kubeloop.devcluster.admission.policies.matcher import Matcher
        from kubeloop.devcluster.admission.policies.policy_dispatcher import PolicyContext

        self._changed = False
        if self._surroundings is None:
            matcher = Matcher(self._store, self._others)
            self._surroundings = PolicyContext(self._store, matcher, self._served, self._deferred_work)
        self._validating = self._bound(_VALIDATING, self._validating, validating_admission_policy.ValidatingPolicy)
        self._mutating = self._bound(_MUTATING, self._mutating, mutating_admission_policy.MutatingPolicy)

    def _bound(
        self, kinds: Kinds, before: PoliciesWithBindings[P], compile_: Callable[[JSON], P]
    ) -> PoliciesWithBindings[P]:
        """All policies of a kind that have bindings, with those; what has been compiled before stays."""
        bindings: dict[str, list[JSON]] = {}
        for each in self._store.list(kinds[1]):
            bindings.setdefault(each["spec"]["policyName"], []).append(each)
        known = {policy.name: policy for policy, _ in before}
        found: PoliciesWithBindings[P] = []
        for obj in self._store.list(kinds[0]) if bindings else ():
            name = obj["metadata"]["name"]
            if name in bindings:
                policy = known.get(name)
                is_same = policy is not None and policy.spec == obj["spec"]
                found.append((policy if policy is not None and is_same else compile_(obj), bindings[name]))
        return found


def _route(request: Request) -> RequestInfo:
    assert request.route is not None, "a request is answered when its route is known"
    return request.route


def _attributes(
    request: Request,
    route: RequestInfo,
    operation: Operation,
    obj: JSON | None,
    old: JSON | None,
    deletion: DeleteOptions | None,
    grace_seconds: int | None,
) -> Attributes:
    from kubeloop.devcluster.admission.policies.attributes import Attributes, connect_options

    name = route.name
    if not name and operation == "CREATE" and obj is not None:
        name = obj["metadata"].get("name", "")
    options = None
    if operation in ("CREATE", "UPDATE"):
        options = _write_options(request, operation)
    elif deletion is not None:
        options = deletion.document
        if grace_seconds is not None and name:  # the options of a collection's deletion stay as they came
            options["gracePeriodSeconds"] = grace_seconds
    elif operation == "CONNECT":
        obj = connect_options(request, route)
    return Attributes(
        operation,
        route.served,
        route.subresource,
        name if route.served.resource is NAMESPACES else route.namespace,
        name,
        obj,
        old,
        options,
        bool((options or {}).get("dryRun")),
        request.user,
    )


_SET_AFTER_ADMISSION = ("uid", "creationTimestamp")
"""What an object is given after policies have seen it."""


def _write_options(request: Request, operation: Operation) -> JSON:
    """CreateOptions or UpdateOptions, by the query."""
    options: JSON = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if request.query.get("dryRun"):
        options["dryRun"] = list(request.query["dryRun"])
    for each in ("fieldManager", "fieldValidation"):
        if text := request.option(each):
            options[each] = text
    return options

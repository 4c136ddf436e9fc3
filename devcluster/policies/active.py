"""Which policies there are, and the request that they are asked about.

Everything in this server is synchronous: one request is answered at a time, so what admission must know of its sender
is noted here when it comes, instead of being handed through all that writes. Whatever is written outside of a request
is the server's own doing and no policy's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kubeloop.devcluster.registry import (
    BY_KIND,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Served,
)
from kubeloop.devcluster.request import Request
from kubeloop.devcluster.routes import Route
from kubeloop.devcluster.storage import Change, Store
from kubeloop.kube.resources import NAMESPACES

if TYPE_CHECKING:
    from kubeloop.devcluster.custom.definitions import Definitions
    from kubeloop.devcluster.delete_options import DeleteOptions
    from kubeloop.devcluster.policies.attributes import Attributes, Operation
    from kubeloop.devcluster.policies.matching import Matcher
    from kubeloop.devcluster.policies.validating import Bound, Policy

JSON = dict[str, Any]

_KINDS = (VALIDATING_ADMISSION_POLICIES, VALIDATING_ADMISSION_POLICY_BINDINGS)
_EXEMPT = frozenset(
    f"{plural}.admissionregistration.k8s.io"
    for policy in ("validatingadmissionpolic", "mutatingadmissionpolic")
    for plural in (f"{policy}ies", f"{policy}ybindings")
)
"""What policies are not asked about, so that a wrong one can be taken back."""


class Policies:
    """The policies of one store.

    asked: the request that is being answered, with its route; None between requests. definitions: of custom resources,
    whose objects may be parameters, once there are any.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: Request | None = None
        self.definitions: Definitions | None = None
        self._validating: Sequence[Bound] = ()
        self._compiled: dict[str, tuple[JSON, Policy]] = {}
        self._matcher: Matcher | None = None
        self._changed = any(len(store.table(each)) for each in _KINDS)
        for each in _KINDS:
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
        request = self.asked
        if request is None or request.route is None:
            return
        if operation == "DELETE" and request.route.subresource:
            return
        if self._changed:
            self._read()
        if not self._validating:
            return
        if request.route.served.resource.group_resource in _EXEMPT:
            return
        from kubeloop.devcluster.policies.validating import validate

        assert self._matcher is not None
        about = _attributes(request, request.route, operation, obj, old, deletion, grace_seconds)
        validate(self._validating, about, request.warnings, self._matcher, self._served, self._store)

    def _served(self, api_version: str, kind: str) -> Served | None:
        found = BY_KIND.get((api_version, kind))
        if found is not None or self.definitions is None:
            return found if found is not None and found.stored else None
        for each in self.definitions.versions():
            resource = each.served.resource
            if (resource.api_version, resource.kind) == (api_version, kind):
                return each.served
        return None

    def _others(self, served: Served) -> Sequence[Served]:
        """Other versions of a resource's objects."""
        from kubeloop.devcluster.policies.attributes import same_objects

        if served.custom is None:
            return same_objects(served)
        assert self.definitions is not None
        mine = (each.served for each in self.definitions.versions())
        name = served.resource.group_resource
        return [each for each in mine if each.resource.group_resource == name and each is not served]

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Compile what is new, forget what has gone."""
        from kubeloop.devcluster.policies.matching import Matcher
        from kubeloop.devcluster.policies.validating import Bound, Policy

        self._changed = False
        self._matcher = self._matcher or Matcher(self._store, self._others)
        bindings: dict[str, list[JSON]] = {}
        for each in self._store.list(VALIDATING_ADMISSION_POLICY_BINDINGS):
            bindings.setdefault(each["spec"]["policyName"], []).append(each)
        compiled: dict[str, tuple[JSON, Policy]] = {}
        for obj in self._store.list(VALIDATING_ADMISSION_POLICIES):
            name = obj["metadata"]["name"]
            if name in bindings:
                known = self._compiled.get(name)
                is_known = known is not None and known[0]["spec"] == obj["spec"]
                compiled[name] = known if known is not None and is_known else (obj, Policy(obj))
        self._compiled = compiled
        self._validating = [Bound(policy, bindings[name]) for name, (_, policy) in compiled.items()]


def _attributes(
    request: Request,
    route: Route,
    operation: Operation,
    obj: JSON | None,
    old: JSON | None,
    deletion: DeleteOptions | None,
    grace_seconds: int | None,
) -> Attributes:
    from kubeloop.devcluster.policies.attributes import Attributes, connect_options

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


def _write_options(request: Request, operation: Operation) -> JSON:
    """CreateOptions or UpdateOptions, by the query."""
    options: JSON = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if request.query.get("dryRun"):
        options["dryRun"] = list(request.query["dryRun"])
    for each in ("fieldManager", "fieldValidation"):
        if text := request.option(each):
            options[each] = text
    return options

"""CertificateSigningRequests. Source: pkg/registry/certificates of Kubernetes v1.36."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.admission.certificate_subject import check_subject
from kubeloop.devcluster.admission.chain import AdmissionChain
from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import AccessAttributes
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.selectable_fields import fields
from kubeloop.devcluster.api.strategy import Strategy, Write
from kubeloop.devcluster.kinds.certificates.signing_request_validation import (
    validate_approval,
    validate_signing_request,
    validate_status,
    validate_update,
)
from kubeloop.devcluster.printers.columns import AGE, row, text_of
from kubeloop.devcluster.printers.formatting import NONE, human_duration, spec_of, status_of
from kubeloop.devcluster.validation.common.object_meta import path_segment
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.field_errors import quoted


def _condition(obj: JSON, _now: datetime) -> str:
    conditions = {condition.get("type") for condition in status_of(obj).get("conditions") or ()}
    states = [next((decision for decision in ("Denied", "Approved") if decision in conditions), "Pending")]
    if "Failed" in conditions:
        states.append("Failed")
    if status_of(obj).get("certificate"):
        states.append("Issued")
    return ",".join(states)


def _requested_duration(obj: JSON, _now: datetime) -> str:
    seconds = spec_of(obj).get("expirationSeconds")
    return NONE if seconds is None else human_duration(seconds)


def _set_requester(obj: JSON, user: JSON) -> None:
    """Set the requester fields from the authenticated user, never from the body: signers rely on them."""
    spec = {name: value for name, value in obj["spec"].items() if name not in _USER_FIELDS}
    obj["spec"] = {**spec, **{name: user[name] for name in _USER_FIELDS if user.get(name)}}


def _prepare_update(obj: JSON, old: JSON, _write: Write) -> None:
    """Keep the spec; only the subresources of a signing request may change."""
    obj["spec"] = old["spec"]


_USER_FIELDS = ("username", "uid", "groups", "extra")


def _prepare_approval(obj: JSON, old: JSON, write: Write) -> JSON:
    """Return the object that a write to certificatesigningrequests/approval stores: of the status, its conditions."""
    metadata, sent = dict(old["metadata"]), obj["metadata"]
    for field in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if field in sent:
            metadata[field] = sent[field]
        else:
            metadata.pop(field, None)
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):  # validation reports a change
        if field in sent:
            metadata.setdefault(field, sent[field])
    status = dict(old.get("status") or {})
    if conditions := (obj.get("status") or {}).get("conditions"):
        status["conditions"] = _with_times(conditions, status.get("conditions") or [], write)
    else:
        status.pop("conditions", None)
    return {**old, "metadata": metadata, "status": status}


def _prepare_status(obj: JSON, old: JSON, write: Write) -> None:
    """Keep the decisions, which only a write to approval changes: validation refuses more or fewer of them."""
    conditions = [*((obj.get("status") or {}).get("conditions") or ())]
    if not conditions:
        return
    before = (old.get("status") or {}).get("conditions") or []
    for decision in ("Approved", "Denied"):
        decided = [condition for condition in before if condition.get("type") == decision]
        places = [place for place, condition in enumerate(conditions) if condition.get("type") == decision]
        if len(decided) == len(places):
            for place, condition in zip(places, decided, strict=True):
                conditions[place] = condition
    obj["status"] = {**obj["status"], "conditions": _with_times(conditions, before, write)}


def _with_times(conditions: list[JSON], before: list[JSON], write: Write) -> list[JSON]:
    """Return conditions with the times that the request leaves out. Source: populateConditionTimestamps."""
    result = []
    for condition in conditions:
        same = (
            other["lastTransitionTime"]
            for other in before
            if other.get("lastTransitionTime")
            and (other.get("type"), other.get("status")) == (condition.get("type"), condition.get("status"))
        )
        updated = condition.get("lastUpdateTime") or write.now()
        changed = condition.get("lastTransitionTime") or next(same, None) or write.now()
        result.append({**condition, "lastUpdateTime": updated, "lastTransitionTime": changed})
    return result


def _prepare_create(obj: JSON, write: Write) -> None:
    _set_requester(obj, write.user)


def _check_create(chain: AdmissionChain, _context: RequestContext, obj: JSON) -> None:
    if "CertificateSubjectRestriction" in chain.enabled:
        check_subject(obj)


def _check_update(chain: AdmissionChain, context: RequestContext, obj: JSON, old: JSON) -> None:
    """Raise StatusError 403 unless the user may approve or sign requests of this signer."""
    subresource = context.info.subresource
    if subresource == "approval" and "CertificateApproval" in chain.enabled:
        _authorize(context, "approve", old)
    elif subresource == "status" and "CertificateSigning" in chain.enabled:
        new_status, old_status = status_of(obj), status_of(old)
        if any(new_status.get(name) != old_status.get(name) for name in ("certificate", "conditions")):
            _authorize(context, "sign", old)


def _authorize(context: RequestContext, verb: str, request: JSON) -> None:
    """Check a verb on the resource "signers", whose names are those of signers, or "DOMAIN/*"."""
    user, signer = context.request.user, request["spec"]["signerName"]
    for name in (signer, f"{signer.partition('/')[0]}/*"):
        attributes = AccessAttributes(user, verb, "certificates.k8s.io", "signers", name=name)
        if context.authorizer.authorize(attributes).allowed:
            return
    reason = f"user not permitted to {verb} requests with signerName {quoted(signer)}"
    raise errors.forbidden(context.info.served.resource, request["metadata"]["name"], reason)


STRATEGY = Strategy(
    owns_spec=False,
    unowned={"status": {"f:status": {"f:conditions": {}}}, "approval": {"f:status": {"f:certificate": {}}}},
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=_prepare_status,
    prepare_subresources={"approval": _prepare_approval},
    name_check=path_segment,
    validate=validate_signing_request,
    validate_update=validate_update,
    validate_subresources={"status": validate_status, "approval": validate_approval},
    update_steps="wsu",
    subresource_steps="wsu",
    check_create=_check_create,
    check_update=_check_update,
    cells=row(
        AGE,
        text_of("spec.signerName", NONE),
        text_of("spec.username", NONE),
        _requested_duration,
        _condition,
    ),
    selectable_fields=fields("metadata.name", "spec.signerName"),
)

"""CertificateSigningRequests. Source: pkg/registry/certificates of Kubernetes v1.36."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.formatting import NONE, human_duration, spec_of, status_of
from kubeloop.kube.json_object import JSON


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


STRATEGY = Strategy(computed_columns={"RequestedDuration": _requested_duration, "Condition": _condition})

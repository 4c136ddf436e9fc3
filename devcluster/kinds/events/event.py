"""Events of events.k8s.io, which are stored as those of the core group.

Source: pkg/apis/core/validation/events.go of Kubernetes v1.36.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.kinds.core.event import event_cells, event_fields, validate_event_fields
from kubeloop.devcluster.kinds.events.version_conversion import event_from_core, event_to_core
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.object_meta import validate_object_meta
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_subdomain


def validate_events_v1_event(errors: ErrorList, obj: JSON) -> None:
    """Validate an events.k8s.io/v1 event, which must be complete."""
    validate_event_fields(errors, obj, obj.get("regarding", {}), "reportingController")
    validate_object_meta(errors, obj["metadata"], namespaced=True, name_check=dns_subdomain)
    _validate_event_series(errors, obj.get("series"))
    if obj.get("eventTime") is None:
        errors.required("eventTime")
    if obj.get("type", "") not in ("Normal", "Warning"):
        errors.invalid("type", "", f"has invalid value: {obj.get('type', '')}")
    for name, core_name in _DEPRECATED_FIELDS.items():
        if obj.get(name):
            errors.invalid(core_name, "", "needs to be unset")


_DEPRECATED_FIELDS = {
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "deprecatedSource": "source",
}

_IMMUTABLE_FIELDS: tuple[tuple[str, str, Any, str], ...] = (
    ("regarding", "involvedObject", None, "core/v1.ObjectReference"),
    ("reason", "reason", "", ""),
    ("note", "message", "", ""),
    ("deprecatedSource", "source", None, "core/v1.EventSource"),
    ("deprecatedFirstTimestamp", "firstTimestamp", None, ""),
    ("deprecatedLastTimestamp", "lastTimestamp", None, ""),
    ("deprecatedCount", "count", 0, ""),
    ("reason", "reason", "", ""),
    ("type", "type", "", ""),
    ("eventTime", "eventTime", None, ""),
    ("action", "action", "", ""),
    ("related", "related", None, "core/v1.ObjectReference"),
    ("reportingController", "reportingController", "", ""),
    ("reportingInstance", "reportingInstance", "", ""),
)
"""Fields that no update through events.k8s.io may change: field, name in messages, zero value, type.

The reason is validated twice, as in kube-apiserver.
"""


def validate_events_v1_event_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    validate_event_fields(errors, obj, obj.get("regarding", {}), "reportingController")
    if obj.get("series") != old.get("series"):
        _validate_event_series(errors, obj.get("series"))
    for name, core_name, absent, type_name in _IMMUTABLE_FIELDS:
        errors.immutable(core_name, obj.get(name, absent), old.get(name, absent), type_name)


def _validate_event_series(errors: ErrorList, series: JSON | None) -> None:
    if series is None:
        return
    if series.get("count", 0) < 2:
        errors.invalid("series.count", "", "should be at least 2")
    if series.get("lastObservedTime") is None:
        errors.required("series.lastObservedTime")


STRATEGY = Strategy(
    converters=(event_to_core, event_from_core),
    validate=validate_events_v1_event,
    validate_update=validate_events_v1_event_update,
    core_finalizers=False,
    strategy_metadata=False,
    cells=event_cells,
    selectable_fields=event_fields("regarding", "reportingController"),
)

"""Events of the core group. Source: pkg/apis/core/validation/events.go."""

from __future__ import annotations

from datetime import datetime

from kubeloop.devcluster.api.selectable_fields import METADATA, field_getter
from kubeloop.devcluster.api.strategy import Getter, Strategy, update_as_create
from kubeloop.devcluster.printers.formatting import Cells, age_since, object_name
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import qualified_name


def validate_event(errors: ErrorList, obj: JSON) -> None:
    """Validate a core/v1 event; one without eventTime comes from an older recorder and has few rules."""
    validate_event_fields(errors, obj, obj.get("involvedObject", {}), "reportingComponent")


def validate_event_fields(errors: ErrorList, obj: JSON, involved: JSON, controller_field: str) -> None:
    involved_namespace, namespace = involved.get("namespace", ""), obj["metadata"].get("namespace", "")
    has_event_time = obj.get("eventTime") is not None
    if involved_namespace:
        mismatch = not has_event_time and involved_namespace != namespace
    else:
        mismatch = namespace not in (("default", "kube-system") if has_event_time else ("", "default"))
    if mismatch:
        errors.invalid("involvedObject.namespace", involved_namespace, "does not match event.namespace")
    if not has_event_time:
        return
    controller = obj.get(controller_field, "")
    errors.require(controller_field, controller)
    errors.check(controller_field, controller, qualified_name)
    for name in ("reportingInstance", "action", "reason"):
        text = obj.get(name, "")
        if errors.require(name, text) and len(text.encode()) > 128:
            errors.invalid(name, "", "can have at most 128 characters")
    if len((obj.get("message") or obj.get("note") or "").encode()) > 1024:  # the message says characters, as upstream's
        errors.invalid("message", "", "can have at most 1024 characters")


def event_cells(obj: JSON, now: datetime) -> Cells:
    """Return the cells of an event of either API group; events.k8s.io has other field names."""
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    if series := obj.get("series"):
        last, count = series.get("lastObservedTime"), series.get("count", 0)
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    host = source.get("host") or obj.get("reportingInstance")
    kind = involved.get("kind", "").lower()
    return [
        age_since(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{involved['name']}" if involved.get("name") else kind,
        involved.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (obj.get("message") or obj.get("note") or "").strip(),
        age_since(first, now),
        count,
        object_name(obj),
    ]


def _source(obj: JSON) -> str:
    return field_getter("source.component")(obj) or field_getter("reportingComponent")(obj)


def event_fields(object_field: str, controller_field: str) -> dict[str, Getter]:
    """Return the selectable fields of an event, which is stored as one of core/v1, by their names in an API version."""
    return {
        **METADATA,
        **{
            f"{object_field}.{name}": field_getter(f"involvedObject.{name}")
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        },
        "reason": field_getter("reason"),
        controller_field: field_getter("reportingComponent"),
        "source": _source,
        "type": field_getter("type"),
    }


STRATEGY = Strategy(
    validate=validate_event,
    validate_update=update_as_create(validate_event, unchanged=True),
    core_finalizers=False,
    strategy_metadata=False,
    update_steps="s",
    cells=event_cells,
    selectable_fields=event_fields("involvedObject", "reportingComponent"),
)

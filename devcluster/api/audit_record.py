"""Reports of request handlers to the audit log: request object, annotations, impersonated user."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kubeloop.kube.json_object import JSON


@dataclass(slots=True)
class AuditRecord:
    """Reports of one audited request.

    logs_objects: the level is Request or RequestResponse. omits_managed_fields: of request and response objects.
    object_reference: as in the event; empty for requests for no resource. impersonated_user: a UserInfo.
    impersonation_constraint: the verb that permitted the impersonation, "" for the verb impersonate. panic: message of
    an unexpected exception in a handler, "" for none. latencies: seconds in the layers of the server.
    """

    audit_id: str
    logs_objects: bool
    omits_managed_fields: bool
    object_reference: JSON
    annotations: dict[str, str] = field(default_factory=dict)
    request_object: bytes = b""
    impersonated_user: JSON | None = None
    impersonation_constraint: str = ""
    panic: str = ""
    latencies: dict[str, float] = field(default_factory=dict)

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation of the events; the first value of a key remains, as in kube-apiserver."""
        self.annotations.setdefault(key, value)

    def note_latency(self, layer: str, seconds: float) -> None:
        """Add to the time in a layer: of validating webhooks, which are called together, the longest call counts."""
        before = self.latencies.get(layer, 0.0)
        self.latencies[layer] = max(before, seconds) if layer == "validating-webhook" else before + seconds

    def log_request_object(self, obj: JSON) -> None:
        """Log a decoded and defaulted body; the object reference gets what only the body has."""
        metadata = obj.get("metadata") or {}
        for name in ("namespace", "name", "uid", "resourceVersion"):
            if metadata.get(name) and not self.object_reference.get(name):
                self.object_reference[name] = metadata[name]
        if self.logs_objects:
            self.request_object = msgspec.json.encode(without_managed_fields(obj) if self.omits_managed_fields else obj)

    def log_patch(self, patch: bytes) -> None:
        """Log the body of a patch, as it was sent."""
        if self.logs_objects:
            self.request_object = patch


def without_managed_fields(obj: JSON) -> JSON:
    """Return an object, list or Table without metadata.managedFields."""
    result = dict(obj)
    if "managedFields" in (obj.get("metadata") or {}):
        result["metadata"] = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    if obj.get("items"):
        result["items"] = [without_managed_fields(item) for item in obj["items"]]
    if obj.get("rows"):
        rows = (
            ({**row, "object": without_managed_fields(row["object"])} if row.get("object") else row)
            for row in obj["rows"]
        )
        result["rows"] = list(rows)
    return result

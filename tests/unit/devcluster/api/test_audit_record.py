"""Reports of handlers to the audit log."""

from __future__ import annotations

import json

from kubeloop.devcluster.api.audit_record import AuditRecord, without_managed_fields


def test_first_value_of_an_annotation_remains():
    record = AuditRecord("id", False, False, {})
    record.annotate("a", "1")
    record.annotate("a", "2")
    assert record.annotations == {"a": "1"}


def test_reference_gets_what_only_the_body_has():
    record = AuditRecord("id", False, False, {"resource": "pods", "namespace": "n"})
    record.log_request_object({"metadata": {"namespace": "other", "name": "a", "resourceVersion": "1"}})
    assert record.object_reference == {"resource": "pods", "namespace": "n", "name": "a", "resourceVersion": "1"}
    assert record.request_object == b""


def test_object_is_logged_as_it_is_at_the_time():
    record = AuditRecord("id", True, True, {})
    obj = {"metadata": {"name": "a", "managedFields": [{}]}, "data": {"k": "v"}}
    record.log_request_object(obj)
    obj["data"]["k"] = "w"
    assert json.loads(record.request_object) == {"metadata": {"name": "a"}, "data": {"k": "v"}}


def test_managed_fields_of_lists_and_tables_are_removed():
    item = {"metadata": {"name": "a", "managedFields": []}}
    table = {"rows": [{"cells": [1], "object": item}, {"cells": [2]}]}
    assert without_managed_fields({"items": [item]}) == {"items": [{"metadata": {"name": "a"}}]}
    assert without_managed_fields(table) == {
        "rows": [{"cells": [1], "object": {"metadata": {"name": "a"}}}, {"cells": [2]}]
    }

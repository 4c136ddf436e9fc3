"""Columns that print a field, and rows of columns."""

from __future__ import annotations

from datetime import UTC, datetime

from kubeloop.devcluster.printers.columns import (
    AGE,
    access_modes,
    age_of,
    boolean_of,
    containers_of,
    labels_of,
    load_balancer_addresses,
    number_of,
    phase_or_terminating,
    ready_replicas,
    row,
    selector_of,
    storage_class_name,
    text_of,
)

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def test_row_starts_with_the_name():
    obj = {"metadata": {"name": "x", "creationTimestamp": "2026-05-01T11:55:00Z"}, "spec": {"size": 3}}
    assert row(number_of("spec.size"), AGE)(obj, NOW) == ["x", 3, "5m"]
    assert row(AGE, name=lambda obj: f"{obj['metadata']['name']} (default)")(obj, NOW) == ["x (default)", "5m"]


def test_text_shows_the_value_or_the_items_of_a_list():
    driver = text_of("spec.driver", "<none>")
    assert driver({"spec": {"driver": "gpu.example.com"}}, NOW) == "gpu.example.com"
    assert [driver(obj, NOW) for obj in ({}, {"spec": None}, {"spec": {"driver": ""}})] == ["<none>"] * 3
    assert text_of("spec.modes")({"spec": {"modes": ["a", "b"]}}, NOW) == "a,b"
    assert text_of("spec.modes", "<none>")({"spec": {"modes": []}}, NOW) == "<none>"
    assert text_of("spec.suspend", "<unset>")({"spec": {"suspend": False}}, NOW) == "False"
    assert text_of("spec.minReplicas", "<unset>")({"spec": {"minReplicas": 0}}, NOW) == "0"


def test_number_shows_the_length_of_a_list_or_map():
    assert number_of("webhooks")({"webhooks": [{}, {}]}, NOW) == 2
    assert number_of("data")({"data": {"a": "1"}}, NOW) == 1
    assert number_of("webhooks")({}, NOW) == 0
    assert number_of("spec.value")({"spec": {"value": 7}}, NOW) == 7


def test_boolean_of_an_unset_field_is_false():
    assert boolean_of("spec.on")({"spec": {"on": True}}, NOW) is True
    assert boolean_of("spec.on")({}, NOW) is False


def test_age_of_a_field_without_a_time_is_the_unset_text():
    last = age_of("status.last", "<none>")
    assert last({"status": {"last": "2026-05-01T11:59:00Z"}}, NOW) == "60s"
    assert last({"status": {}}, NOW) == "<none>"


def test_labels_and_selectors_of_an_unset_field():
    assert labels_of("spec.selector")({"spec": {"selector": {"b": "2", "a": "1"}}}, NOW) == "a=1,b=2"
    assert labels_of("spec.selector")({}, NOW) == "<none>"
    assert selector_of("spec.selector")({"spec": {"selector": {"matchLabels": {"a": "1"}}}}, NOW) == "a=1"
    assert selector_of("spec.selector")({"spec": {"selector": {}}}, NOW) == "<none>"
    assert selector_of("spec.selector", unset="")({}, NOW) == ""


def test_containers_show_names_and_images():
    template = {"spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b"}]}}
    assert [column({"spec": {"template": template}}, NOW) for column in containers_of("spec.template")] == [
        "a,b",
        "a:1,",
    ]
    assert [column({}, NOW) for column in containers_of("spec.template")] == ["", ""]


def test_ready_replicas_of_a_new_workload_are_none():
    assert ready_replicas({"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}, NOW) == "2/3"
    assert ready_replicas({"spec": {"replicas": 3}}, NOW) == "0/3"


def test_load_balancer_addresses_are_sorted_and_unique():
    ingress = [{"ip": "192.0.2.2"}, {"hostname": "a.example.com"}, {"ip": "192.0.2.2"}, {}]
    assert load_balancer_addresses({"status": {"loadBalancer": {"ingress": ingress}}}, NOW) == "192.0.2.2,a.example.com"


def test_access_modes_are_abbreviated_in_a_fixed_order():
    modes = ["ReadWriteOncePod", "ReadWriteOnce"]
    assert access_modes("spec.accessModes")({"spec": {"accessModes": modes}}, NOW) == "RWO,RWOP"


def test_annotation_overrides_the_storage_class():
    spec = {"storageClassName": "fast"}
    annotations = {"volume.beta.kubernetes.io/storage-class": "slow"}
    assert storage_class_name({"metadata": {}, "spec": spec}, NOW) == "fast"
    assert storage_class_name({"metadata": {"annotations": annotations}, "spec": spec}, NOW) == "slow"


def test_phase_of_a_deleted_volume_is_terminating():
    assert phase_or_terminating({"metadata": {}, "status": {"phase": "Bound"}}, NOW) == "Bound"
    deleted = {"deletionTimestamp": "2026-05-01T11:59:00Z"}
    assert phase_or_terminating({"metadata": deleted, "status": {"phase": "Bound"}}, NOW) == "Terminating"

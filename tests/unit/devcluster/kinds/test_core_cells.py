"""Cells of events, DeviceTaintRules, Secrets, ResourceQuotas, ComponentStatuses and role bindings."""

from __future__ import annotations

from datetime import UTC, datetime

from support.objects.kinds import cells_of

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
METADATA = {"name": "x", "creationTimestamp": "2026-05-01T11:55:00Z"}


def test_event_series_decides_last_time_and_count():
    event = {
        "metadata": METADATA,
        "type": "Warning",
        "reason": "BackOff",
        "regarding": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{web}"},
        "reportingController": "kubelet",
        "reportingInstance": "node-1",
        "note": "Back-off restarting failed container\n",
        "eventTime": "2026-05-01T11:50:00.000000Z",
        "series": {"count": 4, "lastObservedTime": "2026-05-01T11:59:00.000000Z"},
    }
    assert cells_of("events", event, NOW) == [
        "60s",
        "Warning",
        "BackOff",
        "pod/web",
        "spec.containers{web}",
        "kubelet, node-1",
        "Back-off restarting failed container",
        "10m",
        4,
        "x",
    ]


def test_device_taint_rule_shows_its_taint():
    taint = {"key": "example.com/broken", "effect": "NoExecute", "timeAdded": "2026-05-01T11:58:00Z"}
    assert cells_of("devicetaintrules.resource.k8s.io", {"metadata": METADATA, "spec": {"taint": taint}}, NOW) == [
        "x",
        "example.com/broken",
        "",
        "NoExecute",
        "2m",
        "5m",
    ]
    assert cells_of("devicetaintrules.resource.k8s.io", {"metadata": METADATA, "spec": {}}, NOW) == [
        "x",
        "",
        "",
        "",
        "",
        "5m",
    ]


def test_config_map_counts_text_and_binary_data():
    config_map = {"metadata": METADATA, "data": {"a": "1", "b": "2"}, "binaryData": {"c": "AA=="}}
    assert cells_of("configmaps", config_map, NOW) == ["x", 3, "5m"]


def test_quota_limits_have_a_column_of_their_own():
    quota = {
        "metadata": METADATA,
        "status": {"hard": {"pods": "10", "limits.cpu": "4", "cpu": "2"}, "used": {"pods": "3", "cpu": "500m"}},
    }
    assert cells_of("resourcequotas", quota, NOW) == ["x", "cpu: 500m/2, pods: 3/10", "limits.cpu: 0/4", "5m"]


def test_role_binding_lists_subjects_by_kind():
    binding = {
        "metadata": METADATA,
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"kind": "User", "name": "ann"},
            {"kind": "Group", "name": "dev"},
            {"kind": "User", "name": "bob"},
            {"kind": "ServiceAccount", "namespace": "ci", "name": "runner"},
        ],
    }
    cells = cells_of("rolebindings.rbac.authorization.k8s.io", binding, NOW)
    assert cells == ["x", "ClusterRole/view", "5m", "ann, bob", "dev", "ci/runner"]


def test_component_without_a_healthy_condition_is_unknown():
    healthy = {"type": "Healthy", "status": "True", "message": "ok"}
    assert cells_of("componentstatuses", {"metadata": METADATA}, NOW) == ["x", "Unknown", "", ""]
    assert cells_of("componentstatuses", {"metadata": METADATA, "conditions": [healthy]}, NOW) == [
        "x",
        "Healthy",
        "ok",
        "",
    ]

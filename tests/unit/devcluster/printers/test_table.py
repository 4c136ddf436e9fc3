"""Server-side printing: cells and column definitions of `kubectl get`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.printers.formatting import human_duration
from kubeloop.devcluster.printers.table import table
from kubeloop.devcluster.serializer.conversion import from_stored

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
CREATED = "2026-05-01T11:55:00Z"
OLD_AUTOSCALERS = BY_PATH["autoscaling", "v1", "horizontalpodautoscalers"]


def print_table(
    resource: str, *objects: dict[str, Any], include_object: str = "None", **options: Any
) -> dict[str, Any]:
    plural, _, group = resource.partition(".")
    return table(
        BY_PATH[group, "v2" if group == "autoscaling" else "v1", plural],
        list(objects),
        now=NOW,
        include_object=include_object,
        list_metadata={"resourceVersion": "7"},
        **options,
    )


def cells(resource: str, **fields: Any) -> list[Any]:
    fields.setdefault("metadata", {})
    metadata = {"name": "x", "creationTimestamp": CREATED, **fields.pop("metadata")}
    (row,) = print_table(resource, {"metadata": metadata, **fields})["rows"]
    row_cells: list[Any] = row["cells"]
    return row_cells


def status(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": 0, "ready": False, **fields}


POD_SPEC = {"containers": [{"name": "a"}, {"name": "b"}]}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-0.5, "0s"),
        (119, "119s"),
        (120, "2m"),
        (330, "5m30s"),
        (605, "10m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 120, "5h2m"),
        (47 * 3600 + 59, "47h"),
        (3 * 86400 + 4 * 3600, "3d4h"),
        (8 * 86400 + 4 * 3600, "8d"),
        (2 * 365 * 86400, "2y"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_ages_lose_precision_as_they_grow(seconds: float, text: str):
    assert human_duration(seconds) == text


def test_every_row_has_one_cell_per_column():
    for (group, version, plural), served in BY_PATH.items():
        if served.is_stored:
            obj = {"metadata": {"name": "x", "creationTimestamp": CREATED}}
            printed = table(served, [obj], now=NOW, include_object="None", list_metadata={})
            (row,) = printed["rows"]
            # IPAddresses have a cell for their age and no column, as in v1.36
            surplus = plural == "ipaddresses"
            assert len(row["cells"]) == len(printed["columnDefinitions"]) + surplus, (group, version, plural)


def test_table_carries_list_metadata_and_requested_object_form():
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"a": "1", "b": "2"}}
    printed = print_table("configmaps", obj, include_object="Metadata")
    assert (printed["kind"], printed["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert printed["metadata"] == {"resourceVersion": "7"}
    assert [column["name"] for column in printed["columnDefinitions"]] == ["Name", "Data", "Age"]
    metadata = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x"}}
    assert printed["rows"] == [{"cells": ["x", 2, "<unknown>"], "object": metadata}]
    assert print_table("configmaps", obj, include_object="Object")["rows"][0]["object"] is obj
    assert print_table("configmaps", obj, include_object="None")["rows"][0]["object"] is None


def test_unknown_include_object_is_rejected_with_400():
    with pytest.raises(StatusError) as raised:
        print_table("configmaps", include_object="Bad")
    assert raised.value.code == 400
    assert raised.value.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "Bad": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def test_later_watch_events_have_no_column_definitions():
    assert print_table("configmaps", columns=False)["columnDefinitions"] is None


def test_kinds_without_a_printer_show_their_creation_time():
    printed = print_table("limitranges", {"metadata": {"name": "x", "creationTimestamp": CREATED}})
    assert [column["name"] for column in printed["columnDefinitions"]] == ["Name", "Created At"]
    assert printed["rows"][0]["cells"] == ["x", CREATED]


@pytest.mark.parametrize(
    ("pod", "shown"),
    [
        pytest.param({"status": {"phase": "Pending"}}, ["0/2", "Pending", "0"], id="new"),
        pytest.param(
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        status("a", ready=True, state={"running": {}}, restartCount=2),
                        status("b", state={"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=1),
                    ],
                }
            },
            ["1/2", "CrashLoopBackOff", "3"],
            id="waiting container",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        status(
                            "a",
                            ready=True,
                            restartCount=1,
                            state={"running": {}},
                            lastState={"terminated": {"finishedAt": "2026-05-01T11:59:00Z"}},
                        )
                    ],
                }
            },
            ["1/2", "Running", "1 (60s ago)"],
            id="restarted a minute ago",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Failed",
                    "containerStatuses": [status("a", state={"terminated": {"exitCode": 3}})],
                }
            },
            ["0/2", "ExitCode:3", "0"],
            id="exit code without a reason",
        ),
        pytest.param(
            {
                "spec": POD_SPEC | {"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
                "status": {"phase": "Pending", "initContainerStatuses": [status("i", state={"running": {}})]},
            },
            ["0/3", "Init:0/2", "0"],
            id="initializing with a sidecar",
        ),
        pytest.param(
            {
                "metadata": {"deletionTimestamp": "2026-05-01T12:00:10Z"},
                "status": {"phase": "Running"},
            },
            ["0/2", "Terminating", "0"],
            id="terminating",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Pending",
                    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
                }
            },
            ["0/2", "SchedulingGated", "0"],
            id="gated",
        ),
    ],
)
def test_pod_ready_status_and_restarts_columns(pod: dict[str, Any], shown: list[Any]):
    assert cells("pods", **({"spec": POD_SPEC} | pod)) == ["x", *shown, "5m", "<none>", "<none>", "<none>", "<none>"]


def test_wide_pod_columns_show_ip_node_and_readiness_gates():
    spec = POD_SPEC | {"nodeName": "n1", "readinessGates": [{"conditionType": "g"}, {"conditionType": "h"}]}
    state = {"phase": "Running", "podIPs": [{"ip": "10.1.0.3"}], "conditions": [{"type": "g", "status": "True"}]}
    assert cells("pods", spec=spec, status=state)[5:] == ["10.1.0.3", "n1", "<none>", "1/2"]


def test_finished_pod_rows_have_a_completed_condition():
    obj = {"metadata": {"name": "x"}, "status": {"phase": "Succeeded"}}
    assert print_table("pods", obj)["rows"][0]["conditions"] == [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ]


TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:2"}]}}


@pytest.mark.parametrize(
    ("resource", "fields", "expected"),
    [
        (
            "deployments.apps",
            {
                "spec": {
                    "replicas": 3,
                    "selector": {
                        "matchLabels": {"app": "web"},
                        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b", "a"]}],
                    },
                    "template": TEMPLATE,
                },
                "status": {"readyReplicas": 2, "updatedReplicas": 1},
            },
            ["x", "2/3", 1, 0, "5m", "a,b", "a:1,b:2", "app=web,tier notin (a,b)"],
        ),
        (
            "replicasets.apps",
            {
                "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE},
                "status": {"replicas": 2},
            },
            ["x", 3, 2, 0, "5m", "a,b", "a:1,b:2", "app=web"],
        ),
        (
            "replicationcontrollers",
            {"spec": {"replicas": 1, "selector": {"b": "2", "a": "1"}, "template": TEMPLATE}, "status": {}},
            ["x", 1, 0, 0, "5m", "a,b", "a:1,b:2", "a=1,b=2"],
        ),
        (
            "nodes",
            {
                "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}},
                "spec": {"unschedulable": True},
                "status": {
                    "conditions": [{"type": "Ready", "status": "False"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.0"},
                },
            },
            [
                "x",
                "NotReady,SchedulingDisabled",
                "edge,worker",
                "5m",
                "v1.36.0",
                "10.0.0.9",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>",
            ],
        ),
        (
            "services",
            {
                "spec": {
                    "type": "NodePort",
                    "clusterIPs": ["10.0.0.1"],
                    "ports": [
                        {"port": 80, "protocol": "TCP", "nodePort": 30080},
                        {"port": 53, "protocol": "UDP"},
                    ],
                }
            },
            ["x", "NodePort", "10.0.0.1", "<none>", "80:30080/TCP,53/UDP", "5m", "<none>"],
        ),
        (
            "events",
            {
                "involvedObject": {"kind": "Pod", "name": "web-1"},
                "eventTime": "2026-05-01T11:59:30.000000Z",
                "reportingComponent": "default-scheduler",
                "reportingInstance": "host-1",
                "type": "Normal",
                "reason": "Scheduled",
                "message": "assigned\n",
            },
            ["30s", "Normal", "Scheduled", "pod/web-1", "", "default-scheduler, host-1", "assigned", "30s", 1, "x"],
        ),
        (
            "events.events.k8s.io",
            {
                "regarding": {"kind": "Node"},
                "eventTime": "2026-05-01T11:59:30.000000Z",
                "series": {"count": 4, "lastObservedTime": "2026-05-01T11:59:59.000000Z"},
                "reportingController": "c",
                "note": "n",
            },
            ["1s", "", "", "node", "", "c", "n", "30s", 4, "x"],
        ),
        (
            "poddisruptionbudgets.policy",
            {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}},
            ["x", "50%", "N/A", 1, "5m"],
        ),
        (
            "persistentvolumeclaims",
            {
                "spec": {"volumeName": "v", "storageClassName": "s", "volumeMode": "Filesystem"},
                "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
            },
            ["x", "Bound", "v", "1Gi", "RWO", "s", "<unset>", "5m", "Filesystem"],
        ),
        (
            "resourcequotas",
            {"status": {"hard": {"pods": "5", "limits.cpu": "2"}, "used": {"pods": "1"}}},
            ["x", "pods: 1/5", "limits.cpu: 0/2", "5m"],
        ),
        (
            "jobs.batch",
            {"spec": {"completions": 3, "template": TEMPLATE}, "status": {"startTime": CREATED, "succeeded": 1}},
            ["x", "Running", "1/3", "5m", "5m", "a,b", "a:1,b:2", "<none>"],
        ),
        (
            "horizontalpodautoscalers.autoscaling",
            {
                "spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                    "maxReplicas": 5,
                    "metrics": [
                        {
                            "type": "Resource",
                            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                        }
                    ],
                }
            },
            ["x", "Deployment/web", "cpu: <unknown>/80%", "<unset>", 5, 0, "5m"],
        ),
        (
            "endpoints",
            {
                "subsets": [
                    {"addresses": [{"ip": "10.1.0.1"}, {"ip": "10.1.0.2"}], "ports": [{"port": 80}, {"port": 81}]}
                ]
            },
            ["x", "10.1.0.1:80,10.1.0.2:80,10.1.0.1:81 + 1 more...", "5m"],
        ),
    ],
)
def test_cells_of_each_kind(resource: str, fields: dict[str, Any], expected: list[Any]):
    assert cells(resource, **fields) == expected


def test_node_kernel_version_includes_the_architecture():
    info = {"kernelVersion": "6.1", "architecture": "arm64"}
    assert cells("nodes", status={"nodeInfo": info})[8] == "6.1 (arm64)"
    assert cells("nodes", status={"nodeInfo": {"architecture": "arm64"}})[8] == "<unknown> (arm64)"


@pytest.mark.parametrize("resource", ["serviceaccounts", "csistoragecapacities.storage.k8s.io"])
def test_secrets_and_capacity_have_no_column(resource: str):
    obj = {"metadata": {"name": "x", "creationTimestamp": CREATED}, "secrets": [{"name": "s"}], "capacity": "1Gi"}
    printed = print_table(resource, obj)
    assert [column["name"] for column in printed["columnDefinitions"]][1:] in (["Age"], ["Created At"])
    assert printed["rows"][0]["cells"][1:] in (["5m"], [CREATED])


def test_job_with_success_criteria_met_shows_that_status():
    assert cells("jobs.batch", status={"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]})[1] == (
        "SuccessCriteriaMet"
    )


def test_columns_have_descriptions():
    (name, signer) = (
        column["description"]
        for column in print_table("certificatesigningrequests.certificates.k8s.io")["columnDefinitions"]
        if column["name"] in ("Name", "SignerName")
    )
    assert name.startswith("Name must be unique")
    assert signer.startswith("Requested signer")


def test_v1_autoscaler_shows_the_targets_of_all_metrics():
    metric = {"type": "Utilization", "averageUtilization": 80}
    memory = {"type": "AverageValue", "averageValue": "1Gi"}
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "maxReplicas": 5,
        "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": metric}},
            {"type": "Resource", "resource": {"name": "memory", "target": memory}},
        ],
    }
    autoscaler = from_stored(OLD_AUTOSCALERS, {"metadata": {"name": "x", "creationTimestamp": CREATED}, "spec": spec})
    printed = table(OLD_AUTOSCALERS, [autoscaler], now=NOW, include_object="None", list_metadata={})
    assert printed["rows"][0]["cells"][2] == "cpu: <unknown>/80%, memory: <unknown>/1Gi"


def test_scale_is_printed_with_its_own_columns():
    scale = {"kind": "Scale", "metadata": {"name": "x"}, "spec": {"replicas": 3}, "status": {"replicas": 2}}
    printed = print_table("deployments.apps", scale)
    assert printed["rows"][0]["cells"] == ["x", 3, 2, "<unknown>"]
    assert [column["name"] for column in printed["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]

"""Server-side printing: the rows of `kubectl get`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.printers.cells import PRINTERS, human_duration
from kubeloop.devcluster.printers.table import table
from kubeloop.devcluster.serializer.conversion import from_stored

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
CREATED = "2026-05-01T11:55:00Z"
OLD_AUTOSCALERS = BY_PATH["autoscaling", "v1", "horizontalpodautoscalers"]


def printed(resource: str, *objects: dict[str, Any], include_object: str = "None", **options: Any) -> dict[str, Any]:
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
    (row,) = printed(resource, {"metadata": metadata, **fields})["rows"]
    found: list[Any] = row["cells"]
    return found


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
    assert human_duration(timedelta(seconds=seconds)) == text


def test_every_row_has_a_cell_per_column():
    for (group, version, plural), served in BY_PATH.items():
        if served.stored:
            obj = {"metadata": {"name": "x", "creationTimestamp": CREATED}}
            answer = table(served, [obj], now=NOW, include_object="None", list_metadata={})
            (row,) = answer["rows"]
            # addresses have a cell for their age, and no column: as in v1.36
            surplus = plural == "ipaddresses"
            assert len(row["cells"]) == len(answer["columnDefinitions"]) + surplus, (group, version, plural)


def test_a_table_carries_the_list_metadata_and_the_object_as_asked_for():
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"a": "1", "b": "2"}}
    answer = printed("configmaps", obj, include_object="Metadata")
    assert (answer["kind"], answer["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert answer["metadata"] == {"resourceVersion": "7"}
    assert [each["name"] for each in answer["columnDefinitions"]] == ["Name", "Data", "Age"]
    metadata = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x"}}
    assert answer["rows"] == [{"cells": ["x", 2, "<unknown>"], "object": metadata}]
    assert printed("configmaps", obj, include_object="Object")["rows"][0]["object"] is obj
    assert printed("configmaps", obj, include_object="None")["rows"][0]["object"] is None


def test_other_wishes_for_the_object_are_refused():
    with pytest.raises(StatusError) as raised:
        printed("configmaps", include_object="Bad")
    assert raised.value.code == 400
    assert raised.value.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "Bad": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def test_later_events_of_a_watch_come_without_columns():
    assert printed("configmaps", columns=False)["columnDefinitions"] is None


def test_kinds_without_a_printer_show_when_they_were_created():
    answer = printed("limitranges", {"metadata": {"name": "x", "creationTimestamp": CREATED}})
    assert [each["name"] for each in answer["columnDefinitions"]] == ["Name", "Created At"]
    assert answer["rows"][0]["cells"] == ["x", CREATED]


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
            id="a container waits",
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
            id="initialising, with a sidecar",
        ),
        pytest.param(
            {
                "metadata": {"deletionTimestamp": "2026-05-01T12:00:10Z"},
                "status": {"phase": "Running"},
            },
            ["0/2", "Terminating", "0"],
            id="being deleted",
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
def test_pods_show_what_their_containers_do(pod: dict[str, Any], shown: list[Any]):
    assert cells("pods", **({"spec": POD_SPEC} | pod)) == ["x", *shown, "5m", "<none>", "<none>", "<none>", "<none>"]


def test_pods_show_where_they_run_when_asked_for_more():
    spec = POD_SPEC | {"nodeName": "n1", "readinessGates": [{"conditionType": "g"}, {"conditionType": "h"}]}
    state = {"phase": "Running", "podIPs": [{"ip": "10.1.0.3"}], "conditions": [{"type": "g", "status": "True"}]}
    assert cells("pods", spec=spec, status=state)[5:] == ["10.1.0.3", "n1", "<none>", "1/2"]


def test_finished_pods_are_marked_completed():
    obj = {"metadata": {"name": "x"}, "status": {"phase": "Succeeded"}}
    assert printed("pods", obj)["rows"][0]["conditions"] == [
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
def test_what_kinds_show(resource: str, fields: dict[str, Any], expected: list[Any]):
    assert cells(resource, **fields) == expected


def test_the_architecture_of_a_node_stands_behind_its_kernel():
    info = {"kernelVersion": "6.1", "architecture": "arm64"}
    assert cells("nodes", status={"nodeInfo": info})[8] == "6.1 (arm64)"
    assert cells("nodes", status={"nodeInfo": {"architecture": "arm64"}})[8] == "<unknown> (arm64)"


@pytest.mark.parametrize("resource", ["serviceaccounts", "csistoragecapacities.storage.k8s.io"])
def test_secrets_and_capacities_are_no_columns(resource: str):
    obj = {"metadata": {"name": "x", "creationTimestamp": CREATED}, "secrets": [{"name": "s"}], "capacity": "1Gi"}
    answer = printed(resource, obj)
    assert [each["name"] for each in answer["columnDefinitions"]][1:] in (["Age"], ["Created At"])
    assert answer["rows"][0]["cells"][1:] in (["5m"], [CREATED])


def test_a_job_whose_success_is_certain_says_so():
    assert cells("jobs.batch", status={"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]})[1] == (
        "SuccessCriteriaMet"
    )


def test_kinds_declared_with_columns_describe_them():
    (name, signer) = (
        each["description"]
        for each in printed("certificatesigningrequests.certificates.k8s.io")["columnDefinitions"]
        if each["name"] in ("Name", "SignerName")
    )
    assert name.startswith("Name must be unique")
    assert signer.startswith("Requested signer")


def test_autoscalers_seen_as_v1_show_the_targets_of_all_their_metrics():
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
    shown = from_stored(OLD_AUTOSCALERS, {"metadata": {"name": "x", "creationTimestamp": CREATED}, "spec": spec})
    answer = table(OLD_AUTOSCALERS, [shown], now=NOW, include_object="None", list_metadata={})
    assert answer["rows"][0]["cells"][2] == "cpu: <unknown>/80%, memory: <unknown>/1Gi"


def test_a_scale_is_not_printed_as_its_resource():
    scale = {"kind": "Scale", "metadata": {"name": "x"}, "spec": {"replicas": 3}, "status": {"replicas": 2}}
    answer = printed("deployments.apps", scale)
    assert answer["rows"][0]["cells"] == ["x", 3, 2, "<unknown>"]
    assert [each["name"] for each in answer["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]


def test_printers_are_for_served_resources():
    served = {each.resource.group_resource for each in BY_PATH.values()} | {"", "scale"}
    assert set(PRINTERS) <= served

"""The table of controllers: names, factories, watched resources, options."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from typing import Any, cast

import pytest

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Node, convert
from kubeloop.kube.objects.device_types import DeviceTaintRule, ResourceSlice
from kubeloop.kube.objects.resources import BY_GROUP_RESOURCE
from kubeloop.kube.objects.workload_types import PodGroup
from kubeloop.process.control_plane.controller_table import (
    CONTROLLER_TABLE,
    CONTROLLERS,
    CONTROLLERS_BY_NAME,
    ControllerDescriptor,
    ControllerOption,
    _options,
    controller_options,
    default_options,
)


@pytest.mark.parametrize("row", CONTROLLER_TABLE, ids=lambda row: row.name)
def test_row_names_a_factory_and_known_resources(row: ControllerDescriptor):
    module, _, factory = row.factory.partition(":")
    assert row.module == f"kubeloop.controllers.{module}"
    assert callable(getattr(importlib.import_module(row.module), factory))
    assert {*row.watches.split(), *row.starts_with.split()} <= BY_GROUP_RESOURCE.keys()


def test_names_are_unique():
    names = Counter([*CONTROLLERS, *(row.kubernetes_name for row in CONTROLLER_TABLE)])
    assert names.most_common(1)[0][1] == 1


def test_option_keys_are_unique_and_have_the_default():
    options = controller_options()
    assert len(default_options()) == len(options)
    assert default_options()["concurrent_deployment_syncs"] == 5
    assert default_options()["concurrent_gc_syncs"] == 20


@pytest.mark.parametrize("indent", ["", "  ", " " * 12])
def test_options_reads_text_of_any_indent(indent: str):
    text = f"""
{indent}first-syncs concurrency 5 50
{indent}  Number of
{indent}    first syncs.
{indent}second-period duration 2.5

{indent}third-file text
{indent}    A file.
"""
    assert _options(text) == (
        ControllerOption("first-syncs", 5, "Number of first syncs.", cast("Any", "concurrency"), 50),
        ControllerOption("second-period", 2.5, "", "duration"),
        ControllerOption("third-file", "", "A file.", cast("Any", "text")),
    )


def test_table_imports_no_controller():
    slow = ("kubeloop.controllers", "kubeloop.kube", "asyncio")
    program = (
        "import sys, kubeloop.process.control_plane.controller_table;"
        f"print(*[name for name in sys.modules if name.startswith({slow})])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def simulated_node(**changes: JSON) -> Node:
    """Return a healthy simulated Node, with these fields of another value."""
    condition_statuses = {"MemoryPressure": "False", "Ready": "True"} | changes.get("conditions", {})
    conditions = [{"type": type_, "status": status} for type_, status in condition_statuses.items()]
    return convert(
        Node,
        {
            "metadata": {"annotations": {"kubeloop.dev/node": "simulated", **changes.get("annotations", {})}},
            "spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}], **changes.get("spec", {})},
            "status": {"conditions": conditions},
        },
    )


@pytest.mark.parametrize(
    ("changes", "starts"),
    [
        pytest.param({}, False, id="healthy"),
        pytest.param({"annotations": {"kubeloop.dev/node": "external"}}, True, id="external"),
        pytest.param({"annotations": {"kubeloop.dev/fail": "unreachable"}}, True, id="failing"),
        pytest.param({"spec": {"unschedulable": True}}, True, id="cordoned"),
        pytest.param({"spec": {"taints": [{"key": "node.kubernetes.io/not-ready"}]}}, True, id="tainted"),
        pytest.param({"conditions": {"Ready": "Unknown"}}, True, id="not ready"),
        pytest.param({"conditions": {"DiskPressure": "True"}}, True, id="pressure"),
    ],
)
def test_node_lifecycle_controller_starts_with_a_node_that_needs_it(changes: JSON, starts: bool):
    starts_when = CONTROLLERS_BY_NAME["nodelifecycle"].starts_when
    assert starts_when is not None
    assert starts_when(simulated_node(**changes)) is starts


@pytest.mark.parametrize("claims", [[], [{"name": "gpu", "resourceClaimName": "shared"}]])
def test_resource_claim_controller_starts_with_a_pod_group_that_has_claims(claims: list[JSON]):
    starts_when = CONTROLLERS_BY_NAME["resource-claim-controller"].starts_when
    assert starts_when is not None
    assert starts_when(convert(PodGroup, {"kind": "PodGroup", "spec": {"resourceClaims": claims}})) is bool(claims)


def slice_with_taint(effect: str) -> ResourceSlice:
    devices = [{"name": "gpu-0"}, {"name": "gpu-1", "taints": [{"key": "example.com/broken", "effect": effect}]}]
    return convert(ResourceSlice, {"kind": "ResourceSlice", "spec": {"devices": devices}})


@pytest.mark.parametrize(
    ("obj", "starts"),
    [
        pytest.param(slice_with_taint("NoExecute"), True, id="NoExecute"),
        pytest.param(slice_with_taint("NoSchedule"), False, id="NoSchedule"),
        pytest.param(convert(DeviceTaintRule, {"kind": "DeviceTaintRule"}), True, id="rule"),
    ],
)
def test_device_taint_eviction_controller_starts_with_a_taint_that_evicts(obj: ResourceSlice, starts: bool):
    starts_when = CONTROLLERS_BY_NAME["device-taint-eviction"].starts_when
    assert starts_when is not None
    assert starts_when(obj) is starts

"""ResourceClaims that pods of a group share, beside kube-scheduler: the same nodes, claims, conditions and messages.

Each scheduler runs alone on its own kube-apiserver, with kube-controller-manager's resource claim controller. Skipped
if the binaries are not installed.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeloop.kube.feature_gates import gang_scheduling_text
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.objects.devices import device, device_class, device_slice, request
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
RESOURCES, SCHEDULING = "/apis/resource.k8s.io/v1", "/apis/scheduling.k8s.io/v1alpha2"
NAMESPACE = "namespaces/x"
CLAIMS, TEMPLATES = f"{RESOURCES}/{NAMESPACE}/resourceclaims", f"{RESOURCES}/{NAMESPACE}/resourceclaimtemplates"
GROUPS, PODS, NODES = f"{SCHEDULING}/{NAMESPACE}/podgroups", f"/api/v1/{NAMESPACE}/pods", "/api/v1/nodes"
GATES = gang_scheduling_text()
FLAGS = {"feature-gates": GATES, "runtime-config": "scheduling.k8s.io/v1alpha2=true"}
MERGE = "application/merge-patch+json"
BASIC: JSON = {"basic": {}}
TWO = [device("d"), device("e")]


def gang(min_count: int) -> JSON:
    return {"gang": {"minCount": min_count}}


class Cases:
    """Creates the objects of all cases. Each has its own nodes, NAME-0 and so on, and its own driver and class."""

    def __init__(self, server: RealApiServer) -> None:
        self.server = server

    def nodes(self, case: str, count: int, **labels: str) -> None:
        allocatable = {"cpu": "8", "memory": "8Gi", "pods": "100"}
        for number in range(count):
            name = f"{case}-{number}"
            metadata = {"name": name, "labels": {"case": case, "kubernetes.io/hostname": name, "rack": f"r{number}"}}
            status = {"allocatable": allocatable, "capacity": allocatable}
            self.server.request("POST", NODES, {"metadata": metadata, "status": status})

    def devices(self, case: str, node: int | None = 0, *devices: JSON, **fields: Any) -> None:
        """Create devices of one node; None: of all nodes of the case."""
        if node is None:
            in_case = {"key": "case", "operator": "In", "values": [case]}
            fields["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [in_case]}]}
        name = None if node is None else f"{case}-{node}"
        slice_ = device_slice(name, *(devices or TWO), driver=case, name=case, pool=case, **fields)
        self.server.request("POST", f"{RESOURCES}/resourceslices", _plain(slice_))
        obj = device_class(case, f"device.driver == '{case}'")
        self.server.request("POST", f"{RESOURCES}/deviceclasses", _plain(obj))

    def claim(self, case: str, name: str = "", count: int = 1) -> None:
        spec = {"devices": {"requests": [request("r", case, count=count)]}}
        self.server.request("POST", CLAIMS, {"metadata": {"name": name or case}, "spec": spec})

    def template(self, case: str) -> None:
        spec = {"devices": {"requests": [request("r", case)]}}
        self.server.request("POST", TEMPLATES, {"metadata": {"name": case}, "spec": {"spec": spec}})

    def group(self, case: str, policy: JSON, *claims: JSON, **spec: Any) -> str:
        """Create the PodGroup; return its UID."""
        body = {"metadata": {"name": case}, "spec": {"schedulingPolicy": policy, "resourceClaims": claims, **spec}}
        uid: str = self.server.request("POST", GROUPS, body)["metadata"]["uid"]
        return uid

    def pods(self, case: str, count: int, *claims: JSON, **spec: Any) -> None:
        for number in range(count):
            body = {
                "containers": [{"name": "c", "image": "app:1"}],
                "nodeSelector": {"case": case},
                "tolerations": [{"operator": "Exists"}],  # new nodes have a taint until they are ready
                "schedulingGroup": {"podGroupName": case},
                "resourceClaims": [self._of_pod(claim, number) for claim in claims],
                **spec,
            }
            self.server.request("POST", PODS, {"metadata": {"name": f"{case}-{number}"}, "spec": body})

    @staticmethod
    def _of_pod(claim: JSON, number: int) -> JSON:
        return {key: value.format(number) for key, value in claim.items()}

    def create(self) -> None:
        """Create all cases."""
        for name, policy, count in (("gang", gang(3), 3), ("more", gang(2), 5), ("basic", BASIC, 3)):
            self.nodes(name, 1)
            self.devices(name)
            self.claim(name)
            self.group(name, policy, by_name(name))
            self.pods(name, count, by_name(name))
        for name in ("templates", "not-of-group"):
            self.nodes(name, 1)
            self.devices(name)
            self.template(name)
        self.group("templates", gang(2), by_template("templates"))
        self.pods("templates", 2, by_template("templates"))
        self.group("not-of-group", gang(2))  # the claims are those of the pods
        self.pods("not-of-group", 2, by_template("not-of-group"))
        self.nodes("plain", 1)
        self.devices("plain")
        self.claim("plain")
        self.group("plain", gang(2))  # pods use the claim, of which the group knows nothing
        self.pods("plain", 2, by_name("plain"))
        self.own_and_shared()
        self.several_nodes()
        self.racks()
        self.pending()
        self.allocated_elsewhere()

    def own_and_shared(self) -> None:
        self.nodes("own", 1)
        self.devices("own", 0, device("d"), device("e"), device("f"))
        for name in ("own", "own-0", "own-1"):
            self.claim("own", name)
        own = {"name": "own", "resourceClaimName": "own-{}"}
        self.group("own", gang(2), by_name("own"))
        # v1.36 confuses the allocations of a pod if the shared claim is the first
        self.pods("own", 2, own, by_name("own"))

    def several_nodes(self) -> None:
        self.nodes("several", 2)
        self.devices("several", None)
        self.claim("several")
        self.group("several", gang(2), by_name("several"))
        port = {"containerPort": 80, "hostPort": 80}
        self.pods("several", 2, by_name("several"), containers=[{"name": "c", "image": "app:1", "ports": [port]}])

    def racks(self) -> None:
        self.nodes("racks", 3)
        self.devices("racks", 1)
        self.claim("racks")
        self.group("racks", gang(2), by_name("racks"), schedulingConstraints={"topology": [{"key": "rack"}]})
        self.pods("racks", 2, by_name("racks"))

    def pending(self) -> None:
        self.nodes("missing", 1)
        self.group("missing", gang(2), by_name("missing"))
        self.pods("missing", 2, by_name("missing"))
        self.nodes("no-template", 1)
        self.group("no-template", gang(2), by_template("no-template"))
        self.pods("no-template", 2, by_template("no-template"))
        self.nodes("short", 1)
        self.devices("short")
        self.claim("short", count=3)
        self.group("short", gang(2), by_name("short"))
        self.pods("short", 2, by_name("short"))

    def allocated_elsewhere(self) -> None:
        """The claim is reserved for the group, for a node that does not exist."""
        self.nodes("elsewhere", 1)
        self.devices("elsewhere")
        self.claim("elsewhere")
        uid = self.group("elsewhere", gang(2), by_name("elsewhere"))
        only = {"key": "metadata.name", "operator": "In", "values": ["gone"]}
        allocation = {
            "devices": {"results": [{"request": "r", "driver": "elsewhere", "pool": "gone", "device": "d"}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
        }
        consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "elsewhere", "uid": uid}
        status = {"allocation": allocation, "reservedFor": [consumer]}
        self.server.request("PATCH", f"{CLAIMS}/elsewhere/status", {"status": status}, content_type=MERGE)
        self.pods("elsewhere", 2, by_name("elsewhere"))


PENDING = {"missing", "no-template", "short"}


def by_name(claim: str) -> JSON:
    return {"name": "gpu", "resourceClaimName": claim}


def by_template(template: str) -> JSON:
    return {"name": "gpu", "resourceClaimTemplateName": template}


def _plain(obj: JSON) -> JSON:
    return obj | {"metadata": {"name": obj["metadata"]["name"]}}


def items(server: RealApiServer, path: str) -> list[JSON]:
    result: list[JSON] = server.request("GET", path)["items"]
    return result


def outcome(pod: JSON) -> str:
    """Return the node of a pod, or the message of PodScheduled."""
    conditions = {entry["type"]: entry.get("message", "") for entry in pod["status"].get("conditions", ())}
    return str(pod["spec"].get("nodeName") or conditions.get("PodScheduled", ""))


def case_of(pod: JSON) -> str:
    return str(pod["spec"]["schedulingGroup"]["podGroupName"])


def is_done(server: RealApiServer) -> bool:
    pods = items(server, PODS)
    scheduled = all(pod["spec"].get("nodeName") for pod in pods if case_of(pod) not in PENDING)
    return scheduled and all(outcome(pod) for pod in pods if case_of(pod) == "short")


def _without_number(name: str) -> str:
    return re.sub(r"-\d", "-N", name)


def state(server: RealApiServer) -> JSON:
    """Return what the scheduler has decided. Which of two equal pods is the first is random in kube-scheduler."""
    described = []
    for claim in items(server, CLAIMS):
        metadata = claim["metadata"]
        status = claim.get("status", {})
        allocation = status.get("allocation", {})
        described.append(
            {
                "name": _without_number(metadata.get("generateName", metadata["name"])),
                "finalizers": metadata.get("finalizers"),
                "results": allocation.get("devices", {}).get("results"),
                "nodeSelector": allocation.get("nodeSelector"),
                "reservedFor": sorted(
                    (entry.get("apiGroup", ""), entry["resource"], _without_number(entry["name"]))
                    for entry in status.get("reservedFor", ())
                ),
            }
        )
    groups = {
        group["metadata"]["name"]: [
            {key: entry.get(key) for key in ("type", "status", "reason", "message")}
            for entry in group.get("status", {}).get("conditions", ())
        ]
        for group in items(server, GROUPS)
    }
    pods = sorted((case_of(pod), outcome(pod)) for pod in items(server, PODS))
    described.sort(key=lambda claim: json.dumps(claim, sort_keys=True))
    return {"claims": described, "groups": groups, "pods": pods}


@contextmanager
def kube_scheduler(server: RealApiServer, folder: Path) -> Iterator[None]:
    server.start_component("kube-scheduler", "--leader-elect=false", f"--feature-gates={GATES}")
    yield


@contextmanager
def kubeloop(server: RealApiServer, folder: Path) -> Iterator[None]:
    flags = ("--controllers=scheduler", "--trace-journal=", f"--feature-gates={GATES}")
    with Kubeloop(folder).running("run", f"--kubeconfig={server.kubeconfig}", *flags):
        yield


def run(folder: Path, scheduler: Any) -> JSON:
    with real_apiserver(folder, FLAGS) as server:
        selected = "--controllers=resourceclaim-controller"
        server.start_component("kube-controller-manager", selected, "--leader-elect=false", f"--feature-gates={GATES}")
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
        Cases(server).create()
        with scheduler(server, folder):
            end = time.monotonic() + 120
            while not is_done(server):
                assert time.monotonic() < end, state(server)
                time.sleep(0.5)
            time.sleep(2)  # for the last writes of conditions
            return state(server)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> tuple[JSON, JSON]:
    needs_binaries("kube-scheduler", "kube-controller-manager")
    folder = tmp_path_factory.mktemp("claims")
    return run(folder / "kubernetes", kube_scheduler), run(folder / "kubeloop", kubeloop)


@pytest.mark.parametrize("part", ["pods", "claims", "groups"])
def test_claims_of_groups_are_those_of_kube_scheduler(states, part):
    real, ours = (json.dumps(one[part], indent=1, sort_keys=True).splitlines() for one in states)
    report = "\n".join(difflib.unified_diff(real, ours, "kube-scheduler", "kubeloop", lineterm="", n=4))
    assert not report, report

"""StorageVersionMigrations beside kube-controller-manager: their statuses, and those of the migrated definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from support.apiserver.http_api import HttpApi
from support.comparison.controller_runs import difference
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.processes.cli_processes import Kubeloop, wait_until

JSON = dict[str, Any]
GATE = "StorageVersionMigrator=true"
MIGRATIONS = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
VOLATILE = {"uid", "resourceVersion", "creationTimestamp", "lastTransitionTime", "managedFields"}


def definition(storage: str) -> JSON:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == storage, "schema": schema} for name in ("v1", "v2")]
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    return {"metadata": {"name": "widgets.example.com"}, "spec": spec}


def migrate(api: HttpApi, name: str, resource: str, group: str = "") -> None:
    response = api.request(
        "POST", MIGRATIONS, {"metadata": {"name": name}, "spec": {"resource": {"resource": resource, "group": group}}}
    )
    assert response.status == 201, response.content


def conditions(api: HttpApi, name: str) -> dict[str, str]:
    status = api.request("GET", f"{MIGRATIONS}/{name}").content.get("status", {})
    return {condition["type"]: condition["status"] for condition in status.get("conditions", ())}


def stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: stable(item) for name, item in value.items() if name not in VOLATILE}
    return [stable(item) for item in value] if isinstance(value, list) else value


def run(api: HttpApi) -> JSON:
    assert api.request("POST", DEFINITIONS, definition("v1")).status == 201
    widgets = "/apis/example.com/v1/namespaces/default/widgets"
    wait_until(lambda: api.request("GET", widgets).status == 200, "the custom resource")
    for name in ("a", "b"):
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
        assert api.request("POST", widgets, body).status == 201
    versions = definition("v2")["spec"]["versions"]
    path = f"{DEFINITIONS}/widgets.example.com"
    assert api.request("PATCH", path, {"spec": {"versions": versions}}, MERGE).status == 200
    before = api.request("GET", path).content["status"]["storedVersions"]
    before_widgets = resource_versions(api, widgets)
    migrate(api, "widgets", "widgets", "example.com")
    migrate(api, "config-maps", "configmaps")
    migrate(api, "no-update", "bindings")
    migrate(api, "wrong", "widgets", "another.com")
    outcomes = {"widgets": "Succeeded", "config-maps": "Succeeded", "no-update": "Failed", "wrong": "Failed"}

    def all_finished() -> bool:  # a resource may appear within the first minute
        return all(conditions(api, name) == {outcome: "True", "Running": "False"} for name, outcome in outcomes.items())

    wait_until(all_finished, "the outcome of all migrations")
    refused = []
    for spec in ({"resource": {"resource": ""}}, {"resource": {"resource": "A.b", "group": "x_y"}}):
        response = api.request("POST", MIGRATIONS, {"metadata": {"name": "refused"}, "spec": spec})
        refused.append((response.status, response.content["message"]))
    changed = {"spec": {"resource": {"resource": "pods"}}}
    response = api.request("PATCH", f"{MIGRATIONS}/wrong", changed, MERGE)
    refused.append((response.status, response.content["message"]))
    back = {"status": {"conditions": []}}
    response = api.request("PATCH", f"{MIGRATIONS}/widgets/status", back, MERGE)
    refused.append((response.status, response.content["message"].partition("Invalid value")[0]))
    stored = resource_versions(api, widgets)
    table = api.request("GET", MIGRATIONS, accept="application/json;as=Table;v=v1;g=meta.k8s.io").content
    return {
        "before": before,
        "definition": stable(api.request("GET", path).content["status"]),
        "migrations": [stable(item) for item in api.request("GET", MIGRATIONS).content["items"]],
        "rewritten": sorted(name for name in stored if stored[name] != before_widgets[name]),
        "refused": refused,
        "table": [[column["name"] for column in table["columnDefinitions"]], [row["cells"] for row in table["rows"]]],
    }


def resource_versions(api: HttpApi, path: str) -> dict[str, str]:
    # kube-apiserver responds with 429 for a moment after a change of the definition
    wait_until(lambda: api.request("GET", path).status == 200, "the custom resource")
    items = api.request("GET", path).content["items"]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


FLAGS = {"feature-gates": GATE, "runtime-config": "storagemigration.k8s.io/v1beta1=true"}


@contextmanager
def kubernetes(folder: Path) -> Iterator[Path]:
    with real_apiserver(folder, FLAGS) as server:
        controllers = "storage-version-migrator-controller,garbage-collector-controller"
        server.start_component(
            "kube-controller-manager", f"--controllers={controllers}", f"--feature-gates={GATE}", "--leader-elect=false"
        )
        yield server.kubeconfig


@contextmanager
def kubeloop_run(folder: Path) -> Iterator[Path]:
    with (
        real_apiserver(folder, FLAGS) as server,
        Kubeloop(folder).running(
            "run",
            f"--kubeconfig={server.kubeconfig}",
            "--controllers=storage-version-migrator-controller",
            f"--feature-gates={GATE}",
            "--trace-journal=",
        ),
    ):
        yield server.kubeconfig


@contextmanager
def kubeloop_up(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    # the reference build has this gate on, without which storedVersions are not updated
    gates = f"{GATE},CRDObservedGenerationTracking=true"
    options = ("--nodes=0", f"--feature-gates={gates}", f"--kubeconfig={folder / 'kubeconfig'}")
    with Kubeloop(folder).running("up", *options) as process:
        process.wait_for("export KUBECONFIG")
        yield folder / "kubeconfig"


def observations(start: Callable[[Path], Any], folder: Path) -> JSON:
    with start(folder) as kubeconfig, closing(HttpApi.from_kubeconfig(kubeconfig)) as api:
        return run(api)


def test_migrations_match_kube_controller_manager(tmp_path):
    needs_binaries("kube-controller-manager")
    starts = (kubernetes, kubeloop_run, kubeloop_up)
    with ThreadPoolExecutor(3) as executor:
        real, ours, development = executor.map(lambda start: observations(start, tmp_path / start.__name__), starts)
    assert real["rewritten"] == ["a", "b"]
    for observed in (ours, development):
        report = difference(real, observed)
        assert not report, report

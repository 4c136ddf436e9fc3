"""`kubeloop trace` of the owners that kube-controller-manager runs, with `kubeloop observe` beside kube-scheduler.

Skipped if the binaries are not installed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from support.comparison.fake_kubelet import fake_kubelet, make_node
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver, write_key
from support.processes.browser import BrowserUnavailable, open_page, running_browser, wait_for
from support.processes.cli_processes import Kubeloop, wait_until

JSON = dict[str, Any]
APPS, BATCH = "/apis/apps/v1/namespaces/default", "/apis/batch/v1/namespaces/default"
POD_SPEC = {"containers": [{"name": "main", "image": "busybox"}]}
TARGETS = {
    "deploy/web": (4, "deployment/web"),
    "statefulset.apps/db": (2, "statefulset/db"),
    "ds/agent": (2, "daemonset/agent"),
    "job/once": (1, "job/once"),
    "cj/nightly": (1, "cronjob/nightly"),
}


def workload(name: str, pod_spec: JSON, **spec: Any) -> JSON:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template, **spec}}


def create_workloads(server: RealApiServer) -> None:
    job = {"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}
    server.request("POST", f"{APPS}/deployments", workload("web", POD_SPEC, replicas=4))
    server.request("POST", f"{APPS}/statefulsets", workload("db", POD_SPEC, replicas=2, serviceName="db"))
    server.request("POST", f"{APPS}/daemonsets", workload("agent", POD_SPEC))
    server.request("POST", f"{BATCH}/jobs", {"metadata": {"name": "once"}, "spec": job})
    cron_job = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job}}
    uid = server.request("POST", f"{BATCH}/cronjobs", {"metadata": {"name": "nightly"}, "spec": cron_job})["metadata"][
        "uid"
    ]
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": uid, "controller": True}
    server.request(
        "POST", f"{BATCH}/jobs", {"metadata": {"name": "nightly-1", "ownerReferences": [owner]}, "spec": job}
    )


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kubeloop, str]]:
    """A cluster of two nodes with workloads of each kind, and the URL of the process that observes it."""
    needs_binaries("kube-scheduler", "kube-controller-manager")
    folder = tmp_path_factory.mktemp("observed")
    with real_apiserver(folder / "server") as server, fake_kubelet(server):
        make_node(server, "node-0")
        make_node(server, "node-1")
        write_key(folder / "accounts.key", ec.generate_private_key(ec.SECP256R1()))
        server.start_component("kube-scheduler", "--leader-elect=false")
        server.start_component("kube-controller-manager", "--leader-elect=false")
        kubeloop = Kubeloop(folder)
        with kubeloop.running("observe", f"--kubeconfig={server.kubeconfig}") as observe:
            url = observe.wait_for(r"endpoint (http://\S+)").group(1)
            create_workloads(server)
            pods = sum(count for count, _ in TARGETS.values())
            wait_until(lambda: stages(kubeloop).count("ready") == pods, f"{pods} pods are ready")
            yield kubeloop, url


def stages(kubeloop: Kubeloop) -> list[str]:
    found = []
    for target in TARGETS:
        result = kubeloop.run("trace", target, "--json")
        if result.returncode == 0:
            found += [pod["stage"] for pod in json.loads(result.stdout)["pods"]]
    return found


@pytest.mark.parametrize(("target", "count", "owner"), [(target, *expected) for target, expected in TARGETS.items()])
def test_target_selects_the_pods_of_the_owner(observed, target, count, owner):
    kubeloop, _ = observed
    document = kubeloop.json("trace", target, "--json")
    assert len(document["pods"]) == count
    assert {pod["owner"] for pod in document["pods"]} == {owner}
    assert all(pod["segments"] for pod in document["pods"])
    assert owner.replace("/", " ") in kubeloop.run("trace", target).stdout


def test_owner_below_the_topmost_is_a_target(observed):
    kubeloop, _ = observed
    (pod,) = kubeloop.json("trace", "job/nightly-1", "--json")["pods"]
    assert (pod["owner"], pod["lowerOwners"]) == ("cronjob/nightly", ["job/nightly-1"])
    (replica_set,) = {pod["lowerOwners"][0] for pod in kubeloop.json("trace", "deploy/web", "--json")["pods"]}
    assert len(kubeloop.json("trace", replica_set, "--json")["pods"]) == 4


def test_files_have_the_traces_of_the_owner(observed, tmp_path):
    kubeloop, _ = observed
    html, perfetto, otlp = (tmp_path / name for name in ("a.html", "a.json", "otlp.json"))
    result = kubeloop.run("trace", "sts/db", "--html", html, "--perfetto", perfetto, "--otlp", otlp)
    assert result.returncode == 0, result.stderr
    assert html.read_text().startswith("<!doctype html>")
    processes = [event for event in json.loads(perfetto.read_text())["traceEvents"] if event["name"] == "process_name"]
    assert [event["args"]["name"] for event in processes] == ["default statefulset/db"]
    assert len(kubeloop.json("trace", "sts/db", "--from", otlp, "--json")["pods"]) == 2


def test_missing_owner_is_an_error_with_similar_names(observed):
    kubeloop, _ = observed
    result = kubeloop.run("trace", "sts/dbb")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "error: no statefulset dbb in any namespace\n  hint: did you mean db?\n"


async def test_page_groups_pods_by_owner(observed):
    _, url = observed
    rows = "[...document.querySelectorAll('.row:not([hidden])')].map(row => row.querySelector('b').textContent)"
    async with contextlib.AsyncExitStack() as stack:
        try:
            browser = await stack.enter_async_context(running_browser())
        except BrowserUnavailable as error:
            pytest.skip(str(error))
        page = await stack.enter_async_context(open_page(browser, f"{url}/traces"))
        await page.keyboard.press("r")
        await wait_for(page, f"{rows}.length === {len(TARGETS)}")
        assert set(await page.evaluate(rows)) == {owner for _, owner in TARGETS.values()}
        await wait_for(page, "document.querySelector('.row:not([hidden]) .duration').textContent.startsWith('p99 ≈')")
        await page.keyboard.press("/")
        await page.keyboard.insert_text("owner:job/nightly-1")
        await page.keyboard.press("Enter")
        await wait_for(page, "document.querySelector('.detail h2')?.textContent === 'cronjob/nightly'")
        heading = "[...document.querySelectorAll('.detail th')].some(th => th.textContent === 'exact to')"
        await wait_for(page, heading)

"""Runs of an operator: credentials of its client, what a run shows, and operators of several kinds."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509

from kubeloop.devcluster.server.listener import listening_socket
from kubeloop.devcluster.server.tls import create_certificate
from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import NAMESPACES
from kubeloop.kube.user_error import UserError
from kubeloop.process.manifests import objects_of
from kubeloop.process.signals import first_of
from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.faults.state import Variations
from kubeloop.testing.operator_faults import run
from kubeloop.testing.operator_faults.operator_api import OperatorApi, OperatorWrite, WriteId
from kubeloop.testing.operator_faults.process import Guard
from kubeloop.testing.operator_faults.run import OperatorInstance, OperatorRun, RunResult, RunSettings
from kubeloop.testing.operator_faults.scenario import read_scenario
from kubeloop.testing.operator_faults.suite import _learn

pytestmark = pytest.mark.long
OPERATORS = Path(__file__).resolve().parents[4] / "operators"
IMPORTS = f"import sys; sys.path.insert(0, {str(OPERATORS)!r}); from site_operator import *\n"
PERMISSIONS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: sites}}
rules:
  - apiGroups: ["*"]
    resources: [sites, sites/status, configmaps, deployments, persistentvolumeclaims]
    verbs: ["*"]
  - {{apiGroups: [""], resources: [secrets], verbs: [{verbs}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: sites}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sites}}
subjects: [{{kind: ServiceAccount, name: sites, namespace: default}}]
"""
POLLING = """
import sys, time
client = Client(sys.argv[1])
def names(path):
    return {item["metadata"]["name"] for item in client.request("GET", path)["items"]}
while True:
    sites, records = names(SITES), names(CONFIG_MAPS) - {"kube-root-ca.crt"}
    for name in sites - records:
        client.request("POST", CONFIG_MAPS, {"metadata": {"name": name}})
    for name in records - sites:
        client.request("DELETE", f"{CONFIG_MAPS}/{name}")
    time.sleep(float(sys.argv[2]))
"""
STUBBORN = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
connection = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
Client(sys.argv[1]).request("GET", SITES)
time.sleep(60)
"""
SLOW = """
import sys
if os.path.exists(sys.argv[2]):
    while time.process_time() < 2:
        pass
open(sys.argv[2], "w").close()
Operator(Client(sys.argv[1]), "").run()
"""
STEPS = """
- apply: {apiVersion: faults.example.com/v1, kind: Site, metadata: {name: blog}, spec: {host: a, replicas: 1}}
- apply: {apiVersion: faults.example.com/v1, kind: Site, metadata: {name: other}, spec: {host: b, replicas: 1}}
"""
ADMITTING = """
import http.server, sys, time
Client(sys.argv[1]).request("GET", SITES)
time.sleep(1.5)
class Webhook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["content-length"])))
        print("reviewed", review["request"]["name"], flush=True)
        review["response"] = {"uid": review["request"]["uid"], "allowed": True}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(review).encode())
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Webhook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
Operator(Client(sys.argv[1]), "").run()
"""


@pytest.fixture
def settings(tmp_path: Path):
    folder = tmp_path / "runs"
    folder.mkdir()
    guard = Guard(folder)
    command = [sys.executable, str(OPERATORS / "site_operator.py"), "--kubeconfig", "{kubeconfig}"]
    scenario = read_scenario([OPERATORS / "crd.yaml", OPERATORS / "site.yaml"], None)
    yield RunSettings(command, scenario, ClusterOptions(nodes=1), folder, guard, quiet_seconds=0.5)
    guard.close()


async def test_run_without_faults_shows_writes_states_and_watches(settings: RunSettings):
    result = await OperatorRun(settings, "reference").run()
    titles = [write.title for write in result.writes]
    assert titles[:3] == [
        "update of Site blog",
        "status write of Site blog",
        "create of ConfigMap dns-first.example.com",
    ]
    assert "delete of ConfigMap dns-first.example.com" in titles
    assert len(result.states) == 2
    assert result.states[1].differences(result.states[0])
    assert result.watched == {"sites", "secrets", "persistentvolumeclaims", "deployments"}
    assert (result.problems, result.notes, result.has_lease) == ([], [], False)


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("", "CN=operator,O=system:masters"),
        ("jane", "CN=jane"),
        (
            "system:serviceaccount:web:site",
            "CN=system:serviceaccount:web:site,O=system:serviceaccounts:web,O=system:serviceaccounts",
        ),
    ],
)
async def test_certificate_names_user_and_groups(settings: RunSettings, user: str, subject: str):
    document = msgspec.json.decode(dataclasses.replace(settings, user=user).kubeconfig(1))
    certificate = base64.b64decode(document["users"][0]["user"]["client-certificate-data"])
    assert x509.load_pem_x509_certificate(certificate).subject.rfc4514_string() == subject


def test_only_deletions_of_stable_names_count():
    def write(kind: str, name: str, deleted: bool) -> OperatorWrite:
        return OperatorWrite(WriteId("delete", "x", "default", name, 1), kind, False, 0.0, 200, deleted)

    result = RunResult(
        [write("Secret", "a", True), write("Secret", "a", False), write("Pod", "b", True), write("Job", "j-1", True)],
        [],
    )
    variations = Variations(names=frozenset({("Job", "default", "j-")}))
    assert result.deletions(variations) == {("Secret", "default", "a"): 1}


def of(settings: RunSettings, script: str, *arguments: str, **changes: Any) -> RunSettings:
    """Return settings for an operator in Python, with the names of site_operator.py."""
    command = [sys.executable, "-c", IMPORTS + script, "{kubeconfig}", *arguments]
    return dataclasses.replace(settings, command=command, timeout_seconds=10.0, **changes)


async def run_with(settings: RunSettings, fault: str, title: str) -> RunResult:
    """Run without a fault, and with one at the first write of a title; return the second result."""
    reference = await OperatorRun(settings, "reference").run()
    expected, writes = _learn([reference], 0.5)
    trigger = next(write.id for write in writes if write.title == title)
    return await OperatorRun(settings, fault, expected, fault=fault, trigger=trigger).run()


async def test_operator_that_polls_acts_before_a_step_ends(settings: RunSettings):
    result = await OperatorRun(of(settings, POLLING, "0.6", quiet_seconds=1.5), "reference").run()
    assert [write.title for write in result.writes] == ["create of ConfigMap blog", "delete of ConfigMap blog"]
    assert result.watched == frozenset()
    assert result.longest_gap_seconds >= 0.6  # so that the next runs wait for the poll, too


async def test_polls_at_longer_intervals_than_the_quiet_time_do_not_count(settings: RunSettings):
    operator = OperatorRun(of(settings, POLLING, "0.2", quiet_seconds=0.4), "reference")
    operator.start_instance = start_with_long_poll(operator)  # type: ignore[method-assign]
    async with asyncio.timeout(30):
        assert (await operator.run()).problems == []


def start_with_long_poll(operator: OperatorRun) -> Callable[[str], OperatorInstance]:
    """Return a start of an instance that has already polled at an interval of an hour."""
    start = operator.start_instance

    def start_instance(name: str) -> OperatorInstance:
        operator.operator_api.longest_poll_seconds = 3600.0
        return start(name)

    return start_instance


async def test_time_in_which_the_operator_computes_does_not_count(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "_BUSY_FACTOR", 60)  # for a busy machine
    slow = dataclasses.replace(of(settings, SLOW, str(tmp_path / "started")), timeout_seconds=1.0)
    result = await run_with(slow, "crash-after", "create of ConfigMap dns-first.example.com")
    assert (result.problems, result.fired is not None) == ([], True)


@pytest.mark.parametrize("fault", ["freeze-leader", "crash-after"])
async def test_next_leader_need_not_wait_for_the_end_of_a_lease(settings: RunSettings, fault: str):
    elects = dataclasses.replace(settings, command=[*settings.command, "--leader-elect"], timeout_seconds=8.0)
    result = await run_with(elects, fault, "create of ConfigMap dns-first.example.com")  # a lease has 10 s
    assert (result.problems, result.has_lease, result.fired is not None) == ([], True, True)


@pytest.mark.parametrize("fault", ["late-events", "blind"])
async def test_fault_that_begins_during_a_wait_ends_before_its_timeout(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
):
    monkeypatch.setattr(run, "_POLL_SECONDS", 0.003)  # the step is observed before the write that meets the fault
    steps = tmp_path / "steps.yaml"
    steps.write_text(f"- apply: {OPERATORS / 'site.yaml'}\n- wait: site/blog\n  for: '{{.status.ready}}=2'\n")
    scenario = read_scenario([OPERATORS / "crd.yaml"], steps)
    waits = dataclasses.replace(settings, scenario=scenario, timeout_seconds=20.0)
    result = await run_with(waits, fault, "status write of Site blog")
    assert (result.problems, result.fired is not None) == ([], True)


@pytest.mark.parametrize(("seconds", "is_loop"), [(60.0, True), (0.0, False)])
async def test_exits_soon_after_the_start_are_a_crash_loop(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, seconds: float, is_loop: bool
):
    monkeypatch.setattr(run, "_LEASE_SECONDS", seconds)
    fatal = dataclasses.replace(
        settings, command=[*settings.command, "--defect", "exists-is-fatal"], timeout_seconds=6.0
    )
    result = await run_with(fatal, "crash-after", "create of Deployment blog")
    assert ["is in a crash loop" in problem for problem in result.problems] == [is_loop]


@pytest.mark.parametrize("fault", ["freeze-leader", "old-lists"])
async def test_fault_lasts_until_the_next_process_has_started(
    settings: RunSettings, monkeypatch: pytest.MonkeyPatch, fault: str
):
    states, heal = [], OperatorApi.heal

    def note_state(api: OperatorApi) -> None:
        ((leader, _),) = api.holders.values()
        states.append((leader.is_paused, leader.watched.copy()))
        heal(api)

    monkeypatch.setattr(OperatorApi, "heal", note_state)
    monkeypatch.setattr(run, "_MAX_WINDOW_SECONDS", 0.2)
    slow = ["sh", "-c", 'sleep 1; exec "$@"', "sh", *settings.command, "--leader-elect"]
    result = await run_with(dataclasses.replace(settings, command=slow), fault, "create of Secret blog-tls-*")
    assert states == [(False, {"sites", "secrets", "persistentvolumeclaims", "deployments"})]
    assert (result.problems, result.fired is not None) == ([], True)


@pytest.mark.parametrize("fault", ["crash-after", "freeze-leader"])
async def test_users_wait_until_the_webhook_of_the_operator_responds(settings: RunSettings, tmp_path: Path, fault: str):
    certificate, pem = create_certificate(SystemClock()), tmp_path / "pem"
    authority = base64.b64encode(certificate.authority.certificate_pem.encode()).decode()
    pem.write_bytes(certificate.pem)
    webhook = {
        "name": "sites.faults.example.com",
        "clientConfig": {"url": "https://localhost/", "caBundle": authority},
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["sites"], "operations": ["CREATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    body = {**kind, "metadata": {"name": "sites"}, "webhooks": [webhook]}
    steps = tmp_path / "steps.yaml"
    steps.write_text(STEPS)
    scenario = read_scenario([OPERATORS / "crd.yaml"], steps)
    scenario = dataclasses.replace(scenario, setup=[*scenario.setup, *objects_of("", body)])
    admits = of(
        settings,
        ADMITTING,
        "{port:webhook}",
        str(pem),
        scenario=scenario,
        resolve=["localhost=127.0.0.1:{port:webhook}"],  # of the newest instance
    )
    result = await run_with(admits, fault, "update of Site blog")
    assert (result.problems, result.fired is not None) == ([], True)
    instance = "second" if fault == "freeze-leader" else "operator"
    assert "reviewed other" in (admits.folder / fault / f"{fault}-{instance}.log").read_text()


async def test_cluster_that_others_change_without_end_is_an_error(settings: RunSettings):
    operator = OperatorRun(dataclasses.replace(settings, timeout_seconds=2.0), "reference")

    async def write_without_end() -> None:
        for number in itertools.count():
            if hasattr(operator, "operator_api"):  # the cluster has started
                body = {"metadata": {"labels": {"number": str(number)}}}
                await operator._client.patch(NAMESPACES, "default", body, PatchType.MERGE)
            await asyncio.sleep(0.05)

    changing = asyncio.create_task(write_without_end())
    with pytest.raises(ExceptionGroup) as caught:
        await operator.run()
    changing.cancel()
    problem = "without faults: the cluster goes on changing after 2 s, without writes of the operator"
    assert problem in str(first_of(caught.value, UserError))


@pytest.mark.parametrize(("verbs", "problem"), [("'*'", ""), ("list, watch", "create of Secret blog-tls-*: 403")])
async def test_user_has_the_permissions_of_the_manifests(
    settings: RunSettings, tmp_path: Path, verbs: str, problem: str
):
    rbac, user = tmp_path / "rbac.yaml", "system:serviceaccount:default:sites"
    rbac.write_text(PERMISSIONS.format(verbs=verbs))
    scenario = read_scenario([OPERATORS / "crd.yaml", OPERATORS / "site.yaml", rbac], None)
    operator = OperatorRun(
        dataclasses.replace(settings, scenario=scenario, user=user, timeout_seconds=5.0), "reference"
    )
    if not problem:
        assert (await operator.run()).problems == []
        return
    with pytest.raises(ExceptionGroup) as caught:
        await operator.run()
    assert f"goes on writing after 5 s: {problem}" in str(first_of(caught.value, UserError))


async def test_server_outside_and_ignored_sigterm_are_noted(settings: RunSettings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "_TERMINATION_SECONDS", 0.3)
    with listening_socket(0) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        stubborn = of(settings, STUBBORN, address.partition(":")[2])
        result = await OperatorRun(stubborn, "reference").run()
    assert result.notes == [
        "it ignores SIGTERM: it had to be killed after 0.3 s",
        f"it talks to {address}: no fault concerns what it does there, nor is it compared",
    ]


async def test_slow_start_is_no_problem_while_the_operator_computes(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "_START_SECONDS", 1.5)
    monkeypatch.setattr(run, "_BUSY_FACTOR", 100)  # for a busy machine
    (tmp_path / "started").touch()
    slow = of(settings, SLOW, str(tmp_path / "started"))
    assert (await OperatorRun(dataclasses.replace(slow, timeout_seconds=60.0), "reference").run()).problems == []


async def test_fault_that_follows_the_last_step_is_not_the_cause_of_a_problem_before(settings: RunSettings):
    reference = await OperatorRun(settings, "reference").run()
    expected, writes = _learn([reference], 0.5)
    expected = dataclasses.replace(expected, states=[*reversed(expected.states)])
    hasty = dataclasses.replace(settings, timeout_seconds=1.0)
    result = await OperatorRun(hasty, "old-lists", expected, fault="old-lists", trigger=writes[0].id).run()
    assert (result.problems != [], result.fired) == (True, None)

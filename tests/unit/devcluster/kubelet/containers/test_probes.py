"""Effects of probes on containers."""

from __future__ import annotations

import math

import pytest

from kubeloop.devcluster.kubelet.containers.probes import ProbeFailure, ProbePlan, probe_plan

FALSE = {"exec": {"command": ["/bin/false"]}}
SLOW = {"exec": {"command": ["sleep", "90"]}, "timeoutSeconds": 61, "initialDelaySeconds": 4}


@pytest.mark.parametrize(
    ("probes", "seconds"),
    [
        pytest.param({}, (0, 0), id="no probes"),
        pytest.param({"readinessProbe": {"initialDelaySeconds": 5}}, (0, 5), id="initial delay"),
        pytest.param({"readinessProbe": {"successThreshold": 3, "periodSeconds": 2}}, (0, 4), id="success threshold"),
        pytest.param({"readinessProbe": {"successThreshold": 2}}, (0, 10), id="default period"),
        pytest.param({"startupProbe": {"initialDelaySeconds": 7}}, (7, 7), id="startup probe delays readiness"),
    ],
)
def test_successful_probes_delay_the_container(probes, seconds):
    plan = probe_plan(probes, delays=True, commands=True)
    assert (plan.started, plan.ready, plan.killed, plan.failures) == (*seconds, math.inf, ())
    assert probe_plan(probes, delays=False, commands=True) == ProbePlan()


@pytest.mark.parametrize(
    "probe",
    [
        {"exec": {"command": ["true"]}},
        {"exec": {"command": ["cat", "/tmp/health"]}},
        {"exec": {"command": ["sleep", "5"]}, "timeoutSeconds": 6},
        {"httpGet": {"port": 81}},
        {"httpGet": {"port": "web"}},
        {"tcpSocket": {"port": "81"}},
        {"grpc": {"port": 81}},
    ],
)
def test_probe_that_may_succeed_does(probe):
    container = {"ports": [{"name": "web", "containerPort": 80}]}
    for field in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert probe_plan({**container, field: probe}, delays=False, commands=True) == ProbePlan()


@pytest.mark.parametrize(
    ("container", "plan"),
    [
        (
            {"readinessProbe": FALSE},
            ProbePlan(0, math.inf, math.inf, "", (ProbeFailure(0, "Readiness probe failed: "),)),
        ),
        (
            {"livenessProbe": {**FALSE, "initialDelaySeconds": 5, "periodSeconds": 2}},
            ProbePlan(0, 0, 9, "failed liveness probe", (ProbeFailure(5, "Liveness probe failed: "),)),
        ),
        (
            {"startupProbe": {**FALSE, "failureThreshold": 1}, "livenessProbe": FALSE, "readinessProbe": FALSE},
            ProbePlan(math.inf, math.inf, 0, "failed startup probe", (ProbeFailure(0, "Startup probe failed: "),)),
        ),
        (
            {"startupProbe": {"initialDelaySeconds": 7}, "livenessProbe": {**SLOW, "failureThreshold": 1}},
            ProbePlan(
                7,
                7,
                7,
                "failed liveness probe",
                (ProbeFailure(7, 'Liveness probe failed: command timed out: "sleep 90" timed out after 1m1s'),),
            ),
        ),
    ],
    ids=["readiness", "liveness", "startup comes first", "timeout after startup"],
)
def test_command_that_fails_fails_its_probe(container, plan):
    assert probe_plan(container, delays=True, commands=True) == plan
    unknown = probe_plan(container, delays=True, commands=False)
    assert (unknown.killed, unknown.failures) == (math.inf, ())


@pytest.mark.parametrize(
    ("field", "started", "ready"),
    [("startupProbe", math.inf, math.inf), ("readinessProbe", 0, math.inf), ("livenessProbe", 0, 0)],
)
def test_unknown_port_name_neither_succeeds_nor_kills(field, started, ready):
    message = 'probe errored and resulted in unknown state: strconv.Atoi: parsing "web": invalid syntax'
    for action in ("httpGet", "tcpSocket"):
        plan = probe_plan({field: {action: {"port": "web"}}}, delays=False, commands=True)
        name = field.removesuffix("Probe").capitalize()
        assert plan == ProbePlan(started, ready, math.inf, "", (ProbeFailure(0, f"{name} {message}"),))

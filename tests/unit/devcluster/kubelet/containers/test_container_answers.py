"""Choice of the configured answer for a container, as in KWOK."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.containers.container_answers import (
    ContainerAnswers,
    Entry,
    ExecAnswer,
    LogAnswer,
    PortForwardAnswer,
    Rule,
)


def log(text: str, *targets: str) -> Entry[LogAnswer]:
    return Entry(LogAnswer(text=text), targets)


ANSWERS = ContainerAnswers(
    logs=[
        Rule((log("selected"),), namespaces=("shop",), names=("a", "b")),
        Rule((log("all"), log("sidecar", "side"))),
        Rule((log("own", "web"),), name="own", namespaces=("shop",)),
    ]
)


@pytest.mark.parametrize(
    ("pod", "container", "text"),
    [
        ("shop/a", "web", "selected"),
        ("shop/c", "web", "all"),
        ("shop/c", "side", "sidecar"),
        ("other/a", "web", "all"),
        ("shop/own", "web", "own"),
        ("shop/own", "side", None),  # the pod's own rule excludes the others
        ("other/own", "web", "all"),
    ],
)
def test_log_of_container(pod: str, container: str, text: str | None):
    answer = ANSWERS.log(*pod.split("/"), container)
    assert (answer.text if answer is not None else None) == text


@pytest.mark.parametrize(
    ("requested", "command"), [(["date"], ("echo", "noon")), (["date", "-u"], ("true",)), ([], ("true",))]
)
def test_exact_command_precedes_any_command(requested: list[str], command: tuple[str, ...]):
    entries = (Entry(ExecAnswer(("true",))), Entry(ExecAnswer(("echo", "noon"), match=("date",))))
    answer = ContainerAnswers(execs=[Rule(entries)]).command("default", "p", "web", requested)
    assert answer is not None
    assert answer.command == command


def test_other_command_has_no_answer():
    answers = ContainerAnswers(execs=[Rule((Entry(ExecAnswer(("true",), match=("date",))),))])
    assert answers.command("default", "p", "web", ["rm"]) is None


def test_port_forward_by_port():
    entries = (Entry(PortForwardAnswer("127.0.0.1", 1), (80,)), Entry(PortForwardAnswer("127.0.0.1", 2)))
    answers = ContainerAnswers(port_forwards=[Rule(entries, name="p", namespaces=("default",))])
    ports = [(answer := answers.port_forward("default", "p", port)) and answer.port for port in (80, 81)]
    assert ports == [1, 2]
    assert answers.forwards_ports("default", "p")
    assert not answers.forwards_ports("default", "q")
    assert not answers.forwards_ports("other", "p")

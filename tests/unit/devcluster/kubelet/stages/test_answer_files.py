"""Answers of containers in stage files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.devcluster.kubelet.containers.container_answers import (
    AttachAnswer,
    ExecAnswer,
    LogAnswer,
    PortForwardAnswer,
)
from kubeloop.devcluster.kubelet.stages.answer_files import read_container_answers
from kubeloop.devcluster.kubelet.stages.files import read_stages
from kubeloop.kube.user_error import UserError


def document(kind: str, spec: str, metadata: str = "{name: p, namespace: shop}") -> str:
    return f"apiVersion: kwok.x-k8s.io/v1alpha1\nkind: {kind}\nmetadata: {metadata}\nspec: {spec}\n---\n"


def test_all_kinds_are_read(tmp_path: Path):
    file = tmp_path / "answers.yaml"
    local = "{command: [cat, /x], workDir: sub, envs: [{name: A, value: b}]}"
    file.write_text(
        document("Logs", "{logs: [{containers: [web], logsFile: a.log, previousLogsFile: /b.log, follow: false}]}")
        + document("ClusterLogs", "{selector: {matchNamespaces: [n], matchNames: [m]}, logs: [{text: fixed}]}")
        + document("Exec", f"{{execs: [{{match: [ls], local: {local}}}]}}")
        + document("ClusterAttach", "{attaches: [{logsFile: a.log}]}")
        + document("ClusterPortForward", "{forwards: [{ports: [80], target: {address: localhost, port: 81}}]}")
        + document("PortForward", "{forwards: [{command: [cat]}]}", "{name: p}")
    )
    answers = read_container_answers([file])
    assert read_stages([file]) == []
    assert answers.log("shop", "p", "web") == LogAnswer(tmp_path / "a.log", Path("/b.log"), follows=False)
    assert answers.log("n", "m", "web") == LogAnswer(text="fixed")
    assert answers.log("n", "x", "web") is None
    assert answers.command("shop", "p", "web", ["ls"]) == ExecAnswer(
        ("cat", "/x"), ("ls",), tmp_path / "sub", (("A", "b"),)
    )
    assert answers.attach("any", "any", "web") == AttachAnswer(tmp_path / "a.log")
    assert answers.port_forward("any", "any", 80) == PortForwardAnswer("localhost", 81)
    assert answers.port_forward("any", "any", 82) is None
    assert answers.port_forward("default", "p", 82) == PortForwardAnswer(command=("cat",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (document("Logs", "{logs: [{}]}"), "spec.logs[0]: exactly one of logsFile and text is required"),
        (document("Logs", "{}"), "spec: logs is missing"),
        (document("Logs", "{selector: {}, logs: []}"), "spec: field 'selector' is not supported"),
        (document("Logs", "{logs: []}", "{}"), "metadata.name is missing"),
        (document("Exec", "{execs: [{local: {}}]}"), "spec.execs[0].local: command is missing"),
        (document("Exec", "{execs: [{}]}"), "spec.execs[0]: command is missing"),
        (document("Attach", "{attaches: [{}]}"), "spec.attaches[0]: logsFile is missing"),
        (document("PortForward", "{forwards: [{target: {port: 1}}]}"), "command, or target with address and port"),
        (document("PortForward", "{forwards: [{ports: [http]}]}"), "command, or target with address and port"),
        ("apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Logs\nmetadata: {name: p}", "spec is missing"),
    ],
)
def test_invalid_document_is_refused(tmp_path: Path, text: str, problem: str):
    file = tmp_path / "answers.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as raised:
        read_container_answers([file])
    assert problem in str(raised.value)

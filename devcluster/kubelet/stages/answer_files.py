"""Answers of containers in stage files: documents of KWOK's kinds Logs, Exec, Attach, PortForward and Cluster*.

Beyond KWOK's fields, a log may have a fixed `text`, and an exec has the local command that runs: KWOK runs the command
that the client sends, which is not supported. Files are relative to the document's folder.
Source: KWOK's pkg/apis/v1alpha1/{logs,exec,attach,port_forward}_types.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from kubeloop.devcluster.kubelet.containers.container_answers import (
    AttachAnswer,
    ContainerAnswers,
    Entry,
    ExecAnswer,
    LogAnswer,
    PortForwardAnswer,
    Rule,
)
from kubeloop.devcluster.kubelet.stages.files import ANSWER_KINDS
from kubeloop.devcluster.kubelet.stages.yaml_values import YamlValue, read_documents

Answer = TypeVar("Answer")


def read_container_answers(paths: Iterable[Path]) -> ContainerAnswers:
    """Return the answers that all files define; other documents are ignored. Raises UserError."""
    documents: dict[str, list[YamlValue]] = {"Logs": [], "Exec": [], "Attach": [], "PortForward": []}
    for path in paths:
        for document in read_documents(path):
            if document.kind in ANSWER_KINDS:
                documents[_kind(document)].append(document)
    return ContainerAnswers(
        logs=[_rule(document, "logs", _log) for document in documents["Logs"]],
        execs=[_rule(document, "execs", _exec) for document in documents["Exec"]],
        attaches=[_rule(document, "attaches", _attach) for document in documents["Attach"]],
        port_forwards=[_rule(document, "forwards", _forward) for document in documents["PortForward"]],
    )


def _kind(document: YamlValue) -> str:
    return document.kind.rpartition(" ")[2].removeprefix("Cluster")


def _rule(document: YamlValue, field: str, entry: Callable[[YamlValue], Entry[Answer]]) -> Rule[Answer]:
    top = document.fields("apiVersion", "kind", "metadata", "spec", "status")
    is_cluster = document.kind.rpartition(" ")[2].startswith("Cluster")
    metadata = {name: value.text() for name, value in top.fields("metadata").items() if name in ("name", "namespace")}
    if not metadata.get("name"):
        raise document.error("metadata.name is missing")
    spec = top.required("spec").fields(field, *(("selector",) if is_cluster else ()))
    entries = tuple(entry(item) for item in spec.required(field).items())
    if not is_cluster:
        return Rule(entries, name=metadata["name"], namespaces=(metadata.get("namespace", "default"),))
    selector = spec.fields("selector", "matchNamespaces", "matchNames")
    return Rule(entries, namespaces=selector.texts("matchNamespaces"), names=selector.texts("matchNames"))


def _log(value: YamlValue) -> Entry[LogAnswer]:
    fields = value.fields("containers", "logsFile", "previousLogsFile", "follow", "text")
    if ("logsFile" in fields) == ("text" in fields):
        raise value.error("exactly one of logsFile and text is required")
    answer = LogAnswer(
        file=fields.file("logsFile"),
        previous_file=fields.file("previousLogsFile"),
        text=fields["text"].text() if "text" in fields else None,
        follows=fields.boolean("follow", default=True),
    )
    return Entry(answer, fields.texts("containers"))


def _exec(value: YamlValue) -> Entry[ExecAnswer]:
    fields = value.fields("containers", "match", "local")
    local = fields.fields("local", "command", "workDir", "envs")
    command = local.texts("command")
    if not command:
        raise fields.get("local", value).error(
            "command is missing",
            hint="kubeloop runs only the command of this field, never the one that the client sends (docs/nodes.md)",
        )
    variables = [item.fields("name", "value") for item in local.items_of("envs")]
    environment = tuple((variable.required("name").text(), variable.text("value")) for variable in variables)
    answer = ExecAnswer(command, fields.texts("match"), local.file("workDir"), environment)
    return Entry(answer, fields.texts("containers"))


def _attach(value: YamlValue) -> Entry[AttachAnswer]:
    fields = value.fields("containers", "logsFile")
    logs = fields.required("logsFile")
    return Entry(AttachAnswer(logs.folder / logs.text()), fields.texts("containers"))


def _forward(value: YamlValue) -> Entry[PortForwardAnswer]:
    fields = value.fields("ports", "target", "command")
    command = fields.texts("command")
    target = fields.fields("target", "address", "port")
    if not command and not {"address", "port"} <= target.keys():
        raise value.error("command, or target with address and port, is required")
    ports = tuple(item.number() for item in fields.items_of("ports"))
    if command:
        return Entry(PortForwardAnswer(command=command), ports)
    return Entry(PortForwardAnswer(target["address"].text(), target["port"].number()), ports)

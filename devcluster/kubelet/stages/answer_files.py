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
from kubeloop.devcluster.kubelet.stages.files import ANSWER_KINDS, YamlValue, read_documents

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
    metadata = {name: value.text() for name, value in _map(top, "metadata").items() if name in ("name", "namespace")}
    if not metadata.get("name"):
        raise document.error("metadata.name is missing")
    if "spec" not in top:
        raise document.error("spec is missing")
    spec = top["spec"].fields(field, *(("selector",) if is_cluster else ()))
    if field not in spec:
        raise top["spec"].error(f"{field} is missing")
    entries = tuple(entry(item) for item in spec[field].items())
    if not is_cluster:
        return Rule(entries, name=metadata["name"], namespaces=(metadata.get("namespace", "default"),))
    selector = spec["selector"].fields("matchNamespaces", "matchNames") if "selector" in spec else {}
    return Rule(entries, namespaces=_texts(selector, "matchNamespaces"), names=_texts(selector, "matchNames"))


def _map(fields: dict[str, YamlValue], name: str) -> dict[str, YamlValue]:
    return fields[name].fields() if name in fields else {}


def _texts(fields: dict[str, YamlValue], name: str) -> tuple[str, ...]:
    return tuple(item.text() for item in fields[name].items()) if name in fields else ()


def _file(fields: dict[str, YamlValue], name: str) -> Path | None:
    return fields[name].folder / fields[name].text() if name in fields else None


def _log(value: YamlValue) -> Entry[LogAnswer]:
    fields = value.fields("containers", "logsFile", "previousLogsFile", "follow", "text")
    if ("logsFile" in fields) == ("text" in fields):
        raise value.error("exactly one of logsFile and text is required")
    answer = LogAnswer(
        file=_file(fields, "logsFile"),
        previous_file=_file(fields, "previousLogsFile"),
        text=fields["text"].text() if "text" in fields else None,
        follows="follow" not in fields or fields["follow"].boolean(),
    )
    return Entry(answer, _texts(fields, "containers"))


def _exec(value: YamlValue) -> Entry[ExecAnswer]:
    fields = value.fields("containers", "match", "local")
    local = fields["local"].fields("command", "workDir", "envs") if "local" in fields else {}
    command = _texts(local, "command")
    if not command:
        raise fields.get("local", value).error(
            "command is missing",
            hint="kubeloop runs only the command of this field, never the one that the client sends (docs/nodes.md)",
        )
    environment = []
    for item in local["envs"].items() if "envs" in local else ():
        variable = item.fields("name", "value")
        if "name" not in variable:
            raise item.error("name is missing")
        environment.append((variable["name"].text(), variable["value"].text() if "value" in variable else ""))
    answer = ExecAnswer(command, _texts(fields, "match"), _file(local, "workDir"), tuple(environment))
    return Entry(answer, _texts(fields, "containers"))


def _attach(value: YamlValue) -> Entry[AttachAnswer]:
    fields = value.fields("containers", "logsFile")
    file = _file(fields, "logsFile")
    if file is None:
        raise value.error("logsFile is missing")
    return Entry(AttachAnswer(file), _texts(fields, "containers"))


def _forward(value: YamlValue) -> Entry[PortForwardAnswer]:
    fields = value.fields("ports", "target", "command")
    command = _texts(fields, "command")
    target = fields["target"].fields("address", "port") if "target" in fields else {}
    if not command and not {"address", "port"} <= target.keys():
        raise value.error("command, or target with address and port, is required")
    ports = tuple(item.number() for item in fields["ports"].items()) if "ports" in fields else ()
    if command:
        return Entry(PortForwardAnswer(command=command), ports)
    return Entry(PortForwardAnswer(target["address"].text(), target["port"].number()), ports)

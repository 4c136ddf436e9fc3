"""Manifests as a cluster: files and folders, in any order and with the fields that an API server sets.

Reads Lists, `kubectl get -A -o yaml`, the folders of `kubectl cluster-info dump`, and exports of
kube-scheduler-simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeloop.kube import yaml
from kubeloop.kube.user_error import UserError
from kubeloop.process.manifests import objects_of, parse_manifests
from kubeloop.recording.sources.collected import CollectedRecording

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_SIMULATOR: Final[Mapping[str, tuple[str, str]]] = {
    "namespaces": ("v1", "Namespace"),
    "priorityClasses": ("scheduling.k8s.io/v1", "PriorityClass"),
    "storageClasses": ("storage.k8s.io/v1", "StorageClass"),
    "pvcs": ("v1", "PersistentVolumeClaim"),
    "pvs": ("v1", "PersistentVolume"),
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
}
"""Fields of an export of kube-scheduler-simulator, with apiVersion and kind of their objects, which lack these."""
_SIMULATOR_CONFIGURATION: Final = "schedulerConfig"


def read_manifest_files(
    recording: CollectedRecording, path: Path, *, on_bytes: Callable[[int], None] = lambda size: None
) -> None:
    """Add the objects of a file, or of a folder and its subfolders. Raises UserError with file and line."""
    ignored = 0
    for file in _files(path):
        if file.suffix not in _SUFFIXES and path.is_dir():
            ignored += 1  # logs of a dump
            continue
        try:
            text = file.read_text("utf-8")
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}", hint="check the path") from None
        except UnicodeDecodeError:
            raise UserError(f"{file} is not text", hint="a manifest is YAML or JSON in UTF-8") from None
        on_bytes(len(text))
        _read_text(recording, str(file), text)
    if ignored:
        recording.find(str(path), f"{ignored} files are no manifests", "only .yaml, .yml and .json files are read")


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    yield from sorted(file for file in path.rglob("*") if file.is_file())


def _read_text(recording: CollectedRecording, name: str, text: str) -> None:
    document = _single_json(text)
    if document is None and any(f"{field}:" in text for field in ("priorityClasses", _SIMULATOR_CONFIGURATION)):
        document = _single_yaml(text)
    if isinstance(document, dict) and "kind" not in document and _SIMULATOR.keys() & document.keys():
        _read_export(recording, name, document)
        return
    manifests = objects_of(name, document) if document is not None else parse_manifests(name, text)
    for manifest in manifests:
        recording.put(manifest.body, manifest.source)


def _single_json(text: str) -> Any:
    """Return the value of a JSON text, which is read faster than as YAML; None if it is none, or several."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _single_yaml(text: str) -> Any:
    try:
        documents, _ = yaml.read_all(text)
    except yaml.InvalidYaml:
        return None
    return documents[0] if len(documents) == 1 else None


def _read_export(recording: CollectedRecording, name: str, document: Mapping[str, Any]) -> None:
    for field, value in document.items():
        if field == _SIMULATOR_CONFIGURATION:
            if value:
                recording.find(
                    name, "it has a scheduler configuration", "it is used if it is given as a file of its own", field
                )
        elif field in _SIMULATOR and isinstance(value, list):
            api_version, kind = _SIMULATOR[field]
            for number, obj in enumerate(value, start=1):
                if not isinstance(obj, dict):
                    raise UserError(f"{name}, {field} {number}: not an object", hint="export the cluster again")
                recording.put({"apiVersion": api_version, "kind": kind, **obj}, f"{name}, {field} {number}")
        else:
            recording.find(name, "unknown field of an export", "it is left out", field)

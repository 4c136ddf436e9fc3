"""Files that documents and docstrings name exist, and lists of modules are complete."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("document", ["code-map.md", "architecture.md"])
def test_named_files_exist(document: str) -> None:
    files = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / document).read_text())
    assert len(files) > 25
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    "package",
    [
        "cel",
        "controllers/runtime",
        "controllers/runtime/owners",
        "controllers/runtime/pods",
        "controllers/runtime/queue",
        "controllers/runtime/resources",
        "controllers/runtime/revisions",
        "controllers/runtime/services",
        "controllers/runtime/writes",
        "devcluster/admission/policies",
        "devcluster/apiextensions",
        "kubeloop/cli",
        "kubeloop/cli/explain",
        "kubeloop/cli/options",
        "kubeloop/cli/recording",
        "kubeloop/cli/trace",
        "kubeloop/process",
        "kubeloop/testing",
        "kubeloop/testing/host",
        "scheduler/api_calls",
        "scheduler/attempts",
        "scheduler/devices",
        "scheduler/devices/cluster",
        "scheduler/extenders",
        "scheduler/legacy_policy",
        "scheduler/plugins",
        "scheduler/plugins/dynamic_resources",
        "scheduler/plugins/inter_pod_affinity",
        "scheduler/plugins/node_resources",
        "scheduler/plugins/pod_groups",
        "scheduler/plugins/pod_topology_spread",
        "scheduler/plugins/preemption",
        "scheduler/plugins/volumes",
        "scheduler/pod_groups",
        "scheduler/queue",
    ],
)
def test_docstring_lists_all_modules(package: str) -> None:
    folder = ROOT / package
    listed = re.findall(r"^    (\w+(?:\.py|/)) ", (folder / "__init__.py").read_text(), re.MULTILINE)
    modules = [file.name for file in folder.glob("*.py") if file.name != "__init__.py"]
    folders = [f"{file.parent.name}/" for file in folder.glob("*/__init__.py")]
    assert sorted(listed) == sorted(modules + folders)


def test_contributing_names_existing_files_and_targets():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:tests|cel|controllers|scheduler|devcluster|kube|kubeloop|deploy|docs)/[\w/.-]*)`", text)
    paths += re.findall(r"\]\(([\w/.-]+)", text)
    targets = re.findall(r"(?:^    |`)make (\w+)", text, re.MULTILINE)
    assert len(paths) > 15
    assert len(targets) > 4
    assert [path for path in paths if "NAME" not in path and not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text()
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_architecture_states_the_layers_of_the_import_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["id"] == "packages")
    section = (ROOT / "docs/architecture.md").read_text().partition("## What may import what")[2]
    assert section.partition("```text\n")[2].partition("\n```")[0].split("\n") == layers


def test_decisions_are_numbered_in_order():
    text = (ROOT / "docs/decisions.md").read_text()
    numbers = [int(number) for number in re.findall(r"^### (\d+)\. ", text, re.MULTILINE)]
    assert len(numbers) > 50
    assert numbers == list(range(1, len(numbers) + 1))

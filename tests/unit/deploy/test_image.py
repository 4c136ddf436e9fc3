"""The Dockerfile: stages, user, entry point, and the files that it sees."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from kubeloop import __version__
from support.development.dockerfile import instructions

ROOT = Path(__file__).resolve().parents[3]
INSTRUCTIONS = instructions(ROOT / "Dockerfile")


def arguments_of(name: str) -> list[str]:
    return [arguments for instruction, arguments in INSTRUCTIONS if instruction == name]


def test_image_has_two_stages_of_one_pinned_base():
    stages = arguments_of("FROM")
    assert [stage.partition(" AS ")[0] for stage in stages] == ["docker.io/library/python:${PYTHON}"] * 2
    (default,) = arguments_of("ARG")
    assert re.fullmatch(r"PYTHON=3\.\d+-slim-[a-z]+", default)
    last = [index for index, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM"][-1]
    assert [name for name, _ in INSTRUCTIONS[last:]].count("RUN") == 0
    assert arguments_of("COPY")[-1] == "--from=build /opt/kubeloop /opt/kubeloop"
    assert not arguments_of("ADD")


def test_image_runs_kubeloop_as_the_user_of_the_manifests():
    user = int(arguments_of("USER")[-1].split(":")[0])
    assert json.loads(arguments_of("ENTRYPOINT")[-1]) == ["kubeloop"]
    for path in (ROOT / "deploy").glob("*/**/*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            for container in containers(document):
                if container["image"] == "kubeloop":
                    assert container["securityContext"]["runAsUser"] == user, path


def containers(document: object) -> list[dict[str, dict[str, object]]]:
    if isinstance(document, list):
        return [it for entry in document for it in containers(entry)]
    if not isinstance(document, dict):
        return []
    return [*document.get("containers", []), *(it for value in document.values() for it in containers(value))]


def test_build_context_has_what_the_build_copies_and_no_tests():
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!") and line != "!"
    }
    targets = {link.resolve().name for link in (ROOT / "kubeloop").iterdir() if link.is_symlink()}
    files = {"pyproject.toml", "setup.py", "requirements.txt", "README.md", "LICENSE", "NOTICE"}
    assert allowed == targets | files | {"kubeloop"}


def test_image_has_one_name_and_the_version_of_the_project():
    named = []
    for path in (ROOT / "deploy").glob("**/*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if isinstance(document, dict) and document.get("kind") == "Component" and "images" in document:
                named.extend(document["images"])
    assert named == [{"name": "kubeloop", "newName": "kubeloop", "newTag": __version__}]

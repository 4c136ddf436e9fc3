"""Run kube-scheduler, if it is installed, to complete or refuse a configuration."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from support.comparison.real_apiserver import find_binary

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
"""


def complete_configuration(
    document: dict[str, Any], folder: Path, feature_gates: str = ""
) -> tuple[dict[str, Any] | None, str]:
    """Return (the configuration that kube-scheduler writes with --write-config-to, its log); None if it refuses it."""
    binary = find_binary("kube-scheduler")
    assert binary is not None
    kubeconfig, given, written = folder / "kubeconfig", folder / "given.yaml", folder / "written.yaml"
    kubeconfig.write_text(KUBECONFIG)
    written.unlink(missing_ok=True)
    connection = {"kubeconfig": str(kubeconfig)} | document.get("clientConnection", {})
    given.write_text(
        yaml.safe_dump({"leaderElection": {"leaderElect": False}} | document | {"clientConnection": connection})
    )
    arguments = [f"--config={given}", f"--write-config-to={written}", "--secure-port=0"]
    if feature_gates:
        arguments.append(f"--feature-gates={feature_gates}")
    result = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=60, check=False)
    if written.exists():
        return yaml.safe_load(written.read_text()), result.stderr
    return None, result.stderr


def refusal(log: str) -> str:
    """Return the error of a log of kube-scheduler."""
    errors = re.findall(r'(?:err=|[Ee]rror: |"command failed" err=)(.*)', log)
    return errors[-1] if errors else log

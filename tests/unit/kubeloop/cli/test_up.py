"""Start of `kubeloop up`: the process of its cluster, before most imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop.cli import up
from kubeloop.cli.options.options import (
    ClusterGateOptions,
    ControllerOptions,
    DevClusterOptions,
    DisplayOptions,
    ProcessOptions,
)
from kubeloop.kube.user_error import UserError


def test_cluster_starts_before_most_imports():
    imports = "import sys, kubeloop.cli.up; print({'asyncio', 'yaml', 'numpy'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", imports], stdout=subprocess.PIPE, check=True).stdout == b"set()\n"


def test_missing_manifest_ends_the_cluster(monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **kwargs: started.append(popen(*args, **kwargs)) or started[0]
    )
    options = (DevClusterOptions(), ProcessOptions(), ControllerOptions(), DisplayOptions(), ClusterGateOptions())
    with pytest.raises(UserError, match=r"missing\.yaml"):
        up.up([Path("missing.yaml")], *options)
    assert [process.returncode is None for process in started] == [False]

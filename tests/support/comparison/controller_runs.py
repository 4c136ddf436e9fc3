"""The same work with kube-controller-manager and with kubeloop, and the difference of their results."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.comparison.real_apiserver import needs_binaries
from support.processes.cli_processes import Kubeloop

Run = Callable[[Path], Any]
"""Does the work in a folder and returns its result in plain JSON."""


def difference(real: Any, ours: Any) -> str:
    """Return the difference of two results in plain JSON, as a diff of their lines; "" if they are equal."""
    lines = [json.dumps(result, indent=1, sort_keys=True).splitlines() for result in (real, ours)]
    return "\n".join(difflib.unified_diff(*lines, "Kubernetes", "kubeloop", n=2))


def check_same_results(
    run_kubernetes: Callable[[Path], Any], run_kubeloop: Callable[[Path], Any], folder: Path
) -> None:
    """Assert that both runs, at the same time and each with a folder, return the same."""
    needs_binaries("kube-controller-manager")
    with ThreadPoolExecutor(2) as executor:
        kubernetes = executor.submit(run_kubernetes, folder / "kubernetes")
        kubeloop = executor.submit(run_kubeloop, folder / "kubeloop")
        report = difference(kubernetes.result(), kubeloop.result())
    assert not report, report[:20_000]


@contextmanager
def kubeloop_up(folder: Path, *options: str) -> Iterator[Path]:
    """Run `kubeloop up` without nodes; yield its kubeconfig."""
    folder.mkdir()
    with Kubeloop(folder).running("up", "--nodes=0", f"--kubeconfig={folder / 'kubeconfig'}", *options) as process:
        process.wait_for("export KUBECONFIG")
        yield folder / "kubeconfig"

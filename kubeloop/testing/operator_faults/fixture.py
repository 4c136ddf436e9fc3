"""The check of an operator as a function that blocks, for pytest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from kubeloop.testing.cluster_options import Options, cluster_options
from kubeloop.testing.faults.suite import FaultsFound
from kubeloop.testing.operator_faults.report import report_text
from kubeloop.testing.operator_faults.suite import OperatorOptions, OperatorReport, check_operator


def check(
    command: str,
    *files: str | Path,
    steps: str | Path | None = None,
    only: Sequence[str] = (),
    jobs: int | None = None,
    seconds: float | None = None,
    timeout: float = 70.0,
    quiet: float = 5.0,
    user: str = "",
    **cluster: Unpack[Options],
) -> OperatorReport:
    """Run an operator under faults, as `kubeloop test-operator` does; raise FaultsFound with the report if it fails.

    command, files, steps, ...: options of the command. cluster: keywords of `kubeloop.testing.Cluster`. Raises
    UserError if something is wrong without faults.
    """
    resolve = cluster.pop("resolve", ())
    options = OperatorOptions(
        command=command,
        files=tuple(Path(file) for file in files),
        steps=None if steps is None else Path(steps),
        only=tuple(only),
        jobs=jobs,
        seconds=seconds,
        timeout=timeout,
        quiet=quiet,
        user=user,
        resolve=tuple(resolve.split(",")) if isinstance(resolve, str) else tuple(resolve),
        cluster=cluster_options(cluster),
    )
    report = asyncio.run(check_operator(options))
    if not report.passed:
        raise FaultsFound(report_text(report, options))
    return report

"""Options of `kubeloop record` and `kubeloop plan`."""

from __future__ import annotations

from pathlib import Path

from kubeloop.cli.options.options import (
    FILE,
    KUBE_CONTEXT,
    KUBECONFIG,
    LOG_FORMAT,
    VERBOSITY,
    CommandOptions,
    LogFormat,
    Verbosity,
    option,
)


class RecordOptions(CommandOptions):
    """Cluster and output of `kubeloop record`."""

    kubeconfig: Path | None = KUBECONFIG
    kube_context: str | None = KUBE_CONTEXT
    namespace: str = option("Namespace to record (default: all).", "-n", "--namespace", default="")
    once: bool = option("Record the present state and exit, without the changes.", default=False, is_flag=True)
    append: bool = option("Continue an existing recording of the cluster.", default=False, is_flag=True)
    anonymize: Path | None = option(
        "Replace names, values of labels and images by the key in this file, which is created if it does not exist.",
        default=None,
        type=FILE,
        metavar="KEY_FILE",
    )
    verbosity: Verbosity = VERBOSITY
    log_format: LogFormat = LOG_FORMAT

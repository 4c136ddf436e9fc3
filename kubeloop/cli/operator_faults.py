"""`kubeloop test-operator`: an operator of any language under faults."""

from __future__ import annotations

import sys

from kubeloop.cli.options.operator_fault_options import OperatorFaultOptions
from kubeloop.kube.user_error import UserError
from kubeloop.process.logs import configure_logging
from kubeloop.process.signals import run_until_interrupted
from kubeloop.testing.cluster_options import cluster_options
from kubeloop.testing.operator_faults.report import report_json, report_junit, report_text
from kubeloop.testing.operator_faults.suite import OperatorOptions, check_operator


def check_faults(options: OperatorFaultOptions) -> int:
    """Run the command and return its exit code. Raises UserError if something is wrong without faults."""
    configure_logging("error")
    tested = OperatorOptions(
        command=options.run,
        files=options.files,
        steps=options.steps,
        only=options.only,
        jobs=options.jobs,
        seconds=options.seconds,
        timeout=options.timeout,
        quiet=options.quiet,
        user=options.user,
        resolve=options.resolve,
        cluster=cluster_options({"controllers": options.controllers, "nodes": options.nodes}),
        logs=options.logs,
    )

    async def main() -> int:
        report = await check_operator(tested, _print_progress if sys.stderr.isatty() else lambda *counts: None)
        if options.junit is not None:
            try:
                options.junit.write_text(report_junit(report))
            except OSError as error:
                raise UserError(f"cannot write {options.junit}: {error.strerror}", hint="choose another file") from None
        sys.stdout.write(report_json(report) if options.as_json else report_text(report, tested))
        return 0 if report.passed else 1

    return run_until_interrupted(main(), interrupted=130)


def _print_progress(done: int, runs: int, findings: int) -> None:
    end = "\n" if done == runs else ""
    print(f"\r{done} of {runs} runs, {findings} failures", end=end, file=sys.stderr, flush=True)

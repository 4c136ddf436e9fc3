"""The report of a check as text, JSON and JUnit XML."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

import msgspec

from kubeloop.process.junit import junit_document
from kubeloop.testing.operator_faults.suite import FAULTS, FaultFinding, OperatorOptions, OperatorReport

_CELLS = {"passed": "ok", "failed": "FAIL", "not reached": "-"}
_TITLE_WIDTH = 52
_CONTEXT = 3  # writes around those that differ


def report_text(report: OperatorReport, options: OperatorOptions) -> str:
    """Return the report for a terminal. options: of the check, for the commands that repeat its findings."""
    return "\n".join(_lines(report, repeat_arguments(options))) + "\n"


def repeat_arguments(options: OperatorOptions) -> list[str]:
    """Return the command line that checks the same operator in the same scenario, at all writes."""
    arguments = ["kubeloop", "test-operator", "--run", options.command]
    for file in options.files:
        arguments += ["-f", str(file)]
    default, cluster = OperatorOptions(command=""), options.cluster
    for name, value, usual in (
        ("steps", options.steps, None),
        ("user", options.user, ""),
        ("timeout", f"{options.timeout:g}", f"{default.timeout:g}"),
        ("quiet", f"{options.quiet:g}", f"{default.quiet:g}"),
        ("controllers", cluster.controllers, default.cluster.controllers),
        ("nodes", cluster.nodes, default.cluster.nodes),
        *(("resolve", address, "") for address in options.resolve),
    ):
        if value != usual:
            arguments.append(f"--{name}={value}")
    return arguments


def report_json(report: OperatorReport) -> str:
    return msgspec.json.format(msgspec.json.encode(report)).decode() + "\n"


def report_junit(report: OperatorReport) -> str:
    """Return the report as JUnit XML: a test case per run."""
    sentences = {finding.id: [finding.sentence] for finding in report.findings}
    return junit_document("kubeloop.test-operator", [(run, sentences.get(run, [])) for run in report.outcomes])


def _lines(report: OperatorReport, arguments: Sequence[str]) -> Iterator[str]:
    yield from _table(report)
    yield ""
    for note in report.notes:
        yield f"note: {note}"
    if report.variations:
        yield f"not compared, because it differs between runs without faults: {', '.join(report.variations)}"
    if report.omitted:
        yield f"{report.omitted} runs were omitted: there was no time for them"
    faults = len({run.partition(":")[0] for run in report.outcomes})
    counts = f"{len(report.writes)} writes, {faults} fault classes, {len(report.outcomes)} runs"
    failures = f"{len(report.findings)} failure{'' if len(report.findings) == 1 else 's'}"
    yield f"{counts}, {_minutes(report.seconds)}: {failures}"
    for number, finding in enumerate(report.findings, start=1):
        yield f"{number}. {finding.sentence}"
        yield from (f"   {problem}" for problem in finding.problems[1:])
        yield from (f"   {line}" for line in _beside(report.writes, finding))
        if finding.log:
            yield "   last output of the operator:"
            yield from (f"     {line}" for line in finding.log)
        yield f"   repeat: {shlex.join([*arguments, '--only', finding.id])}"


def _minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s" if seconds >= 60 else f"{seconds:.0f} s"


def _table(report: OperatorReport) -> Iterator[str]:
    faults = [fault for fault in FAULTS if any(run.startswith(f"{fault}:") for run in report.outcomes)]
    width = min(_TITLE_WIDTH, max(map(len, report.writes), default=0))
    yield "     " + "  ".join(["write".ljust(width), *faults])
    for number, title in enumerate(report.writes, start=1):
        cells = [_CELLS.get(report.outcomes.get(f"{fault}:{number}", ""), "").ljust(len(fault)) for fault in faults]
        yield f"{number:3}  " + "  ".join([title[:width].ljust(width), *cells]).rstrip()


def _beside(reference: Sequence[str], finding: FaultFinding) -> Iterator[str]:
    """Yield the writes of the reference and those of the run side by side; the write that met the fault has a mark.

    Most of the writes that are the same are left out.
    """
    marked = [f"{'>' if number == finding.write else ' '} {title}" for number, title in enumerate(reference, start=1)]
    width = min(_TITLE_WIDTH, max(map(len, marked)))
    yield f"{'  writes without faults'.ljust(width)}   writes of this run"
    matcher = SequenceMatcher(None, reference, finding.writes, autojunk=False)
    for tag, start, end, other_start, other_end in matcher.get_opcodes():
        pairs = [*zip_longest(marked[start:end], finding.writes[other_start:other_end], fillvalue="")]
        for at, (one, other) in enumerate(pairs):
            is_far = tag == "equal" and _CONTEXT <= at < len(pairs) - _CONTEXT and not one.startswith(">")
            if not is_far:
                yield f"{one[:width].ljust(width)}   {other}".rstrip()
            elif at == _CONTEXT:
                yield "  ..."

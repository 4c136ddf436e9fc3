"""check_operator: an operator of any language under faults, compared with runs without faults.

Three reference runs show the operator's writes, the state after each step, and what differs between runs. Then each
write meets each fault in a run of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from kubeloop.devcluster.outgoing.service_addresses import parse_addresses
from kubeloop.kube.user_error import UserError
from kubeloop.process.signals import first_of
from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.faults.fault_plan import PlannedFault
from kubeloop.testing.faults.sentences import describe_fault
from kubeloop.testing.faults.state import ObjectNames, Variations, variations_between
from kubeloop.testing.operator_faults.operator_api import OperatorWrite, WriteId
from kubeloop.testing.operator_faults.ports import Ports
from kubeloop.testing.operator_faults.process import Guard
from kubeloop.testing.operator_faults.run import OperatorRun, ReferenceRuns, RunResult, RunSettings
from kubeloop.testing.operator_faults.scenario import Scenario, read_scenario

FAULTS = (
    "crash-after", "old-lists", "late-events", "blind", "lost-answer", "error", "conflict", "throttle", "freeze-leader",
    "crash-before",
)  # fmt: skip
"""Kinds of faults, in the order in which they are tried."""
_REFERENCES = 3
_LEAST_QUIET_SECONDS, _QUIET_FACTOR = 0.5, 1.5
_RUNS_BETWEEN_COLLECTIONS = 25
_JOBS_PER_CORE, _MOST_JOBS = 8, 16  # runs mostly wait; kubeloop's part of all of them has one core
FOLDER_PREFIX = "kubeloop-test-operator-"


class FaultFinding(msgspec.Struct, frozen=True):
    """A run that ended otherwise than the reference. write: number of the write that met the fault.

    writes: those of the run; log: the last output of the operator.
    """

    fault: str
    write: int
    sentence: str
    problems: list[str]
    writes: list[str]
    log: list[str]

    @property
    def id(self) -> str:
        return f"{self.fault}:{self.write}"


class OperatorReport(msgspec.Struct, frozen=True):
    """Result of a check.

    writes: those of the reference. outcomes: of each run, by "crash-after:7": "passed", "failed", or "not reached" if
    the write did not take place. omitted: runs for which there was no time. notes: of the reference. variations: fields
    that are not compared.
    """

    command: str
    writes: list[str]
    outcomes: dict[str, str]
    findings: list[FaultFinding]
    notes: list[str]
    variations: list[str]
    omitted: int
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.findings and not any("ignores SIGTERM" in note for note in self.notes)


class OperatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a check. command: that of --run; the others are options of `kubeloop test-operator`, too.

    cluster: without `resolve`, which is an option of its own, because of {port:NAME}.
    """

    command: str
    files: tuple[Path, ...] = ()
    steps: Path | None = None
    only: tuple[str, ...] = ()
    jobs: int | None = None
    seconds: float | None = None
    timeout: float = 70.0
    quiet: float = 5.0
    user: str = ""
    resolve: tuple[str, ...] = ()
    cluster: ClusterOptions = ClusterOptions()
    logs: Path | None = None


Progress = Callable[[int, int, int], None]
"""Called with the number of finished runs, of all runs and of findings."""


async def check_operator(
    options: OperatorOptions, progress: Progress = lambda done, runs, findings: None
) -> OperatorReport:
    """Run an operator under faults. Raises UserError if something is wrong without faults."""
    with _settings(options) as settings:
        try:
            return await _Suite(options, settings, progress).run()
        except BaseExceptionGroup as group:
            raise first_of(group, UserError) or group from None


@contextlib.contextmanager
def _settings(options: OperatorOptions) -> Iterator[RunSettings]:
    try:
        command = shlex.split(options.command)
    except ValueError as error:
        raise UserError(f"--run: {error}", hint="quote it as for a shell") from None
    if not command or shutil.which(command[0]) is None:
        raise UserError(f"--run: there is no command '{command[0] if command else ''}'", hint="check the path")
    with Ports(random.Random()) as ports:
        parse_addresses(map(ports.insert, options.resolve))  # raises UserError
    scenario = read_scenario(options.files, options.steps)
    if options.logs is not None:
        _create_folder(options.logs)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    guard = Guard(folder)
    try:
        yield _run_settings(options, command, scenario, folder, guard)
    finally:
        guard.close()


def _run_settings(
    options: OperatorOptions, command: Sequence[str], scenario: Scenario, folder: Path, guard: Guard
) -> RunSettings:
    return RunSettings(
        command,
        scenario,
        options.cluster,
        folder,
        guard,
        resolve=options.resolve,
        user=options.user,
        quiet_seconds=options.quiet,
        timeout_seconds=options.timeout,
        logs=options.logs,
    )


def _create_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--logs: cannot create {path}: {error.strerror}", hint="choose another folder") from None


def selects(only: str, fault: str, write: int, title: str) -> bool:
    """Return True if "crash-after", "crash-after:7", "7" or "crash-after:create of Secret" selects a run."""
    name, _, target = only.partition(":")
    if name not in FAULTS:
        name, target = "", only
    return name in ("", fault) and (target in ("", str(write)) or (not target.isdecimal() and title.startswith(target)))


class _Suite:
    """The runs of one check."""

    def __init__(self, options: OperatorOptions, settings: RunSettings, progress: Progress) -> None:
        self._options = options
        self._settings = settings
        self._progress = progress
        self._began = asyncio.get_running_loop().time()
        self._outcomes: dict[str, str] = {}
        self._findings: list[FaultFinding] = []

    async def run(self) -> OperatorReport:
        references = [await OperatorRun(self._settings, "reference-1").run()]
        quiet = min(
            self._settings.quiet_seconds,
            max(_LEAST_QUIET_SECONDS, _QUIET_FACTOR * references[0].longest_gap_seconds),
        )
        first, _ = _learn(references, quiet)
        others = [OperatorRun(self._settings, f"reference-{number}", first) for number in range(2, _REFERENCES + 1)]
        if self._jobs(references) > 1:
            references += await asyncio.gather(*(run.run() for run in others))
        else:
            references += [await run.run() for run in others]
        expected, writes = _learn(references, quiet)
        if not writes:
            raise UserError("the operator writes nothing in this scenario", hint="add steps that it acts on")
        has_rival = any(result.has_lease for result in references) and not fixed_ports(references)
        plan = list(self._plan(writes, has_rival))
        if not plan:
            raise UserError(
                f"--only {' '.join(self._options.only)} selects none of {len(writes)} writes and {len(FAULTS)} faults",
                hint=f"for example crash-after:7; the faults are {', '.join(FAULTS)}",
            )
        await self._run_all(plan, writes, expected, self._jobs(references))
        titles = [write.title for write in writes]
        order = {f"{fault}:{number}": at for at, (fault, number) in enumerate(plan)}
        return OperatorReport(
            self._options.command,
            titles,
            self._outcomes,
            sorted(self._findings, key=lambda finding: order[finding.id]),
            [*sorted({note for result in references for note in result.notes}), *self._port_notes(references)],
            sorted(expected.variations.fields | {f"{kind} {name}*" for kind, _, name in expected.variations.names}),
            len(plan) - len(self._outcomes),
            asyncio.get_running_loop().time() - self._began,
        )

    def _jobs(self, references: Sequence[RunResult]) -> int:
        """Return the number of runs at a time: one, if runs may have a port or another server in common."""
        if self._options.jobs is not None:
            return self._options.jobs
        is_unknown = not os.path.exists("/proc/net/tcp")
        is_shared = fixed_ports(references) or any("talks to" in note for note in references[0].notes)
        return 1 if is_shared or is_unknown else min(_JOBS_PER_CORE * (os.cpu_count() or 1), _MOST_JOBS)

    def _port_notes(self, references: Sequence[RunResult]) -> Iterator[str]:
        if ports := sorted(fixed_ports(references)):
            numbers = ", ".join(map(str, ports))
            consequence = "one run takes place at a time, without freeze-leader"
            yield f"it listens on port {numbers}: {consequence}; {{port:NAME}} in --run gives each run its own"

    def _plan(self, writes: Sequence[OperatorWrite], has_rival: bool) -> Iterator[tuple[str, int]]:
        """Yield fault and number of the write of each run."""
        for fault in FAULTS:
            for number, write in enumerate(writes, start=1):
                if fault == "conflict" and not write.names_version:
                    continue
                if fault == "freeze-leader" and not has_rival:
                    continue
                only = self._options.only
                if not only or any(selects(text, fault, number, write.title) for text in only):
                    yield fault, number

    async def _run_all(
        self, plan: Sequence[tuple[str, int]], writes: Sequence[OperatorWrite], expected: ReferenceRuns, jobs: int
    ) -> None:
        waiting = iter(plan)
        loop = asyncio.get_running_loop()
        ends_at = None if self._options.seconds is None else self._began + self._options.seconds

        async def work() -> None:
            for fault, number in waiting:
                if ends_at is not None and loop.time() > ends_at:
                    return
                trigger = writes[number - 1].id
                run = OperatorRun(self._settings, f"{fault}-{number}", expected, fault=fault, trigger=trigger)
                self._note(fault, number, await run.run(), writes)
                self._progress(len(self._outcomes), len(plan), len(self._findings))
                if len(self._outcomes) % _RUNS_BETWEEN_COLLECTIONS == 0:
                    gc.unfreeze()  # a run's cluster, in cycles, is frozen by short_collections()
                    gc.collect()

        async with asyncio.TaskGroup() as group:
            for _ in range(jobs):
                group.create_task(work(), name="runs")

    def _note(self, fault: str, number: int, result: RunResult, writes: Sequence[OperatorWrite]) -> None:
        if result.problems:
            titles = [write.title for write in writes]
            planned = PlannedFault(fault, write=number, resource=writes[number - 1].id.resource.partition("/")[0])
            clause = describe_fault(planned, titles) if result.fired is not None else "without a fault"
            self._findings.append(
                FaultFinding(
                    fault,
                    number,
                    f"{clause}, {result.problems[0]}",
                    result.problems,
                    [str(write) for write in result.writes],
                    result.log,
                )
            )
        outcome = "failed" if result.problems else "passed" if result.fired is not None else "not reached"
        self._outcomes[f"{fault}:{number}"] = outcome


def fixed_ports(references: Sequence[RunResult]) -> frozenset[int]:
    """Return the ports on which the operator listens in all runs."""
    return frozenset.intersection(*(result.ports for result in references))


def _learn(references: Sequence[RunResult], quiet_seconds: float) -> tuple[ReferenceRuns, list[OperatorWrite]]:
    """Return what runs without faults have in common, and the writes that take place in all of them."""
    fields: set[str] = set()
    names: set[ObjectNames] = set()
    for states in zip(*(result.states for result in references), strict=True):
        variations = variations_between(states)
        fields |= variations.fields
        names |= variations.names
    variations = Variations(frozenset(fields), frozenset(names))
    for states in zip(*(result.states for result in references), strict=True):
        for state in states:
            state.leave_out(variations)
        for state in states[1:]:
            if differences := state.differences(states[0]):
                raise UserError(
                    f"two runs without faults end differently: {differences[0]}",
                    hint="the scenario must always end in the same objects; a longer --quiet may help",
                )
    renamed = [_renamed(result.writes, variations) for result in references]
    common = set.intersection(*({write.id for write in writes} for writes in renamed))
    deletions: Counter[tuple[str, str, str]] = Counter()
    for result, writes in zip(references, renamed, strict=True):
        result.writes = writes
        deletions |= result.deletions(variations)
    watched = frozenset.intersection(*(result.watched for result in references))
    expectation = ReferenceRuns(references[0].states, variations, quiet_seconds, watched, deletions)
    return expectation, [write for write in renamed[0] if write.id in common]


def _renamed(writes: Sequence[OperatorWrite], variations: Variations) -> list[OperatorWrite]:
    """Return the writes with stable names, and occurrences that are counted by them."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    renamed = []
    for write in writes:
        name = variations.stable_name(write.kind, write.id.namespace, write.id.name)
        key = write.id.verb, write.id.resource, write.id.namespace, name
        counts[key] += 1
        renamed.append(msgspec.structs.replace(write, id=WriteId(*key, counts[key])))
    return renamed

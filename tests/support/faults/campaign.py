"""Many runs with fresh seeds, in parallel processes, and the table of their results.

`make faults` runs it. A failure prints its seed, the fewest faults and steps that still fail, and how to replay it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import msgspec

from kubeloop.testing.faults.fault_plan import FAULT_CLASSES, FaultPlan, creates_are_exact, draw_plan
from support.faults.final_state import differences, unpostponed
from support.faults.scenario import Scenario
from support.faults.scenarios import SCENARIOS
from support.faults.simulation import IDLE_WRITES, OTHER_CREATES, Report, profile_of, simulate

_STORY_LINES = 120
_FINAL_STATES = 8  # runs without postponed writes that are compared with one run


class RunId(msgspec.Struct, frozen=True):
    """A reproducible run. plan, steps: the faults and the numbers of the steps; None for those of the seed."""

    scenario: str
    fault_class: str
    seed: str
    plan: FaultPlan | None = None
    steps: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True)
class Outcome:
    run: RunId
    violations: list[str]
    crash_points: list[int]
    writes: int
    seconds: float


def run(run_id: RunId) -> Report:
    """Run one simulation, and compare its end with that of a run without postponed writes, unless it depends on faults.

    A violation is also what it raises.
    """
    scenario = SCENARIOS[run_id.scenario]
    plan = run_id.plan
    if plan is None:
        plan = draw_plan(run_id.fault_class, f"{run_id.scenario}/{run_id.seed}", profile_of(scenario))
    if run_id.steps is not None:
        scenario = _with_steps(run_id.scenario, run_id.steps)
    try:
        report = simulate(scenario, plan, run_id.seed)
        if not report.violations and scenario.one_final_state and creates_are_exact(plan):
            report.violations += _changes_by_postponing(scenario, plan, run_id.seed, report)
        return report
    except Exception as error:
        return Report([f"the simulation failed: {error!r}"], [], [], set(), {}, 0.0)


def _changes_by_postponing(scenario: Scenario, plan: FaultPlan, seed: str, report: Report) -> list[str]:
    """Return how the final state differs from those of runs that postpone no write; [] if it is that of one of them.

    Some scenarios have several final states: preemption may choose one pod or another.
    """
    changes: list[str] = []
    with unpostponed():
        for number in range(_FINAL_STATES):
            other = simulate(scenario, plan, seed, number)
            # That run repeats the status of a pending pod at each attempt, as no write is compared with the last one,
            # and more writes make caches older: without StaleControllerConsistency, a Job then gets an extra pod.
            normal = (IDLE_WRITES, OTHER_CREATES)
            violations = [violation for violation in other.violations if not violation.startswith(normal)]
            if violations:
                return [f"without postponed writes: {violation}" for violation in violations]
            found = differences(other.final, report.final)
            if not found:
                return []
            changes = changes or found
    return changes


@functools.cache
def _with_steps(scenario: str, steps: tuple[int, ...]) -> Scenario:
    """Return the scenario with these steps only."""
    whole = SCENARIOS[scenario]
    return dataclasses.replace(whole, steps=tuple(whole.steps[number] for number in steps))


def outcome(run_id: RunId) -> Outcome:
    began = time.process_time()
    report = run(run_id)
    crash_points = [fault.write for fault in report.reached if fault.kind.startswith("crash") and fault.write]
    return Outcome(run_id, report.violations, crash_points, len(report.writes), time.process_time() - began)


# --- shrinking --------------------------------------------------------------------------------------------------------


def shrink(run_id: RunId) -> RunId:
    """Return the run with the fewest faults and steps that still violates an invariant."""
    scenario = SCENARIOS[run_id.scenario]
    plan = run_id.plan or draw_plan(run_id.fault_class, f"{run_id.scenario}/{run_id.seed}", profile_of(scenario))
    smallest = msgspec.structs.replace(run_id, plan=plan, steps=tuple(range(len(scenario.steps))))
    while (smaller := next(filter(_fails, _smaller(smallest)), None)) is not None:
        smallest = smaller
    return smallest


def _fails(run_id: RunId) -> bool:
    return bool(run(run_id).violations)


def _smaller(run_id: RunId) -> Iterator[RunId]:
    """Yield the run without one of its faults, or one of its steps."""
    assert run_id.plan is not None
    assert run_id.steps is not None
    faults = run_id.plan.faults
    for number in range(len(faults)):
        plan = msgspec.structs.replace(run_id.plan, faults=faults[:number] + faults[number + 1 :])
        yield msgspec.structs.replace(run_id, plan=plan)
    for number in range(1, len(run_id.steps)):
        steps = run_id.steps[:number] + run_id.steps[number + 1 :]
        if not _fails(msgspec.structs.replace(run_id, steps=steps, plan=FaultPlan())):
            yield msgspec.structs.replace(run_id, steps=steps)


def failure_text(run_id: RunId) -> str:
    """Describe a failure: seed, shrunk faults and steps, what happened, and the command that replays it."""
    smallest = shrink(run_id)
    report = run(smallest)
    assert smallest.plan is not None
    assert smallest.steps is not None
    scenario = SCENARIOS[run_id.scenario]
    return "\n".join(
        [
            f"FAILED {run_id.scenario}, {run_id.fault_class}, seed {run_id.seed}",
            *(f"  violation: {violation}" for violation in dict.fromkeys(report.violations)),
            f"  faults: {', '.join(map(str, smallest.plan.faults)) or 'none'}"
            f"; {'with' if smallest.plan.journal else 'without'} journal"
            f"{'' if smallest.plan.compares_versions else ', StaleControllerConsistency gates off'}",
            f"  steps: {', '.join(scenario.steps[number].title for number in smallest.steps)}",
            *report.story[-_STORY_LINES:],
            f"  replay: make faults REPLAY='{smallest}'",
        ]
    )


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass
class _Cell:
    runs: int = 0
    failures: int = 0
    writes: int = 0
    crash_points: set[int] = field(default_factory=set)


class Table:
    """Runs, failures and writes by scenario and class of faults."""

    def __init__(self) -> None:
        self._cells: defaultdict[tuple[str, str], _Cell] = defaultdict(_Cell)
        self.seconds = 0.0

    def add(self, result: Outcome) -> None:
        cell = self._cells[result.run.scenario, result.run.fault_class]
        cell.runs += 1
        cell.failures += bool(result.violations)
        cell.writes += result.writes
        cell.crash_points.update(result.crash_points)
        self.seconds += result.seconds

    @property
    def failures(self) -> int:
        return sum(cell.failures for cell in self._cells.values())

    def lines(self) -> Iterator[str]:
        """Yield the table in Markdown: runs of each class, with failures as "runs (failures)"."""
        classes = [name for name in FAULT_CLASSES if any(key[1] == name for key in self._cells)]
        scenarios = list(dict.fromkeys(key[0] for key in self._cells))
        yield f"| scenario | {' | '.join(classes)} | failures | writes | crash points |"
        yield f"|---|{'---:|' * (len(classes) + 3)}"
        for scenario in sorted(scenarios, key=list(SCENARIOS).index):
            cells = [self._cells[scenario, name] for name in classes]
            counts = [f"{cell.runs} ({cell.failures})" if cell.failures else str(cell.runs) for cell in cells]
            crash_points: set[int] = set().union(*(cell.crash_points for cell in cells))
            writes = len(profile_of(SCENARIOS[scenario]).writes)
            reached = len([number for number in crash_points if number <= writes])
            failures = sum(cell.failures for cell in cells)
            total = sum(cell.writes for cell in cells)
            yield f"| {scenario} | {' | '.join(counts)} | {failures} | {total} | {reached} of {writes} |"
        runs = sum(cell.runs for cell in self._cells.values())
        total = sum(cell.writes for cell in self._cells.values())
        yield ""
        yield f"{runs} runs, {self.failures} failures, {total} writes checked, {self.seconds:.0f} s of CPU"


# --- campaigns --------------------------------------------------------------------------------------------------------


def run_ids(count: int, first_seed: int, scenarios: Sequence[str], classes: Sequence[str]) -> list[RunId]:
    """Return `count` runs, spread over scenarios and classes, whose seeds start at `first_seed`."""
    pairs = itertools.cycle(itertools.product(scenarios, classes))
    per_pair = len(scenarios) * len(classes)
    return [
        RunId(scenario, fault_class, str(first_seed + number // per_pair))
        for number, (scenario, fault_class) in zip(range(count), pairs, strict=False)
    ]


def run_campaign(ids: Sequence[RunId], jobs: int, report: Callable[[str], object], seconds: float) -> Table:
    """Run all in parallel processes, or those that fit into the time. report: receives each failure's text."""
    table = Table()
    until = time.monotonic() + seconds
    batch = jobs * 16
    with ProcessPoolExecutor(jobs) as pool:
        for start in range(0, len(ids), batch):
            if time.monotonic() > until:
                break
            for result in pool.map(outcome, ids[start : start + batch]):
                table.add(result)
                if result.violations:
                    report(pool.submit(failure_text, result.run).result())
    return table


def fresh_seed() -> int:
    return random.SystemRandom().randrange(10**6, 10**9)


def default_jobs() -> int:
    return os.cpu_count() or 1

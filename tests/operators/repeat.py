"""Check that each planted defect of the operators is found, and that the correct operator passes.

    python tests/operators/repeat.py [--repetitions 10] [--checks 2] [--jobs 2] [python] [go]

`make operator-faults` runs it. Prints a line per check; exits 1 after a defect that was not found, or a finding in the
correct operator, which meets all faults at all writes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
CLIENTS = FOLDER.parent / "clients" / "go"


class Defect(NamedTuple):
    """A planted defect: the runs that find it, and a part of the sentence of at least one finding."""

    name: str
    only: tuple[str, ...]
    sentence: str


DEFECTS = (
    # intermediate states
    Defect("secret-by-status", ("crash-after:create of Secret",), "a second Secret"),
    Defect("config-in-two-writes", ("crash-after:create of ConfigMap",), "has data null instead of"),
    Defect("finalizer-first", ("crash-after:update of Site",), "ConfigMap default/dns-second.example.com was created"),
    Defect("exists-is-fatal", ("crash-after:create of Deployment",), "crash loop"),
    # stale states
    Defect("stale-cache-create", ("late-events:create of Secret",), "Secret default/blog-tls-* was created and never"),
    Defect(
        "stale-cache-delete",
        ("old-lists:delete of ConfigMap dns-first", "old-lists:create of ConfigMap dns-second"),
        "data-blog-1 was deleted",
    ),
    # unobservable states
    Defect("missed-deletion", ("blind:update of Deployment", "blind:status write"), "ConfigMap default/dns-second"),
    Defect("missed-event", ("blind:create of Deployment",), "has status.ready"),
    # refused and lost requests
    Defect("conflict-ignored", ("conflict:update of Site",), "does not exist in the end"),
    Defect("error-ignored", ("error:update of Site",), "does not exist in the end"),
    Defect("retried-create", ("lost-answer:create of Secret",), "a second Secret"),
)
ONLY_IN_PYTHON = ("missed-event", "retried-create")
CORRECT = Defect("", (), "")


def check(command: str, defect: Defect, jobs: int) -> dict[str, Any]:
    """Return the report of `kubeloop test-operator`; an error without faults is its only finding."""
    arguments: list[str | Path] = [
        f"--run={command}",
        "-f",
        FOLDER / "crd.yaml",
        "--steps",
        FOLDER / "steps.yaml",
        f"--jobs={jobs}",
    ]
    selection = [f"--only={text}" for text in defect.only]
    limits = ["--timeout=70" if defect is CORRECT else "--timeout=12", "--quiet=2"]
    done = subprocess.run(
        [sys.executable, "-m", "kubeloop", "test-operator", "--json", *arguments, *selection, *limits],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode > 1:
        error = {"fault": "reference", "write": 0, "sentence": done.stderr, "problems": []}
        return {"outcomes": {}, "seconds": 0, "findings": [error]}
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def commands(languages: list[str], folder: Path) -> dict[str, str]:
    """Return the command of the operator in each language, without the name of its defect."""
    by_language = {}
    if "python" in languages:
        script = FOLDER / "site_operator.py"
        by_language["python"] = f"{sys.executable} {script} --kubeconfig {{kubeconfig}} --leader-elect --defect="
    if "go" in languages:
        binary = folder / "siteoperator"
        subprocess.run(["go", "build", "-o", binary, "./siteoperator"], cwd=CLIENTS, check=True)
        by_language["go"] = f"{binary} -kubeconfig {{kubeconfig}} -leader-elect -defect="
    return by_language


def checks(languages: list[str], names: list[str] | None) -> Iterator[tuple[str, Defect]]:
    """Yield language and defect of the checks of a repetition."""
    for language in languages:
        for defect in (*DEFECTS, CORRECT):
            is_planted = language == "python" or defect.name not in ONLY_IN_PYTHON
            if is_planted and (not names or (defect.name or "correct") in names):
                yield language, defect


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("languages", nargs="*", default=["python", "go"])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--checks", type=int, default=4, help="number of checks at a time")
    parser.add_argument("--jobs", type=int, default=8, help="number of runs of a check at a time")
    parser.add_argument("--defect", action="append", help="only this one, or 'correct'; may be repeated")
    options = parser.parse_args()
    passed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.checks) as pool:
        by_language = commands(options.languages, Path(folder))
        selected = [*checks(options.languages, options.defect)]
        running = {
            pool.submit(check, by_language[language] + defect.name, defect, options.jobs): (
                repetition,
                language,
                defect,
            )
            for repetition in range(1, options.repetitions + 1)
            for language, defect in selected
        }
        for future in as_completed(running):
            repetition, language, defect = running[future]
            report = future.result()
            findings = report["findings"]
            title = f"{language} {defect.name or 'correct'}"
            is_found = any(defect.sentence in str(finding["problems"]) for finding in findings)
            passed[title] += not findings if defect is CORRECT else is_found
            summary = f"{len(report['outcomes'])} runs, {report['seconds']:.0f} s, {len(findings)} findings"
            print(f"{repetition}. {title}: {summary}", flush=True)
            for finding in findings if defect is CORRECT or not is_found else ():
                print(f"   {finding['fault']}:{finding['write']} {finding['sentence']}", flush=True)
    for language, defect in selected:
        title = f"{language} {defect.name or 'correct'}"
        outcome = "passed" if defect is CORRECT else "found"
        print(f"{title}: {outcome} in {passed[title]} of {options.repetitions}")
    return 0 if passed.total() == len(running) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Check that each planted defect of the operators is found, and that the correct operator passes.

    python tests/operators/repeat.py [--repetitions 10] [--jobs 2] [python] [go]

`make operator-faults` runs it. Prints a line per operator and defect; exits 1 after a defect that was not found, or a
finding in the correct operator, which meets all faults at all writes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
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


def check(command: str, only: tuple[str, ...], jobs: int) -> dict[str, Any]:
    """Return the report of `kubeloop test-operator`. Exits if something is wrong without faults."""
    arguments = [f"--run={command}", "-f", FOLDER / "crd.yaml", "--steps", FOLDER / "steps.yaml", f"--jobs={jobs}"]
    selection = [f"--only={text}" for text in only]
    limits = ["--timeout=70", "--quiet=2"] if not only else ["--timeout=12", "--quiet=2"]
    done = subprocess.run(
        [sys.executable, "-m", "kubeloop", "test-operator", "--json", *arguments, *selection, *limits],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode > 1:
        sys.exit(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def commands(languages: list[str], folder: Path) -> dict[str, str]:
    found = {}
    if "python" in languages:
        found["python"] = f"{sys.executable} {FOLDER / 'site_operator.py'} --kubeconfig {{kubeconfig}}"
    if "go" in languages:
        binary = folder / "siteoperator"
        subprocess.run(["go", "build", "-o", binary, "./siteoperator"], cwd=CLIENTS, check=True)
        found["go"] = f"{binary} -kubeconfig {{kubeconfig}}"
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("languages", nargs="*", default=["python", "go"])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--defect", action="append", help="only this one; may be repeated")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for language, command in commands(options.languages, Path(folder)).items():
            for defect in DEFECTS:
                if (options.defect and defect.name not in options.defect) or (
                    language != "python" and defect.name in ONLY_IN_PYTHON
                ):
                    continue
                found = 0
                for _ in range(options.repetitions):
                    report = check(
                        f"{command} -{'-' * (language == 'python')}defect {defect.name}", defect.only, options.jobs
                    )
                    found += any(defect.sentence in str(finding["problems"]) for finding in report["findings"])
                failures += found < options.repetitions
                print(f"{language} {defect.name}: found in {found} of {options.repetitions}", flush=True)
            for number in range(0 if options.defect else options.repetitions):
                report = check(command, (), options.jobs)
                failures += bool(report["findings"])
                findings = len(report["findings"])
                summary = f"{len(report['outcomes'])} runs, {report['seconds']:.0f} s, {findings} findings"
                print(f"{language} correct, {number + 1}: {summary}", flush=True)
                for finding in report["findings"]:
                    print(f"  {finding['fault']}:{finding['write']} {finding['sentence']}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

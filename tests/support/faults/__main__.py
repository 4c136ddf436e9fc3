"""Command line of the fault suite; see the target `faults` of the Makefile."""

from __future__ import annotations

import argparse
import sys

import msgspec

from kubeloop.testing.faults.fault_plan import FAULT_CLASSES
from support.faults import campaign
from support.faults.scenarios import SCENARIOS


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="number of runs")
    parser.add_argument("--seed", type=int, default=None, help="first seed (default: a random one)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no run after this time")
    parser.add_argument("--jobs", type=int, default=campaign.default_jobs(), help="number of processes")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="comma-separated list of scenarios")
    parser.add_argument("--classes", default=",".join(FAULT_CLASSES), help="comma-separated list of fault classes")
    parser.add_argument("--replay", default="", help="run one failure again, as its report prints it")
    options = parser.parse_args()
    if options.replay:
        run_id = msgspec.json.decode(options.replay, type=campaign.RunId)
        report = campaign.run(run_id)
        print("\n".join(report.story))
        print("\n".join(f"violation: {violation}" for violation in report.violations) or "no violation")
        return int(bool(report.violations))
    seed = campaign.fresh_seed() if options.seed is None else options.seed
    print(f"first seed {seed}", flush=True)
    ids = campaign.run_ids(options.runs, seed, options.scenarios.split(","), options.classes.split(","))
    table = campaign.run_campaign(ids, options.jobs, lambda text: print(text, "\n", flush=True), options.seconds)
    print("\n".join(table.lines()))
    return int(table.failures > 0)


if __name__ == "__main__":
    sys.exit(main())

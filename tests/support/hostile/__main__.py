"""Command line of the hostile requests; see the target `hostile` of the Makefile."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from support.hostile.campaign import run_campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="number of requests to both servers")
    parser.add_argument("--connections", type=int, default=5_000, help="number of idle connections per server")
    parser.add_argument("--seed", type=int, default=None, help="seed of the requests (default: a random one)")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(run_campaign(Path(folder), seed, options.requests, options.connections))
    print(report.text())
    return int(bool(report.problems))


if __name__ == "__main__":
    sys.exit(main())

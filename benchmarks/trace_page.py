"""Load of an open trace page on the process: `python benchmarks/trace_page.py [--pods 10000]`.

Pods are recorded directly; then the feed of the page (tracing/views/pod_feed.py) is polled as by a page: for
everything, without changes, and with 300 changed pods. Per poll: CPU, bytes of JSON, and the longest wait of another
task of the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import msgspec

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]

from kubeloop.tracing.views import pod_feed as feeds  # noqa: E402
from kubeloop.tracing.views.pod_feed import PodFeed  # noqa: E402
from support.traces.traced_pods import TracedPods  # noqa: E402  # after the import path is set


class Lag:
    """Measures the longest wait of a task that is always ready."""

    def __init__(self) -> None:
        self.worst_seconds = 0.0

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            self.worst_seconds = max(self.worst_seconds, time.perf_counter() - began)


async def measure(name: str, feed: PodFeed, cursor: str) -> str:
    await asyncio.sleep(feeds.COMPARE_SECONDS)
    lag, responses, size, lines = Lag(), 0, 0, 0
    began = time.thread_time()
    busy = 0.0
    async with asyncio.TaskGroup() as group:
        lag_task = group.create_task(lag.run())
        while True:
            response = await feed.poll(cursor)
            before = time.perf_counter()
            size += len(msgspec.json.encode(response))
            lag.worst_seconds = max(lag.worst_seconds, time.perf_counter() - before)
            responses, cursor, lines = responses + 1, response.cursor, lines + len(response.lines)
            if not response.more:
                break
        busy = time.thread_time() - began
        lag_task.cancel()
    print(
        f"{name:<24} {lines:>6} lines in {responses:>3} responses {size / 1e3:>9.1f} KB {busy * 1e3:>8.1f} ms CPU"
        f"  longest wait of other tasks {lag.worst_seconds * 1e3:.1f} ms"
    )
    return cursor


async def run(pods: int) -> None:
    traced = TracedPods()
    for number in range(pods):
        traced.pending(f"web-5f-{number:05}")
        if number >= 300:
            traced.bound(f"web-5f-{number:05}", node=f"node-{number % 100}")
    feed = PodFeed(traced.tracing.recent, traced.pods, now_ns=time.time_ns, instance="benchmark")
    print(f"{pods} pods")
    cursor = await measure("opened page", feed, "")
    cursor = await measure("no changes", feed, cursor)
    for number in range(300):
        traced.bound(f"web-5f-{number:05}")
    await measure("300 changed pods", feed, cursor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    asyncio.run(run(parser.parse_args().pods))


if __name__ == "__main__":
    main()

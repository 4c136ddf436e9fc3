"""What a browser that looks on costs the process: `python benchmarks/trace_page.py [--pods 10000]`.

Pods go through the recorder by hand; then the feed of the page (tracing/views/pod_feed.py) is asked as a page asks it:
for everything, when nothing changed, and when 300 pods changed. Per question: CPU, bytes of JSON, and the longest time
that any other task of the loop had to wait for its turn.
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
from support.traced_pods import TracedPods  # noqa: E402  # the path comes first


class Lag:
    """The longest wait of a task that wants its turn all the time."""

    def __init__(self) -> None:
        self.worst_seconds = 0.0

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            self.worst_seconds = max(self.worst_seconds, time.perf_counter() - began)


async def measure(name: str, feed: PodFeed, cursor: str) -> str:
    await asyncio.sleep(feeds.COMPARE_SECONDS)
    lag, answers, size, lines = Lag(), 0, 0, 0
    began = time.thread_time()
    busy = 0.0
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(lag.run())
        while True:
            answer = await feed.poll(cursor)
            before = time.perf_counter()
            size += len(msgspec.json.encode(answer))
            lag.worst_seconds = max(lag.worst_seconds, time.perf_counter() - before)
            answers, cursor, lines = answers + 1, answer.cursor, lines + len(answer.lines)
            if not answer.more:
                break
        busy = time.thread_time() - began
        waiting.cancel()
    print(
        f"{name:<24} {lines:>6} lines in {answers:>3} answers {size / 1e3:>9.1f} KB {busy * 1e3:>8.1f} ms CPU"
        f"  longest wait of others {lag.worst_seconds * 1e3:.1f} ms"
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
    cursor = await measure("a page is opened", feed, "")
    cursor = await measure("nothing changed", feed, cursor)
    for number in range(300):
        traced.bound(f"web-5f-{number:05}")
    await measure("300 pods changed", feed, cursor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    asyncio.run(run(parser.parse_args().pods))


if __name__ == "__main__":
    main()

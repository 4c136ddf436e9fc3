"""Random writes with 50 watchers that disconnect, reconnect and read slowly: every view converges to the store.

Runs for 20 seconds; `make soak` runs for an hour (KUBELOOP_SOAK_SECONDS).
"""

from __future__ import annotations

import asyncio
import os
import random

import aiohttp
import pytest

from support.apiserver.apiserver_process import TOKEN, apiserver_command, running_apiserver
from support.comparison.random_writes import DELETED, Server, View, WatchBehaviour, Writer, wait_until_equal

SECONDS = float(os.environ.get("KUBELOOP_SOAK_SECONDS", "20"))
WATCHERS = 50
WRITERS = 4


@pytest.mark.long
async def test_every_watch_converges_to_the_store(tmp_path):
    rng = random.Random(11)
    writers = [Writer(index, random.Random(index)) for index in range(WRITERS)]
    views = [View(WatchBehaviour.random(rng), random.Random(100 + index)) for index in range(WATCHERS)]
    # two seconds of history: watchers that are disconnected longer must list again
    async with (
        running_apiserver(
            apiserver_command(tmp_path, "--compaction-interval=2", "--faults=drop-watch=0.002,seed=5")
        ) as (_, url),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        asyncio.TaskGroup() as watching,
    ):
        server = Server(url, TOKEN)
        watches = [watching.create_task(view.run(http, server)) for view in views]
        async with asyncio.TaskGroup() as writing:
            for writer in writers:
                writing.create_task(writer.run(http, server))
            await asyncio.sleep(SECONDS)
            server.stopped = True
        for writer in writers:
            await writer.check(http, server)
        await wait_until_equal(http, server, views)
        for task in watches:
            task.cancel()
    remaining = sum(numbers != {DELETED} for writer in writers for numbers in writer.numbers.values())
    counts = {name: sum(getattr(view, name) for view in views) for name in ("lists", "watches", "expired", "bookmarks")}
    print(f"{sum(writer.acknowledged for writer in writers)} writes, {remaining} objects remain, {counts}")
    assert all(counts.values()), counts  # every code path was used

"""Random writes with 50 watchers that come, go, dawdle and fall behind: in the end every view is equal to the store.

A minute of it; `make soak` takes an hour (KUBELOOP_SOAK_SECONDS).
"""

from __future__ import annotations

import asyncio
import os
import random

import aiohttp
import pytest

from support.apiserver_process import TOKEN, running_apiserver
from support.random_writes import GONE, Habits, Server, View, Writer, settled

SECONDS = float(os.environ.get("KUBELOOP_SOAK_SECONDS", "60"))
WATCHERS = 50
WRITERS = 4


@pytest.mark.long
async def test_after_random_writes_every_watchers_view_is_equal_to_the_store(tmp_path):
    rng = random.Random(11)
    writers = [Writer(index, random.Random(index)) for index in range(WRITERS)]
    views = [View(Habits.drawn(rng), random.Random(100 + index)) for index in range(WATCHERS)]
    # two seconds of history: whoever stays away longer must begin again
    async with (
        running_apiserver(tmp_path, "--compaction-interval=2", "--faults=drop-watch=0.002,seed=5") as (_, url),
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
        await settled(http, server, views)
        for task in watches:
            task.cancel()
    alive = sum(numbers != {GONE} for writer in writers for numbers in writer.numbers.values())
    told = {name: sum(getattr(view, name) for view in views) for name in ("lists", "watches", "expired", "bookmarks")}
    print(f"{sum(each.acknowledged for each in writers)} writes, {alive} objects in the end, {told}")
    assert all(told.values()), told  # each of the ways was taken

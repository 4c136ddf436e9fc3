"""Random writes to an API server, what of them was acknowledged, and watchers that keep a view of the result.

All of it over plain HTTP with aiohttp and nothing of kubeloop, so that a mistake is not made on both sides.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any

import aiohttp

JSON = dict[str, Any]
GONE = -1  # the number of an object that is not there
_LABELS = ("red", "green")
_ANSWER_SECONDS = 120.0  # only a view that stays wrong meets it


class TimeRanBackwards(AssertionError):
    """A watcher has been told of an earlier state after a later one, or of a change that cannot follow."""


@dataclass
class Server:
    """Where the API server is at the moment; `stopped` is set when nobody should try again."""

    url: str
    token: str
    stopped: bool = False

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def path(namespace: str = "", name: str = "") -> str:
    return "/api/v1" + (f"/namespaces/{namespace}" if namespace else "") + "/configmaps" + (f"/{name}" if name else "")


class Writer:
    """Creates, changes and deletes ConfigMaps of its own, one request at a time, and knows what they must be.

    `numbers` has, for each (namespace, name), the numbers (data.n) that are possible: one where the last write was
    acknowledged, two where its answer was lost.
    """

    def __init__(self, index: int, rng: random.Random, *, names: int = 12) -> None:
        self._rng = rng
        self._keys = [("default" if number % 2 else "kube-public", f"w{index}-{number}") for number in range(names)]
        self._next = 0
        self.numbers: dict[tuple[str, str], set[int]] = {key: {GONE} for key in self._keys}
        self.revision = 0
        self.acknowledged = 0

    async def run(self, http: aiohttp.ClientSession, server: Server) -> None:
        """Write until the server is stopped or gone."""
        while not server.stopped:
            key = self._rng.choice(self._keys)
            try:
                await self._write(http, server, key)
            except (aiohttp.ClientError, TimeoutError):
                return

    async def check(self, http: aiohttp.ClientSession, server: Server) -> None:
        """Is every object what it must be? Settles those whose last answer was lost."""
        for (namespace, name), possible in self.numbers.items():
            async with http.get(server.url + path(namespace, name), headers=server.headers) as answer:
                number = GONE if answer.status == 404 else int((await answer.json())["data"]["n"])
            assert number in possible, f"{namespace}/{name}: {number} is there, acknowledged was one of {possible}"
            self.numbers[namespace, name] = {number}

    async def _write(self, http: aiohttp.ClientSession, server: Server, key: tuple[str, str]) -> None:
        namespace, name = key
        (before,) = self.numbers[key]
        self._next += 1
        number = self._next
        obj: JSON = {
            "metadata": {"name": name, "labels": {"colour": self._rng.choice(_LABELS)}},
            "data": {"n": str(number), "filling": "x" * self._rng.choice((0, 10, 3000))},
        }
        headers = dict(server.headers)
        if before == GONE:
            method, url, after = "POST", path(namespace), number
        elif self._rng.random() < 0.2:
            method, url, after = "DELETE", path(namespace, name), GONE
        else:
            method, url, after = self._rng.choice(("PUT", "PATCH")), path(namespace, name), number
            if method == "PATCH":
                headers["Content-Type"] = "application/merge-patch+json"
        self.numbers[key] = {before, after}
        body = None if method == "DELETE" else json.dumps(obj)
        headers.setdefault("Content-Type", "application/json")
        async with http.request(method, server.url + url, data=body, headers=headers) as answer:
            written = await answer.json()
            assert answer.status in (200, 201), (method, url, written)
        self.numbers[key] = {after}
        self.acknowledged += 1
        if after != GONE:
            revision = int(written["metadata"]["resourceVersion"])
            if revision <= self.revision:
                raise TimeRanBackwards(f"{method} {url}: revision {revision} after {self.revision}")
            self.revision = revision


@dataclass
class Habits:
    """How a watcher behaves: what it selects, how it begins, how long it stays, how slowly it reads."""

    colour: str = ""
    watch_list: bool = False
    stay_seconds: float = 0.0
    pause_seconds: float = 0.0

    @classmethod
    def drawn(cls, rng: random.Random) -> Habits:
        return cls(
            colour=rng.choice(("", "", *_LABELS)),
            watch_list=rng.random() < 0.4,
            stay_seconds=rng.choice((0.0, 0.3, 1.0, 3.0)),
            pause_seconds=rng.choice((0.0, 0.0, 0.0, 0.2, 2.0)),
        )


@dataclass
class View:
    """What a watcher believes: revisions by key, as of `revision`, 0 while it has none; `seen` is the latest it saw."""

    habits: Habits
    rng: random.Random
    objects: dict[str, int] = field(default_factory=dict)
    revision: int = 0
    seen: int = 0
    lists: int = 0
    watches: int = 0
    expired: int = 0
    bookmarks: int = 0

    async def run(self, http: aiohttp.ClientSession, server: Server) -> None:
        """Watch for ever: begin again where the last watch ended, or with a list where that is too old."""
        while True:
            try:
                if self.revision == 0 and not self.habits.watch_list:
                    await self._list(http, server)
                await self._watch(http, server)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.05)

    def _query(self, **more: str) -> dict[str, str]:
        return ({"labelSelector": f"colour={self.habits.colour}"} if self.habits.colour else {}) | more

    def _replace(self, objects: dict[str, int], revision: int) -> None:
        if revision < self.seen:
            raise TimeRanBackwards(f"a list is of revision {revision}, seen was {self.seen}")
        self.objects, self.revision, self.seen = objects, revision, revision
        self.lists += 1

    def _forget(self) -> None:
        self.objects, self.revision = {}, 0
        self.expired += 1

    async def _list(self, http: aiohttp.ClientSession, server: Server) -> None:
        found: dict[str, int] = {}
        token = ""
        while True:
            query = self._query(limit="40", **({"continue": token} if token else {}))
            async with http.get(server.url + path(), params=query, headers=server.headers) as answer:
                page = await answer.json()
                if answer.status == 410:
                    self.expired += 1
                    found, token = {}, ""
                    continue
                assert answer.status == 200, page
            found |= {_key(obj): int(obj["metadata"]["resourceVersion"]) for obj in page["items"]}
            token = page["metadata"].get("continue", "")
            if not token:
                break
        self._replace(found, int(page["metadata"]["resourceVersion"]))

    async def _watch(self, http: aiohttp.ClientSession, server: Server) -> None:
        query = self._query(watch="true", allowWatchBookmarks="true", timeoutSeconds=str(self.rng.choice((3, 5, 600))))
        initial: dict[str, int] | None = None
        if self.revision:
            query["resourceVersion"] = str(self.revision)
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            initial = {}
        self.watches += 1
        stay = asyncio.timeout(self.habits.stay_seconds if self.revision and self.habits.stay_seconds else None)
        try:
            async with stay, http.get(server.url + path(), params=query, headers=server.headers) as answer:
                if answer.status == 410:
                    self._forget()
                    return
                assert answer.status == 200, await answer.text()
                pending = b""
                async for chunk in answer.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        initial = self._take(json.loads(line), initial)
                        if self.revision == 0 and initial is None:
                            return
                    if self.habits.pause_seconds:
                        await asyncio.sleep(self.habits.pause_seconds)
        except TimeoutError:
            if not stay.expired():
                raise

    def _take(self, event: JSON, initial: dict[str, int] | None) -> dict[str, int] | None:
        type_, obj = event["type"], event["object"]
        if type_ == "ERROR":
            assert obj["code"] == 410, event
            self._forget()
            return None
        revision = int(obj["metadata"]["resourceVersion"])
        if type_ == "BOOKMARK":
            ends_initial = "k8s.io/initial-events-end" in obj["metadata"].get("annotations", {})
            self.bookmarks += 1
            if initial is not None and ends_initial:
                self._replace(initial, revision)
                return None
            if revision < self.revision:
                raise TimeRanBackwards(f"a bookmark of {revision} after {self.revision}")
            self.revision = self.seen = revision
            return initial
        key = _key(obj)
        if initial is not None:
            assert type_ == "ADDED", event
            initial[key] = revision
            return initial
        if revision <= self.revision or (type_ == "ADDED") == (key in self.objects):
            raise TimeRanBackwards(f"{type_} of {key} at {revision}, seen was {self.revision}: {self.objects.get(key)}")
        if type_ == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = revision
        self.revision = self.seen = revision
        return None


def _key(obj: JSON) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


async def settled(http: aiohttp.ClientSession, server: Server, views: list[View]) -> None:
    """Wait, after the last write, until every view is what the server lists; watchers need not dawdle any more.

    Raises AssertionError if one stays wrong.
    """
    for view in views:
        view.habits.pause_seconds = view.habits.stay_seconds = 0.0
    truth: dict[str, dict[str, int]] = {}
    for colour in {view.habits.colour for view in views}:
        query = {"labelSelector": f"colour={colour}"} if colour else {}
        async with http.get(server.url + path(), params=query, headers=server.headers) as answer:
            items = (await answer.json())["items"]
        truth[colour] = {_key(obj): int(obj["metadata"]["resourceVersion"]) for obj in items}
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            while any(view.objects != truth[view.habits.colour] for view in views):
                await asyncio.sleep(0.05)
    except TimeoutError:
        wrong = [view for view in views if view.objects != truth[view.habits.colour]]
        view = wrong[0]
        difference = set(view.objects.items()) ^ set(truth[view.habits.colour].items())
        raise AssertionError(f"{len(wrong)} of {len(views)} views differ; the first: {difference}; {view}") from None

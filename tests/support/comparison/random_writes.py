"""Random writes to an API server, a record of the acknowledged ones, and watchers that maintain a view of the objects.

Uses plain HTTP with aiohttp and no code of kubeloop, so that server and test cannot share a bug.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any

import aiohttp

JSON = dict[str, Any]
DELETED = -1  # the number of an object that does not exist
_LABELS = ("red", "green")
_CONVERGENCE_SECONDS = 120.0


class EventOrderViolation(AssertionError):
    """A watcher received an older state after a newer one, or an impossible change."""


@dataclass
class Server:
    """The current API server. stopped: clients should end."""

    url: str
    token: str
    stopped: bool = False

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def path(namespace: str = "", name: str = "") -> str:
    return "/api/v1" + (f"/namespaces/{namespace}" if namespace else "") + "/configmaps" + (f"/{name}" if name else "")


class Writer:
    """Creates, updates and deletes its own ConfigMaps, one request at a time.

    numbers: the possible values of data.n by (namespace, name): one if the last write was acknowledged, two if its
    response was lost.
    """

    def __init__(self, index: int, rng: random.Random, *, names: int = 12) -> None:
        self._rng = rng
        self._keys = [("default" if number % 2 else "kube-public", f"w{index}-{number}") for number in range(names)]
        self._next = 0
        self.numbers: dict[tuple[str, str], set[int]] = {key: {DELETED} for key in self._keys}
        self.revision = 0
        self.acknowledged = 0

    async def run(self, http: aiohttp.ClientSession, server: Server) -> None:
        """Write until the server is stopped or the connection fails."""
        while not server.stopped:
            key = self._rng.choice(self._keys)
            try:
                await self._write(http, server, key)
            except (aiohttp.ClientError, TimeoutError):
                return

    async def check(self, http: aiohttp.ClientSession, server: Server) -> None:
        """Check that every object has a possible value, and record the value if the last response was lost."""
        for (namespace, name), possible in self.numbers.items():
            async with http.get(server.url + path(namespace, name), headers=server.headers) as response:
                number = DELETED if response.status == 404 else int((await response.json())["data"]["n"])
            assert number in possible, f"{namespace}/{name}: {number} is stored, but one of {possible} was acknowledged"
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
        if before == DELETED:
            method, url, after = "POST", path(namespace), number
        elif self._rng.random() < 0.2:
            method, url, after = "DELETE", path(namespace, name), DELETED
        else:
            method, url, after = self._rng.choice(("PUT", "PATCH")), path(namespace, name), number
            if method == "PATCH":
                headers["Content-Type"] = "application/merge-patch+json"
        self.numbers[key] = {before, after}
        body = None if method == "DELETE" else json.dumps(obj)
        headers.setdefault("Content-Type", "application/json")
        async with http.request(method, server.url + url, data=body, headers=headers) as response:
            written = await response.json()
            assert response.status in (200, 201), (method, url, written)
        self.numbers[key] = {after}
        self.acknowledged += 1
        if after != DELETED:
            revision = int(written["metadata"]["resourceVersion"])
            if revision <= self.revision:
                raise EventOrderViolation(f"{method} {url}: revision {revision} after {self.revision}")
            self.revision = revision


@dataclass
class WatchBehaviour:
    """Selector, start (list or watch list), duration of watches and pauses between reads."""

    colour: str = ""
    watch_list: bool = False
    watch_seconds: float = 0.0
    pause_seconds: float = 0.0

    @classmethod
    def random(cls, rng: random.Random) -> WatchBehaviour:
        return cls(
            colour=rng.choice(("", "", *_LABELS)),
            watch_list=rng.random() < 0.4,
            watch_seconds=rng.choice((0.0, 0.3, 1.0, 3.0)),
            pause_seconds=rng.choice((0.0, 0.0, 0.0, 0.2, 2.0)),
        )


@dataclass
class View:
    """A watcher's view: revisions by key, as of `revision` (0: no list yet). seen: the latest received revision."""

    behaviour: WatchBehaviour
    rng: random.Random
    objects: dict[str, int] = field(default_factory=dict)
    revision: int = 0
    seen: int = 0
    lists: int = 0
    watches: int = 0
    expired: int = 0
    bookmarks: int = 0

    async def run(self, http: aiohttp.ClientSession, server: Server) -> None:
        """Watch until cancelled; resume where the last watch ended, or list again if that revision is too old."""
        while True:
            try:
                if self.revision == 0 and not self.behaviour.watch_list:
                    await self._list(http, server)
                await self._watch(http, server)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.05)

    def _query(self, **parameters: str) -> dict[str, str]:
        return ({"labelSelector": f"colour={self.behaviour.colour}"} if self.behaviour.colour else {}) | parameters

    def _replace(self, objects: dict[str, int], revision: int) -> None:
        if revision < self.seen:
            raise EventOrderViolation(f"a list has revision {revision} after {self.seen}")
        self.objects, self.revision, self.seen = objects, revision, revision
        self.lists += 1

    def _reset(self) -> None:
        self.objects, self.revision = {}, 0
        self.expired += 1

    async def _list(self, http: aiohttp.ClientSession, server: Server) -> None:
        objects: dict[str, int] = {}
        token = ""
        while True:
            query = self._query(limit="40", **({"continue": token} if token else {}))
            async with http.get(server.url + path(), params=query, headers=server.headers) as response:
                page = await response.json()
                if response.status == 410:
                    self.expired += 1
                    objects, token = {}, ""
                    continue
                assert response.status == 200, page
            objects |= {_key(obj): int(obj["metadata"]["resourceVersion"]) for obj in page["items"]}
            token = page["metadata"].get("continue", "")
            if not token:
                break
        self._replace(objects, int(page["metadata"]["resourceVersion"]))

    async def _watch(self, http: aiohttp.ClientSession, server: Server) -> None:
        query = self._query(watch="true", allowWatchBookmarks="true", timeoutSeconds=str(self.rng.choice((3, 5, 600))))
        initial: dict[str, int] | None = None
        if self.revision:
            query["resourceVersion"] = str(self.revision)
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            initial = {}
        self.watches += 1
        timeout = asyncio.timeout(
            self.behaviour.watch_seconds if self.revision and self.behaviour.watch_seconds else None
        )
        try:
            async with timeout, http.get(server.url + path(), params=query, headers=server.headers) as response:
                if response.status == 410:
                    self._reset()
                    return
                assert response.status == 200, await response.text()
                pending = b""
                async for chunk in response.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        initial = self._apply(json.loads(line), initial)
                        if self.revision == 0 and initial is None:
                            return
                    if self.behaviour.pause_seconds:
                        await asyncio.sleep(self.behaviour.pause_seconds)
        except TimeoutError:
            if not timeout.expired():
                raise

    def _apply(self, event: JSON, initial: dict[str, int] | None) -> dict[str, int] | None:
        type_, obj = event["type"], event["object"]
        if type_ == "ERROR":
            assert obj["code"] == 410, event
            self._reset()
            return None
        revision = int(obj["metadata"]["resourceVersion"])
        if type_ == "BOOKMARK":
            ends_initial_events = "k8s.io/initial-events-end" in obj["metadata"].get("annotations", {})
            self.bookmarks += 1
            if initial is not None and ends_initial_events:
                self._replace(initial, revision)
                return None
            if revision < self.revision:
                raise EventOrderViolation(f"a bookmark of {revision} after {self.revision}")
            self.revision = self.seen = revision
            return initial
        key = _key(obj)
        if initial is not None:
            assert type_ == "ADDED", event
            initial[key] = revision
            return initial
        if revision <= self.revision or (type_ == "ADDED") == (key in self.objects):
            raise EventOrderViolation(f"{type_} of {key} at {revision} after {self.revision}: {self.objects.get(key)}")
        if type_ == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = revision
        self.revision = self.seen = revision
        return None


def _key(obj: JSON) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


async def wait_until_equal(http: aiohttp.ClientSession, server: Server, views: list[View]) -> None:
    """Wait after the last write until every view equals the server's list. Removes the watchers' pauses.

    Raises AssertionError if a view does not converge.
    """
    for view in views:
        view.behaviour.pause_seconds = view.behaviour.watch_seconds = 0.0
    listed: dict[str, dict[str, int]] = {}
    for colour in {view.behaviour.colour for view in views}:
        query = {"labelSelector": f"colour={colour}"} if colour else {}
        async with http.get(server.url + path(), params=query, headers=server.headers) as response:
            items = (await response.json())["items"]
        listed[colour] = {_key(obj): int(obj["metadata"]["resourceVersion"]) for obj in items}
    try:
        async with asyncio.timeout(_CONVERGENCE_SECONDS):
            while any(view.objects != listed[view.behaviour.colour] for view in views):
                await asyncio.sleep(0.05)
    except TimeoutError:
        different = [view for view in views if view.objects != listed[view.behaviour.colour]]
        view = different[0]
        difference = set(view.objects.items()) ^ set(listed[view.behaviour.colour].items())
        raise AssertionError(
            f"{len(different)} of {len(views)} views differ; the first: {difference}; {view}"
        ) from None

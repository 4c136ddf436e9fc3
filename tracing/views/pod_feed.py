"""What the browser page and `kubeloop trace --watch` are told while the process runs: the lines of pods that changed.

Nobody pays for it while nobody looks: the feed keeps no handlers, it compares when it is asked. An answer is bounded
(`MAX_LINES` lines), a comparison is shared by all who ask within `LOOK_SECONDS`, and both are done in slices, so that
the loop that also schedules gets its turns. May import `kubeloop.kube`, `kubeloop.informers` and `kubeloop.tracing`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Pod
from kubeloop.tracing.recording.recent_traces import RecentTraces
from kubeloop.tracing.spans.pod_record import PodRecord
from kubeloop.tracing.views.feed_response import FeedResponse
from kubeloop.tracing.views.pod_lines import PodLine, pod_line

MAX_PODS: Final = 30_000  # followed at a time: all that the memory keeps, and as many again without a trace
MAX_LINES: Final = 500  # lines in one answer, some 150 KB and 25 ms
LOOK_SECONDS: Final = 0.5
_COMPARED_AT_ONCE: Final = 1_000  # pods compared before other tasks get a turn: about 1 ms
_MADE_AT_ONCE: Final = 40  # lines made before other tasks get a turn: about 2 ms
_REMEMBERED_REMOVALS: Final = 10_000


class _Entry:
    """A pod as it was when last compared. `version`: of its last change."""

    __slots__ = ("facts", "pod", "record", "version")

    def __init__(self) -> None:
        self.version = 0
        self.record: PodRecord | None = None
        self.facts: tuple[object, ...] = ()
        self.pod: Pod | None = None


class PodFeed:
    """The pods of one process and a version for each of them. `poll()` from any number of tasks.

    Versions only grow. _entries is in the order of versions: a pod that changed moves to its end.
    """

    def __init__(
        self,
        memory: RecentTraces,
        pods: Store[Pod],
        *,
        now_ns: Callable[[], int],
        instance: str,
        max_pods: int = MAX_PODS,
    ) -> None:
        """`instance` tells this process from one before it on the same port."""
        self._memory = memory
        self._pods = pods
        self._now_ns = now_ns
        self._instance = instance
        self._max_pods = max_pods
        self._entries: dict[str, _Entry] = {}
        self._removed: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED_REMOVALS)
        self._version = 0
        self._forgotten_version = 0  # removals up to here are no longer remembered
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()

    async def poll(
        self, cursor: str = "", *, limit: int = MAX_LINES, selects: LineSelector = lambda line: True
    ) -> FeedResponse:
        """What changed since `cursor` ("": everything), at most `limit` lines, of those `selects`."""
        await self._look()
        since, reset = self._since(cursor)
        limit = max(1, min(limit, MAX_LINES))
        changed = self._changed_since(since)
        lines: list[PodLine] = []
        reached = self._version
        more = len(changed) > limit
        for number, (version, key, entry) in enumerate(changed[:limit]):
            line = self._line(key, entry)
            if line is not None and selects(line):
                lines.append(line)
            if more:
                reached = version
            if number % _MADE_AT_ONCE == _MADE_AT_ONCE - 1:
                await asyncio.sleep(0)  # what changes meanwhile gets a higher version, and is told the next time
        removed = [] if reset else [key for version, key in self._removed if since < version <= reached]
        return FeedResponse(
            cursor=f"{self._instance}-{reached}",
            reset=reset,
            more=more,
            lines=lines,
            removed=removed,
            now_us=self._now_ns() // 1000,
            pods=len(self._pods),
        )

    def document(self, key: str) -> dict[str, Any] | None:
        """The whole trace of the pod of a line with this key; None if there is none any more, or never was."""
        entry = self._entries.get(key)
        return self._memory.document(entry.record) if entry is not None and entry.record is not None else None

    def pod(self, key: str) -> Pod | None:
        entry = self._entries.get(key)
        return entry.pod if entry is not None else None

    def check(self) -> None:
        versions = [entry.version for entry in self._entries.values()]
        assert versions == sorted(set(versions))
        assert all(version <= self._version for version in versions)

    def _since(self, cursor: str) -> tuple[int, bool]:
        """The version that a cursor stands for, and whether whoever has it must begin anew."""
        instance, _, version = cursor.rpartition("-")
        if instance != self._instance or not version.isascii() or not version.isdigit():
            return 0, True
        since = int(version)
        if since < self._forgotten_version or since > self._version:
            return 0, True
        return since, False

    def _changed_since(self, since: int) -> list[tuple[int, str, _Entry]]:
        """In the order of change, with the versions of this moment."""
        newest_first = []
        for key, entry in reversed(self._entries.items()):
            if entry.version <= since:
                break
            newest_first.append((entry.version, key, entry))
        return newest_first[::-1]

    async def _look(self) -> None:
        """Compare all pods with how they were, unless that was done just now."""
        loop = asyncio.get_running_loop()
        async with self._looking:
            if loop.time() - self._looked_at < LOOK_SECONDS:
                return
            present: set[str] = set()
            for number, (key, record, pod) in enumerate(self._everything()):
                self._compare(key, record, pod)
                present.add(key)
                if number % _COMPARED_AT_ONCE == _COMPARED_AT_ONCE - 1:
                    await asyncio.sleep(0)  # what changes meanwhile is seen now or the next time
            for key in [key for key in self._entries if key not in present]:
                del self._entries[key]
                self._version += 1
                if len(self._removed) == _REMEMBERED_REMOVALS:
                    self._forgotten_version = self._removed[0][0]
                self._removed.append((self._version, key))
            self._looked_at = loop.time()

    def _everything(self) -> Iterator[tuple[str, PodRecord | None, Pod | None]]:
        """Every trace with the pod it is of, then the pods without one; the newest traces, if there are too many.

        Goes over copies: the caller awaits in between.
        """
        records = [*self._memory.records()][-self._max_pods :]
        pods = self._pods
        traced: set[str] = set()
        for record in records:
            pod = pods.get(f"{record.namespace}/{record.name}")
            if pod is not None and pod.metadata.uid != record.uid:
                pod = None  # another one of the same name
            if record.uid:
                traced.add(record.uid)
            yield record.context.span_id, record, pod
        room = self._max_pods - len(records)
        if room > 0:
            untraced = (pod for pod in pods.list() if pod.metadata.uid not in traced)
            yield from ((pod.metadata.uid, None, pod) for pod in islice(untraced, room))

    def _compare(self, key: str, record: PodRecord | None, pod: Pod | None) -> None:
        entry = self._entries.get(key)
        facts: tuple[object, ...] = ()
        if record is not None:
            facts = (len(record.facts), record.observed_ns, record.create_end_ns, record.bound_ns, record.end_ns)
        if entry is None:
            entry = _Entry()
        elif entry.record is record and entry.pod is pod and entry.facts == facts:
            return
        else:
            del self._entries[key]
        self._version += 1
        entry.version, entry.record, entry.pod, entry.facts = self._version, record, pod, facts
        self._entries[key] = entry

    def _line(self, key: str, entry: _Entry) -> PodLine | None:
        if entry.record is None:
            return None if entry.pod is None else untraced_line(key, entry.pod)
        line = pod_line(self._memory.document(entry.record))
        if line is not None and line.stage in ("bound", "starting", "ready", "completed"):
            line.stage = "gone" if entry.pod is None else stage_on_node(entry.pod)
        return line


LineSelector = Callable[[PodLine], bool]


def stage_on_node(pod: Pod) -> str:
    """How far a pod is that has a node: starting, running, ready, completed, failed, terminating."""
    if pod.metadata.deletion_timestamp is not None:
        return "terminating"
    match pod.status.phase:
        case "Succeeded":
            return "completed"
        case "Failed":
            return "failed"
        case "Running":
            ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
            return "ready" if ready else "running"
    return "starting"


def untraced_line(key: str, pod: Pod) -> PodLine:
    """What the object itself tells, in whole seconds: of a pod that was not sampled, or bound before this process."""
    metadata = pod.metadata
    scheduled = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
    created = metadata.creation_timestamp
    took = 0
    if created is not None and scheduled is not None and scheduled.last_transition_time is not None:
        took = round((scheduled.last_transition_time - created).total_seconds() * 1e6)
    refused = scheduled is not None and scheduled.status == "False"
    owner = next((each for each in metadata.owner_references if each.controller), None)
    name = owner.name if owner is not None else ""
    kind = owner.kind.lower() if owner is not None else ""
    suffix = f"-{metadata.labels.get('pod-template-hash', '')}"
    if kind == "replicaset" and len(suffix) > 1 and name.endswith(suffix):
        kind, name = "deployment", name.removesuffix(suffix)
    return PodLine(
        key=key,
        trace_id="",
        namespace=metadata.namespace,
        name=metadata.name,
        start_us=int(created.timestamp()) * 1_000_000 if created is not None else 0,
        duration_us=max(0, took) if pod.spec.node_name else 0,
        stage=stage_on_node(pod) if pod.spec.node_name else "unschedulable" if refused else "queued",
        owner=f"{kind}/{name}" if name else "",
        node=pod.spec.node_name,
        reason=(scheduled.message or scheduled.reason) if scheduled is not None and refused else "",
        is_open=not pod.spec.node_name,
    )

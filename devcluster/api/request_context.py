"""The context of a request, which is passed to handlers, admission plugins and policies."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from kubeloop.devcluster.api.authorizer import RequestAuthorizer
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.slow_work import LOOP_BUDGET, BudgetExceeded, ComputeThread, LoopBudget, SlowWork
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.uids import new_uid

R = TypeVar("R")


@dataclass(slots=True)
class RequestContext:
    """A request for a resource, and the server's means to handle it.

    request: with the authenticated user; its warnings are extended while it is handled. info: the requested resource,
    object and subresource. authorizer: decides about further permissions of the user. dry_run: the option of a write,
    set when the options have been validated.
    """

    request: ApiRequest
    info: RequestInfo
    clock: Clock
    rng: random.Random
    thread: ComputeThread
    authorizer: RequestAuthorizer
    dry_run: bool = False
    _loop_budget: LoopBudget | None = field(default=None, init=False)

    def now(self) -> str:
        """Return the time for timestamps of objects."""
        return rfc3339(self.clock.now())

    def log_request_object(self, obj: JSON) -> None:
        """Pass the decoded and defaulted body to the audit log, if it logs this request."""
        if (audit := self.request.audit) is not None:
            audit.log_request_object(obj)

    def new_uid(self) -> str:
        return new_uid(self.rng)

    def annotate(self, key: str, value: str, *, with_objects: bool = False) -> None:
        """Set an annotation of the request's audit events. with_objects: only if these contain request objects."""
        audit = self.request.audit
        if audit is not None and (audit.logs_objects or not with_objects):
            audit.annotate(key, value)

    async def compute(self, compute: Callable[[LoopBudget], R]) -> R:
        """Return compute(): on the event loop if it is cheap, else in a thread. It must not have side effects.

        Between two waits, all expressions of a request share one budget of the event loop.
        """
        if self._loop_budget is None:
            self._loop_budget = LoopBudget(LOOP_BUDGET)
        try:
            return compute(self._loop_budget)
        except BudgetExceeded:
            self._loop_budget = None
        work = SlowWork(partial(self.thread.run, partial(compute, LoopBudget())))
        return await work

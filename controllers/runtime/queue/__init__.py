"""Work queue: which keys are reconciled, when, and after which delay.

Part of `kubeloop.controllers.runtime`, which states what it may import.

    work_queue.py        keys to reconcile, and the reasons
    rate_limiter.py      delay before a retry
    reconcile_pace.py    when reconciles begin: the scheduler of the process goes first
"""

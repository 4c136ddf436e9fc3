"""One attempt to schedule a pod, from its pop from the scheduling queue to its binding or its return to the queue.

    attempt.py             what is passed from the scheduling cycle to the binding cycle
    scheduling_cycle.py    pops a pod, chooses its node and reserves the node
    attempt_steps.py       the steps that a pod and the members of a pod group share
    algorithm.py           choice of a node: filters, scores, extenders
    binding_cycle.py       waits on Permit and binds the pod, in the background
    bind_times.py          durations of bind requests
    failed_attempts.py     event, PodScheduled condition and requeueing after a failure

Those of a pod group are in `pod_groups`. Source: pkg/scheduler/schedule_one.go of v1.36.
"""

"""`kubeloop plan`: the state of a cluster after changes, computed on a copy in memory and in virtual time.

    cluster_copy.py    the copy of the cluster
    plan_changes.py    the requested changes, and how they are made
    applied_objects.py manifests that are applied to the copy
    pod_history.py     times of pods while the plan runs; preemptions
    recorded_metrics.py metrics that autoscalers saw, and their use by the controllers of the copy
    run_times.py       start-up and run times of pods by workload, from the input
    workloads.py       workloads of pods, and the result of their rollouts
    node_pools.py      pools, zones and resources of nodes
    webhooks.py        admission webhooks that cannot be called
    result.py          the plan as data
    memory_guard.py    the end of a run without memory
    fit.py             the fewest nodes with which nothing is pending
    planner.py         computes the plan
    texts.py           the plan as text, Markdown and JUnit XML

May import `recording`, `testing`, `process` and the packages below them.
"""

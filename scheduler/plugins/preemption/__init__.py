"""DefaultPreemption: makes room for a pod or a pod group by the eviction of pods of lower priority.

    default_preemption.py      the plugin: who may preempt, and where
    victim_selection.py        choice of the victims on a node
    victim_table.py            the same on many nodes at once, with arrays
    candidates.py              choice among the nodes by their victims
    disruption_budgets.py      victims whose eviction violates a PodDisruptionBudget
    pod_group_preemption.py    choice of the victims for a pod group
    executor.py                evicts the victims

Source: plugins/defaultpreemption and framework/preemption of v1.36.
"""

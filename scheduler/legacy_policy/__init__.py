"""Policy documents, algorithm providers, and the plugins of older schedulers that only these name.

    policy.py                   translation of a Policy or provider to a profile
    plugins.py                  the plugins below by name
    selector_spread.py          SelectorSpread
    node_prefer_avoid_pods.py   NodePreferAvoidPods
    node_pressure.py            NodeMemoryPressure, NodeDiskPressure, NodePIDPressure
    node_label.py               NodeLabel
    service_affinity.py         ServiceAffinity
    resource_scores.py          scores by utilization that differ from those of NodeResourcesFit
    volume_limits.py            limits of one cloud's disks per node

Nothing else in `scheduler` imports this folder: the process passes POLICY_KIND to config.load and ALL_PLUGINS to a
scheduler with one of these plugins. Most plugins have only the per-node form: Policy documents come with clusters of a
size for which that is fast enough.
"""

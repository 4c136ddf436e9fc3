"""PodTopologySpread.

    pod_topology_spread.py    the plugin
    constraints.py            constraints of a pod, and default constraints
    score_table.py            scores of all domains of a constraint

Source: plugins/podtopologyspread of v1.36.
"""

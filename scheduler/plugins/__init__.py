"""The in-tree plugins: one module per plugin, named after it; those of several modules have a folder.

    default_binder.py            DefaultBinder
    image_locality.py            ImageLocality
    node_affinity.py             NodeAffinity
    node_declared_features.py    NodeDeclaredFeatures
    node_name.py                 NodeName
    node_ports.py                NodePorts
    node_selector_masks.py       nodes that match a selector
    node_unschedulable.py        NodeUnschedulable
    priority_sort.py             PrioritySort
    registry.py                  all plugins by name
    scheduling_gates.py          SchedulingGates
    taint_toleration.py          TaintToleration
    dynamic_resources/           DynamicResources
    inter_pod_affinity/          InterPodAffinity
    node_resources/              NodeResourcesFit, NodeResourcesBalancedAllocation
    pod_groups/                  GangScheduling, TopologyPlacementGenerator, PodGroupPodsCount
    pod_topology_spread/         PodTopologySpread
    preemption/                  DefaultPreemption
    volumes/                     VolumeBinding, VolumeRestrictions, VolumeZone, NodeVolumeLimits

Plugins of older schedulers are in `legacy_policy`.
"""

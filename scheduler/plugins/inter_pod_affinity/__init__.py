"""InterPodAffinity.

    inter_pod_affinity.py    the plugin
    terms.py                 terms of pods, parsed once, and the pods that they match

Source: plugins/interpodaffinity of v1.36.
"""

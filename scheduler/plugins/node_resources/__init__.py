"""Plugins of node resources.

    fit.py                    NodeResourcesFit
    balanced_allocation.py    NodeResourcesBalancedAllocation
    scoring.py                scoring strategies

Source: plugins/noderesources of v1.36.
"""

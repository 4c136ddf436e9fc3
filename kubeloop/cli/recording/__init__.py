"""Commands about recordings of clusters.

Modules

    record.py                  kubeloop record
    plan.py                    kubeloop plan
"""

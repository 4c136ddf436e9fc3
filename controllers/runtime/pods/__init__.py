"""Pods that controllers create, count and delete.

Part of `kubeloop.controllers.runtime`, which states what it may import.

    pod_template.py          JSON of a Pod from a template
    pod_control.py           creation and deletion, with events and traces
    expected_pods.py         creation and deletion of the Pods of a plan, with expectations
    slow_start.py            creation in batches of 1, 2, 4, ...
    pod_availability.py      active, terminating and available Pods
    active_pod_order.py      order in which active Pods are deleted
    disruption_target.py     the condition DisruptionTarget
    volume_claims.py         claims that a Pod uses
"""

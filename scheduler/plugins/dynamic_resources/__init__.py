"""DynamicResources: devices for ResourceClaims and extended resources. The search itself is in `devices`.

    dynamic_resources.py    the plugin, which imports the others with the first pod that needs devices
    device_allocation.py    allocation of devices to the claims of a pod, and its reservation
    claim_binding.py        writes of allocations to claims, and binding conditions

Source: plugins/dynamicresources of v1.36.
"""

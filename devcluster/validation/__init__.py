"""Validation of objects as kube-apiserver v1.36 does it: on create, on update and of status writes.

Pure functions on decoded and defaulted JSON. An error list holds the causes of a metav1.Status in the order of
kube-apiserver; an error that two of its layers report is listed twice, as in its responses.

    validate.py   entry points: validate_create, validate_update
    common/       error list, metadata, labels, addresses, conditions
    pod/          pod specs, pod updates, containers, volumes, security contexts
    warnings/     texts of Warning headers

The rules of one kind are in the kind's module in `kinds`.
"""

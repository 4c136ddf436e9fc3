"""Admission webhooks: HTTPS services that change or deny requests.

    configured_webhooks.py   the webhooks of a store, called for the current request
    webhook.py               one webhook: whether it matches a request
    webhook_call.py          a call of one webhook: from the request to its verified response
    admission_review.py      AdmissionReview: requests, and the checks of responses
    object_patches.py        patches of objects by mutating webhooks
    webhook_metrics.py       counts and durations of calls

The rules, selectors and match conditions are those of `admission.policies`. Source: apiserver
pkg/admission/plugin/webhook of Kubernetes v1.36.
"""

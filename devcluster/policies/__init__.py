"""Admission policies: expressions about requests, which refuse them, warn of them, or change what they write.

Objects of admissionregistration.k8s.io are compiled when the first request comes after they have changed; while there
are none, a request costs one look at a flag, and nothing of this but `active` is imported.

    active.py       which policies there are; what a request's write is asked, and by whom it was sent
    attributes.py   what admission knows of a request
    matching.py     does a policy, or its binding, want to hear of it?
    parameters.py   the objects that a binding gives its policy as `params`
    environment.py  the variables of expressions and their types; compiling one
    authorizer.py   the variable `authorizer`
    evaluation.py   running a policy's expressions, with its own variables, within a budget
    validating.py   ValidatingAdmissionPolicy: from matching policies to an answer
    rules.py        what policies and bindings must be

May import all of devcluster but the faces of the server (rest, server, http). Source: k8s.io/apiserver
pkg/admission/plugin/policy and pkg/admission/plugin/cel of Kubernetes v1.36.
"""

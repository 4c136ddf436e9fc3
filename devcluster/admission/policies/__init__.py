"""Admission policies: expressions about requests, which refuse them, warn of them, or change what they write.

Objects of admissionregistration.k8s.io are compiled when the first request comes after they have changed; while there
are none, a request costs one look at a flag, and nothing of this but `active` is imported.

    active.py       which policies there are; the request that they are asked about
    attributes.py   what admission knows of a request
    matching.py     does a policy, or its binding, want to hear of it?
    parameters.py   the objects that a binding gives its policy as `params`
    environment.py  the variables of expressions and their types; compiling one
    authorizer.py   the variable `authorizer`
    evaluation.py   running expressions, with a policy's own variables, within a budget
    invoking.py     what policies of both kinds do before their own expressions
    validating.py   ValidatingAdmissionPolicy: from what policies find to an answer
    mutating.py     MutatingAdmissionPolicy: one policy after the other, and again
    objects.py      Object{...} and JSONPatch{...} in expressions
    patches.py      what they make of an object

What policies must be to be stored is in validation/policies.py. May import all of devcluster but the faces of the
server (rest, server, http). Source: k8s.io/apiserver pkg/admission/plugin/{policy,cel} of Kubernetes v1.36.
"""

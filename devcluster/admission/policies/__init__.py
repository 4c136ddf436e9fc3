"""Admission policies: CEL expressions about requests that deny them, warn about them, or change their objects.

`admission.dynamic_admission` runs them, together with webhooks, which share attributes, rules and match conditions.

    compiled_policies.py            policies with their bindings, run on the current request
    policy_dispatcher.py            match resources, parameters and match conditions, for both kinds of policies
    matcher.py                      resource rules and selectors
    parameters.py                   the objects that a binding provides as `params`
    request_variables.py            the variables `request` and `namespaceObject`
    expression_evaluation.py        evaluation of expressions and declared variables within a cost budget
    validating_admission_policy.py  ValidatingAdmissionPolicy: from results to a denial or warnings
    mutating_admission_policy.py    MutatingAdmissionPolicy: order of policies, reinvocation
    mutation_patches.py             patches of Object{...} and JSONPatch{...} expressions

`kube.policy_cel` compiles the expressions; `kinds.admissionregistration.policies` validates the policies themselves.
Source: k8s.io/apiserver pkg/admission/plugin/{policy,cel} of Kubernetes v1.36.
"""

"""The CEL environment of admission policies: variables, the authorizer library, and the objects that mutations create.

May import `kube.cel`, `devcluster.api` and `kube`.
"""

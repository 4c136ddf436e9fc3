"""The CEL environment of admission policies: variables, the authorizer library, and the objects that mutations create.

May import `devcluster.languages.cel`, `devcluster.api` and `kube`.
"""

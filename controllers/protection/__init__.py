"""Protection of objects in use, which four controllers share. May import `kubeloop.controllers.api` and
`kubeloop.kube`.

    protection_controller.py   finalizer of objects in use
"""

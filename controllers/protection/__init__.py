"""Protection of objects in use, which four controllers share. May import `kubeloop.controllers.api`.

protection_controller.py   finalizer of objects in use
"""

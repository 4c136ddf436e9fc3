"""`kubeloop manifests`: print what runs custom controllers in a cluster."""

from __future__ import annotations

from kubeloop.cli.options.options import ManifestsOptions
from kubeloop.controllers.api.runner import controller_class
from kubeloop.kube import yaml
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.controller_selection import select_controllers
from kubeloop.process.controller_manifests import Installation, controller_manifests


def print_manifests(options: ManifestsOptions) -> int:
    """Run the command and return its exit code. Raises UserError."""
    selection = select_controllers(options.controllers)
    if selection.built_in:
        raise UserError(
            f"{', '.join(sorted(selection.built_in))}: built-in controllers declare no permissions",
            hint="deploy/scheduler and deploy/control-plane have theirs",
        )
    classes = [controller_class(factory) for factory in selection.custom]
    installation = Installation(
        name=options.name or classes[0].name,
        namespace=options.namespace,
        image=options.image,
        arguments=options.controllers,
        replicas=options.replicas,
    )
    documents = controller_manifests(classes, installation)
    print("---\n".join(yaml.write(document, sort_keys=False) for document in documents), end="")
    return 0

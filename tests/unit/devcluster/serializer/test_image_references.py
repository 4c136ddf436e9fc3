"""Image references: registry and tag as they default to, errors of the reference parser."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.serializer.image_references import image_reference

SHA256 = "a" * 64


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.27", "docker.io/library/nginx:1.27"),
        ("team/app", "docker.io/team/app:latest"),
        ("docker.io/nginx", "docker.io/library/nginx:latest"),
        ("index.docker.io/nginx:1", "docker.io/library/nginx:1"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app:1", "localhost:5000/app:1"),
        ("[::1]:5000/app", "[::1]:5000/app:latest"),
        ("Registry/app", "Registry/app:latest"),
        ("registry.k8s.io/e2e/a__b-c.d:V_1.0-x", "registry.k8s.io/e2e/a__b-c.d:V_1.0-x"),
        (f"nginx@sha256:{SHA256}", f"docker.io/library/nginx@sha256:{SHA256}"),
        (f"gcr.io/a/b:1@sha256:{SHA256}", f"gcr.io/a/b:1@sha256:{SHA256}"),
    ],
)
def test_valid_image_has_registry_and_tag_or_digest(image: str, name: str):
    assert (image_reference(image).name, image_reference(image).error) == (name, "")


def test_image_id_is_the_digest_of_the_repository():
    assert image_reference(f"gcr.io/a/b:1@sha256:{SHA256}").image_id == f"gcr.io/a/b@sha256:{SHA256}"
    assert image_reference("nginx:1").image_id.startswith("docker.io/library/nginx@sha256:")


@pytest.mark.parametrize(
    ("image", "error"),
    [
        ("${REGISTRY}/app:1", "invalid reference format"),
        ("$IMAGE", "invalid reference format: repository name (library/$IMAGE) must be lowercase"),
        ("Nginx", "invalid reference format: repository name (library/Nginx) must be lowercase"),
        ("team/App:1", "invalid reference format: repository name (team/App) must be lowercase"),
        ("nginx:", "invalid reference format"),
        ("nginx:a:b", "invalid reference format"),
        ("nginx: 1", "invalid reference format"),
        ("https://registry/app", "invalid reference format"),
        (f"nginx:{'a' * 129}", "invalid reference format"),
        ("nginx@sha256:abc", "invalid reference format"),
        (f"nginx@sha256:{'a' * 63}", "invalid checksum digest length"),
        (f"nginx@sha256:{'A' * 64}", "invalid checksum digest format"),
        (f"nginx@md5:{'a' * 32}", "unsupported digest algorithm"),
        (SHA256, f"invalid repository name ({SHA256}), cannot specify 64-byte hexadecimal strings"),
        ("a" * 256, "repository name must not be more than 255 characters"),
    ],
)
def test_invalid_image_has_the_error_of_the_reference_parser(image: str, error: str):
    assert image_reference(image).error == f'couldn\'t parse image name "{image}": {error}'


def test_long_invalid_image_is_parsed_in_linear_time():
    assert image_reference("a-" * 100_000 + "!").error

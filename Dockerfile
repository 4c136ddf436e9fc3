# kubeloop as an image, for linux/amd64 and linux/arm64: `make image`. The process needs no shell, no root, and writes only to
# the folders that it is given (/tmp for the trace journal): run it with a read-only root file system.
ARG PYTHON=3.13-slim-trixie

FROM docker.io/library/python:${PYTHON} AS build
WORKDIR /src
COPY requirements.txt ./
RUN python -m venv /opt/kubeloop \
    && /opt/kubeloop/bin/pip install --no-cache-dir --no-compile --require-hashes --only-binary=:all: -r requirements.txt
COPY . .
# Without tests and pip, which nothing runs. Compiled once, since the file system is read-only later; so is the standard
# library, of which the base image has the sources only.
RUN /opt/kubeloop/bin/pip install --no-cache-dir --no-compile --no-deps . \
    && find /opt/kubeloop/lib -depth -type d -name tests -path "*/numpy/*" -exec rm -r {} + \
    && /opt/kubeloop/bin/pip uninstall --quiet --yes pip \
    && export PYTHONPYCACHEPREFIX=/opt/kubeloop/bytecode \
    && python -m compileall -q -j 0 -x "kubernetes_asyncio/client/(models|api)/" /opt/kubeloop/lib \
    && python -m compileall -q -j 0 -x "/(site-packages|tests?|idlelib|ensurepip)/" \
        "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"

FROM docker.io/library/python:${PYTHON}
LABEL org.opencontainers.image.title="kubeloop" \
      org.opencontainers.image.description="A Kubernetes controller manager and scheduler in one asyncio process" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/kubeloop /opt/kubeloop
ENV PATH=/opt/kubeloop/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPYCACHEPREFIX=/opt/kubeloop/bytecode \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["kubeloop"]
CMD ["--help"]

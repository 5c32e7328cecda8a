# One image for each of the five services: Debian's Python and what the service declares, nothing else.
#
#   docker build -f images/services.Dockerfile --build-arg SERVICE=syncer -t sunk/syncer:0.1.0 .
#
# The lab makes the same content without a container engine: lab/src/sunk_lab/service_images.py.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG SERVICE
# A registry's certificate authority, where the machine that builds trusts one of its own.
ARG PIP_CERT
ARG SSL_CERT_FILE
WORKDIR /src
RUN pip install --no-cache-dir uv==0.13.8
COPY pyproject.toml uv.loc[k] ./
COPY lab/pyproject.toml lab/
COPY libs libs
COPY services services
# Compiled by content: times in images are not to be relied on.
ENV UV_PROJECT_ENVIRONMENT=/build UV_LINK_MODE=copy PYC_INVALIDATION_MODE=UNCHECKED_HASH
RUN uv sync --package "sunk-${SERVICE}" --no-dev --no-editable --compile-bytecode --python-preference only-system \
 && mv /build/lib/python*/site-packages /opt/sunk \
 && cp "/opt/sunk/sunk_$(echo "${SERVICE}" | tr - _)/__main__.py" /opt/sunk/__main__.py \
 && uv export --quiet --package "sunk-${SERVICE}" --no-dev --format cyclonedx1.5 --output-file /opt/sunk/sbom.cdx.json

FROM ${BASE}
ARG SERVICE
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="sunk-${SERVICE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/sunk /opt/sunk
# The official image comes without compiled files: each start would compile what it imports, as it may not write.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash \
    "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
ENV PYTHONPATH=/opt/sunk PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
# Python runs the folder: its __main__ is the service's.
ENTRYPOINT ["python3", "/opt/sunk"]

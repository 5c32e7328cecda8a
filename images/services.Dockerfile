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
COPY pyproject.toml uv.loc[k] ./
# Wheels alone, each with its hash: nothing of a package that is not ours runs while it is installed.
COPY images/requirements images/requirements
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r images/requirements/build.txt
COPY lab/pyproject.toml lab/
COPY libs libs
COPY services services
# Compiled by content: times in images are not to be relied on.
ENV UV_LINK_MODE=copy PYC_INVALIDATION_MODE=UNCHECKED_HASH
RUN into="--python $(command -v python3) --target /opt/sunk --no-deps --compile-bytecode" \
 && uv pip install $into --require-hashes --only-binary :all: -r "images/requirements/${SERVICE}.txt" \
 && uv pip install $into --no-build-isolation -r "images/requirements/${SERVICE}.local.txt" \
 && rm -rf /opt/sunk/bin /opt/sunk/__pycache__ \
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
# And no program runs as another user than its caller.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash \
    "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
ENV PYTHONPATH=/opt/sunk PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
# Python runs the folder: its __main__ is the service's.
ENTRYPOINT ["python3", "/opt/sunk"]

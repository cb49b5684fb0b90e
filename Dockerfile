# The service as an image: deploy/build_image.sh, or docker build -t xylem . (docs/image.md)
#
# Kernels are compiled while it is built, for two levels of processors: they are in the wheel that is installed.
#
# It listens on 0.0.0.0, so every request needs a key until XYLEM_OPEN_SCOPES says what does not (docs/keys.md).
# The store must be writable for jobs; with a read-only one set XYLEM_JOBS=0. /data is there for XYLEM_DATA_DIR.

# The digest is that of the tag's index for all architectures. PYTHON_DIGEST= (empty) builds on what bears the tag.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG PYTHON_DIGEST=@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST} AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.txt ./
COPY deploy/wheels ./deploy/wheels
COPY model_store ./model_store
COPY service ./service
RUN ["python", "deploy/wheels/build.py", "python3.11"]

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST} AS build
ENV PYTHONDONTWRITEBYTECODE=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
RUN apt-get update && apt-get install --yes --no-install-recommends binutils && rm -rf /var/lib/apt/lists/*
RUN ["python", "-m", "venv", "--without-pip", "/opt/xylem"]
WORKDIR /src
COPY requirements-image.txt ./
RUN ["python", "-m", "pip", "--python", "/opt/xylem/bin/python", "install", "--no-compile", "--require-hashes", "-r", "requirements-image.txt"]
COPY --from=wheel /src/dist/*-cp311-*.whl ./
RUN python -m pip --python /opt/xylem/bin/python install --no-compile --no-deps ./*.whl
COPY deploy/image ./deploy/image
RUN ["/opt/xylem/bin/python", "deploy/image/trim.py", "postgresql", "remote", "grpc"]
RUN ["/opt/xylem/bin/python", "deploy/image/sbom.py", "/opt/xylem/sbom.cdx.json"]
# Stamped with their sources' digests, which are not looked at again: nothing in the image changes.
RUN ["/opt/xylem/bin/python", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "/opt/xylem/lib"]

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST}
ARG VERSION=unknown
ARG REVISION=unknown
ARG PYTHON_IMAGE
LABEL org.opencontainers.image.title="Xylem" \
      org.opencontainers.image.description="Online prediction for extreme multi-label classification" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="The Xylem authors" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
ENV XYLEM_KERNEL_CPU=portable \
    XYLEM_STORE=/store \
    XYLEM_HOST=0.0.0.0 \
    XYLEM_PORT=8080 \
    PATH=/opt/xylem/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN ["useradd", "--system", "--uid", "10001", "--no-create-home", "--shell", "/usr/sbin/nologin", "xylem"]
RUN ["install", "-d", "-o", "xylem", "-g", "xylem", "/store", "/data"]
COPY --from=build /opt/xylem /opt/xylem
USER 10001
VOLUME /store
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from os import environ; from urllib.request import urlopen; urlopen(f'http://127.0.0.1:{environ[\"XYLEM_PORT\"]}/readyz', timeout=2)"]
ENTRYPOINT ["xylem"]
CMD ["serve"]

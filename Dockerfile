# The service as an image: docker build -t xylem .
#
# Kernels are compiled while it is built, for any CPU of the architecture, into a cache that a container only reads.
#
# It listens on 0.0.0.0, so every request needs a key until XYLEM_OPEN_SCOPES says what does not (docs/keys.md).
# The store must be writable for jobs; with a read-only one set XYLEM_JOBS=0. /data is there for XYLEM_DATA_DIR.

FROM python:3.11-slim AS build
ENV NUMBA_CPU_NAME=generic \
    XYLEM_KERNEL_CACHE=/opt/xylem/kernels
RUN ["python", "-m", "venv", "/opt/xylem"]
WORKDIR /src
COPY requirements.txt ./
RUN ["/opt/xylem/bin/python", "-m", "pip", "install", "--no-cache-dir", "--require-hashes", "-r", "requirements.txt"]
COPY pyproject.toml README.md LICENSE ./
COPY model_store ./model_store
COPY service ./service
COPY xylem ./xylem
RUN ["/opt/xylem/bin/python", "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--no-build-isolation", "."]
WORKDIR /
RUN ["/opt/xylem/bin/python", "-m", "service.warm"]

FROM python:3.11-slim
ENV NUMBA_CPU_NAME=generic \
    XYLEM_KERNEL_CACHE=/opt/xylem/kernels \
    XYLEM_STORE=/store \
    XYLEM_HOST=0.0.0.0 \
    XYLEM_PORT=8080 \
    PATH=/opt/xylem/bin:${PATH} \
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

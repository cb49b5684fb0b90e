# The service as an image: docker build -t xylem .
#
# Kernels are compiled while it is built, into a cache that a running container only reads. They are compiled for any
# CPU of the architecture; for newer x86-64 CPUs only (AVX2) build with
#   --build-arg CPU_NAME=x86-64-v3 --build-arg CPU_FEATURES=+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe

FROM python:3.11-slim AS build
ARG CPU_NAME=generic
ARG CPU_FEATURES=""
ENV NUMBA_CPU_NAME=${CPU_NAME} \
    NUMBA_CPU_FEATURES=${CPU_FEATURES} \
    XYLEM_KERNEL_CACHE=/opt/xylem/kernels
RUN ["python", "-m", "venv", "/opt/xylem"]
WORKDIR /src
COPY requirements.txt ./
RUN ["/opt/xylem/bin/python", "-m", "pip", "install", "--no-cache-dir", "--require-hashes", "-r", "requirements.txt"]
COPY pyproject.toml README.md LICENSE ./
COPY model_store ./model_store
COPY service ./service
RUN ["/opt/xylem/bin/python", "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--no-build-isolation", "."]
WORKDIR /
RUN ["/opt/xylem/bin/python", "-m", "service.warm"]

FROM python:3.11-slim
ARG CPU_NAME=generic
ARG CPU_FEATURES=""
ENV NUMBA_CPU_NAME=${CPU_NAME} \
    NUMBA_CPU_FEATURES=${CPU_FEATURES} \
    XYLEM_KERNEL_CACHE=/opt/xylem/kernels \
    XYLEM_STORE=/store \
    PATH=/opt/xylem/bin:${PATH} \
    PYTHONUNBUFFERED=1
RUN ["useradd", "--system", "--uid", "10001", "--no-create-home", "--shell", "/usr/sbin/nologin", "xylem"]
RUN ["install", "-d", "-o", "xylem", "-g", "xylem", "/store"]
COPY --from=build /opt/xylem /opt/xylem
USER 10001
VOLUME /store
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
ENTRYPOINT ["xylem"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]

#!/bin/sh
# Builds the image with the engine that is there: docker, podman, or buildah, which needs no daemon.
#   deploy/build_image.sh [NAME [OPTION OF THE ENGINE'S BUILD ...]]
# ENGINE=buildah chooses one. Exit 3: there is none. docs/image.md has more.
set -eu
cd "$(dirname "$0")/.."

name=${1:-xylem}
if [ $# -gt 0 ]; then shift; fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)

# The command of an engine may be there without the daemon that does the work.
if [ -z "${ENGINE:-}" ]; then
    if docker info >/dev/null 2>&1; then ENGINE=docker
    elif podman info >/dev/null 2>&1; then ENGINE=podman
    elif command -v buildah >/dev/null; then ENGINE=buildah
    else
        echo "build_image.sh: expected docker, podman or buildah, found none that works" >&2
        exit 3
    fi
fi

set -- --tag "$name" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" "$@" .
# The format of OCI has no place for the health check.
case $ENGINE in
    docker) exec docker build "$@" ;;
    podman) exec podman build --format docker "$@" ;;
    buildah) exec buildah build --format docker --isolation chroot "$@" ;;
    *)
        echo "build_image.sh: expected ENGINE=docker, podman or buildah, found $ENGINE" >&2
        exit 2
        ;;
esac

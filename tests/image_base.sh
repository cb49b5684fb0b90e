#!/bin/sh
# Makes an image of Debian's own packages for `buildah` where no registry of images can be reached: a stand-in for the
# base that the Dockerfile names, with a Python of the same minor version.
#   tests/image_base.sh NAME       then: deploy/build_image.sh xylem --build-arg PYTHON_IMAGE=NAME --build-arg PYTHON_DIGEST=
set -eu

name=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv bookworm "$root"
ln -s python3 "$root/usr/bin/python"
# Of a network with a certificate authority of its own.
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*

container=$(buildah from scratch)
buildah add --quiet "$container" "$root" /
buildah config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --cmd python "$container"
buildah commit --quiet --rm "$container" "$name"

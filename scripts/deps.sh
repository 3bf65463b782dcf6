#!/bin/sh
# deps.sh PURPOSE... - installs the Debian packages that a purpose needs and that are missing:
#   build   the library and the command
#   test    the tests, in addition to build
#   clang   the second compiler, in addition to test
#   fuzz    the fuzz targets, in addition to build
#   mpi     several machines, in addition to build
#   web     the tests of the page, in addition to build
set -eu

packages=
for purpose in "$@"; do
    case $purpose in
    build) packages="$packages gcc libc6-dev cmake make pkg-config
        libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev libedit-dev libmicrohttpd-dev libcurl4-gnutls-dev" ;;
    test) packages="$packages libcmocka-dev g++" ;; # g++: the headers are also compiled as C++
    clang) packages="$packages clang" ;;
    fuzz) packages="$packages clang libclang-rt-dev" ;;
    mpi) packages="$packages libopenmpi-dev openmpi-bin" ;;
    web)
        packages="$packages chromium"
        command -v node >/dev/null 2>&1 || packages="$packages nodejs"
        command -v npm >/dev/null 2>&1 || packages="$packages npm" # some builds of Node include npm
        ;;
    *)
        echo "deps.sh: unknown purpose $purpose; use build, test, clang, fuzz, mpi or web" >&2
        exit 2
        ;;
    esac
done

command -v dpkg-query >/dev/null 2>&1 || exit 0 # not Debian: CMake says what is missing

missing=
for package in $packages; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
else
    echo "These Debian packages are missing, and installing them needs root or sudo:" >&2
    echo "   $missing" >&2
    echo "Ask an administrator to run: apt-get install$missing" >&2
    exit 1
fi

echo "installing$missing" >&2
$as_root apt-get update -qq
# shellcheck disable=SC2086  # the list is meant to be split
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing

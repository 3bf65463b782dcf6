#!/bin/sh
# Installs into a scratch prefix and builds the example there as a user would, by pkg-config and by CMake.
#   check_install.sh BUILD EXAMPLE
set -eu
build=$1
example=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

cmake --install "$build" --prefix "$prefix" >/dev/null
[ -x "$prefix/bin/dsmoe" ] && [ -f "$prefix/include/dsmoe.h" ] || { echo "incomplete install"; exit 1; }
libdir=$(dirname "$(find "$prefix" -name libdsmoe.so | head -n 1)")
[ -f "$libdir/libdsmoe.a" ] || { echo "no libdsmoe.a"; exit 1; }

PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046  # the flags are meant to be split
cc "$example" $(pkg-config --cflags --libs dsmoe) -o "$scratch/by_pkg_config"
LD_LIBRARY_PATH=$libdir "$scratch/by_pkg_config" | grep -q '^y\[0\] = '

mkdir "$scratch/project"
cp "$example" "$scratch/project/main.c"
cat >"$scratch/project/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(dsmoe 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE dsmoe::dsmoe)
EOF
cmake -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$scratch/project/build" >/dev/null
"$scratch/project/build/user" | grep -q '^y\[0\] = '
echo "pkg-config and CMake both find the installed library"

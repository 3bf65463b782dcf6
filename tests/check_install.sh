#!/bin/sh
# Installs into a scratch prefix and builds the example with it, as a user would, by pkg-config and by CMake.
#   check_install.sh BUILD EXAMPLE
set -eu
build=$1
example=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

cmake --install "$build" --prefix "$prefix" >/dev/null
[ -x "$prefix/bin/dsmoe" ] && [ -f "$prefix/include/dsmoe.h" ] && [ -f "$prefix/include/dsmoe/layer.h" ] ||
    { echo "incomplete install"; exit 1; }
libdir=$(dirname "$(find "$prefix" -name libdsmoe.so | head -n 1)")
[ -f "$libdir/libdsmoe.a" ] || { echo "no libdsmoe.a"; exit 1; }

if [ -f "$build/dsmoe_mpi.so" ]; then # the command looks for it there
    [ -f "$libdir/dsmoe/dsmoe_mpi.so" ] || { echo "no plugin for Open MPI"; exit 1; }
fi

runs() { # program
    "$1" | grep -q '^y\[0\] = ' || { echo "$1 does not run"; exit 1; }
}

needs_library() { # program
    ldd "$1" | grep -q 'libdsmoe\.so'
}

PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046  # the flags are meant to be split
cc "$example" $(pkg-config --cflags --libs dsmoe) -o "$scratch/by_pkg_config"
LD_LIBRARY_PATH=$libdir runs "$scratch/by_pkg_config"

mkdir "$scratch/project"
cp "$example" "$scratch/project/main.c"
cat >"$scratch/project/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(dsmoe 0.1 REQUIRED COMPONENTS static)
add_executable(user main.c)
target_link_libraries(user PRIVATE dsmoe::dsmoe)
add_executable(user_static main.c)
target_link_libraries(user_static PRIVATE dsmoe::dsmoe_static)
EOF
cmake -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$scratch/project/build" >/dev/null
runs "$scratch/project/build/user"
runs "$scratch/project/build/user_static"
needs_library "$scratch/project/build/user" || { echo "dsmoe::dsmoe is not the shared library"; exit 1; }
! needs_library "$scratch/project/build/user_static" || { echo "dsmoe::dsmoe_static is not the archive"; exit 1; }

# If packages for linking the archive are missing, the shared library is still found, and a project that asks
# for the archive is told which packages are missing.
cat >"$scratch/project/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.16)
project(user C)
set(ENV{PKG_CONFIG_LIBDIR} /nowhere)
find_package(dsmoe 0.1 REQUIRED)
if(TARGET dsmoe::dsmoe_static OR NOT TARGET dsmoe::dsmoe)
  message(FATAL_ERROR "the archive is offered without what it needs")
endif()
find_package(dsmoe 0.1 REQUIRED COMPONENTS static)
EOF
if env -u PKG_CONFIG_PATH cmake -S "$scratch/project" -B "$scratch/project/without" \
    -DCMAKE_PREFIX_PATH="$prefix" >/dev/null 2>"$scratch/log"; then
    echo "the archive is found without what it needs"
    exit 1
fi
grep -q 'jansson' "$scratch/log" || { cat "$scratch/log"; exit 1; }

# Finally, an installation with only the archive.
rm "$libdir"/libdsmoe.so*
# shellcheck disable=SC2046  # the flags are meant to be split
cc "$example" $(pkg-config --static --cflags --libs dsmoe) -o "$scratch/by_pkg_config_static"
runs "$scratch/by_pkg_config_static"
echo "pkg-config and CMake both find the installed library, shared and static"

#!/bin/sh
# configure.sh BUILD OPTION... - makes the build folder BUILD of this tree with these options of CMake,
# unless it is there.
#
# CMake leaves its cache where configuring failed, but nothing to build with: such a folder is configured again.
# A folder that was copied or moved here along with its tree remembers where it was made, and would
# build and install the old tree: such a folder is made again from nothing.
set -eu
cd "$(dirname "$0")/.."
build=$1
shift

remembered() { # entry of CMakeCache.txt
    sed -n "s/^$1:INTERNAL=//p" "$build/CMakeCache.txt"
}

if [ -f "$build/CMakeCache.txt" ]; then
    tree=$(remembered CMAKE_HOME_DIRECTORY)
    folder=$(remembered CMAKE_CACHEFILE_DIR)
    if ! [ "$tree" -ef . ] || ! [ "$folder" -ef "$build" ]; then
        echo "$build was made as $folder for $tree: making it again" >&2
        rm -rf "$build"
    elif [ -f "$build/build.ninja" ] || [ -f "$build/Makefile" ]; then
        exit 0
    else
        rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles" # what they found may be out of date
    fi
fi
if command -v ninja >/dev/null 2>&1; then
    set -- -G Ninja "$@"
fi
exec "${CMAKE:-cmake}" -S . -B "$build" "$@"

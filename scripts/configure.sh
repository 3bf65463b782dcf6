#!/bin/sh
# configure.sh BUILD OPTION... - makes the build folder BUILD of this tree with these options of CMake,
# unless it exists.
#
# If configuring failed, CMake leaves its cache but nothing to build with. Such a folder is configured again.
# A build folder that was copied or moved with its tree would still build and install the old tree. Such a
# folder is deleted and made again.
set -eu
cd "$(dirname "$0")/.."
build=$1
shift

remembered() { # an entry of CMakeCache.txt
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
        rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles" # their results may be out of date
    fi
fi
if command -v ninja >/dev/null 2>&1; then
    set -- -G Ninja "$@"
fi
exec "${CMAKE:-cmake}" -S . -B "$build" "$@"

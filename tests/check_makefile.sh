#!/bin/sh
# check_makefile.sh SOURCE - the Makefile builds and installs the tree it is in, and only what is to be
# installed. Here it is used with a tree of one file, which is built in a moment.
set -eu
source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES DESTDIR BUILD PREFIX || true

fail() {
    echo "check_makefile: $*" >&2
    exit 1
}

tree=$scratch/tree
mkdir -p "$tree/scripts"
cp "$source/Makefile" "$tree"
cp "$source/scripts/configure.sh" "$tree/scripts" 2>/dev/null || true
echo 'exit 0' >"$tree/scripts/deps.sh" # do not install packages in a test
cat >"$tree/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(tree NONE)
if(NOT EXISTS ${CMAKE_SOURCE_DIR}/name)
  message(FATAL_ERROR "something that it needs is missing")
endif()
option(DSMOE_TESTS "" ON)
foreach(name dsmoe shared archive)
  add_custom_target(${name} ALL COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/name ${name})
  install(FILES ${CMAKE_BINARY_DIR}/${name} DESTINATION lib)
endforeach()
add_custom_target(plugins)
if(DSMOE_TESTS)
  add_custom_target(tests ALL COMMAND ${CMAKE_COMMAND} -E touch tests_were_built)
endif()
END

run_make() { # folder, then words for make
    folder=$1
    shift
    make -C "$folder" "$@" >"$scratch/log" 2>&1 || {
        cat "$scratch/log" >&2
        fail "make $* failed in $folder"
    }
}

installs() { # folder, expected content of its files
    rm -rf "$scratch/stage"
    run_make "$1" install DESTDIR="$scratch/stage" PREFIX=/opt/it
    for file in dsmoe shared archive; do
        [ "$(cat "$scratch/stage/opt/it/lib/$file")" = "$2" ] || fail "$1 installs another tree: $2 expected"
    done
    [ ! -e "$1/build/tests_were_built" ] || fail "make install builds the tests"
}

# If configuring failed because something was missing, the next make tries again, without make clean.
for attempt in first second; do
    ! make -C "$tree" >"$scratch/log" 2>&1 || fail "the $attempt make hides that configuring failed"
    grep -q "something that it needs is missing" "$scratch/log" || {
        cat "$scratch/log" >&2
        fail "the $attempt make does not tell why configuring failed"
    }
done

echo first >"$tree/name"
installs "$tree" first

cp -R "$tree" "$scratch/copy"
echo copy >"$scratch/copy/name"
installs "$scratch/copy" copy

rm -rf "$tree"
mv "$scratch/copy" "$scratch/moved"
echo moved >"$scratch/moved/name"
installs "$scratch/moved" moved

# The build folder is kept, whatever path leads to the tree.
touch "$scratch/moved/build/kept"
ln -s moved "$scratch/link"
installs "$scratch/moved" moved
installs "$scratch/link" moved
[ -e "$scratch/moved/build/kept" ] || fail "a build folder of this very tree was made again"

for build in build build-sanitize build-tsan build-clang build-fuzz; do mkdir -p "$scratch/moved/$build"; done
run_make "$scratch/moved" clean
for build in "$scratch/moved"/build*; do
    [ ! -e "$build" ] || fail "make clean leaves $build"
done
echo "make builds the tree it stands in"

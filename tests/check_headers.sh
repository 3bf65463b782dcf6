#!/bin/sh
# check_headers.sh INCLUDE - each public header compiles without warnings, alone and included twice, as plain
# C11 and as C++; and dsmoe.h includes all of them.
set -eu

cd "$1"
failed=0

compiles() { # header, compiler and options
    header=$1
    shift
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
        "$@" -I. -Wall -Wextra -pedantic-errors -Werror -fsyntax-only - || {
        echo "include/$header does not compile alone with: $*" >&2
        failed=1
    }
}

n=0
for header in dsmoe.h dsmoe/*.h; do
    compiles "$header" "${CC:-cc}" -std=c11 -x c
    compiles "$header" "${CXX:-c++}" -std=c++11 -x c++
    n=$((n + 1))
    [ "$header" = dsmoe.h ] || grep -q "^#include \"$header\"" dsmoe.h || {
        echo "include/dsmoe.h does not include $header" >&2
        failed=1
    }
done
[ "$n" -ge 10 ] || {
    echo "$1: only $n headers found" >&2
    exit 1
}
exit $failed

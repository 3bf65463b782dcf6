#!/bin/sh
# check_asserts.sh TESTED RELEASED... - the program that tests run has asserts; the released files have none.
set -eu

has_asserts() { # program or library
    nm "$1" | grep -q '__assert_fail'
}

tested=$1
shift
has_asserts "$tested" || {
    echo "$tested: has no assert, so the tests run without them" >&2
    exit 1
}
for released in "$@"; do
    if has_asserts "$released"; then
        echo "$released: has asserts; a release is compiled with NDEBUG" >&2
        exit 1
    fi
done

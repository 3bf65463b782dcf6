#!/bin/sh
# check_symbols.sh INCLUDE SHARED ARCHIVE - every global name in the libraries has the prefix dsmoe_, and
# they define every function of the public headers.
set -eu

include=$1 shared=$2 archive=$3
failed=0

# The names that a header declares: the word before the parenthesis after DSMOE_API.
declared=$(cat "$include"/dsmoe.h "$include"/dsmoe/*.h | grep -v '^#' | tr '\n' ' ' | grep -oE 'DSMOE_API [^;(]*\(' |
    sed -E 's/.*[ *]([a-z0-9_]+)\($/\1/' | sort -u)
[ "$(printf '%s\n' "$declared" | wc -l)" -ge 100 ] || {
    echo "$include: too few declarations found; has their form changed?" >&2
    exit 1
}

# library, options for nm
defined() {
    library=$1
    shift
    # Sanitizers and linkers add names of their own.
    nm "$@" --defined-only "$library" | awk 'NF >= 3 { print $3 }' | sed 's/@.*//' |
        grep -vE '^(__asan_|__odr_asan|__ubsan_|__start_|__stop_|_init$|_fini$|_end$|_edata$|__bss_start$)' |
        sort -u
}

check() { # library, defined names
    strange=$(printf '%s\n' "$2" | grep -v '^dsmoe_' || true)
    for name in $strange; do
        echo "$1: defines $name, which lacks the prefix dsmoe_" >&2
        failed=1
    done
    for name in $declared; do
        if ! printf '%s\n' "$2" | grep -qx "$name"; then
            echo "$1: lacks $name, which $include declares" >&2
            failed=1
        fi
    done
}

check "$shared" "$(defined "$shared" -D)"
check "$archive" "$(defined "$archive" -g)"
exit $failed

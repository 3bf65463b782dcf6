#!/bin/sh
# run.sh BUILD SECONDS - runs each fuzz target for SECONDS, and says at the end how often it ran. Interesting
# inputs stay in BUILD/corpus for the next run. A failing input is left in BUILD as crash-*.
set -eu
cd "$(dirname "$0")/.."
build=$1 seconds=$2

dictionary() { # target
    if [ -f "fuzz/$1.dict" ]; then echo "fuzz/$1.dict"; else echo fuzz/json.dict; fi
}

for seeds in fuzz/seeds/*/; do
    name=$(basename "$seeds")
    mkdir -p "$build/corpus/$name"
    echo "fuzzing $name for $seconds s"
    "$build/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
        -dict="$(dictionary "$name")" -print_final_stats=1 -artifact_prefix="$build/" \
        "$build/corpus/$name" "$seeds" >"$build/$name.log" 2>&1 || {
        cat "$build/$name.log"
        echo "fuzz_$name fails; the input is in $build" >&2
        exit 1
    }
done

printf '\n%-12s %12s %10s\n' target runs corpus
for seeds in fuzz/seeds/*/; do
    name=$(basename "$seeds")
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name.log")
    printf '%-12s %12s %10s\n' "$name" "$runs" "$(find "$build/corpus/$name" -type f | wc -l)"
done

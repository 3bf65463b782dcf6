#!/bin/sh
# run.sh BUILD SECONDS - runs each fuzz target that long. What it finds stays in BUILD/corpus for the
# next time; an input that fails is left in BUILD as crash-*.
set -eu
cd "$(dirname "$0")/.."
for seeds in fuzz/seeds/*/; do
    name=$(basename "$seeds")
    corpus=$1/corpus/$name
    mkdir -p "$corpus"
    echo "fuzzing $name for $2 s"
    "$1/fuzz/fuzz_$name" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
        -dict=fuzz/json.dict -artifact_prefix="$1/" "$corpus" "$seeds"
done

#!/bin/sh
# demo.sh DSMOE - what `make demo` shows: that layers and models compute what the public PyTorch code
# does, then a small DeepSeekMoE that goes from nothing to right answers in a minute or two.
set -eu
dsmoe=$1
cd "$(dirname "$0")/.."

printf 'dsmoe: DeepSeekMoE on ordinary CPUs.\n\n'
printf 'First, that it computes the right thing: layers and whole models beside what\n'
printf 'the public PyTorch code gives, tensor by tensor.\n\n'
"$dsmoe" verify --quiet tests/data/layer/*.safetensors tests/data/lm/*
printf '\nNow a model learns from nothing, in a minute or two. Ctrl-C stops it at any time.\n'
# A slow or busy machine stops training early rather than take for ever.
"$dsmoe" demo --out "$(dirname "$dsmoe")/demo" --seconds 150
printf '\nall commands: %s --help\n' "$dsmoe"

#!/bin/sh
# demo.sh DSMOE - what `make demo` shows: first that layers and models compute the same as the public PyTorch
# code, then how a small DeepSeekMoE learns to give right answers in a minute or two.
set -eu
dsmoe=$1
cd "$(dirname "$0")/.."

printf 'dsmoe: DeepSeekMoE on ordinary CPUs.\n\n'
printf 'First, a check that it computes the right thing: layers and whole models are compared\n'
printf 'with the results of the public PyTorch code, tensor by tensor.\n\n'
"$dsmoe" verify --quiet tests/data/layer/*.safetensors tests/data/lm/*
printf '\nNow a small model learns from scratch, in a minute or two. Ctrl-C stops it at any time.\n'
# On a slow or busy machine training stops early, so that the demo does not take too long.
"$dsmoe" demo --out "$(dirname "$dsmoe")/demo" --seconds 150
printf '\nTo see all commands: %s --help\n' "$dsmoe"

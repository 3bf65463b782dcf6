#!/bin/sh
# What `make demo` shows: the paper's idea in one table, the proof that the layer is exact, its speed here.
set -eu
dsmoe=$1
cd "$(dirname "$0")/.."

title() { printf '\n== %s\n\n' "$*"; }

title "dsmoe plan: what fine-grained experts buy at the same cost"
"$dsmoe" plan
title "dsmoe verify: the layer against PyTorch, tensor by tensor"
"$dsmoe" verify --quiet tests/data/layer/*.safetensors
title "dsmoe bench layer: a layer of half the 16B model's width, beside what this machine can do"
"$dsmoe" bench layer --hidden 1024 --moe 704 --tokens 1,64,512 --train-tokens 512 --seconds 1
printf '\nNext: %s plan --config tests/data/config/deepseek-moe-16b.json\n      %s bench layer\n' "$dsmoe" "$dsmoe"

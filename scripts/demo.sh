#!/bin/sh
# What `make demo` shows: the paper's idea in one table, the proof that layer and models are exact, a model made
# from nothing and looked into, and the speed here.
set -eu
dsmoe=$1
cd "$(dirname "$0")/.."
model=$(dirname "$dsmoe")/demo
rm -rf "$model"

title() { printf '\n== %s\n\n' "$*"; }

title "dsmoe plan: what fine-grained experts buy at the same cost"
"$dsmoe" plan
title "dsmoe verify: layers and whole models against PyTorch, tensor by tensor"
"$dsmoe" verify --quiet tests/data/layer/*.safetensors tests/data/lm/*
title "dsmoe init: a small model with random weights, in the public layout"
"$dsmoe" init --preset tiny --tokenizer tests/data/text_cli "$model"
title "dsmoe inspect --routing: which experts a text uses"
"$dsmoe" inspect -m "$model" --routing README.md
title "dsmoe generate: what it says (it has learned nothing yet)"
"$dsmoe" generate -m "$model" -n 40 -s 1 -p "Once upon a time"
printf '\n'
title "dsmoe bench model: its speed, beside what this machine can do"
"$dsmoe" bench model -m "$model" -p 256 -n 64 --seconds 1
printf '\nNext: %s chat -m DIR, with a DeepSeekMoE checkpoint in DIR\n' "$dsmoe"
printf '      %s inspect -m %s --routing README.md --html routing.html\n      %s --help\n' \
    "$dsmoe" "$model" "$dsmoe"

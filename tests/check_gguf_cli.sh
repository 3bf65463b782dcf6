#!/bin/sh
# check_gguf_cli.sh DSMOE DATA - every command that takes a model takes a .gguf file, finds the tokenizer in
# it and prints the same as for the folder with the same weights.
. "$(dirname "$0")/cli_checks.sh"

tokenizer=$data/text_cli
run 0 init --preset tiny --layers 2 --type f32 --tokenizer "$tokenizer" "$scratch/folder"
run 0 convert "$scratch/folder" "$scratch/model.gguf"
run 0 convert "$scratch/folder" "$scratch/q8.gguf" --type q8_0
i=0
while [ $i -lt 60 ]; do
    echo "the quick brown fox $i jumps over the lazy dog"
    i=$((i + 1))
done >"$scratch/text"

# ---- the same output for both, except for the name
same() { # arguments of a command; MODEL stands for the model
    for model in folder model.gguf; do
        arguments=$(printf '%s\n' "$@" | sed "s|MODEL|$scratch/$model|")
        old_ifs=$IFS
        IFS='
'
        # shellcheck disable=SC2086
        run 0 $arguments
        IFS=$old_ifs
        sed -e "s|$scratch/${model}[^ ]*|MODEL|" "$out" >"$scratch/$model.out"
    done
    cmp -s "$scratch/folder.out" "$scratch/model.gguf.out" || complain "another output for a .gguf file"
}
same generate -m MODEL -p "Once upon" -n 4 --temp 0
same tokenize -m MODEL -p "Once upon a time"
same detokenize -m MODEL -p "79 110 99 101"
same inspect -m MODEL
same plan --config MODEL
run 0 eval -m "$scratch/model.gguf" -f "$scratch/text" -c 64
shows "cross entropy"
run 0 inspect -m "$scratch/q8.gguf"
shows "weights       f32 " "              q8_0 " " tensors"
run 0 inspect -m "$scratch/q8.gguf" --routing "$scratch/text" --json
shows '"q8_0"'
run 0 bench model -m "$scratch/q8.gguf" -p 16 -n 2 --seconds 0
shows prompt decode
printf 'Hello\n' >"$scratch/said"
input=$scratch/said
run 0 chat -m "$scratch/model.gguf" -n 3 --temp 0
input=/dev/null

# ---- training starts from a file as it does from the folder
for model in folder model.gguf; do
    run 0 train --init "$scratch/$model" --data "$scratch/text" --out "$scratch/run-$model" --steps 2 \
        --batch 2 --seq 16 --quiet
done
cmp -s "$scratch/run-folder/latest/model.safetensors" \
    "$scratch/run-model.gguf/latest/model.safetensors" || complain "training goes another way from a .gguf file"
run 0 train --init "$scratch/q8.gguf" --data "$scratch/text" --out "$scratch/run-q8" --steps 1 --batch 1 \
    --seq 16 --quiet

# ---- files that are not models
run 1 generate -m "$scratch/nothing.gguf" -p a
one_message "$scratch/nothing.gguf"
run 1 generate -m "$scratch/text" -p a
one_message "$scratch/text" "not a GGUF file"
run 0 init --preset tiny --layers 1 --type f32 "$scratch/ids.gguf"
run 1 generate -m "$scratch/ids.gguf" -p a
one_message "$scratch/ids.gguf" "no tokenizer"
run 0 generate -m "$scratch/ids.gguf" --ids -p "1 2 3" -n 2 --temp 0
head -c 2000 "$scratch/model.gguf" >"$scratch/cut.gguf"
for command in "generate -p a" "tokenize -p a" inspect "eval -f $scratch/text"; do
    # shellcheck disable=SC2086
    run 1 $command -m "$scratch/cut.gguf"
    one_message "$scratch/cut.gguf"
done

exit $failed

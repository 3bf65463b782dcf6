#!/bin/sh
# check_convert_cli.sh DSMOE DATA - `dsmoe convert`, `quantize`, `imatrix` and `init FILE.gguf` as a person
# or a script uses them: exit codes, what is printed on which stream, and files that other commands can use.
. "$(dirname "$0")/cli_checks.sh"

# ---- help, and wrong calls
run 0 convert --help
shows usage: examples: --type --threads "dsmoe convert "
silent
run 0 quantize --help
shows usage: example: --type --imatrix --threads q4_k_m "dsmoe quantize "
silent
run 0 imatrix --help
shows usage: example: --model --file --output --chunks --ctx-size "dsmoe imatrix "
silent
run 2 convert
usage "SRC DST"
run 2 convert "$scratch/a"
usage "SRC DST"
run 2 convert "$scratch/a" "$scratch/b" "$scratch/c"
usage "$scratch/c"
run 2 quantize "$scratch/a" "$scratch/b.gguf"
usage --type
run 2 quantize "$scratch/a" "$scratch/b" --type q4_k
usage "$scratch/b" .gguf
run 2 imatrix
usage -m
run 2 imatrix -m "$scratch/a"
usage -f
run 2 imatrix -m "$scratch/a" -f -
usage -o
run 2 imatrix -m "$scratch/a" -f - -o "$scratch/i" --chunks 0
usage --chunks
run 2 init --preset tiny --type q4_k "$scratch/folder"
usage --type .gguf
run 1 convert "$scratch/nothing" "$scratch/b.gguf"
one_message "$scratch/nothing"

# ---- there and back
run 0 init --preset tiny --layers 2 --tokenizer "$data/text_cli" "$scratch/a"
run 0 convert "$scratch/a" "$scratch/b.gguf"
shows "$scratch/b.gguf" "bits per weight" "bf16" " s"
silent
run 0 convert "$scratch/b.gguf" "$scratch/c" -t 1
shows "16.00 bits per weight"
silent
for file in config.json generation_config.json model.safetensors; do
    cmp -s "$scratch/a/$file" "$scratch/c/$file" || complain "$file differs"
done
words="Once upon a time there was a <fox>."
run 0 tokenize -m "$scratch/a" -p "$words"
tokens=$(cat "$out")
for model in b.gguf c; do
    run 0 tokenize -m "$scratch/$model" -p "$words"
    shows "$tokens"
    run 0 generate -m "$scratch/$model" -p "$words" -n 3 --temp 0
done

# ---- quantised, with and without importances
i=0
while [ $i -lt 60 ]; do
    echo "the quick brown fox $i jumps over the lazy dog"
    i=$((i + 1))
done >"$scratch/text"
run 0 imatrix -m "$scratch/a" -f "$scratch/text" -o "$scratch/i.gguf" -c 64 --chunks 5
shows "$scratch/i.gguf" "320 tokens" "pieces of 64"
run 1 imatrix -m "$scratch/a" -f "$scratch/text" -o "$scratch/i.gguf"
one_message "$scratch/i.gguf" already
run 0 quantize "$scratch/a" "$scratch/q8.gguf" --type q8_0
shows "q8_0" "8.5" "f32"
silent
run 0 quantize "$scratch/a" "$scratch/q4.gguf" --type q4_k_m --imatrix "$scratch/i.gguf"
shows "q5_0" # the rows of this small model are too short for q4_k
silent
for model in q8 q4; do
    run 0 generate -m "$scratch/$model.gguf" -p "$words" -n 3 --temp 0
    run 0 eval -m "$scratch/$model.gguf" -f "$scratch/text" -c 64
    shows "cross entropy"
done
run 2 quantize "$scratch/a" "$scratch/q.gguf" --type q3_k
usage q3_k q4_k_m
run 1 quantize "$scratch/a" "$scratch/q.gguf" --type q4_0 --imatrix "$scratch/q8.gguf"
one_message "$scratch/q8.gguf" imatrix
run 2 convert "$scratch/q8.gguf" "$scratch/d"
usage q8_0 "f32, f16 or bf16"
[ ! -e "$scratch/d" ] || complain "a folder is left"
run 0 convert "$scratch/q8.gguf" "$scratch/d" --type f16
shows f16

# ---- quantising a quantised model works, with a warning
run 0 quantize "$scratch/q8.gguf" "$scratch/q8-q4.gguf" --type q4_0
one_message "$scratch/q8.gguf" "already quantised (q8_0)" "adds its own error"
run 0 quantize "$scratch/q8-q4.gguf" "$scratch/q4-q8.gguf" --type q8_0
one_message "$scratch/q8-q4.gguf" "already quantised (q4_0)" "larger and no better"
run 0 convert "$scratch/q8.gguf" "$scratch/q8-bf16" --type bf16
one_message "$scratch/q8.gguf" "already quantised (q8_0)" "larger and no better"
run 0 quantize "$scratch/q8.gguf" "$scratch/q8-q8.gguf" --type q8_0
one_message "$scratch/q8.gguf" "already quantised (q8_0)" "copied as they are"
run 0 convert "$scratch/q8.gguf" "$scratch/q8-copy.gguf"
silent
# The rows of this model are too short for q4_k: the types that were written count, not the requested one.
run 0 quantize "$scratch/a" "$scratch/mixed.gguf" --type q4_k_m
silent
run 0 quantize "$scratch/mixed.gguf" "$scratch/mixed-again.gguf" --type q4_k_m
one_message "$scratch/mixed.gguf" "copied as they are"
cmp -s "$scratch/mixed.gguf" "$scratch/mixed-again.gguf" || complain "another file of the same types"
run 0 quantize "$scratch/mixed.gguf" "$scratch/mixed-q4.gguf" --type q4_0
one_message "adds its own error"
run 1 quantize "$scratch/nothing.gguf" "$scratch/x.gguf" --type q8_0
one_message "$scratch/nothing.gguf"

run 0 imatrix -m "$scratch/q8.gguf" -f "$scratch/text" -o "$scratch/i8.gguf" -c 64 --chunks 5
says "$scratch/q8.gguf is quantised (q8_0)"

# ---- files that are not copied are reported
cp -R "$scratch/a" "$scratch/more"
echo '{}' >"$scratch/more/special_tokens_map.json"
run 0 convert "$scratch/more" "$scratch/more.gguf"
one_message "$scratch/more" "special_tokens_map.json is not copied"

# ---- a chat template in a file of its own is copied to the GGUF file and back
echo "{{ 'from the file' }}" >"$scratch/more/chat_template.jinja"
run 0 convert "$scratch/more" "$scratch/templated.gguf"
grep -qaF "{{ 'from the file' }}" "$scratch/templated.gguf" || complain "no template in the file"
run 0 convert "$scratch/templated.gguf" "$scratch/templated"
grep -qF "{{ 'from the file' }}" "$scratch/templated/tokenizer_config.json" || complain "no template in the folder"
run 0 init --preset tiny --layers 1 --tokenizer "$scratch/more" "$scratch/templated-init"
cmp -s "$scratch/more/chat_template.jinja" "$scratch/templated-init/chat_template.jinja" || complain "no template was copied"
run 0 train --data "$scratch/text" --preset tiny --layers 1 --tokenizer "$scratch/more" --steps 1 --batch 1 --seq 8 \
    --out "$scratch/templated-run" --quiet
grep -qF "{{ 'from the file' }}" "$scratch/templated-run/latest/tokenizer_config.json" || complain "no template in a checkpoint"

# ---- an imatrix of another model
run 0 init --preset tiny --layers 3 --tokenizer "$data/text_cli" "$scratch/three"
run 0 quantize "$scratch/three" "$scratch/three.gguf" --type q8_0 --imatrix "$scratch/i.gguf"
one_message "$scratch/i.gguf" "10 of 31 matrices are not in it"

# ---- names in upper and lower case
run 0 quantize "$scratch/a" "$scratch/upper.gguf" --type Q4_K_M --imatrix "$scratch/i.gguf"
cmp -s "$scratch/upper.gguf" "$scratch/q4.gguf" || complain "another file for Q4_K_M"
run 0 convert "$scratch/a" "$scratch/upper" --type BF16
run 0 init --preset TINY --layers 1 --type Q8_0 "$scratch/upper-init.gguf"
run 0 init --preset Tiny --layers 1 --dtype F16 "$scratch/upper-init"
run 0 generate -m "$scratch/a" -p "$words" -n 2 --temp 0 --kv-type Q8_0
run 0 eval -m "$scratch/a" -f "$scratch/text" -c 64 --kv-type F16
run 0 train --data "$scratch/text" --preset TINY --schedule Cosine --steps 1 --batch 1 --seq 8 --vocab-size 280 \
    --out "$scratch/upper-run" --quiet

# ---- existing files are kept
run 1 convert "$scratch/a" "$scratch/q8.gguf"
one_message "$scratch/q8.gguf" already
run 1 convert "$scratch/a" "$scratch/c"
one_message "$scratch/c" already

# ---- a newly initialised model
run 0 init --preset tiny --layers 1 --type q4_0 --tokenizer "$data/text_cli" "$scratch/fresh.gguf"
shows "$scratch/fresh.gguf" "q4_0" "try: dsmoe generate -m $scratch/fresh.gguf"
run 0 generate -m "$scratch/fresh.gguf" -p "$words" -n 3 --temp 0
run 1 init --preset tiny --layers 1 --type q4_0 "$scratch/fresh.gguf"
one_message "$scratch/fresh.gguf" already
run 2 init --preset tiny --tokenizer "$scratch/fresh.gguf" "$scratch/e"
usage "$scratch/fresh.gguf" tokenizer.json
[ ! -e "$scratch/e" ] || complain "a folder is left"

# ---- Ctrl-C, once there is something to remove
for target in stopped.gguf stopped; do
    arguments="init $target, interrupted"
    "$dsmoe" init --preset 2b --layers 6 "$scratch/$target" >"$out" 2>"$err" &
    tries=0
    while [ -z "$(find "$scratch" -name '*.partial')" ] && [ $tries -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    interrupted $!
    says interrupted removed
    [ -z "$(find "$scratch" -name 'stopped*')" ] || complain "something is left"
done

exit $failed

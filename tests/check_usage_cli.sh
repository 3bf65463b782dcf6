#!/bin/sh
# check_usage_cli.sh DSMOE DATA - wrong calls of every command: the exit code is 2, the message names what is
# wrong, and the help that it mentions exists. If a file is wrong, the exit code is 1.
. "$(dirname "$0")/cli_checks.sh"

cd "$scratch" || exit 1 # where a wrong call would write
model=$scratch/model text=$scratch/text.txt
run 0 init --preset tiny --layers 1 --tokenizer "$data/text_cli" "$model"
run 0 convert "$model" "$scratch/model.gguf"
i=0
while [ $i -lt 40 ]; do
    echo "the quick brown fox $i jumps over the lazy dog"
    i=$((i + 1))
done >"$text"

points_to_help() { # the last line of the message is a call that prints help
    hint=$(sed -n 's/^try: dsmoe //p' "$err")
    [ -n "$hint" ] || { complain "no way to help"; return; }
    # shellcheck disable=SC2086  # several arguments
    "$dsmoe" $hint 2>/dev/null | grep -q '^usage: dsmoe' || complain "'$hint' does not help"
}

# ---- wrong usage: a call, and words of its message. M, G and T are a model, a .gguf file and a text
wrong_calls() {
    sed -e "s|\\bM\\b|$model|g" -e "s|\\bG\\b|$scratch/model.gguf|g" -e "s|\\bT\\b|$text|g" <<'CALLS'
nonsense : there is no command 'nonsense'
--nonsense : there is no option '--nonsense'
help nonsense : there is no command 'nonsense'
demo --steps 0 : --steps
demo --out= : --out
generate : -m
generate -m M -p a -f T : --prompt --file
generate -m M -p a --kv-type q8 : --kv-type f32, f16 or q8_0
generate -m M -p a -c -1 : --ctx-size
chat : -m
chat -m M --temp warm : --temp
train : --data
train --data T : --out
train --data T --out x --preset huge : --preset tiny, 2b, 16b, tiny-v2, tiny-v3, v2-lite or moonlight
train --data T --out x --schedule linear : --schedule step, cosine or constant
train --data T --out x --init M --config M : --config
train --resume= : --resume
train --data T --out x --init= : --init empty
train --data T --out x --config= : --config empty
train --data T --out x --tokenizer= : --tokenizer empty
train --data T --out x --settings= : --settings empty
train --data= --out x : --data empty
train --data T --out x --heads 3 : --heads
train --data T --out x --k 100 : --k
train --data T --out x --kv-heads 3 : --kv-heads
train --data T --out x --hidden 130 : --hidden
train --data T --out x --ffn 64 : --ffn
train --data T --out x --routed 0 --k 3 : --routed
train --data T --out x --device-groups 5 : --device-groups
report : run
eval : -m
eval -m M : -f
eval -m M --file= : --file empty
eval -m M -f T --against= : --against empty
eval -m M -f T --experts 100 : --experts 100 63
eval -m M -f T --mask-top 1 : --mask-top 1
eval -m M -f T --mask-top 0.99 : --mask-top 0.99
eval -m M -f T -c 8 --stride 8 : --stride
eval -m M -f T --probes --against M : --against
eval -m M --ids -f T --kv-type f64 : --kv-type
ablate : --data
ablate --data T : --out
ablate --data T --out x --scale huge : --scale tiny, small or medium
ablate --data T --out x --only dense,gshart : --only gshard
inspect : -m
inspect -m M --html x : --html --routing
inspect -m M --routing T --layer 7 : --layer 7
inspect -m M --routing T -c 1 : -c
inspect -m M --routing T --html= : --html
inspect -m M --force : --force --html
inspect -m M --routing T --force : --force --html
inspect -m M --routing T --html - : --html ./-
inspect -m M --routing= : --routing empty
tokenize : -m
tokenize -m M -p a --special --no-special : --no-special
detokenize : -m
tokenizer : train
tokenizer trian : trian train
tokenizer train : --data
tokenizer train --data T : --out
tokenizer train --data= --out x : --data empty
init : --preset
init --preset tiny : folder .gguf
init --config= x : --config empty
init --preset tiny --tokenizer= x : --tokenizer empty
init --preset huge x : --preset tiny, 2b, 16b, tiny-v2, tiny-v3, v2-lite or moonlight
init --preset tiny --type q8 x.gguf : --type q8_0
init --preset tiny --type q8_0 x : --type f32, f16 or bf16
convert : SRC DST
convert M x --type q9 : --type q8_0
convert M x --type q8_0 : q8_0 f32, f16 or bf16
convert M x.gguf --type f15 : --type f16
quantize M x.gguf : --type
quantize M x --type q8_0 : .gguf
quantize M x.gguf --type q4km : --type q4_k_m
quantize M x.gguf --type f16 --imatrix G : --imatrix
quantize M x.gguf --type q8_0 --imatrix= : --imatrix empty
merge : BASE ADAPTER OUT
merge M G x --type q9 : --type
merge M G x --scale much : --scale
eval -m M --tasks= : --tasks empty
generate -m M -p a --lora= : --lora empty
generate -m M -p a --lora x:y : --lora number
imatrix : -m
imatrix -m M : -f
imatrix -m M -f T : -o
imatrix -m M -f T -o - : --output ./-
plan --split 3 : 3
plan --config= : --config empty
plan --tokens 5 : --tokens --config
plan --experts : --experts
plan --config M --experts 4 : --config
verify : model
verify --tolerance low M : --tolerance
bench : layer
bench lyer : lyer layer
bench layer --k 65 : --k --routed 65
bench layer --hidden 0 : --hidden 0
bench layer --tokens 1,,2 : --tokens 1,,2
bench layer --tokens= --train-tokens= : --tokens --train-tokens
bench layer --tokens 0 : --tokens 0
bench layer --seconds x : --seconds
bench layer --hiden 5 : --hiden --hidden
bench layer x : 'x'
bench train --heads 3 : --heads 256
bench train --k 64 : --k 63
bench train --layers 100000 : --layers
bench train --batch 65536 --seq 65536 : --batch --seq
bench model : -m
bench model -m M --kv-type q8 : --kv-type
bench model -m M -b 70000 : --batch-size
CALLS
}
wrong_calls >"$scratch/calls"
while IFS= read -r line; do
    # shellcheck disable=SC2086  # several arguments
    run 2 ${line%% : *}
    [ ! -s "$out" ] || complain "output of a wrong call"
    # shellcheck disable=SC2086  # several words
    says ${line#* : }
    points_to_help
done <"$scratch/calls"
[ ! -e x ] && [ ! -e x.gguf ] || complain "a wrong call wrote something"
run 2 generate -m "$data/lm/base" --ids -p 1 --kv-type q8_0
usage --kv-type f16
run 2 bench model -m "$data/lm/base" --kv-type q8_0 -p 2 -n 2
usage --kv-type f16

# ---- an unset shell variable
for command in convert quantize init verify report; do
    run 2 $command "" x.gguf
    usage empty
done
run 2 convert "$model" ""
usage "argument 2 is empty"

# ---- mistyped names, and options of other commands
run 2 trian
usage "did you mean train?"
run 2 --vresion
usage "did you mean --version?"
run 2 generate -m "$model" -p a --topk 5
usage "no option '--topk'" "did you mean --top-k?"
run 2 init --steps=5 --preset tiny x
usage "no option '--steps'; it is an option of dsmoe demo, dsmoe train, dsmoe ablate"
run 2 verify --heads 5
usage "it is an option of dsmoe train, dsmoe init, dsmoe plan, dsmoe bench train"
run 2 train --data "$text" --out x --schedule cosin
usage "did you mean cosine?"

# ---- unknown kernels: nothing runs with other kernels instead, but help works
DSMOE_KERNELS=abacus
export DSMOE_KERNELS
run 2 plan
usage DSMOE_KERNELS abacus scalar
for command in plan train "bench layer" "tokenizer train"; do
    # shellcheck disable=SC2086  # several arguments
    run 0 $command --help
    shows usage:
done
run 0 --version
shows "dsmoe " " kernels" DSMOE_KERNELS abacus
run 0 help plan
shows usage:
DSMOE_KERNELS=Scalar # upper and lower case are the same
run 0 --version
shows "scalar kernels"
run 0 plan
unset DSMOE_KERNELS

# ---- help for a command, in any order
run 0 help
shows "usage: dsmoe COMMAND" train
cp "$out" "$scratch/help"
run 0 --help
cmp -s "$out" "$scratch/help" || complain "other help than dsmoe help"
for words in "help help" "help --help" "help -h" "--help --version" "-h help"; do
    # shellcheck disable=SC2086  # several arguments
    run 0 $words
    cmp -s "$out" "$scratch/help" || complain "other help than dsmoe help"
done
for command in train plan "tokenizer train" tokenizer "bench layer"; do
    # shellcheck disable=SC2086  # several arguments
    run 0 $command --help
    cp "$out" "$scratch/help"
    # shellcheck disable=SC2086
    run 0 help $command
    silent
    cmp -s "$out" "$scratch/help" || complain "other help than dsmoe $command --help"
    run 0 help "$command" # as one word
    cmp -s "$out" "$scratch/help" || complain "other help than dsmoe $command --help"
    # shellcheck disable=SC2086
    run 0 --help $command
    cmp -s "$out" "$scratch/help" || complain "other help than dsmoe $command --help"
done
run 2 help "bench lyer"
usage "did you mean layer?"
run 2 --help trian
usage "did you mean train?"
run 2 help bench lyer
usage "did you mean layer?"
run 2 help trian
usage "did you mean train?"
run 2 train help
usage "'help'"

# ---- every help text has an example, fits a terminal and uses plain words
for command in demo generate chat train report eval ablate inspect tokenize detokenize tokenizer \
    "tokenizer train" init convert merge quantize imatrix plan verify bench "bench layer" "bench model" \
    "bench train"; do
    # shellcheck disable=SC2086  # several arguments
    run 0 help $command
    shows "usage: dsmoe ${command}" example
    ! grep -qE '.{101}' "$out" || complain "a line of the help is too long"
    ! grep -qwE 'anew|lately|behind (it|them|the)' "$out" || complain "words of yesterday"
done

# ---- started by mpirun: commands that cannot share the work say so once
export OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0
for command in plan "tokenizer train" "eval --help" chat "bench model"; do
    # shellcheck disable=SC2086
    run 2 $command
    one_message "one machine" mpirun
    [ ! -s "$out" ] || complain "output of a command that does not run"
done
run 0 --version
shows dsmoe
OMPI_COMM_WORLD_RANK=3
for command in plan --version --help; do
    "$dsmoe" $command >"$out" 2>"$err"
    [ ! -s "$out" ] && [ ! -s "$err" ] || complain "rank 3 prints"
done
OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0
run 0 plan # a single rank is like none
unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK

# ---- a user without a model is told how to get one
for command in generate chat eval inspect imatrix "bench model"; do
    # shellcheck disable=SC2086
    run 2 $command
    usage -m "dsmoe demo"
done

# ---- a file or a model is wrong
for call in "generate -m $scratch/none -p a" "chat -m $scratch/none" "eval -m $scratch/none -f $text" \
    "eval -m $model -f $scratch/none" "inspect -m $scratch/none" "tokenize -m $scratch/none -p a" \
    "convert $scratch/none $scratch/x" "quantize $scratch/none $scratch/x.gguf --type q8_0" \
    "imatrix -m $scratch/none -f $text -o $scratch/x" "plan --config $scratch/none" "verify $scratch/none" \
    "bench model -m $scratch/none" "report $scratch/none" "train --resume $scratch/none" \
    "train --data $scratch/none --out $scratch/x" "init --preset tiny --tokenizer $scratch/none $scratch/x" \
    "tokenizer train --data $scratch/none --out $scratch/x" "eval -m $model --against $scratch/none -f $text" \
    "ablate --data $scratch/none --out $scratch/x"; do
    # shellcheck disable=SC2086  # several arguments
    run 1 $call
    one_message "$scratch/none"
done

exit $failed

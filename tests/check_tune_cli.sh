#!/bin/sh
# check_tune_cli.sh DSMOE DATA - training a part of a model as a person does it: the experts that a text uses
# most, low-rank adapters for a quantised file, and the use of both.
. "$(dirname "$0")/cli_checks.sh"

small_data
sed -i 's/"hidden_size": 16/"hidden_size": 32/; s/mediate_size": [0-9]*/mediate_size": 32/g' "$scratch/config.json"
text=$scratch/text/sums.txt
small="--steps 6 --batch 2 --seq 16 --save-every 4 --eval-every 3 --eval-sequences 2 --sample-every 0 --quiet"
# shellcheck disable=SC2086  # several arguments
run 0 train --data "$text" --config "$scratch/config.json" --vocab-size 270 $small --out "$scratch/first"
base=$scratch/base.gguf
run 0 convert "$scratch/first/latest" "$base" --type q8_0

text() { # generates a text; further arguments
    run 0 generate -p "7 and 7 are" -n 8 --temp 0 --ignore-eos -t 2 --quiet "$@"
    cat "$out"
}
before=$(text -m "$base")
same() { # a file's name, two runs
    cmp -s "$scratch/$2/latest/$1" "$scratch/$3/latest/$1" || complain "$1 of $2 and $3 differ"
}

# ---- the experts that a text uses most
choice=$scratch/choice.json
run 0 inspect -m "$base" --routing "$text" --experts-out "$choice"
shows "sum up to 0.1:" "layer  1" " of 4 experts"
run 1 inspect -m "$base" --routing "$text" --experts-out "$choice"
one_message "choice.json: already exists; --force replaces it"
printf 'a letter' >"$scratch/letter"
run 1 inspect -m "$base" --routing "$text" --experts-out "$scratch/letter" --force
one_message "letter: already exists and is not a choice of experts"
cp "$text" "$scratch/own.txt"
run 1 inspect -m "$base" --routing "$scratch/own.txt" --experts-out "$scratch/own.txt" --force
one_message "own.txt: is one of the inputs"
run 0 inspect -m "$base" --routing "$text" --experts-out "$choice" --expert-score token --expert-share 0.5 --force
shows "sum up to 0.5:"
chosen=$(sed -n 's/^ *layer  1 *\([0-9 ]*[0-9]\) *(.*/\1/p' "$out" | sed 's/  */, /g')
[ -n "$chosen" ] || complain "no experts are shown"
grep -qF "\"1\": [$chosen]" "$choice" || complain "the file has other experts than $chosen"
run 0 inspect -m "$base" --routing "$text" --experts-out "$scratch/all.json" --expert-score token --expert-share 1
grep -qF '"1": [0, 1, 2, 3]' "$scratch/all.json" || complain "all experts are not all"
run 2 inspect -m "$base" --experts-out "$choice"
usage "--experts-out has no effect without --routing"
run 2 inspect -m "$base" --routing "$text" --expert-share 0.5
usage "have no effect without --experts-out"
run 2 inspect -m "$base" --routing "$text" --experts-out "$scratch/no" --expert-score best
usage "gate or token"
run 1 inspect -m "$base" --routing "$text" --experts-out "$scratch/none/choice.json"
one_message "none"

# ---- training them
tune="--data $text --init $base $small --lr 0.01"
# shellcheck disable=SC2086
run 0 train $tune --train experts --experts "$choice" --out "$scratch/experts"
shows "6 steps" "dsmoe merge $base"
cmp -s "$choice" "$scratch/experts/expert_cfg.json" || complain "the run trains other experts"
run 0 merge "$base" "$scratch/experts" "$scratch/experts.gguf"
[ "$(text -m "$scratch/experts.gguf")" != "$before" ] || complain "the experts have learned nothing"
# shellcheck disable=SC2086
run 0 train $tune --train experts --expert-score token --expert-share 0.5 --out "$scratch/scored" --stop-after 2
grep -q '"1": \[[0-9]' "$scratch/scored/expert_cfg.json" || complain "no experts are chosen"
echo '{"experts": {"1": [4]}}' >"$choice"
# shellcheck disable=SC2086
run 1 train $tune --train experts --experts "$choice" --out "$scratch/no"
one_message "choice.json: layer 1: experts must be numbers from 0 to 3"
# shellcheck disable=SC2086
run 2 train $tune --experts "$choice" --out "$scratch/no"
usage "--experts has no effect without --train experts"
run 2 train --data "$text" --train experts --out "$scratch/no"
usage "name that model with --init"

# ---- low-rank adapters for a quantised file, stopped and resumed
# shellcheck disable=SC2086
run 0 train $tune --train lora --rank 4 --out "$scratch/lora" -t 2
shows "6 steps" "generate -m $base --lora $scratch/lora"
# shellcheck disable=SC2086
run 0 train $tune --train lora --rank 4 --out "$scratch/half" --stop-after 3 -t 1
shows "stopped after step 3 of 6" "dsmoe train --resume $scratch/half"
run 0 train --resume "$scratch/half" --quiet -t 2
same adapter_model.safetensors lora half
same training.safetensors lora half
[ "$(text -m "$base" --lora "$scratch/lora")" != "$before" ] || complain "the additions have learned nothing"
[ "$(text -m "$base" --lora "$scratch/lora:0")" = "$before" ] || complain "a scale of 0 changes the text"
# shellcheck disable=SC2086
run 0 train $tune --train lora --rank 4 --out "$scratch/moved" --stop-after 3
run 0 convert "$scratch/first/latest" "$scratch/other.gguf" --type q4_0
mv "$scratch/other.gguf" "$base"
run 1 train --resume "$scratch/moved" --quiet
one_message "is not the model that this run began with"
[ ! -e "$scratch/no" ] || complain "a wrong call made a folder"

# ---- the form that conversations were learned in is saved with the model
base=$scratch/first/latest
i=0
while [ $i -lt 40 ]; do
    echo "{\"instruction\":\"$i and $i\",\"output\":\"$((2 * i))\"}"
    i=$((i + 1))
done >"$scratch/talk.jsonl"
talk="--data $scratch/talk.jsonl --init $base $small --seq 256 --stop-after 2 --chat-form alpaca"
length() { # the tokens in the prompt that chat makes of a question
    echo hello >"$scratch/hello"
    input=$scratch/hello
    run 0 chat -c 256 -n 1 --temp 0 -t 1 "$@"
    input=/dev/null
    sed -n 's/^prompt: *\([0-9]*\) tokens.*/\1/p' "$err"
}
# shellcheck disable=SC2086
run 0 train $talk --train lora --out "$scratch/talk-lora"
# shellcheck disable=SC2086
run 0 train $talk --out "$scratch/talk-all" --unpacked
grep -q '"n_train":38' "$scratch/talk-all/metrics.jsonl" || complain "conversations share sequences"
run 0 merge "$base" "$scratch/talk-lora" "$scratch/talk.gguf"
run 0 merge "$base" "$scratch/talk-lora" "$scratch/talk-merged"
alpaca=$(length -m "$base" --chat-form alpaca)
[ "$alpaca" -gt "$(length -m "$base" | sed 's/^$/0/')" ] || complain "no other prompt in another form"
for model in "$base --lora $scratch/talk-lora" "$scratch/talk-all" "$scratch/talk.gguf" "$scratch/talk-merged"; do
    # shellcheck disable=SC2086  # options too
    [ "$(length -m $model)" = "$alpaca" ] || complain "the form is forgotten, the prompt has other than $alpaca tokens"
done
[ "$(length -m "$scratch/talk-all" --chat-form deepseek)" != "$alpaca" ] || complain "the form cannot be changed"

# ---- preferences
i=0
while [ $i -lt 40 ]; do
    echo "{\"prompt\":\"$i and $i are \",\"chosen\":\"$((2 * i))\",\"rejected\":\"none\"}"
    i=$((i + 1))
done >"$scratch/pairs.jsonl"
pairs="--data $scratch/pairs.jsonl --init $base --steps 6 --batch 2 --seq 64 --eval-every 3 --sample-every 0 --log-every 1"
# shellcheck disable=SC2086
run 0 train $pairs --train lora --dpo-beta 0.5 --lr 0.01 --out "$scratch/preferred"
says "38 preferences fill " "step 1/6  loss 0.6931  met 0.00  margin 0.000" "held-out loss" "(met "
grep -q '"dpo_beta": 0.5' "$scratch/preferred/metrics.jsonl" || complain "beta is not in the log"
grep -q '"accuracy":[0-9.]*,"margin":[0-9]' "$scratch/preferred/metrics.jsonl" || complain "no margin in the log"
# shellcheck disable=SC2086
run 0 train $pairs --train lora --out "$scratch/no" --show-data 1 --quiet
shows "[[none"
# shellcheck disable=SC2086
run 1 train $pairs --out "$scratch/no" --quiet
one_message "with --train lora only"
# shellcheck disable=SC2086
run 1 train $talk --train lora --out "$scratch/no" --dpo-beta 0.5
one_message "--dpo-beta has no effect: there is no preference among the data"
# shellcheck disable=SC2086
run 2 train $pairs --train lora --out "$scratch/no" --dpo-beta 0
usage --dpo-beta
[ ! -e "$scratch/no" ] || complain "a wrong call made a folder"

exit $failed

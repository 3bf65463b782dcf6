#!/bin/sh
# tune_demo.sh DSMOE [DIR] - the model of `dsmoe demo` learns an eighth kind of text in three ways: by training the whole
# model, only the experts that the text uses, or low-rank additions. A table shows what it learned, what it forgot of the
# other seven kinds, and the time and memory. This takes a few minutes on two cores; nothing is downloaded.
set -eu
dsmoe=$(realpath "$1")
dir=${2:-$(dirname "$dsmoe")/tune-demo}
mkdir -p "$dir"
cd "$dir"
steps=400

# An existing demo is used. Another seed makes text of the same kinds that the model has not seen.
[ -e demo/latest ] || "$dsmoe" demo --out demo
[ -d other/corpus ] || "$dsmoe" demo --out other --seed 2 --steps 1 >other.log 2>&1

# The eighth kind of text: made-up words in capitals. The words of the questions are not in the training text.
awk 'BEGIN {
    srand(8)
    split("la be mi to ru sa ne li do mu ka re si bo tu", syllable)
    for (n = 0; n < 860;) {
        word = ""
        for (i = 0; i < 2 + int(rand() * 2); i++) word = word syllable[1 + int(rand() * 15)]
        if (seen[word]++) continue
        n++
        if (n <= 800)
            printf "{\"prompt\": \"shout %s =\", \"completion\": \" %s!\"}\n", word, toupper(word) >"shout.jsonl"
        else
            printf "{\"prompt\": \"shout %s =\", \"answer\": \"%s!\", \"max_tokens\": 16}\n", word, toupper(word) >"questions.jsonl"
    }
}'

# Unseen text of the seven kinds, in the form in which the model learned them: token ids, each text after BOS.
for kind in other/corpus/*; do head -n 60 "$kind/examples.jsonl"; done >others.jsonl
"$dsmoe" tokenize -m demo --jsonl -f others.jsonl 2>/dev/null | tr -c '0-9\n' ' ' >others.ids

number() { # KEY: its number in the JSON object on stdin
    sed -n "s/.*\"$1\": *\\([0-9.e+-]*\\).*/\\1/p" | head -n 1
}
measure() { # options that name a model; prints right answers in per cent and the loss on the other kinds
    right=$("$dsmoe" eval "$@" --tasks questions.jsonl --json 2>/dev/null | number exact_match)
    loss=$("$dsmoe" eval "$@" --ids -f others.ids -c 64 --json 2>/dev/null | number cross_entropy)
    printf '%9.0f %%  %22.3f' "$(echo "$right" | awk '{print 100 * $1}')" "$loss"
}

printf '\n%-22s %11s  %22s  %9s  %8s  %s\n' 'trained' 'shouts' 'loss on the other seven' 'numbers' 'seconds' 'memory'
printf '%-22s ' 'nothing'
measure -m demo
printf '\n'
tune() { # NAME RATE, then options of train
    name=$1 rate=$2
    shift 2
    rm -rf "$name"
    start=$(date +%s)
    "$dsmoe" train --init demo --data shout.jsonl --out "$name" --steps $steps --batch 16 --seq 64 --schedule constant \
        --lr "$rate" --eval-every 0 --sample-every 0 "$@" >"$name.log" 2>&1
    seconds=$(($(date +%s) - start))
}
show() { # LABEL, then options that name a model
    label=$1
    shift
    printf '%-22s ' "$label"
    measure "$@"
    sed -n 's/^memory *\([0-9.]* [kMG]B\).*gradients and moments \([0-9.]*\) MB.*/\2 \1/p' "$name.log" |
        awk -v seconds="$seconds" '{printf "  %8.2fM  %8d  %s %s\n", $1 / 16, seconds, $2, $3}'
}
tune all 5e-4 --train all
show 'all' -m all
tune experts 2e-3 --train experts --expert-share 0.3
rm -rf merged
"$dsmoe" merge demo experts merged >merge.log 2>&1
show 'chosen experts' -m merged
tune lora 2e-3 --train lora --rank 8 --alpha 8 --targets attention,shared,routed
show 'low-rank additions' -m demo --lora lora
printf '\nfiles: %s\n' "$dir"

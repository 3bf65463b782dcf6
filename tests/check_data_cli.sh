#!/bin/sh
# check_data_cli.sh DSMOE DATA - conversations as data for `dsmoe train` and `dsmoe tokenizer train`: how
# they are shown, messages about wrong ones, and a run.
. "$(dirname "$0")/cli_checks.sh"

small_data
i=0
while [ $i -lt 60 ]; do
    echo "{\"messages\":[{\"role\":\"user\",\"content\":\"$i and $i\"},{\"role\":\"assistant\",\"content\":\"$((2 * i))\"}]}"
    i=$((i + 1))
done >"$scratch/talk.jsonl"
sed -n 1,5p "$scratch/talk.jsonl" >"$scratch/eval.jsonl"
small="--data $scratch/talk.jsonl --config $scratch/config.json --vocab-size 258 --steps 3 --batch 2 --seq 80
    --eval-every 3 --sample-every 0 --log-every 1"

# ---- options
run 0 train --help
shows --chat-form --train-on --too-long --eval-data --show-data docs/tune.md
for wrong in "--train-on questions" "--too-long fold" "--show-data 0" "--show-data 1 --stop-after 1"; do
    # shellcheck disable=SC2086  # several arguments
    run 2 train $small --out "$scratch/no" $wrong
    usage "${wrong%% *}"
done
# shellcheck disable=SC2086
run 2 train $small --out "$scratch/no" --held-out 0.1 --eval-data "$scratch/eval.jsonl"
usage "--held-out and --eval-data cannot be used together"
# shellcheck disable=SC2086
run 1 train $small --out "$scratch/no" --eval-data "$scratch/talk.jsonl"
says "must be measured on other text"
# shellcheck disable=SC2086
run 1 train $small --out "$scratch/no" --chat-form martian
says "talk.jsonl: line 1 is a conversation" martian
run 1 train --data "$scratch/text" --config "$scratch/config.json" --vocab-size 270 --seq 16 --out "$scratch/no" \
    --train-on all
says "--train-on has no effect: there is no conversation among the data"
{ sed -n 1,3p "$scratch/talk.jsonl"; echo '{"prompt":"a","chosen":"b","rejected":"c"}'; } >"$scratch/bad.jsonl"
# shellcheck disable=SC2086
run 1 train $small --data "$scratch/bad.jsonl" --out "$scratch/no" --quiet
one_message "bad.jsonl: line 4: a preference among other data"
for line in '{"prompt":"a","chosen":"b"}' '{"messages":[{"role":"tool","content":""}]}' '{"a":1}' '{'; do
    { sed -n 1,3p "$scratch/talk.jsonl"; echo "$line"; } >"$scratch/bad.jsonl"
    # shellcheck disable=SC2086
    run 1 train $small --data "$scratch/bad.jsonl" --out "$scratch/no" --quiet
    one_message "bad.jsonl: line 4: "
    run 1 tokenizer train --data "$scratch/bad.jsonl" --out "$scratch/no"
    one_message "bad.jsonl: line 4: "
done
[ ! -e "$scratch/no" ] || complain "a wrong call made a folder"

# ---- --show-data
# shellcheck disable=SC2086
run 0 train $small --out "$scratch/no" --show-data 2 --quiet
shows "sequence 1 of 2: " "---- 2 ----" "Assistant:[[ " "tokens to be learned"
[ ! -e "$scratch/no" ] || complain "showing the data made a folder"
# shellcheck disable=SC2086
run 0 train $small --out "$scratch/no" --show-data 1 --quiet --train-on all
shows "[[User: "

# ---- a run
# shellcheck disable=SC2086
run 0 train $small --out "$scratch/run" --eval-data "$scratch/eval.jsonl"
says "5 held out" "60 conversations fill " "are targets" "held-out loss"
grep -q '"n_conversations":60' "$scratch/run/metrics.jsonl" || complain "the log does not count conversations"
run 0 train --resume "$scratch/run" --show-data 1
shows "sequence 1 of 1: "
# shellcheck disable=SC2086
run 0 train $small --out "$scratch/short" --seq 30 --too-long cut --quiet
one_message "conversations are longer than --seq 30 and cut there"

exit $failed

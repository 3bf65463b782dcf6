#!/bin/sh
# check_hangup_cli.sh DSMOE DATA PTY_RUN - a connection that drops, a terminal that closes, a reader that
# quits: long work saves or cleans up as it does for SIGTERM, and continues under nohup.
pty_run=$3
. "$(dirname "$0")/cli_checks.sh"

: >"$err"
small_data
endless="--data $scratch/text --config $scratch/config.json --vocab-size 270 --steps 100000000 --batch 2 --seq 16
    --save-every 0 --eval-every 0 --sample-every 0 --log-every 2 --report-every 100000000 -t 1"

wait_for() { # text, file
    tries=0
    until grep -q "$1" "$2" || [ $tries -gt 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
}

saved() { # a run that ended early has a checkpoint and can be resumed
    set -- "$1"/checkpoints/step-*
    [ -e "$1/model.safetensors" ] || { complain "no checkpoint"; return; }
    run 0 inspect -m "$1"
}

# ---- a signal alone
# shellcheck disable=SC2086  # several arguments
"$dsmoe" train $endless --out "$scratch/signal" >"$out" 2>"$err" &
process=$!
arguments="train ... and kill -HUP"
wait_for "^step 4/" "$err"
kill -HUP $process
wait $process
code=$?
[ $code -eq 130 ] || complain "exit code $code, 130 is expected"
shows "stopped after step" "dsmoe train --resume $scratch/signal"
saved "$scratch/signal"

# ---- it is ignored under nohup
# shellcheck disable=SC2086
(trap '' HUP && exec "$dsmoe" train $endless --out "$scratch/nohup" >"$out" 2>"$err") &
process=$!
arguments="train under nohup and kill -HUP"
wait_for "^step 4/" "$err"
kill -HUP $process
: >"$err"
wait_for "^step" "$err"
grep -q "^step" "$err" || complain "it does not go on"
kill -TERM $process
wait $process
code=$?
[ $code -eq 130 ] || complain "exit code $code, 130 is expected"

# ---- the terminal closes, and writing to it fails from then on
arguments="train on a terminal that closes"
# shellcheck disable=SC2086
"$pty_run" --hang-up "loss" "$dsmoe" train $endless --out "$scratch/terminal" >"$out" 2>"$err"
code=$?
[ $code -lt 128 ] || [ $code -eq 130 ] || complain "it was killed: exit code $code"
saved "$scratch/terminal"

# ---- the reader of the messages quits
arguments="train ... 2>&1 | head"
mkfifo "$scratch/pipe"
head -n 8 <"$scratch/pipe" >"$err" &
# shellcheck disable=SC2086
"$dsmoe" train $endless --out "$scratch/pipe-run" >"$scratch/pipe" 2>&1
code=$?
[ $code -lt 128 ] || [ $code -eq 130 ] || complain "it was killed: exit code $code"
saved "$scratch/pipe-run"

# ---- incomplete output is removed
arguments="init and kill -HUP"
"$dsmoe" init --preset 2b --layers 6 "$scratch/half" >"$out" 2>"$err" &
process=$!
tries=0
while [ -z "$(find "$scratch" -name '*.partial')" ] && [ $tries -lt 100 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
kill -HUP $process
wait $process
code=$?
[ $code -eq 130 ] || complain "exit code $code, 130 is expected"
[ ! -e "$scratch/half" ] || complain "something is left"

# ---- a chat keeps its history
run 0 init --preset tiny --layers 1 --tokenizer "$data/text_cli" "$scratch/model"
arguments="chat on a terminal that closes"
TERM=dumb "$pty_run" --hang-up "> " "$dsmoe" chat -m "$scratch/model" -n 1 >"$out" 2>"$err"
code=$?
[ $code -lt 128 ] || [ $code -eq 130 ] || complain "it was killed: exit code $code"
[ -e "$scratch/.local/state/dsmoe/history" ] || complain "no history"

exit $failed

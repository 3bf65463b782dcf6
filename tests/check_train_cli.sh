#!/bin/sh
# check_train_cli.sh DSMOE DATA - `dsmoe train` as a person or a script uses it: its options, what it prints
# where, how it stops and resumes.
. "$(dirname "$0")/cli_checks.sh"

# ---- a text and the smallest model
small_data
small="--data $scratch/text --config $scratch/config.json --vocab-size 270 --steps 6 --batch 2 --seq 16
    --save-every 4 --eval-every 3 --eval-sequences 2 --sample-every 4 --sample-tokens 4 --log-every 2"

# ---- options
run 0 train --help
shows usage: --data --out --config --preset --init --tokenizer --vocab-size --steps --batch --seq \
    --accumulate --lr --schedule --warmup --weight-decay --clip --aux-loss-alpha --device-groups \
    --device-loss-alpha --recompute --seed --held-out --eval-every --eval-sequences --sample-every \
    --sample-prompt --save-every --keep --log-every --settings --resume --stop-after --threads \
    --bad-bytes --quiet example "dsmoe train"
silent
run 0 --help
shows "train "
run 2 train
usage --data
run 2 train --data "$scratch/text"
usage --out
run 2 train --no-such-option
usage no-such-option
for wrong in "--steps 0" "--steps many" "--lr nan" "--lr -1" "--held-out 1" "--keep 0" "-t 0" \
    "--schedule linear" "--stop-after 0" "surplus" "--vocab-size 10" "--bad-bytes drop"; do
    # shellcheck disable=SC2086  # several arguments
    run 2 train --data "$scratch/text" --out "$scratch/no" $wrong
    usage "${wrong##* }"
done
run 2 train --data "$scratch/text" --out "$scratch/no" --preset tiny --init x
usage "--preset and --init cannot be used together"
run 1 train --data "$scratch/none" --out "$scratch/no"
one_message none
[ ! -e "$scratch/no" ] || complain "a wrong call made a folder"

run 1 train --resume "$scratch/none" --steps 5
one_message "none: not a training run"
run 2 train --data "$scratch/text" --out "$scratch/no" --vocab-size 270 --preset huge
usage huge
echo '{"lr": "fast"}' >"$scratch/wrong.json"
run 1 train --data "$scratch/text" --out "$scratch/no" --settings "$scratch/wrong.json"
one_message wrong.json lr

# ---- data that cannot all be read are reported in one line, also with --quiet
mkdir "$scratch/mixed"
sed '7s/$/ caf\o351/' "$scratch/text/sums.txt" >"$scratch/mixed/sums.txt"
printf '\0\0' >"$scratch/mixed/a.o"
# shellcheck disable=SC2086  # several arguments
run 0 train $small --data "$scratch/mixed" --out "$scratch/mixed.run" --quiet
one_message "1 of 3 files left out (2 bytes): 1 not text" "$scratch/mixed/a.o" "1 byte is not UTF-8" \
    "$scratch/mixed/sums.txt"

# ---- a run
# shellcheck disable=SC2086  # several arguments
run 0 train $small --out "$scratch/run" -t 2
shows "6 steps" "$scratch/run/best" "$scratch/run/report.html" "dsmoe generate -m"
says "model   " "1 + 4 experts, top-2" "data    " "held out" "memory  " "step 2/6  loss" "balance" "lr " \
    "norm" "tokens/s" "left" "imbalance" "step 3: held-out loss" "step 4: it writes" \
    "step 4: saved $scratch/run/checkpoints/step-00000004" "step 6/6"
if grep -q "$(printf '\033')" "$err"; then complain "control sequences where there is no terminal"; fi
run 0 generate -m "$scratch/run/best" -n 4 --quiet -p "7 and 7 are" -t 1
silent
run 0 inspect -m "$scratch/run/latest"
run 0 inspect -m "$scratch/run"
one_message "$scratch/run: using its latest checkpoint, step 6"
run 1 ablate --data "$scratch" --out "$scratch/run"
one_message "$scratch/run"
# shellcheck disable=SC2086
run 1 train $small --out "$scratch/run"
one_message "already holds a run"
run 0 train --resume "$scratch/run"
one_message "6 of 6 steps"

# ---- --quiet prints only warnings
# shellcheck disable=SC2086
run 0 train $small --out "$scratch/half" --stop-after 3 --quiet -t 1
silent
shows "stopped after step 3 of 6" "dsmoe train --resume $scratch/half"
run 0 train --resume "$scratch/half" -t 3
says "resume  after step 3 of 6"
cmp -s "$scratch/run/latest/model.safetensors" "$scratch/half/latest/model.safetensors" ||
    complain "a run that was stopped ends with another model"

# ---- settings of one run for another run, with an option that overrides them
run 0 train --settings "$scratch/run/settings.json" --out "$scratch/again" --stop-after 1 --lr 0.5 --quiet
grep -q '"lr": 0.5,' "$scratch/again/settings.json" || complain "the command line is not over the file"
grep -q '"seq": 16,' "$scratch/again/settings.json" || complain "the file is not used"
run 0 train --settings "$scratch/run/settings.json" --out "$scratch/tuned" --init "$scratch/run/best" --quiet
grep -q '"config": "",' "$scratch/tuned/settings.json" || complain "config stays beside --init"

# ---- signals: the step is finished, the run is saved, and the command to resume is shown
for signal in INT TERM USR1; do
    arguments="train ... and kill -$signal"
    rm -rf "$scratch/stopped"
    # shellcheck disable=SC2086
    "$dsmoe" train $small --steps 1000000 --sample-every 1000000 --eval-every 1000000 --save-every 0 \
        --report-every 1000000 --out "$scratch/stopped" -t 1 >"$out" 2>"$err" &
    process=$!
    waited=0
    until grep -q "^step 4/" "$err" || [ $waited -gt 300 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    kill -$signal $process
    wait $process
    code=$?
    [ $code -eq 130 ] || complain "exit code $code, 130 is expected"
    shows "stopped after step" "saved as" "dsmoe train --resume $scratch/stopped"
    done_steps=$(sed -n 's/^stopped after step \([0-9]*\) .*/\1/p' "$out")
    run 0 train --resume "$scratch/stopped" --stop-after $((done_steps + 1)) --quiet
    shows "stopped after step $((done_steps + 1)) of 1000000"
done

# ---- a full disk is reported
fails_on_full_disk "train --help"

exit $failed

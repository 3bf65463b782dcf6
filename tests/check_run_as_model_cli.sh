#!/bin/sh
# check_run_as_model_cli.sh DSMOE DATA - every command that takes a model takes the folder of a training run:
# it uses the latest checkpoint and says so.
. "$(dirname "$0")/cli_checks.sh"

text=$scratch/text/sums.txt run=$scratch/run
small_data
run 0 train --data "$text" --config "$scratch/config.json" --out "$run" --vocab-size 270 --steps 4 --batch 2 \
    --seq 16 --save-every 2 --eval-every 0 --sample-every 0 --quiet -t 1

uses() { # the step that the message must name, once
    [ "$(grep -c "using its latest checkpoint" "$err")" -eq 1 ] || complain "no word of the checkpoint, or several"
    says "$run: using its latest checkpoint, step $1"
}

# ---- every command
newest=$run/checkpoints/step-00000004
run 0 generate -m "$newest" -p "7 and 7 are" -n 8 --temp 0 --quiet
cp "$out" "$scratch/expected"
run 0 generate -m "$run" -p "7 and 7 are" -n 8 --temp 0 --quiet
uses 4
cmp -s "$out" "$scratch/expected" || complain "not the text of the latest checkpoint"
run 0 generate -m "$run/" -p "7 and 7 are" -n 8 --temp 0 --quiet
cmp -s "$out" "$scratch/expected" || complain "a slash makes a difference"
run 0 inspect -m "$run" --json
uses 4
shows "\"model\": \"$newest\""
echo hello >"$scratch/question"
input=$scratch/question
run 0 chat -m "$run" -n 2 --quiet
uses 4
input=/dev/null
run 0 tokenize -m "$run" -p hello
silent
run 0 eval -m "$run" -f "$text" -c 16
uses 4
run 0 eval -m "$newest" --against "$run" -f "$text" -c 16
uses 4
shows "100.00 %"
run 0 imatrix -m "$run" -f "$text" -o "$scratch/imatrix.gguf" --chunks 2
says "step 4"
shows "pieces of 16" # the length that it was made for
[ "$(wc -l <"$err")" -eq 1 ] || complain "a warning of its own default"
run 0 bench model -m "$run" -p 2 -n 2 -t 1 --seconds 0 --json
uses 4
run 0 plan --config "$run"
uses 4
run 0 convert "$run" "$scratch/run.gguf"
uses 4
run 0 quantize "$run" "$scratch/run-q8_0.gguf" --type q8_0
uses 4
run 0 train --data "$text" --init "$run" --out "$scratch/tuned" --steps 1 --batch 2 --seq 16 --quiet -t 1
uses 4
grep -qF "\"init\": \"$(cd "$newest" && pwd -P)\"" "$scratch/tuned/settings.json" ||
    complain "the settings do not name the checkpoint"

run 0 init --config "$run" "$scratch/fresh"
uses 4
run 0 train --data "$text" --config "$run" --out "$scratch/same" --vocab-size 270 --steps 1 --batch 2 --seq 16 \
    --quiet -t 1
uses 4

# ---- the best checkpoint is named if it is not the latest
ln -s checkpoints/step-00000002 "$run/best"
run 0 inspect -m "$run"
says "step 4; its best on held-out text is $run/best, step 2"
rm "$run/best"
ln -s checkpoints/step-00000004 "$run/best"
run 0 inspect -m "$run"
one_message "the best on held-out text as well"
rm "$run/best" "$run/latest" # without the links
run 0 inspect -m "$run"
uses 4

# ---- a run without a checkpoint, and folders that only look like a run
rm -rf "$run/checkpoints"
mkdir "$run/checkpoints"
run 1 generate -m "$run" -p a
one_message "$run" "no checkpoint yet"
rmdir "$run/checkpoints"
run 1 generate -m "$run" -p a
one_message "$run"

exit $failed

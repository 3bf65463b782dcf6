#!/bin/sh
# check_demo_cli.sh DSMOE DATA - `dsmoe demo` as a person uses it: a few steps from nothing to an answer, the
# same again in the same folder, and other files are not touched.
. "$(dirname "$0")/cli_checks.sh"

demo=$scratch/demo

run 0 demo --help
shows usage: example "dsmoe demo"
silent
run 2 demo --no-such-option
usage no-such-option
run 2 demo surplus
usage surplus
run 2 demo --steps 0
usage --steps
run 2 demo --out ""
usage --out

# ---- a few steps are enough to see each part once
run 0 demo --out "$demo" --steps 3 -t 2
shows brackets counting dates records sorting stories sums "of 40 right" "before training" \
    "$demo/report.html" "generate -m $demo/latest"
says "step    3 of 3" "held out"
if grep -q "$(printf '\033')" "$out" "$err"; then complain "colours or a bar where there is no terminal"; fi
for file in demo.txt report.html sample.ids latest/model.safetensors corpus/sums/examples.jsonl; do
    [ -s "$demo/$file" ] || complain "no $file in the folder"
done
cp "$demo/latest/model.safetensors" "$scratch/first"
run 0 eval -m "$demo/latest" -f "$demo/sample.ids" --ids --json
run 0 generate -m "$demo/latest" -n 4 --temp 0 -p "add 23 + 8 ="

# ---- again: the same bits, and files of others are kept
echo mine >"$demo/notes"
run 0 demo --out "$demo" --steps 3 -t 1
cmp -s "$demo/latest/model.safetensors" "$scratch/first" || complain "another model from the same seed"
[ -s "$demo/notes" ] || complain "somebody's file is gone"

echo mine >"$demo/corpus/mine.txt"
run 1 demo --out "$demo" --steps 3 --force
one_message "$demo/corpus/mine.txt"
[ ! -s "$out" ] || complain "output before it refuses"
[ -s "$demo/corpus/mine.txt" ] && [ -s "$demo/report.html" ] || complain "somebody's file is gone"
rm "$demo/corpus/mine.txt"

# ---- a demo that was trained further is the user's work
run 0 train --resume "$demo" --steps 4 --quiet
run 1 demo --out "$demo" --steps 3
one_message "$demo" "trained further" --force
[ ! -s "$out" ] || complain "output before it refuses"
[ -s "$demo/latest/model.safetensors" ] || complain "somebody's model is gone"
run 0 demo --out "$demo" --steps 3 --force
cmp -s "$demo/latest/model.safetensors" "$scratch/first" || complain "another model from the same seed"

# ---- a folder that is not a demo's
mkdir "$scratch/mine"
echo mine >"$scratch/mine/settings.json"
run 1 demo --out "$scratch/mine" --steps 3
one_message "already holds 'settings.json'"
[ ! -s "$out" ] || complain "output before it refuses"
[ -s "$scratch/mine/settings.json" ] || complain "somebody's file is gone"
run 1 demo --out "$scratch/none/demo" --steps 3
one_message "$scratch/none/demo"

exit $failed

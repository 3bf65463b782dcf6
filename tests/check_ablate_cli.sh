#!/bin/sh
# check_ablate_cli.sh DSMOE DATA - `dsmoe ablate` as a person or a script uses it: finished runs are not
# repeated, interrupted ones are resumed, and a folder accepts only its own settings.
. "$(dirname "$0")/cli_checks.sh"

sources=$(cd "$(dirname "$0")/.." && pwd)
corpus=$scratch/corpus
mkdir "$corpus" "$corpus/prose" "$corpus/code"
cp "$sources"/README.md "$sources"/docs/*.md "$corpus/prose"
cp "$sources"/src/moe/*.c "$corpus/code"
dir=$scratch/ablation

ablate() { # expected exit code, arguments: a comparison that takes seconds
    code=$1
    shift
    run "$code" ablate --data "$corpus" --setup paper --steps 3 --batch 1 --seq 32 --vocab-size 300 --seeds 1 -t 2 "$@"
}

# ---- wrong calls
run 0 ablate --help
shows usage: example "dsmoe ablate" deepseekmoe gshard
silent
run 2 ablate
usage --data
run 2 ablate --data "$corpus"
usage --out
run 2 ablate --data "$corpus" --out ""
usage --out
run 2 ablate --data "$corpus" --out "$dir" --setup unfair
usage "--setup must be fair or paper"
for wrong in "--scale huge" "--only gshard,nothing" "--seeds 0" "--steps 0" "--lr -1" "--lr nan" \
    "--lr switch=0" "--lr swotch=0.001" "--balance words" "--norm-topk-prob maybe" "--norm-topk-prob switch=yes" \
    "--routed-scaling-factor dense=2" "--aux-loss-alpha -1" "--init-std x" \
    "--vocab-size 100" "--bad-bytes drop" "--no-such-option" "--only gshard --all" \
    "--steps 1000000000 --batch 65536 --seq 1048576"; do
    # shellcheck disable=SC2086  # an option and its value
    run 2 ablate --data "$corpus" --setup paper --out "$dir" $wrong
    usage "${wrong%% *}"
done
run 2 ablate --data "$corpus" --out "$dir" --only ""
usage --only
[ ! -e "$dir" ] || complain "a folder of a wrong call"
run 1 ablate --data "$scratch/nowhere" --out "$dir"
one_message nowhere
run 2 ablate --data "$corpus" --out "$dir" --tokenizer "$scratch/t" --vocab-size 300
usage --tokenizer
ablate 1 --out "$corpus/ablation"
one_message "lies in the data"
[ ! -e "$corpus/ablation" ] || complain "a folder within the data"
: >"$scratch/file"
ablate 1 --out "$scratch/file"
one_message file

# ---- a start that trains nothing leaves nothing behind that would affect the next one
ablate 1 --out "$scratch/none/ablation" --vocab-size 1000000
one_message "at most"
ablate 1 --out "$scratch/none/ablation" --seq 100000
one_message "too short"
ablate 1 --out "$scratch/none/ablation" --batch 65536 --seq 512 --only dense
says "(--batch 65536, --seq 512)"
[ ! -e "$scratch/none" ] || complain "debris of a start that failed"
mkdir "$scratch/none" "$scratch/none/tokenizer"
ablate 1 --out "$scratch/none"
one_message "holds 'tokenizer'"
[ -d "$scratch/none/tokenizer" ] || complain "somebody's folder is gone"
rmdir "$scratch/none/tokenizer"
ablate 1 --out "$scratch/none" --vocab-size 1000000
[ -d "$scratch/none" ] || complain "a folder that was there is gone"
echo "notes of mine" >"$scratch/none/settings.txt"
ablate 1 --out "$scratch/none"
one_message "settings.txt"
[ -s "$scratch/none/settings.txt" ] || complain "somebody's file is gone"
# a start that was killed before its first run
mkdir "$dir" "$dir/runs" "$dir/tokenizer"
echo "--scale small" >"$dir/settings.txt"
printf 'data\t0123456789abcdef\n' >"$dir/losses.tsv"
echo "no tokenizer" >"$dir/tokenizer/tokenizer.json"

# ---- two models
ablate 0 --out "$dir" --only gshard,deepseekmoe
shows "96 tokens" "2 of 16" "1 + 7 of 63" 1.867 1.808 -0.059 "9,437,184" "1,179,648" "1/16" "4/16" \
    "1.808 to 2.414" "active routed experts" ablation.html
says "data:" "gshard, seed 1: held-out loss" "deepseekmoe, seed 1: held-out loss"
arguments="what ablate leaves"
for file in settings.txt losses.tsv ablation.json ablation.html tokenizer/tokenizer.json \
    configs/gshard.json runs/gshard-seed1/latest/model.safetensors runs/deepseekmoe-seed1/metrics.jsonl; do
    [ -s "$dir/$file" ] || complain "no $file"
done
for file in data.cache latest/training.safetensors; do
    [ ! -e "$dir/runs/gshard-seed1/$file" ] || complain "$file of a finished run"
done
# gshard: plain, and four masks of two kinds; deepseekmoe also has the shared expert replaced and 1 to 6
# experts
[ "$(grep -c '^gshard.1' "$dir/losses.tsv")" -eq 9 ] || complain "not nine losses of gshard"
[ "$(grep -c '^deepseekmoe.1' "$dir/losses.tsv")" -eq 16 ] || complain "not sixteen of deepseekmoe"
cp "$dir/losses.tsv" "$scratch/losses"

# the probes have losses of their own
loss() { sed -n "s/^$1\t1\t$2\t\([0-9.]*\)$/\1/p" "$dir/losses.tsv"; }
[ -n "$(loss deepseekmoe 'active 3')" ] || complain "no loss with three experts"
awk -v a="$(loss deepseekmoe plain)" -v b="$(loss deepseekmoe replaced)" 'BEGIN { exit a == b }' ||
    complain "replacing the shared expert changes nothing"

# ---- a process that died before the last line of a run's log: the run counts as finished
lines=$dir/runs/gshard-seed1/metrics.jsonl
cp "$lines" "$scratch/lines"
grep -v '"type":"end"' "$scratch/lines" >"$lines"
ablate 0 --out "$dir" --only gshard,deepseekmoe --json
silent
cp "$scratch/lines" "$lines"

# ---- again: nothing is left to do
ablate 0 --out "$dir" --only gshard,deepseekmoe --json
silent
is_json
shows '"finished": true' '"scale": "tiny"' '"tokens": 96' '"steps": 3' '"seeds": [1]' '"paper_loss": 1.867' \
    '"experts": "1 + 7 of 63"' '"mask_top": [' '"share": [0, 0.0625, 0.125, 0.1875, 0.25]' \
    '"replace_shared": [' '"paper_after": 2.414' '"k": [7, 6, 5, 4, 3, 2, 1]' '"compare": {"name": "gshard"'
[ "$(grep -o '"expert_parameters": 9437184, "active_expert_parameters": 1179648' "$out" | wc -l)" -eq 2 ] ||
    complain "parameters are not equal"
[ "$(grep -o '\[3, [0-9.]*\]' "$out" | wc -l)" -eq 2 ] || complain "no curve with the last step"
cmp -s "$dir/losses.tsv" "$scratch/losses" || complain "losses have changed"
cmp -s "$dir/ablation.json" "$out" || complain "not the file that is there"

# another model is added to the existing ones
ablate 0 --out "$dir" --only dense --json
shows '"name": "gshard"' '"name": "dense"' '"experts": "dense"' '"finished": true'
says "dense, seed 1"

# lost losses are measured again, to the bit
cp "$dir/losses.tsv" "$scratch/losses"
grep -v 'mask first 2' "$scratch/losses" >"$dir/losses.tsv"
ablate 0 --out "$dir" --only gshard,deepseekmoe
cmp -s "$dir/losses.tsv" "$scratch/losses" || complain "losses differ the second time"

# ---- a folder accepts only its own settings
for other in "--steps 4" "--lr 0.001" "--lr gshard=0.001" "--norm-topk-prob yes" "--balance batch" \
    "--aux-loss-alpha 0.001" "--routed-scaling-factor switch=2" "--init-std 0.06" "--seq 16" "--batch 2" "--vocab-size 310" "--scale small"; do
    # shellcheck disable=SC2086  # an option and its value
    ablate 1 --out "$dir" --only gshard $other
    one_message "${other%% *}" --out
done
cp "$corpus/prose/README.md" "$scratch/README.md"
echo "Another line." >>"$corpus/prose/README.md"
ablate 1 --out "$dir" --only gshard
one_message "the text has changed" "name another --out"
cp "$scratch/README.md" "$corpus/prose/README.md"
cp "$dir/losses.tsv" "$scratch/losses"

# ---- the default setup is the fair one
run 0 ablate --data "$corpus" --steps 1 --batch 1 --seq 32 --vocab-size 300 --seeds 1 --out "$scratch/default" --only switch --json
shows '"norm_topk_prob": false, "routed_scaling_factor": 4, "seq_aux": false'
for line in "lr dense=0.001" "norm-topk-prob yes" "routed-scaling-factor switch=4" "balance batch"; do
    grep -qx -e "--$line" "$scratch/default/settings.txt" || complain "no $line in settings.txt"
done

# ---- each model with settings of its own, which are recorded
ablate 0 --out "$scratch/fair" --only switch,gshard --lr 0.001 --lr switch=0.0005 --norm-topk-prob yes \
    --balance batch --aux-loss-alpha 0.002 --routed-scaling-factor switch=2.5 --init-std 0.06 --json
shows '"lr": 0.0005, "norm_topk_prob": false, "routed_scaling_factor": 2.5, "seq_aux": false' \
    '"lr": 0.001, "norm_topk_prob": true, "routed_scaling_factor": 1, "seq_aux": false' \
    '"aux_loss_alpha": 0.002, "initializer_range": 0.06'
for line in "lr 0.001" "lr switch=0.0005" "norm-topk-prob yes" "routed-scaling-factor switch=2.5" "balance batch" \
    "aux-loss-alpha 0.002" "init-std 0.06"; do
    grep -qx -e "--$line" "$scratch/fair/settings.txt" || complain "no $line in settings.txt"
done
grep -q '"lr": *0.0005' "$scratch/fair/runs/switch-seed1/settings.json" || complain "switch had another rate"
grep -q '"routed_scaling_factor": *2.5' "$scratch/fair/runs/switch-seed1/latest/config.json" ||
    complain "switch had another scale"
grep -q '"norm_topk_prob": *true' "$scratch/fair/runs/gshard-seed1/latest/config.json" ||
    complain "the gates of gshard were not normalised"
# with normalised gates both kinds of masks are the same
[ "$(grep -c '^gshard.1' "$scratch/fair/losses.tsv")" -eq 5 ] || complain "not five losses of gshard"
ablate 1 --out "$scratch/fair" --only gshard --lr 0.001
one_message "--lr switch=0.0005" --out
# another setup: the message names a setting that differs, and no other
ablate 1 --out "$scratch/default" --only switch --steps 1
one_message "was made with --lr dense=0.001, not without it" --out

# ---- several seeds: differences for each seed, and what they support in words
run 0 ablate --data "$corpus" --steps 3 --batch 1 --seq 32 --vocab-size 300 --seeds 3 -t 2 --out "$scratch/seeds" \
    --only dense,gshard
shows "what the data support" "GShard, top-2"
grep -q '"comparisons": \[' "$scratch/seeds/ablation.json" || complain "no comparisons"
grep -q '"name": "gshard", "to": "dense", "n": 3, "mean": ' "$scratch/seeds/ablation.json" ||
    complain "gshard is not compared with dense"
grep -q 'What the data support' "$scratch/seeds/ablation.html" || complain "the page says nothing of it"

# ---- a log that ends too early: the run is resumed, not measured
lines=$dir/runs/gshard-seed1/metrics.jsonl
cp "$lines" "$scratch/lines"
sed 's/"finished":true/"finished":false/' "$scratch/lines" >"$lines"
grep -v '^gshard.1.plain' "$scratch/losses" >"$dir/losses.tsv"
ablate 1 --out "$dir" --only gshard
says "gshard-seed1"
cp "$scratch/lines" "$lines"
cp "$scratch/losses" "$dir/losses.tsv"

# ---- damaged files: what is wrong, and what to do
: >"$dir/losses.tsv"
ablate 1 --out "$dir" --only gshard
one_message "losses.tsv: the file is damaged" "remove it"
cp "$scratch/losses" "$dir/losses.tsv"
cp "$dir/settings.txt" "$scratch/settings"
: >"$dir/settings.txt"
ablate 1 --out "$dir" --only gshard
one_message "settings.txt is missing or damaged"
cp "$scratch/settings" "$dir/settings.txt"

# ---- text that was moved, and text that is missing
mv "$corpus" "$scratch/moved"
run 0 ablate --data "$scratch/moved" --setup paper --steps 3 --batch 1 --seq 32 --vocab-size 300 --seeds 1 -t 2 \
    --out "$dir" --only gshard,deepseekmoe,dense
cmp -s "$dir/losses.tsv" "$scratch/losses" || complain "other losses of a text that has moved"
run 0 ablate --data "$scratch/moved" --setup paper --steps 3 --batch 1 --seq 32 --vocab-size 300 --seeds 1 -t 2 \
    --out "$dir" --only switch
ablate 0 --out "$dir" --only gshard,deepseekmoe --json
one_message "$corpus is gone"
cp "$dir/data.cache" "$scratch/cache"
printf 'damage' | dd of="$dir/data.cache" bs=1 seek=2000 conv=notrunc 2>/dev/null
ablate 1 --out "$dir" --only gshard
says "data cache is damaged" "put the text back"
cp "$scratch/cache" "$dir/data.cache"
mv "$scratch/moved" "$corpus"

# ---- Ctrl-C, and resuming
many_steps="--data $corpus --only dense --seeds 1 --steps 120 --batch 1 --seq 16 --vocab-size 300 -t 1"
arguments="ablate, interrupted"
# shellcheck disable=SC2086  # several arguments
"$dsmoe" ablate $many_steps --out "$scratch/stopped" >"$out" 2>"$err" &
tries=0
until grep -q '"type": *"step"' "$scratch/stopped/runs/dense-seed1/metrics.jsonl" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || break
    sleep 0.1
done
interrupted $!
says "same command"
# the text is read only once: a run uses the folder's tokens
[ "$(stat -c %i "$scratch/stopped/runs/dense-seed1/data.cache")" = "$(stat -c %i "$scratch/stopped/data.cache")" ] ||
    complain "a run has read the text once more"
grep -q '"finished": false' "$scratch/stopped/ablation.json" || complain "half a comparison is finished"
for folder in stopped straight; do
    # shellcheck disable=SC2086  # several arguments
    run 0 ablate $many_steps --out "$scratch/$folder"
done
cmp -s "$scratch/stopped/losses.tsv" "$scratch/straight/losses.tsv" ||
    complain "other losses after an interruption"
grep -q '"finished": true' "$scratch/stopped/ablation.json" || complain "it is not finished"

# ---- shards of tokens with their tokenizer; the start of a data cache is such a shard
n=$(od -An -tu4 -j8 -N4 "$dir/data.cache")
head -c $((1024 + 2 * n)) "$dir/data.cache" >"$scratch/tokens.bin"
few_steps="--only dense --seeds 1 --steps 3 --batch 1 --seq 32 -t 2"
# shellcheck disable=SC2086  # several arguments
run 1 ablate --data "$scratch/tokens.bin" $few_steps --out "$scratch/shards"
one_message "the tokenizer that made them"
# shellcheck disable=SC2086  # several arguments
run 0 ablate --data "$scratch/tokens.bin" $few_steps --out "$scratch/shards" --tokenizer "$dir/tokenizer"
shows "dense"
grep -q "^--tokenizer" "$scratch/shards/settings.txt" || complain "the tokenizer is no setting"

# ---- two processes in a new folder share the runs: each run is trained once, and both processes report all
# results
two="--data $corpus --steps 3 --batch 1 --seq 32 --vocab-size 300 --seeds 2 -t 1 --only dense,switch --out $scratch/shared"
# shellcheck disable=SC2086  # several arguments
"$dsmoe" ablate $two >"$scratch/second" 2>&1 &
second=$!
# shellcheck disable=SC2086  # several arguments
run 0 ablate $two
arguments="the second process"
wait $second || complain "it failed: $(cat "$scratch/second")"
[ "$(cat "$err" "$scratch/second" | grep -c 'held-out loss [0-9]')" -eq 4 ] || complain "not four runs in all"
[ "$(grep -c plain "$scratch/shared/losses.tsv")" -eq 4 ] || complain "losses are lost"
grep -q '"finished": true' "$scratch/shared/ablation.json" || complain "it is not finished"

# ---- a full disk is reported
fails_on_full_disk "ablate $many_steps --out $scratch/straight" \
    "ablate $many_steps --out $scratch/straight --json"

exit $failed

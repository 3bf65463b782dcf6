#!/bin/sh
# check_settings_cli.sh DSMOE DATA - the settings of `dsmoe train` on the command line: changes when a run is
# resumed, options without effect, and messages that name what was typed.
. "$(dirname "$0")/cli_checks.sh"

small_data
place="--data $scratch/text --config $scratch/config.json"
small="$place --vocab-size 270 --steps 6 --batch 2 --seq 16 --lr 0.01 --warmup 0 --save-every 4
    --eval-every 3 --eval-sequences 2 --sample-every 0 --log-every 2"
run_dir=$scratch/run

saved() { # a line that must be in the run's settings
    grep -qF -- "$1" "$run_dir/settings.json" || complain "no $1 in settings.json"
}

# ---- training with the paper's settings fails early and states the memory it needs
sources=$(cd "$(dirname "$0")/.." && pwd)
for size in 2b 16b; do
    run 1 train --settings "$sources/settings/$size.json" --data "$scratch/text" --out "$scratch/paper"
    says "$size.json: training takes" "GB of memory"
    [ ! -e "$scratch/paper" ] || complain "a folder of a run that cannot be"
done

# ---- a resumed run takes other settings, defaults too
# shellcheck disable=SC2086  # several arguments
run 0 train $small --out "$run_dir" --stop-after 3 --quiet -t 1
run 0 train --resume "$run_dir" --steps 8 --lr 0.001 --schedule constant --stop-after 4 -t 1
says "changed --steps 6 -> 8, --lr 0.01 -> 0.001, --schedule \"step\" -> \"constant\"" "step 4/8" "lr 1.00e-03"
saved '"lr": 0.001,'
saved '"steps": 8,'
saved '"batch": 2,'
grep -q '^{"type":"change","step":3,"settings":{"steps":\[6,8\],"lr":\[0.01,0.001\],' \
    "$run_dir/metrics.jsonl" || complain "no line 'change' in metrics.jsonl"
run 0 train --resume "$run_dir" --stop-after 5 -t 1
says "step 5/8" "lr 1.00e-03"
if grep -q "^changed" "$err"; then complain "a change that is none"; fi
run 0 train --resume "$run_dir" --stop-after 6 --seq 16 --vocab-size 270 --config "$scratch/config.json" \
    --out "$run_dir" --quiet -t 1
silent

# ---- and refuses the rest by name
refused() { # words of the message, options
    words=$1
    shift
    run 1 train --resume "$run_dir" "$@"
    one_message "$words"
}
refused "--seq cannot change in a run that has begun: it was 16" --seq 256
refused "--seed cannot change in a run that has begun: it was 0" -s 1
refused "--held-out cannot change in a run that has begun: it was 0.05" --held-out 0.1
refused "--vocab-size cannot change in a run that has begun: it was 270" --vocab-size 300
refused "--preset cannot change in a run that has begun: it was not set" --preset tiny
refused "--config cannot change in a run that has begun: it was" --config "$scratch"
refused "--out cannot change in a run that has begun: it was" --out "$scratch/other"
refused "--steps 2 is too few: 6 steps of this run are done" --steps 2
run 2 train --resume "$run_dir" --settings "$run_dir/settings.json"
usage "--settings and --resume cannot be used together"
run 2 train --resume "$run_dir" --schedule linear
usage "--schedule" linear
run 2 train --resume "$run_dir" --dtype q4_0
usage "--dtype" q4_0
saved '"seq": 16,'

# ---- a finished run continues with more steps
run 0 train --resume "$run_dir" --quiet -t 1
shows "8 steps"
refused "give more --steps" --lr 0.5
run 0 train --resume "$run_dir" --steps 9 --quiet -t 1
shows "9 steps"
saved '"steps": 9,'
run 0 train --resume "$run_dir" --steps 10 --recompute -t 1
says "recompute false -> true"
run 0 train --resume "$run_dir" --steps 12 --no-recompute --stop-after 11 -t 1
says "recompute true -> false"
saved '"recompute": false,'
refused "it is to stop after 11" --lr 0.5 --stop-after 11

# ---- options that have no effect together
no_effect() { # options, the two names in the message
    # shellcheck disable=SC2086
    run 2 train $place --out "$scratch/no" $1
    usage "$2" "$3"
}
no_effect "--vocab-size 300 --tokenizer $run_dir" --vocab-size --tokenizer
no_effect "--device-loss-alpha 0.1" --device-loss-alpha --device-groups
no_effect "--sample-every 0 --sample-prompt x" --sample-prompt --sample-every
no_effect "--sample-every 0 --sample-tokens 8" --sample-tokens --sample-every
no_effect "--sample-tokens 0 --sample-prompt x" --sample-prompt --sample-tokens
no_effect "--sample-every 5 --sample-tokens 0" --sample-every --sample-tokens
no_effect "--eval-every 0 --eval-sequences 8" --eval-sequences --eval-every
no_effect "--held-out 0 --eval-every 8" --eval-every --held-out
no_effect "--held-out 0 --eval-sequences 8" --eval-sequences --held-out
no_effect "--preset tiny" --preset --config
run 2 train --data "$scratch/text" --out "$scratch/no" --init "$run_dir/latest" --init-std 0.1
usage "--init-std and --init cannot be used together"
run 2 train --data "$scratch/text" --out "$scratch/no" --init "$run_dir/latest" --vocab-size 300
usage "--vocab-size and --init cannot be used together"
echo '{"sample_every": 0}' >"$scratch/blind.json"
# shellcheck disable=SC2086
run 2 train $place --out "$scratch/no" --settings "$scratch/blind.json" --sample-prompt x
usage "--sample-prompt has no effect: --sample-every is 0"
idle() { # options without effect on this model or these data, words
    # shellcheck disable=SC2086
    run 1 train $place --out "$scratch/no" $1
    shift
    one_message "$@"
}
idle "--routed 0 --aux-loss-alpha 0.1" "--aux-loss-alpha has no effect"
idle "--routed 0 --device-groups 2" "--device-groups has no effect"
# shellcheck disable=SC2086  # several arguments
run 2 train $place --out "$scratch/no" --layers 2 --dense-layers 2 --routed 4
usage "no layer is left for experts" "--dense-layers 2"
# shellcheck disable=SC2086  # several arguments
run 2 train $place --out "$scratch/no" --dense-layers 0 --ffn 64
usage "ask for dense layers" "--ffn 64"
run 2 init --preset tiny --layers 2 --dense-layers 9 "$scratch/no"
usage "no layer is left for experts" "--dense-layers 9"
n=$(od -An -tu4 -j8 -N4 "$run_dir/data.cache")
head -c $((1024 + 2 * n)) "$run_dir/data.cache" >"$scratch/tokens.bin"
shards="--data $scratch/tokens.bin --config $scratch/config.json --seq 16 --steps 2 -t 1 --out $scratch/no"
for option in "--sample-every 1" "--sample-prompt hi" "--bad-bytes keep"; do
    # shellcheck disable=SC2086
    run 1 train $shards $option
    one_message "${option% *} has no effect: the data are tokens"
done
[ ! -e "$scratch/no" ] || complain "a wrong call made a folder"
# shellcheck disable=SC2086
run 0 train $shards --quiet
shows '--ids -p "1 2 3"'
rm -rf "$scratch/no"

# ---- a tokenizer other than the model's
run 0 tokenizer train --data "$scratch/text" --vocab-size 265 --out "$scratch/other"
run 0 train --data "$scratch/text" --init "$run_dir/latest" --tokenizer "$scratch/other" --seq 16 --steps 1 \
    --out "$scratch/further" --quiet -t 1
says "is not the tokenizer of"
run 0 train --data "$scratch/text" --init "$run_dir/latest" --tokenizer "$run_dir/tokenizer.json" --seq 16 \
    --steps 1 --out "$scratch/same" --quiet -t 1
silent

# ---- messages name what was typed
# shellcheck disable=SC2086
run 1 train $place --vocab-size 270 --out "$scratch/no" --seq 100000
one_message "--seq 100000"
if grep -q "sequence_length" "$err"; then complain "a word that nobody typed"; fi
rm -rf "$scratch/no"
# shellcheck disable=SC2086
run 2 train $place --vocab-size 270 --out "$scratch/no" --seq 16 --device-groups 3
usage "--device-groups 3"
[ ! -e "$scratch/no" ] || complain "a wrong call wrote something"
# shellcheck disable=SC2086
run 1 train $place --vocab-size 270 --out "$scratch/no" --seq 1800
one_message "--seq 1800" "--held-out 0.05"
rm -rf "$scratch/no"
# shellcheck disable=SC2086
run 1 train $place --out "$scratch/no" --vocab-size 1000
one_message "--vocab-size 1000"
rm -rf "$scratch/no"
sed 's/"vocab_size": 320/"vocab_size": 265/' "$scratch/config.json" >"$scratch/narrow.json"
run 1 train --data "$scratch/text" --config "$scratch/narrow.json" --out "$scratch/no" --vocab-size 270
one_message "narrow.json: a vocab_size of 265 is too small for the 270 tokens" "--vocab-size"
rm -rf "$scratch/no"
run 1 train --data "$scratch/text" --config "$scratch/none.json" --out "$scratch/no"
one_message "cannot open the path given by --config"

# ---- runs that end before the last step: time is up, or the held-out loss does not improve
# shellcheck disable=SC2086
run 0 train $small --out "$scratch/timed" --steps 1000000 --time-limit 0.5s --report-every 1000000 -t 1
shows "of 1000000, because the time is up, saved as" "resume: dsmoe train --resume $scratch/timed"
for wrong in 0 2x "" 1h1h; do
    # shellcheck disable=SC2086
    run 2 train $small --out "$scratch/no" --time-limit "$wrong"
    usage "--time-limit must be a time"
done
# shellcheck disable=SC2086
run 0 train $small --lr 0 --out "$scratch/patient" --steps 1000 --patience 2 -t 1
shows "ended after step 9 of 1000: the held-out loss did not improve in 2 evaluations" "$scratch/patient/best" \
    "dsmoe train --resume $scratch/patient --patience 0"
grep -q '"patience": 2,' "$scratch/patient/settings.json" || complain "patience is not saved"
run 0 train --resume "$scratch/patient"
says "did not improve in 2 evaluations"
run 0 train --resume "$scratch/patient" --patience 3 --quiet -t 1
shows "ended after step 12 of 1000"
no_effect "--patience 3 --eval-every 0" --patience --eval-every
no_effect "--patience 3 --held-out 0" --patience --held-out

# ---- sizes of a new model, which override a preset or a configuration
run 0 train --data "$scratch/text" --out "$scratch/sized" --layers 2 --hidden 16 --heads 4 --kv-heads 2 --moe 8 \
    --routed 6 --shared 2 --k 3 --dense-layers 1 --ffn 24 --vocab-size 270 --seq 16 --batch 2 --steps 2 -t 1
says "2 layers of width 16, 2 + 6 experts, top-3, 320 token ids"
for line in '"num_hidden_layers": 2' '"hidden_size": 16' '"num_attention_heads": 4' \
    '"num_key_value_heads": 2' '"moe_intermediate_size": 8' '"intermediate_size": 24' \
    '"n_routed_experts": 6' '"n_shared_experts": 2' '"num_experts_per_tok": 3' \
    '"first_k_dense_replace": 1'; do
    grep -qF -- "$line," "$scratch/sized/settings.json" || complain "no $line in settings.json"
    grep -qF -- "$line," "$scratch/sized/latest/config.json" || complain "no $line in config.json"
done
run 0 train --settings "$scratch/sized/settings.json" --out "$scratch/twin" --quiet -t 1
cmp -s "$scratch/sized/latest/model.safetensors" "$scratch/twin/latest/model.safetensors" ||
    complain "the same settings give another model"
run 0 train --settings "$scratch/sized/settings.json" --out "$scratch/tuned" --init "$scratch/sized/latest" \
    --quiet -t 1
grep -qF '"hidden_size": -1,' "$scratch/tuned/settings.json" || complain "sizes stay beside --init"
run 1 train --resume "$scratch/sized" --hidden 32
one_message "--hidden cannot change in a run that has begun: it was 16"
# shellcheck disable=SC2086
run 0 train $small --out "$scratch/over" --heads 4 --k 1 --stop-after 1 --quiet -t 1
grep -qF '"num_key_value_heads": 4,' "$scratch/over/latest/config.json" || complain "--heads alone"
run 2 train --data "$scratch/text" --out "$scratch/no" --init "$run_dir/latest" --layers 3
usage "--layers and --init cannot be used together"

run 0 init --preset tiny --layers 2 --hidden 32 --heads 2 --moe 8 --routed 4 --shared 0 --k 1 --vocab-size 64 \
    "$scratch/init"
for line in '"num_hidden_layers": 2' '"hidden_size": 32' '"n_shared_experts": null' '"vocab_size": 64'; do
    grep -qF -- "$line" "$scratch/init/config.json" || complain "no $line in config.json"
done
run 0 init --config "$scratch/init" --routed 5 "$scratch/init2"
grep -qF '"n_routed_experts": 5,' "$scratch/init2/config.json" || complain "no --routed over --config"
grep -qF '"hidden_size": 32,' "$scratch/init2/config.json" || complain "--config is not used"
run 2 init --config "$scratch/init" --preset tiny "$scratch/no"
usage "--config and --preset cannot be used together"
run 0 bench train --hidden 32 --layers 2 --heads 2 --kv-heads 1 --moe 8 --routed 4 --k 2 --vocab-size 64 \
    --dense-layers 1 --ffn 16 --batch 2 --seq 16 --seconds 0 -t 1
shows "hidden 32, 2 layers, 2 heads, 1 + 4 experts of 8, top-2, vocabulary 64"

for wrong in "--hidden 30 --heads 4" "--k 99" "--heads 0" "--hidden 0" "--layers 0" "--routed 2 --k 3" \
    "--heads 4 --kv-heads 3" "--hidden 12 --heads 4"; do
    last=${wrong##*--}
    # shellcheck disable=SC2086
    run 2 init --preset tiny $wrong "$scratch/no"
    usage "--${last%% *}"
    # shellcheck disable=SC2086
    run 2 bench train $wrong
    usage "--${last%% *}"
    # shellcheck disable=SC2086
    "$dsmoe" train --data "$scratch/text" --out "$scratch/no" $wrong >"$out" 2>"$err" && complain "accepted"
    arguments="train $wrong"
    says "--${last%% *}"
    rm -rf "$scratch/no"
done

exit $failed

#!/bin/sh
# check_cli.sh DSMOE DATA - the command as a person or a script uses it: exit codes, what is printed on which
# stream, and numbers that must be there.
. "$(dirname "$0")/cli_checks.sh"

# ---- the command itself
run 2
grep -q 'usage:' "$err" || complain "no usage"
run 0 --help
shows plan verify bench example
silent
run 0 --version
shows dsmoe
run 2 conquer
grep -q "conquer" "$err" || complain "the message does not name the command"
for command in plan verify bench; do
    run 0 $command --help
    shows usage: example "dsmoe $command"
    silent
    run 2 $command --no-such-option
    [ ! -s "$out" ] || complain "output of a wrong call"
done
run 0 bench layer --help
shows example

# ---- plan
run 0 plan
shows 120 4,426,165,368
silent
run 0 plan --json
is_json
shows '"combinations": "120"' '"combinations": "4426165368"' '"shared_isolation"'
silent
run 0 plan --experts 16 --active 2 --split 1 --shared 0
run 2 plan --split 3
usage 3
run 2 plan --shared 8
usage 8
run 2 plan --active 17
usage 17
for wrong in 0 -1 abc 1.5 '' 99999999999999999999; do
    run 2 plan --experts "$wrong"
    usage experts
done
run 2 plan --experts
usage experts
run 2 plan surplus
usage surplus
run 2 plan --tokens 5
usage tokens
config=$data/config/deepseek-moe-16b.json
run 0 plan --config "$config"
shows 16.4B 2.8B 16,375,728,128 2,828,650,496
silent
run 0 plan --config "$config" --json
is_json
shows '"total": 16375728128' '"active": 2828650496'
mkdir "$scratch/model"
cp "$config" "$scratch/model/config.json"
run 0 plan --config "$scratch/model"
shows 16.4B
run 1 plan --config "$scratch/nowhere.json"
one_message nowhere.json
echo '{"hidden_size": 2048' >"$scratch/broken.json"
run 1 plan --config "$scratch/broken.json"
one_message broken.json
sed 's/"num_experts_per_tok": 6/"num_experts_per_tok": 65/' "$config" >"$scratch/wrong.json"
run 1 plan --config "$scratch/wrong.json"
one_message num_experts_per_tok

# several machines: the numbers for divided data and divided experts, and a recommendation
run 0 plan --preset 16b --ranks 16 --network 10 --batch 4 --seq 512 --gflops 500 --memory 64
shows "16.4B parameters" "16 ranks" data experts "rows of experts" "data does not fit" "use --parallel experts"
silent
run 0 plan --preset 16b --ranks 16 --network 10 --batch 4 --seq 512 --gflops 500 --memory 64 --json
is_json
shows '"ranks": 16' '"network": 10' '"measured": false' '"experts": 5e+11' '"fits": false' '"choice": "experts"' \
    '"rows": 0' '"computing": ' '"hidden": ' '"efficiency": '
run 0 plan --preset tiny --ranks 2 --network 1 --parallel data --gflops 50 --gbs 10 --json
is_json
shows '"parallel": "data"' '"choice": "data"' '"memory": 1e+10}'
! grep -q '"parallel": "experts"' "$out" || complain "experts were not asked for"
run 0 plan --config "$config" --layers 2 --ranks 300 --network 100 --gflops 100 --recompute --imbalance 1.5 --memory 1
shows "300 ranks" "does not fit" "takes less"
run 0 plan --preset tiny --layers 1 --routed 0 --ranks 2 --network 1 --gflops 1
! grep -q experts "$out" || complain "a dense model has experts"
# without a given speed, one layer is trained here to measure it
run 0 plan --preset tiny --ranks 2 --network 1 --batch 1 --seq 16 -t 1 --json
is_json
silent
shows '"measured": true'
run 2 plan --ranks 2 --network 1
usage --preset --config
for wrong in "--ranks 2:--network" "--network 1:--ranks" "--preset tiny:--ranks" "--layers 2:--ranks" \
    "--ranks 2 --network 1 --preset tiny --gbs 2:--gflops" "--ranks 2 --network 1 --preset tiny --experts 4:--experts" \
    "--ranks 2 --network 1 --preset tini:tiny" "--ranks 2 --network 1 --preset tiny --parallel both:experts" \
    "--ranks 0 --network 1:--ranks" "--ranks 2 --network 0:--network" \
    "--ranks 2 --network 1 --preset tiny --k 64 --gflops 1:num_experts_per_tok"; do
    # shellcheck disable=SC2086  # several arguments
    run 2 plan ${wrong%:*}
    usage "${wrong##*:}"
done

# ---- verify
set -- "$data"/layer/*.safetensors
run 0 verify "$@"
shows "$# of $# files ok" "infer y" "grad.gate.weight"
silent
run 0 verify --json -t 2 "$@"
is_json
shows '"ok":true'
run 0 verify --quiet "$@"
run 1 verify --tolerance 0 "$@"
shows "NOT OK"
head -c 5000 "$1" >"$scratch/cut.safetensors"
run 1 verify "$scratch/cut.safetensors"
one_message cut.safetensors
run 1 verify "$scratch/cut.safetensors" "$1"
shows "1 of 2 files NOT OK"
run 1 verify --json "$scratch/cut.safetensors"
is_json
shows '"ok":false' '"error"'
run 1 verify "$scratch/none.safetensors"
one_message none.safetensors
run 1 verify "$scratch"
one_message "$scratch"
run 2 verify
usage files
run 2 verify -t 0 "$1"
usage threads
run 2 verify --tolerance small "$1"
usage small

run 0 verify "$data"/lm/*
shows "5 of 5 files ok" "logits token by token" "grad.model.norm.weight" "training loss" \
    "final.lm_head.weight"
silent
run 0 verify --json -t 1 "$data/lm/base"
is_json
shows '"name":"logits in pieces"' '"name":"grad.model.layers.1.mlp.gate.weight"' \
    '"name":"training grad_norm"' '"skipped":0,"ok":true'
cp -r "$data/lm/dense" "$scratch/dense" # changes the names of two tensors to unknown ones
LC_ALL=C sed 's/"greedy"/"x.eedy"/;s/"loss"/"x.ss"/' "$data/lm/dense/expected.safetensors" \
    >"$scratch/dense/expected.safetensors"
run 0 verify "$scratch/dense"
shows "x.*" "2 tensors" "not checked"
run 0 verify --json "$scratch/dense"
is_json
shows '"skipped":true' '"skipped":2,"ok":true'
head -c 5000 "$data/lm/base/train.safetensors" >"$scratch/dense/train.safetensors"
run 1 verify "$scratch/dense"
one_message train.safetensors

# ---- init
run 0 init --preset tiny --layers 1 -s 1 "$scratch/tiny"
one_message "1 layer"
run 1 init --preset tiny --layers 1 "$scratch/tiny"
one_message "already holds" "new or empty"

# ---- bench
# a single case, as each takes seconds, whatever its size
run 0 bench layer --hidden 33 --moe 17 --routed 5 --shared 1 --k 2 --tokens "" --train-tokens 2 \
    -t 1 --seconds 0.1 --json
is_json
silent
shows '"hidden_size":33' '"moe_intermediate_size":17' '"n_routed_experts":5' '"threads":1' \
    '"n_shared_experts":1' '"num_experts_per_tok":2' '"kernels":"' '"fma_gflops":' '"read_gbs":' \
    '"cases":[' '"mode":"train","tokens":2,' '"ms":' '"tokens_per_s":' '"gflops":' \
    '"weight_gbs":' '"roofline":' '"limit":"' '"experts_touched":' '"weight_bytes":' '"router_ms":'
run 0 bench model --help
shows example
# 339,456 bytes of weights, and keys and values of 5 + 2/2 positions: 3 layers of twice 48 numbers as f16
run 0 bench model -m "$data/lm/base" -p 5 -n 2 -t 1 --seconds 0 --json
is_json
silent
shows '"prefill_tps":' '"decode_tps":' '"fma_gflops":' '"read_gbs":' '"decode_bandwidth_share":' \
    '"prefill_fma_share":' '"peak_rss_bytes":' '"bytes_per_token":342912'
run 2 bench model
usage -m
run 2 bench model -m "$data/lm/base" -p 0
usage prompt
run 1 bench model -m "$scratch/none"
one_message "$scratch/none"
run 0 bench train --help
shows example
small="--hidden 32 --layers 1 --heads 2 --moe 8 --routed 4 --k 2 --vocab 64 --batch 2 --seq 16"
# shellcheck disable=SC2086  # several arguments
run 0 bench train $small --seconds 0 --json
is_json
silent
shows '"hidden":32' '"layers":1' '"routed":4' '"shared":1' '"vocab":64' '"batch":2' '"seq":16' '"steps":3' \
    '"parameters":12256' '"active_parameters":10720' '"step_flops":1763328' '"loss":' '"kernels":"' \
    '"tokens_per_s":' '"fma_share":' '"fma_gflops":' '"recompute":false' '"activations":' \
    '"peak_rss_bytes":' '"ranks":1' '"parallel":"data"' '"accumulate":1' '"sending":0.000000,"waiting":0.000000'
tr '{},' '\n\n\n' <"$out" | tr -d '"' | awk -F: '
    NF == 2 { value[$1] = $2 }
    END {
        n = split("attention experts router head optimizer rest", part, " ")
        for (i = 1; i <= n; i++) sum += value[part[i]]
        step = value["step_seconds"]; rate = value["tokens_per_s"]
        if (sum < 0.5 * step || sum > 1.05 * step + 1e-5) exit 1
        exit !(rate > 31 / step && rate < 33 / step && value["fma_share"] > 0)
    }' || complain "the parts are not those of the step"
# twice as many batches are twice the work
# shellcheck disable=SC2086  # several arguments
run 0 bench train $small --seconds 0 --accumulate 2 --json
shows '"accumulate":2' '"step_flops":3526656'
# shellcheck disable=SC2086  # several arguments
run 0 bench train $small --seconds 0 --recompute -t 1
shows tokens/s attention experts router head optimizer rest "memory:" "1 threads"
silent
for wrong in "--hidden 0" "--seq x" "--threads 0" "--seconds -1" "--batch" "--accumulate 0" "--parallel both" surplus; do
    # shellcheck disable=SC2086  # an option and its value
    run 2 bench train $wrong
    usage "${wrong%% *}"
done
for wrong in "--k 64:num_experts_per_tok" "--heads 3:num_attention_heads" "--batch 65536 --seq 65536:batch"; do
    # shellcheck disable=SC2086  # an option and its value
    run 2 bench train ${wrong%:*}
    usage "${wrong#*:}"
done
run 2 bench
usage layer
run 2 bench layer --k 65
usage num_experts_per_tok
run 2 bench layer --hidden 0
usage 0
run 2 bench layer --tokens 1,,2
usage 1,,2
run 2 bench layer surplus
usage surplus

# ---- a full disk is reported
fails_on_full_disk "plan" "plan --json" "verify $1" "verify --help" "--help" "--version"

exit $failed

#!/bin/sh
# check_latent_cli.sh DSMOE DATA - every command with tiny models like V2 and V3: latent attention, and gates
# with softmax or sigmoid, with and without groups.
. "$(dirname "$0")/cli_checks.sh"

text=$scratch/text
i=0
while [ $i -lt 60 ]; do
    echo "the red house number $i stands near the old green tree, and nobody knows why $i."
    i=$((i + 1))
done >"$text"
tiny="--layers 2 --hidden 32 --heads 2 --moe 16 --ffn 48 --routed 8 --k 2 --kv-rank 24 --nope 8 --rope 8 --v-dim 12"

for kind in tiny-v2 tiny-v3 v2-lite moonlight; do
    # ---- training from scratch, with exact resuming
    q_rank=$([ $kind = tiny-v3 ] && echo 12 || echo 0)
    [ $kind = tiny-v3 ] && sizes="$tiny --routed 16" || sizes=$tiny
    work=$scratch/$kind
    # shellcheck disable=SC2086
    run 0 train --data "$text" --out "$work" --preset $kind $sizes --q-rank "$q_rank" --vocab-size 280 --seq 32 --batch 2 \
        --steps 6 --lr 1e-3 --log-every 2 -t 1
    says "2 layers of width 32" "saved"
    for line in '"kv_lora_rank": 24,' '"qk_nope_head_dim": 8,' '"qk_rope_head_dim": 8,' '"v_head_dim": 12,'; do
        grep -qF -- "$line" "$work/settings.json" || complain "no $line in settings.json"
        grep -qF -- "$line" "$work/latest/config.json" || complain "no $line in config.json"
    done
    # shellcheck disable=SC2086
    run 0 train --data "$text" --out "$work-part" --preset $kind $sizes --q-rank "$q_rank" --vocab-size 280 --seq 32 --batch 2 \
        --steps 6 --lr 1e-3 --stop-after 3 --quiet -t 2
    run 0 train --resume "$work-part" --quiet -t 1
    cmp -s "$work/latest/model.safetensors" "$work-part/latest/model.safetensors" || complain "another model after --resume"
    run 0 report "$work"
    shows "$work/report.html"
    [ -s "$work/report.html" ] || complain "no report"

    # ---- inspect
    run 0 inspect -m "$work"
    shows "2 heads of 8 + 8" "latent: keys and values of 12 from 24 numbers a token" "gate  "
    case $kind in
    *v2*) shows "softmax" "YaRN scaling by" "not compressed" ;;
    tiny-v3) shows "sigmoid, choice corrected by a bias, experts of 4 of 8 groups, normalised, times 2.5" "queries from 12" ;;
    moonlight) shows "sigmoid, choice corrected by a bias, normalised, times 2.446" ;;
    esac
    case $kind in # gates with a bias show its range in each layer
    *v2*) ! grep -q "bias of gates" "$out" || complain "a bias that the gates do not have" ;;
    *) shows "bias of gates layer    lowest      mean   highest" ;;
    esac
    run 0 inspect -m "$work" --json
    is_json
    shows '"kv_lora_rank": 24' '"v_head_dim": 12'
    case $kind in *v2*) biased= ;; *) biased=yes ;; esac
    [ -z "$biased" ] || shows '"gate_bias": [{"layer": 1, "low": -0.00'
    run 0 inspect -m "$work" --routing "$text" --html "$scratch/routing.html" --force -t 1
    [ -z "$biased" ] || shows "bias of the gate: lowest, mean and highest"
    grep -q "Bias of the gate -0.00" "$scratch/routing.html" && in_page=yes || in_page=
    [ "$in_page" = "$biased" ] || complain "the page has the bias of a gate: '$in_page'"
    run 0 inspect -m "$work" --routing "$text" --json -t 1
    is_json
    [ -z "$biased" ] || shows '"bias": {"low": -0.00' '"bias": 0.00'
    run 0 plan --config "$work"
    shows "6 x layers x heads x (nope + rope + v)"
    run 0 plan --config "$work" --ranks 2 --network 1 --gflops 10 --json
    is_json

    # ---- conversions both ways; the width is a multiple of 32, so types with longer blocks are replaced
    run 0 convert "$work/latest" "$scratch/m.gguf" --force -t 1
    run 0 convert "$scratch/m.gguf" "$scratch/back" -t 1
    cmp -s "$work/latest/model.safetensors" "$scratch/back/model.safetensors" || complain "another model after GGUF"
    rm -r "$scratch/back"
    run 0 imatrix -m "$work" -f "$text" -o "$scratch/im.gguf" --force -t 1
    run 0 quantize "$work" "$scratch/q8.gguf" --type q8_0 --force -t 1
    run 0 quantize "$work" "$scratch/q4.gguf" --type q4_k_m --imatrix "$scratch/im.gguf" --force -t 1
    run 0 eval -m "$scratch/q8.gguf" --against "$work" -f "$text" --json -t 1
    is_json
    run 0 eval -m "$work" -f "$text" --probes --json -t 1
    is_json

    # ---- generating: from the folder, the file and the quantised file
    run 0 generate -m "$work" -p "the red" -n 8 --temp 0 -t 1
    cp "$out" "$scratch/greedy"
    run 0 generate -m "$scratch/m.gguf" -p "the red" -n 8 --temp 0 -t 2
    cmp -s "$out" "$scratch/greedy" || complain "another text from the GGUF file"
    run 0 generate -m "$scratch/q4.gguf" -p "the red" -n 8 -s 1 -t 1
    run 0 bench model -m "$scratch/q8.gguf" -p 16 -n 4 --seconds 0 --json -t 1
    is_json
    # shellcheck disable=SC2086
    run 0 bench train --preset $kind $sizes --vocab-size 64 --batch 1 --seq 16 --seconds 0 --json -t 1
    is_json
    run 0 train --data "$text" --init "$scratch/m.gguf" --out "$work-tuned" --steps 2 --seq 16 --batch 1 --quiet -t 1

    # ---- low-rank adapters, and the experts that a text uses most
    run 0 train --data "$text" --init "$work/latest" --train lora --out "$work-lora" --steps 2 --seq 16 --batch 1 --quiet -t 1
    run 0 generate -m "$work" --lora "$work-lora" -p "the red" -n 4 --temp 0 -t 1
    run 0 merge "$work/latest" "$work-lora" "$work-merged" -t 1
    run 0 inspect -m "$work" --routing "$text" --experts-out "$scratch/experts.json" --force -t 1
    run 0 train --data "$text" --init "$work/latest" --train experts --experts "$scratch/experts.json" --out "$work-experts" \
        --steps 2 --seq 16 --batch 1 --quiet -t 1
    run 2 train --data "$text" --init "$work/latest" --train experts --experts "$scratch/experts.json" --expert-score token \
        --out "$work-no"
    usage "--expert-score and --experts cannot be used together"
done

# ---- one layer too many, like V3's layer that predicts a further token: named, and not used
cp -rL "$scratch/tiny-v3/latest" "$scratch/ahead"
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 1/; s/^{/{"num_nextn_predict_layers": 1,/' \
    "$scratch/tiny-v3/latest/config.json" >"$scratch/ahead/config.json"
run 0 inspect -m "$scratch/ahead"
shows "tensors in the files that the model does not have:" '"model.layers.1.'
run 0 generate -m "$scratch/ahead" -p "the red" -n 4 --temp 0 -t 1
cp "$out" "$scratch/greedy"
run 0 convert "$scratch/ahead" "$scratch/ahead.gguf" -t 1
run 0 generate -m "$scratch/ahead.gguf" -p "the red" -n 4 --temp 0 -t 1
cmp -s "$out" "$scratch/greedy" || complain "another text without the layer ahead"

# ---- Moonlight's tokenizer
cp -rL "$scratch/moonlight/latest" "$scratch/tiktoken"
rm "$scratch/tiktoken/tokenizer.json"
: >"$scratch/tiktoken/tiktoken.model"
run 1 generate -m "$scratch/tiktoken" -p "the red" -n 4 -t 1
one_message "$scratch/tiktoken" "tiktoken.model" "needs a tokenizer.json" ".gguf"

# ---- refused calls
run 2 init --preset tiny --kv-rank 8 "$scratch/no"
usage "latent attention" "model_type \"deepseek\""
run 2 init --preset tiny-v3 --routed 12 "$scratch/no"
usage "n_group 8 does not divide"
run 2 init --preset tiny-v2 --rope 7 "$scratch/no"
usage "qk_rope_head_dim 7 is odd" "--rope 7"
run 2 init --preset tiny-v2 --kv-heads 2 "$scratch/no"
usage "num_key_value_heads 2"
exit $failed

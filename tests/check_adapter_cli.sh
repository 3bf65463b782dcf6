#!/bin/sh
# check_adapter_cli.sh DSMOE DATA - adapters as a person uses them: --lora, merge, convert -m; and eval
# --tasks.
. "$(dirname "$0")/cli_checks.sh"

model=$scratch/model
run 0 init --preset tiny --layers 1 --type f32 --seed 1 -t 2 --tokenizer "$data/text_cli" "$model"
hidden=$(sed -n 's/.*"hidden_size": *\([0-9]*\).*/\1/p' "$model/config.json")

# ---- adapters for q_proj, rank 2, in which all bytes are the same: zeros, or 0x3c
make_adapter() { # folder, byte in the notation of tr
    mkdir "$1"
    echo '{"peft_type": "LORA", "r": 2, "lora_alpha": 64, "target_modules": ["q_proj"]}' >"$1/adapter_config.json"
    size=$((2 * hidden * 4))
    name=base_model.model.model.layers.0.self_attn.q_proj.lora
    header=$(printf '{"%s_A.weight":{"dtype":"F32","shape":[2,%d],"data_offsets":[0,%d]},' $name "$hidden" $size
        printf '"%s_B.weight":{"dtype":"F32","shape":[%d,2],"data_offsets":[%d,%d]}}' $name "$hidden" $size $((2 * size)))
    while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
    {
        # shellcheck disable=SC2059  # the format is made here
        printf "\\$(printf '%03o' $((${#header} % 256)))\\$(printf '%03o' $((${#header} / 256)))\\0\\0\\0\\0\\0\\0"
        printf '%s' "$header"
        head -c $((2 * size)) /dev/zero | tr '\0' "$2"
    } >"$1/adapter_model.safetensors"
}
make_adapter "$scratch/zeros" '\0'
make_adapter "$scratch/adapter" '\074'

text() { # further arguments
    run 0 generate -m "$model" -p "Once upon a time" -n 12 --temp 0 --ignore-eos -t 2 "$@"
    cat "$out"
}
base=$(text)
[ "$(text --lora "$scratch/zeros")" = "$base" ] || complain "zeros change the text"
[ "$(text --lora "$scratch/adapter:0")" = "$base" ] || complain "a scale of 0 changes the text"

# ---- the GGUF form, and merged models
run 0 convert "$scratch/adapter" "$scratch/adapter.gguf" -m "$model"
shows "1 matrices adapted, rank 2"
run 1 convert "$scratch/adapter" "$scratch/adapter.gguf" -m "$model"
one_message "already exists"
run 0 convert "$scratch/adapter.gguf" "$scratch/again" -m "$model"
[ -s "$scratch/again/adapter_config.json" ] || complain "no folder"
unmerged=$(text --lora "$scratch/adapter")
[ "$(text --lora "$scratch/adapter.gguf")" = "$unmerged" ] || complain "another text with the GGUF adapter"
[ "$(text --lora "$scratch/again")" = "$unmerged" ] || complain "another text with the folder again"
run 0 merge "$model" "$scratch/adapter" "$scratch/merged"
shows "merged:" "f32"
run 0 merge "$model" "$scratch/adapter.gguf" "$scratch/merged.gguf" --type q8_0 --scale 0.5
shows "q8_0"
run 0 eval -m "$scratch/merged" -f "$model/tokenizer.json" -c 64 --stride 63 --json -t 2
merged_loss=$(sed -n 's/.*"cross_entropy": \([0-9.]*\).*/\1/p' "$out" | cut -c 1-6)
run 0 eval -m "$model" --lora "$scratch/adapter" -f "$model/tokenizer.json" -c 64 --stride 63 --json -t 2
shows "\"cross_entropy\": $merged_loss"
run 0 eval -m "$model" --lora "$scratch/adapter:-1" --lora "$scratch/adapter" -f "$model/tokenizer.json" -c 64 --json -t 2
run 0 bench model -m "$model" --lora "$scratch/adapter" -p 16 -n 4 --seconds 0.1 -t 2
shows " tokens/s with them, "
run 0 bench model -m "$model" --lora "$scratch/adapter" -p 16 -n 4 --seconds 0 -t 2 --json
shows "\"lora\":{\"pairs\":"

# ---- refused with one line
run 1 generate -m "$model" -p a --lora "$scratch/nowhere"
one_message "nowhere"
run 2 generate -m "$model" -p a --lora "$scratch/adapter:much"
usage "must be a number"
run 1 merge "$model" "$scratch/adapter" "$model"
one_message "$model"
run 1 merge "$model" "$model/config.json" "$scratch/no"
run 2 merge "$model" "$scratch/adapter"
usage "dsmoe merge BASE ADAPTER OUT"
run 2 eval -m "$model" --lora "$scratch/adapter" --probes -f "$model/config.json"
usage "dsmoe merge"
sed 's/"LORA"/"IA3"/' "$scratch/adapter/adapter_config.json" >"$scratch/zeros/adapter_config.json"
run 1 generate -m "$model" -p a --lora "$scratch/zeros"
one_message "only LoRA adapters are supported"

# ---- questions
cat >"$scratch/quiz.jsonl" <<END
{"question": "What is two?", "choices": ["one", "two"], "answer": 1}
{"prompt": "The cat sat on the", "choices": ["mat", "moon", "hill"], "answer": 0}
END
echo '{"prompt": "One, two,", "answer": "three", "max_tokens": 4}' >"$scratch/write.jsonl"
run 0 eval -m "$model" --tasks "$scratch/quiz.jsonl" --tasks "$scratch/write.jsonl" -t 2
shows "quiz.jsonl" "acc " "acc_norm " "acc_token " "(2 questions)" "write.jsonl" "exact_match " "(1 questions)"
run 0 eval -m "$model" --tasks "$scratch/quiz.jsonl" --json -t 2 --lora "$scratch/adapter"
is_json
shows '"questions": 2, "answered": 2' '"acc": ' '"acc_stderr": ' '"acc_norm_stderr": '
run 0 eval -m "$model" --tasks "$scratch/write.jsonl" --answers -t 2
shows '"line": 1, "right": ' '"text": '
run 1 eval -m "$model" --tasks "$scratch/text.txt"
echo '{"prompt": "a"}' >>"$scratch/quiz.jsonl"
run 1 eval -m "$model" --tasks "$scratch/quiz.jsonl"
one_message "quiz.jsonl: line 3: it has no \"answer\""
run 2 eval -m "$model" --tasks "$scratch/quiz.jsonl" -f "$scratch/quiz.jsonl"
usage "--tasks cannot be used together with"
run 2 eval -m "$model" --answers -f "$scratch/quiz.jsonl"
usage "--answers has no effect without --tasks"

exit $failed

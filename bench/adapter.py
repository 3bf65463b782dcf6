#!/usr/bin/python3
"""Tests whether a GGUF adapter written by dsmoe changes llama.cpp's model in the same way as it changes dsmoe's.

    cmake --build build --target dsmoe bench_scores
    bench/adapter.py build MODEL                    needs the npm package node-llama-cpp

MODEL is a folder of an unquantised model without latent attention. The script makes a random LoRA adapter of all its
projections as a PEFT folder. dsmoe makes a GGUF adapter and a merged model from it. Then all of these run over random tokens.
The table has KL in nats, the mean over all tokens, and how often both sides agree on the likeliest token. The adapter itself
should change much more than the engines differ, and the engines should differ as little with it as without it.
"""
import argparse
import array
import json
import os
import random
import struct
import sys
import tempfile

sys.dont_write_bytecode = True  # keeps the source folder clean
import interop  # noqa: E402
import llama  # noqa: E402

SOME = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", metavar="BUILD", help="the folder with dsmoe and bench_scores")
    p.add_argument("model", metavar="MODEL")
    p.add_argument("--peer-folder", default=llama.DEFAULT_FOLDER,
                   help="the folder that contains node_modules/node-llama-cpp (build/peer)")
    p.add_argument("--type", default="f32", choices=("f32", "bf16", "f16", "q8_0"), help="type of the base (f32)")
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--size", type=float, default=0.05, help="standard deviation of the numbers in A and B (0.05)")
    p.add_argument("--prompts", type=int, default=4)
    p.add_argument("--tokens", type=int, default=32, help="tokens of each prompt (32)")
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def modules(config):
    """Names and shapes [out, in] of the adapted modules."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kv = hidden // heads * config.get("num_key_value_heads", heads)
    width, dense = config["moe_intermediate_size"], config["intermediate_size"]

    def mlp(name, n):
        return {f"{name}gate_proj": (n, hidden), f"{name}up_proj": (n, hidden), f"{name}down_proj": (hidden, n)}

    found = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for letter, n in (("q", hidden), ("k", kv), ("v", kv), ("o", hidden)):
            found[f"{name}self_attn.{letter}_proj"] = (n, hidden)
        if layer < config["first_k_dense_replace"] or layer % config.get("moe_layer_freq", 1):
            found |= mlp(f"{name}mlp.", dense)
            continue
        for expert in range(config["n_routed_experts"]):
            found |= mlp(f"{name}mlp.experts.{expert}.", width)
        if config.get("n_shared_experts"):
            found |= mlp(f"{name}mlp.shared_experts.", width * config["n_shared_experts"])
    return found


def write_adapter(folder, config, rank, size):
    """Writes a folder in PEFT's form, with random numbers."""
    rng, header, data, at = random.Random(1), {}, [], 0
    for module, (n_out, n_in) in modules(config).items():
        for half, shape in (("A", (rank, n_in)), ("B", (n_out, rank))):
            numbers = array.array("f", (rng.gauss(0, size) for _ in range(shape[0] * shape[1])))
            header[f"base_model.model.{module}.lora_{half}.weight"] = dict(
                dtype="F32", shape=shape, data_offsets=[at, at + 4 * len(numbers)])
            at += 4 * len(numbers)
            data.append(numbers.tobytes())
    os.makedirs(folder)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump(dict(peft_type="LORA", task_type="CAUSAL_LM", r=rank, lora_alpha=2 * rank, bias="none",
                       target_modules=list(SOME)), file)


def run(a, scratch):
    dsmoe = interop.Dsmoe(a.build, a.threads)
    with open(os.path.join(a.model, "config.json")) as file:
        config = json.load(file)
    base, peft, gguf, merged = (os.path.join(scratch, name) for name in
                                ("base.gguf", "adapter", "adapter.gguf", "merged.gguf"))
    dsmoe.write(a.model, base, a.type)
    write_adapter(peft, config, a.rank, a.size)
    dsmoe.run(dsmoe.command, "convert", peft, gguf, "-m", base)
    dsmoe.run(dsmoe.command, "merge", a.model, peft, merged, "--type", a.type)
    rng = random.Random(2)
    prompts = [[rng.randrange(config["vocab_size"]) for _ in range(a.tokens)] for _ in range(a.prompts)]
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in prompts).encode()

    def ours(model, *adapter):
        out = dsmoe.run(dsmoe.scorer, model, "prompt", str(a.threads), *adapter, text=lines)
        return interop.rows(array.array("f", out), config["vocab_size"])

    def theirs(model, adapter=None):
        return interop.rows(llama.scores(a.peer_folder, model, prompts, a.threads, adapter), config["vocab_size"])

    dsmoe_base, dsmoe_peft, dsmoe_gguf, dsmoe_merged = ours(base), ours(base, peft), ours(base, gguf), ours(merged)
    llama_base, llama_gguf, llama_merged = theirs(base), theirs(base, gguf), theirs(merged)
    pairs = {
        "what the adapter changes, in dsmoe": (dsmoe_gguf, dsmoe_base),
        "what the adapter changes, in llama.cpp": (llama_gguf, llama_base),
        "without it, dsmoe and llama.cpp": (dsmoe_base, llama_base),
        "with the GGUF adapter, dsmoe and llama.cpp": (dsmoe_gguf, llama_gguf),
        "with PEFT's folder in dsmoe, llama.cpp": (dsmoe_peft, llama_gguf),
        "merged, dsmoe and llama.cpp": (dsmoe_merged, llama_merged),
        "unmerged and merged, dsmoe": (dsmoe_gguf, dsmoe_merged),
        "unmerged and merged, llama.cpp": (llama_gguf, llama_merged),
    }
    return {name: interop.compare(*pair) for name, pair in pairs.items()}


def main():
    a = parse()
    llama.need_package(a.peer_folder)
    with tempfile.TemporaryDirectory() as scratch:
        table = run(a, scratch)
    if a.json:
        print(json.dumps(table, indent=1))
        return
    print(f"{'':44}{'KL':>12}{'same top':>10}")
    for name, row in table.items():
        print(f"{name:44}{row['kl']:12.3g}{100 * row['same_top']:9.1f}%")


if __name__ == "__main__":
    main()

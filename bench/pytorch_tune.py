#!/usr/bin/python3
"""A reference for fine-tuning in PyTorch, written from the formulas and not from dsmoe's code. dsmoe must give the same results.

    pytorch_tune.py tests/data/lm/base lora    tests/data/tune/lora.safetensors
    pytorch_tune.py tests/data/lm/base experts tests/data/tune/experts.safetensors
    pytorch_tune.py tests/data/lm_v2/v2_lite lora tests/data/tune/latent_lora.safetensors
    pytorch_tune.py tests/data/lm/base dpo     tests/data/tune/dpo.safetensors

It takes a tiny model in the public layout (multi-head or latent attention, softmax gate), checks itself against
the model's expected.safetensors, and then makes twenty optimizer steps. It trains low-rank adapters on every kind of
matrix, or some chosen experts; everything else is frozen. With `dpo` the adapters learn preferences: rows of
`input_ids` alternate between the chosen and the rejected answer, after the same first PROMPT tokens. The file that it
writes has `input_ids`, `lr`, `loss`, `aux_loss` and `grad_norm` of each step (with `dpo` also `accuracy` and `margin`).
For every trained tensor it has `init.NAME`, `grad.NAME` (of the first step) and `final.NAME`; adapters have PEFT's
names. Needs PyTorch (Debian: python3-torch).
"""
import json
import math
import struct
import sys

import numpy as np
import torch
from torch.nn import functional as F

RANK, ALPHA = 4, 6.0
EXPERTS = {1: [0, 5, 7], 2: [3, 11]}
STEPS, BATCH, LENGTH = 20, 4, 32
PROMPT, BETA = 8, 0.5
TYPES = {"F32": np.float32, "I64": np.int64, "I32": np.int32}


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        tensors[name] = torch.from_numpy(np.frombuffer(data[begin:end], TYPES[t["dtype"]]).reshape(t["shape"]).copy())
    return tensors


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        array = tensor.detach().numpy()
        kind = {np.dtype(v): k for k, v in TYPES.items()}[array.dtype]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


class Model:
    """Weights under their public names, and `adapters` under the same names without ".weight"."""

    def __init__(self, folder):
        self.c = json.load(open(folder + "/config.json"))
        self.w = read_safetensors(folder + "/model.safetensors")
        self.adapters = {}

    def linear(self, name, x):
        y = x @ self.w[name + ".weight"].T
        if name in self.adapters:
            a, b = self.adapters[name]
            y = y + (ALPHA / RANK) * ((x @ a.T) @ b.T)
        return y

    def norm(self, name, x):
        return self.w[name + ".weight"] * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.c["rms_norm_eps"]))

    def ffn(self, name, x):
        return self.linear(name + ".down_proj",
                           F.silu(self.linear(name + ".gate_proj", x)) * self.linear(name + ".up_proj", x))

    # ---- attention

    def yarn(self):
        """Frequencies of the rotation, the factor of cos and sin, and the m of the scores."""
        c, s = self.c, self.c["rope_scaling"]
        d = c.get("qk_rope_head_dim") or c["hidden_size"] // c["num_attention_heads"]
        plain = c["rope_theta"] ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
        if not s:
            return plain, 1.0, 1.0
        turns = lambda beta: d * math.log(s["original_max_position_embeddings"] / (beta * 2 * math.pi)) / (
            2 * math.log(c["rope_theta"]))
        low, high = max(math.floor(turns(s["beta_fast"])), 0), min(math.ceil(turns(s["beta_slow"])), d - 1)
        ramp = ((torch.arange(d // 2, dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
        m = lambda scale: 0.1 * scale * math.log(s["factor"]) + 1
        return plain * (1 - ramp) + plain / s["factor"] * ramp, m(s["mscale"]) / m(s["mscale_all_dim"]), m(s["mscale_all_dim"])

    def turned(self, x, neighbours):
        speed, size, _ = self.yarn()
        angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * speed
        cos, sin = (angles.cos() * size).float(), (angles.sin() * size).float()
        half = x.shape[-1] // 2
        a, b = (x[..., 0::2], x[..., 1::2]) if neighbours else (x[..., :half], x[..., half:])
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def scores_to_values(self, q, k, v, scale):
        length = q.shape[-2]
        future = torch.full((length, length), float("-inf")).triu(1)
        out = ((q @ k.transpose(-1, -2)) * scale + future).softmax(-1) @ v
        return out.transpose(1, 2).flatten(2)

    def heads(self, x, n):
        return x.view(*x.shape[:2], n, -1).transpose(1, 2)

    def attention(self, name, x):
        n = self.c["num_attention_heads"]
        if "kv_lora_rank" in self.c:
            return self.latent_attention(name, x, n)
        q, k, v = (self.heads(self.linear(f"{name}.{p}_proj", x), n) for p in "qkv")
        out = self.scores_to_values(self.turned(q, False), self.turned(k, False), v, q.shape[-1] ** -0.5)
        return self.linear(name + ".o_proj", out)

    def latent_attention(self, name, x, n):
        c = self.c
        nope, rope = c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        q_nope, q_rope = self.heads(self.linear(name + ".q_proj", x), n).split([nope, rope], -1)
        latent, k_rope = self.linear(name + ".kv_a_proj_with_mqa", x).split([c["kv_lora_rank"], rope], -1)
        kv = self.heads(self.linear(name + ".kv_b_proj", self.norm(name + ".kv_a_layernorm", latent)), n)
        k_nope, v = kv.split([nope, c["v_head_dim"]], -1)
        k_rope = self.turned(k_rope[:, None], True).expand(-1, n, -1, -1)
        q, k = torch.cat((q_nope, self.turned(q_rope, True)), -1), torch.cat((k_nope, k_rope), -1)
        scale = (nope + rope) ** -0.5 * self.yarn()[2] ** 2
        return self.linear(name + ".o_proj", self.scores_to_values(q, k, v, scale))

    # ---- mixture of experts

    def moe(self, name, x):
        c, (batch, length, hidden) = self.c, x.shape
        n, k = c["n_routed_experts"], c["num_experts_per_tok"]
        scores = (x @ self.w[name + ".gate.weight"].T).softmax(-1)
        weight, chosen = scores.topk(k, -1)
        if c["norm_topk_prob"]:
            weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        share = F.one_hot(chosen, n).float().sum((1, 2)) * n / (length * k)
        aux = c["aux_loss_alpha"] * (share * scores.mean(1)).sum(1).mean()
        flat, out = x.reshape(-1, hidden), torch.zeros(batch * length, hidden)
        for e in range(n):
            token, slot = (chosen.view(-1, k) == e).nonzero(as_tuple=True)
            y = self.ffn(f"{name}.experts.{e}", flat[token]) * weight.view(-1, k)[token, slot, None]
            out = out.index_add(0, token, y)
        return out.view(x.shape) + self.ffn(name + ".shared_experts", x), aux

    def forward(self, ids):
        c, aux = self.c, 0.0
        x = self.w["model.embed_tokens.weight"][ids]
        for i in range(c["num_hidden_layers"]):
            layer = f"model.layers.{i}"
            x = x + self.attention(layer + ".self_attn", self.norm(layer + ".input_layernorm", x))
            normed = self.norm(layer + ".post_attention_layernorm", x)
            if i < c["first_k_dense_replace"]:
                x = x + self.ffn(layer + ".mlp", normed)
            else:
                y, loss = self.moe(layer + ".mlp", normed)
                x, aux = x + y, aux + loss
        return self.linear("lm_head", self.norm("model.norm", x)), aux

    def losses(self, ids):
        logits, aux = self.forward(ids)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()), aux

    def margins(self, ids):
        """log p(chosen) - log p(rejected) of each pair of rows, without the prompt."""
        logits, aux = self.forward(ids)
        logp = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0][:, PROMPT - 1 :].sum(1)
        return logp[0::2] - logp[1::2], aux

    def preferences(self, ids):
        """DPO (arXiv 2305.18290), with the model without its adapters as the reference."""
        adapters, self.adapters = self.adapters, {}
        with torch.no_grad():
            reference, _ = self.margins(ids)
        self.adapters = adapters
        margins, aux = self.margins(ids)
        gain = BETA * (margins - reference)
        return -F.logsigmoid(gain).mean(), aux, (gain > 0).float().mean(), gain.mean()


def check(model, folder):
    expected = read_safetensors(folder + "/expected.safetensors")
    logits, aux = model.forward(expected["input_ids"].long())
    off = (logits - expected["logits"]).abs().max().item()
    print(f"logits differ by {off:.1e} from the model's reference, its balance loss by "
          f"{abs(float(aux) - float(expected['aux_loss'])):.1e}")
    if not off < 1e-5:
        sys.exit("this is not the model of the reference")


def make_adapters(model):
    """Adapters on all matrices of attention and FFNs except kv_b_proj, which engines split. B is not zero, so that A
    has gradients from the first step on."""
    trained = {}
    for name in list(model.w):
        base = name[: -len(".weight")]
        if model.w[name].dim() != 2 or ".layers." not in name or base.endswith(("mlp.gate", "kv_b_proj")):
            continue
        n_out, n_in = model.w[name].shape
        a = (torch.rand(RANK, n_in) * 2 - 1) / n_in**0.5
        b = torch.randn(n_out, RANK) * 0.05
        model.adapters[base] = a.requires_grad_(), b.requires_grad_()
        trained[f"base_model.model.{base}.lora_A.weight"], trained[f"base_model.model.{base}.lora_B.weight"] = a, b
    return trained


def choose_experts(model):
    trained = {}
    for layer, experts in EXPERTS.items():
        for e in experts:
            for part in ("gate_proj", "up_proj", "down_proj"):
                name = f"model.layers.{layer}.mlp.experts.{e}.{part}.weight"
                trained[name] = model.w[name].requires_grad_()
    return trained


def rate(step):
    return 3e-3 * min(1, (step + 1) / 4) * (0.316 if step >= 16 else 1) * (0.316 if step >= 18 else 1)


def main():
    if len(sys.argv) != 4 or sys.argv[2] not in ("lora", "experts", "dpo"):
        sys.exit("usage: pytorch_tune.py MODEL lora|experts|dpo OUT.safetensors")
    folder, what, out = sys.argv[1:]
    torch.manual_seed(7)
    torch.set_num_threads(2)
    model = Model(folder)
    with torch.no_grad():
        check(model, folder)
    trained = choose_experts(model) if what == "experts" else make_adapters(model)
    kept = {f"init.{name}": t.detach().clone() for name, t in trained.items()}
    ids = torch.randint(0, model.c["vocab_size"], (STEPS, BATCH, LENGTH))
    ids[1:] = ids[0]  # a repeated text, so that the loss falls
    if what == "dpo":
        ids[:, 1::2, :PROMPT] = ids[:, 0::2, :PROMPT]
    optimizer = torch.optim.AdamW(trained.values(), lr=0.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    series = {"loss": [], "aux_loss": [], "grad_norm": [], "lr": []}
    if what == "dpo":
        series.update({"accuracy": [], "margin": []})
    for step in range(STEPS):
        loss, aux, *more = (model.preferences if what == "dpo" else model.losses)(ids[step])
        (loss + aux).backward()
        if step == 0:
            kept.update({f"grad.{name}": t.grad.clone() for name, t in trained.items()})
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for key, value in zip(series, (loss, aux, norm, rate(step), *more)):
            series[key].append(float(value))
    kept.update({f"final.{name}": t.detach() for name, t in trained.items()})
    kept.update({key: torch.tensor(values) for key, values in series.items()})
    kept["input_ids"] = ids.int()
    write_safetensors(out, kept, {"rank": str(RANK), "alpha": str(ALPHA)} if what != "experts" else {
        "experts": json.dumps({str(k): v for k, v in EXPERTS.items()})})
    print(f"loss {series['loss'][0]:.4f} -> {series['loss'][-1]:.4f} over {STEPS} steps, {len(trained)} tensors trained")


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Times optimizer steps of a small DeepSeekMoE language model in PyTorch, for comparison with dsmoe.

Usually started by bench/train.py, which sends it a line for each step and gets the step's time back, or by
bench/ranks.py under mpirun, as several ranks that train together over gloo (MASTER_ADDR and MASTER_PORT
name their meeting point). By itself:  pytorch_train.py --steps 1

The MoE layer is the published one in pytorch_layer.py. RMS norms, rotary attention, AdamW and clipping are
the same as in dsmoe. Needs PyTorch (Debian: python3-torch, libopenblas0).
"""
import argparse
import json
import os
import sys
import time

import torch
from torch import distributed, nn
from torch.nn import functional as F

from pytorch_layer import MoE


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))


def turned(x, angles):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads = a.heads
        self.norms = nn.ModuleList([Norm(a.hidden), Norm(a.hidden)])
        self.proj = nn.ModuleList(nn.Linear(a.hidden, a.hidden, bias=False) for _ in range(4))
        self.moe = MoE(a.hidden, a.moe, a.routed, a.shared, a.k)

    def attention(self, x):
        batch, length, hidden = x.shape
        dim = hidden // self.heads
        q, k, v = (p(x).view(batch, length, self.heads, dim).transpose(1, 2) for p in self.proj[:3])
        speed = 10000.0 ** (-torch.arange(0, dim, 2) / dim)
        angles = torch.arange(length)[:, None] * speed
        scores = turned(q, angles) @ turned(k, angles).transpose(2, 3) / dim**0.5
        future = torch.full((length, length), float("-inf")).triu(1)
        out = (scores + future).softmax(-1) @ v
        return self.proj[3](out.transpose(1, 2).reshape(batch, length, hidden))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.moe(self.norms[1](x))


def make_step(a):
    model = nn.Sequential(nn.Embedding(a.vocab, a.hidden), *(Block(a) for _ in range(a.layers)), Norm(a.hidden),
                          nn.Linear(a.hidden, a.vocab, bias=False)).train()
    if distributed.is_initialized():  # sends gradients during backward; experts without tokens have zero gradients
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    tokens, targets = torch.randint(0, a.vocab, (2, a.batch, a.seq))

    def step():
        F.cross_entropy(model(tokens).view(-1, a.vocab), targets.view(-1)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main():
    p = argparse.ArgumentParser()
    sizes = dict(hidden=256, layers=6, heads=4, moe=172, routed=63, shared=1, k=7, vocab=8192, batch=8, seq=256, threads=2)
    for name, value in sizes.items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--steps", type=int, help="number of steps to time, instead of one for each line of stdin")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    rank, size = (int(os.environ.get("OMPI_COMM_WORLD_" + name, n)) for name, n in (("RANK", 0), ("SIZE", 1)))
    if size > 1:
        distributed.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(rank)  # for the batch; the weights come from rank 0
    step = make_step(a)
    step()
    for _ in range(a.steps) if a.steps else sys.stdin:
        if size > 1:
            distributed.barrier()
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        if rank == 0:
            print(json.dumps(dict(step_seconds=seconds, tokens_per_s=size * a.batch * a.seq / seconds)), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Times the MoE layer as the published PyTorch code computes it, for comparison with dsmoe.

Usually started by bench/layer.py. By itself:  pytorch_layer.py infer 512  |  pytorch_layer.py train 2048

Training repeats every token k times and runs each expert on a boolean mask of the copies; inference sorts
the (token, expert) pairs and loops over the experts. Needs PyTorch (Debian: python3-torch, libopenblas0).
"""
import argparse
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Expert(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class AddLoss(torch.autograd.Function):
    """Returns x unchanged; in backward the loss gets gradient 1."""

    @staticmethod
    def forward(ctx, x, loss):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, torch.ones(())


class MoE(nn.Module):
    def __init__(self, hidden, width, n_routed, n_shared, k, alpha=0.001):
        super().__init__()
        self.k, self.n_routed, self.alpha = k, n_routed, alpha
        self.router = nn.Parameter(torch.empty(n_routed, hidden).uniform_(-1, 1) / hidden**0.5)
        self.experts = nn.ModuleList(Expert(hidden, width) for _ in range(n_routed))
        self.shared = Expert(hidden, width * n_shared) if n_shared else None

    def balance_loss(self, scores, chosen, batch, length):
        share = torch.zeros(batch, self.n_routed)
        share.scatter_add_(1, chosen.view(batch, -1), torch.ones(batch, length * self.k))
        share *= self.n_routed / (length * self.k)
        return self.alpha * (share * scores.view(batch, length, -1).mean(1)).sum(1).mean()

    def run_training(self, x, chosen, weight):
        copies, flat = x.repeat_interleave(self.k, dim=0), chosen.view(-1)
        out = torch.empty_like(copies)
        for i, expert in enumerate(self.experts):
            mask = flat == i
            out[mask] = expert(copies[mask])
        return (out.view(*weight.shape, -1) * weight.unsqueeze(-1)).sum(1)

    def run_inference(self, x, chosen, weight):
        flat, out = chosen.view(-1), torch.zeros_like(x)
        order = flat.argsort()
        ends = flat.bincount().cumsum(0).tolist()
        for i, (begin, end) in enumerate(zip([0] + ends, ends)):
            if begin == end:
                continue
            slots = order[begin:end]
            token = slots // self.k
            y = self.experts[i](x[token]) * weight.view(-1, 1)[slots]
            out.scatter_reduce_(0, token.view(-1, 1).expand(-1, x.shape[1]), y, reduce="sum")
        return out

    def forward(self, u):
        batch, length, hidden = u.shape
        x = u.view(-1, hidden)
        scores = F.linear(x, self.router).softmax(-1)
        weight, chosen = torch.topk(scores, self.k, dim=-1, sorted=False)
        if self.training:
            y = self.run_training(x, chosen, weight)
            y = AddLoss.apply(y, self.balance_loss(scores, chosen, batch, length))
        else:
            y = self.run_inference(x, chosen, weight)
        if self.shared is not None:
            y = y + self.shared(x)
        return y.view_as(u)


def best(run, repeats):
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def time_case(moe, hidden, mode, tokens, repeats):
    x = torch.randn(1, tokens, hidden)
    if mode == "infer":
        moe.eval()
        with torch.no_grad():
            return best(lambda: moe(x), repeats)
    moe.train()
    x.requires_grad_(True)

    def step():
        moe(x).sum().backward()
        moe.zero_grad(set_to_none=True)
        x.grad = None

    return best(step, max(1, repeats - 1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("case", nargs="*", help="MODE TOKENS; without it, such lines are read from stdin")
    for name, value in dict(threads=2, hidden=2048, moe=1408, routed=64, shared=2, k=6, repeats=3).items():
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    moe = MoE(a.hidden, a.moe, a.routed, a.shared, a.k)
    flops = 6 * a.hidden * a.moe * (a.k + a.shared)
    for line in [" ".join(a.case)] if a.case else sys.stdin:
        mode, tokens = line.split()
        t = time_case(moe, a.hidden, mode, int(tokens), a.repeats)
        work = flops * int(tokens) * (3 if mode == "train" else 1)
        print(json.dumps(dict(mode=mode, tokens=int(tokens), ms=t * 1e3, gflops=work / t / 1e9)), flush=True)


if __name__ == "__main__":
    main()

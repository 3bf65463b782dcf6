#!/usr/bin/python3
"""Compares a training step of a small language model in dsmoe and in PyTorch, taking turns in one run.

    bench/train.py [build/dsmoe] [--hidden 256 …]        needs Debian's python3-torch and libopenblas0

Each round times some steps of dsmoe, together with the machine's multiply-add peak, and one step of PyTorch.
For both the best of all rounds counts. --peer takes another program that prints JSON with tokens_per_s.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = dict(hidden=256, layers=6, heads=4, moe=172, routed=63, shared=1, k=7, vocab=8192, batch=8, seq=256, threads=2)


def run(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def start_peer(options):
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        sys.exit("PyTorch is missing: apt-get install python3-torch libopenblas0")
    return subprocess.Popen([python, os.path.join(HERE, "pytorch_train.py"), *options], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, bufsize=1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program", nargs="?", default=os.path.join(HERE, "..", "build", "dsmoe"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peer", help="run this command instead of pytorch_train.py")
    for name, value in SIZES.items():
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    options = [word for name in SIZES for word in ("--" + name, str(getattr(a, name)))]
    peer = None if a.peer else start_peer(options)
    ours, theirs = [], []
    for i in range(a.rounds):
        ours.append(run([a.program, "bench", "train", "--seconds", "6", "--json", *options]))
        if peer:
            peer.stdin.write("step\n")
            theirs.append(json.loads(peer.stdout.readline()))
        else:
            theirs.append(run(shlex.split(a.peer)))
        print(f"round {i + 1}: dsmoe {ours[-1]['tokens_per_s']:.0f} tokens/s, {ours[-1]['fma_share']:.0%} of multiply-adds; "
              f"peer {theirs[-1]['tokens_per_s']:.0f} tokens/s", flush=True)
    best, peer_best = (max(rounds, key=lambda r: r["tokens_per_s"]) for rounds in (ours, theirs))
    peak = max(r["fma_gflops"] for r in ours)
    print(f"\nbest: dsmoe {best['tokens_per_s']:.0f} tokens/s = {best['gflops']:.1f} GFLOP/s, "
          f"{best['gflops'] / peak:.0%} of the {peak:.1f} measured; peer {peer_best['tokens_per_s']:.0f} tokens/s; "
          f"dsmoe is {best['tokens_per_s'] / peer_best['tokens_per_s']:.1f} x")
    for part, seconds in best["seconds"].items():
        print(f"  {part:<10}{1e3 * seconds:9.1f} ms  {seconds / best['step_seconds']:6.1%}")


if __name__ == "__main__":
    main()

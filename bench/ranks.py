#!/usr/bin/python3
"""Compares training steps of several ranks in dsmoe and in PyTorch (data parallel over gloo), taking turns in one run.

    bench/ranks.py [build/dsmoe] [--layouts 1x1,1x2,2x1] [--gbit 1] [--hidden 256 …]
                                    needs Open MPI and Debian's python3-torch and libopenblas0

A layout is ranks x threads of each rank. Every rank computes one batch per step. Each round runs both programs with every
layout, and the best step of all rounds counts. Without --gbit the ranks are processes of this machine that communicate over
the loopback interface. With it they are simulated machines (hosts.sh) on a network of that many Gbit/s. The efficiency is the
speed of R ranks divided by R times the speed of one rank with as many threads.
"""
import argparse
import json
import os
import socket
import subprocess
import sys

from train import HERE, SIZES

PYTHON = "/usr/bin/python3"


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return str(s.getsockname()[1])


def launch(n_ranks, gbit, words):
    """Runs the command `words` under mpirun. Returns the JSON objects that rank 0 prints."""
    where = dict(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(n_ranks)]
    if gbit:
        where = dict(MASTER_ADDR="10.9.0.1", GLOO_SOCKET_IFNAME="cable")
        command = ["sh", os.path.join(HERE, "hosts.sh"), str(n_ranks), str(gbit)]
    where["MASTER_PORT"] = free_port()
    export = [word for name in where for word in ("-x", name)]
    if gbit:
        where["MPIRUN"] = " ".join(export)
    else:
        command += ["--mca", "btl", "self,tcp", *export]
    done = subprocess.run(command + words, env=dict(os.environ, **where), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}")
    found, text = [], done.stdout
    while "{" in text:
        text = text[text.index("{"):]
        result, end = json.JSONDecoder().raw_decode(text)
        found, text = found + [result], text[end:]
    return found


def measure(a, layout):
    """The best step of each program: tokens/s, and for dsmoe also the parts of the step."""
    n_ranks, n_threads = layout
    options = [w for name in SIZES if name != "threads" for w in ("--" + name, str(getattr(a, name)))]
    options += ["--threads", str(n_threads)]
    gbit = a.gbit if n_ranks > 1 else 0
    ours = launch(n_ranks, gbit, [a.program, "bench", "train", "--seconds", str(a.seconds), "--json", *options])
    theirs = launch(n_ranks, gbit, [PYTHON, os.path.join(HERE, "pytorch_train.py"), "--steps", str(a.steps), *options])
    return [max(rounds, key=lambda r: r["tokens_per_s"]) for rounds in (ours, theirs)]


def efficiency(best, layout, which):
    n_ranks, n_threads = layout
    alone = best.get((1, n_threads))
    if n_ranks == 1 or not alone:
        return ""
    return f"{best[layout][which]['tokens_per_s'] / (n_ranks * alone[which]['tokens_per_s']):.0%}"


def print_table(best):
    print("| ranks x threads | dsmoe, tokens/s | efficiency | sends and waits | PyTorch, tokens/s | efficiency | dsmoe is |")
    print("|---|---|---|---|---|---|---|")
    for layout, (ours, theirs) in best.items():
        seconds = ours["seconds"]
        idle = (seconds.get("sending", 0) + seconds.get("waiting", 0)) / ours["step_seconds"]
        print(f"| {layout[0]} x {layout[1]} | {ours['tokens_per_s']:.0f} | {efficiency(best, layout, 0)} | "
              f"{format(idle, '.0%') if layout[0] > 1 else ''} | {theirs['tokens_per_s']:.0f} | "
              f"{efficiency(best, layout, 1)} | {ours['tokens_per_s'] / theirs['tokens_per_s']:.1f} x |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program", nargs="?", default=os.path.join(HERE, "..", "build", "dsmoe"))
    p.add_argument("--layouts", default="1x1,1x2,2x1", help="ranks x threads, separated by commas")
    p.add_argument("--gbit", type=float, default=0)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=5, help="seconds for dsmoe in each round")
    p.add_argument("--steps", type=int, default=2, help="steps of PyTorch in each round")
    for name, value in SIZES.items():
        if name != "threads":
            p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        sys.exit("PyTorch is missing: apt-get install python3-torch libopenblas0")
    layouts = [tuple(int(n) for n in layout.split("x")) for layout in a.layouts.split(",")]
    best = {}
    for _ in range(a.rounds):
        for layout in layouts:
            new = measure(a, layout)
            old = best.get(layout, new)
            best[layout] = [max(pair, key=lambda r: r["tokens_per_s"]) for pair in zip(old, new)]
            print(f"{layout[0]} x {layout[1]}: dsmoe {new[0]['tokens_per_s']:.0f} tokens/s, "
                  f"PyTorch {new[1]['tokens_per_s']:.0f}", file=sys.stderr, flush=True)
    print_table(best)


if __name__ == "__main__":
    main()

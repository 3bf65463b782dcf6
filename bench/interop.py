#!/usr/bin/python3
"""Tests that dsmoe and llama.cpp read each other's files.

    cmake --build build --target dsmoe bench_scores
    bench/interop.py build MODEL TEXT               needs the npm package node-llama-cpp
    bench/interop.py build MODEL                    a model without a tokenizer, such as tests/data/lm_v2/v2_lite

MODEL is a folder or a .gguf file that is not quantised, with its tokenizer, of a model trained on texts like
TEXT. If the length of its rows (hidden_size, the experts' width) is not a multiple of 256, types with blocks of 256
are replaced by others, and these are compared. Without TEXT the prompts are made-up token ids, and there is no
third table. The three tables are:

1. Both engines open the same file of each type, written by dsmoe. The table shows whether they tokenise the text
   in the same way and predict the same next tokens: KL(dsmoe || llama.cpp) in nats, the mean over all tokens of
   some prompts, and how often both agree on the likeliest token. dsmoe reads the prompts once in one pass and
   once token by token. The last columns show how far each engine is from the unquantised model, which is the
   cost of the type itself.
2. llama.cpp quantises the unquantised file, and dsmoe opens the result.
3. The quality of both quantisers: `dsmoe eval --against` of each engine's file over the whole text, with the KL
   from the unquantised model and the ratio, at the same number of bytes.
"""
import argparse
import array
import json
import math
import os
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # keeps the source folder clean
import llama  # noqa: E402

FLOATS = ("f32", "f16", "bf16")
TYPES = FLOATS + ("q8_0", "q6_k", "q5_1", "q5_k", "q5_0", "q4_k_m", "q4_k", "q4_0")


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", metavar="BUILD", help="the folder with dsmoe and bench_scores")
    p.add_argument("model", metavar="MODEL")
    p.add_argument("text", metavar="TEXT", nargs="?")
    p.add_argument("--peer-folder", default=llama.DEFAULT_FOLDER,
                   help="the folder that contains node_modules/node-llama-cpp (build/peer)")
    p.add_argument("--types", default=",".join(TYPES), help="types to test, separated by commas (all)")
    p.add_argument("--prompts", type=int, default=4, help="number of prompts, spread over the text (4)")
    p.add_argument("--tokens", type=int, default=32, help="tokens of each prompt (32)")
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("--scratch", help="a folder for the files, which are kept (default: a temporary one)")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


class Refused(Exception):
    """dsmoe's message for a file that it does not open."""


class Dsmoe:
    """The two programs."""

    def __init__(self, build, threads):
        self.command, self.scorer = os.path.join(build, "dsmoe"), os.path.join(build, "bench_scores")
        self.threads = threads
        for program in (self.command, self.scorer):
            if not os.path.exists(program):
                sys.exit(f"{program} is missing; build it: cmake --build {build} --target dsmoe bench_scores")

    def run(self, *words, text=None):
        run = subprocess.run(words, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if run.returncode:
            raise Refused(run.stderr.decode().strip())
        return run.stdout

    def write(self, source, target, type_name):
        if os.path.exists(target):
            os.remove(target)
        self.run(self.command, "convert" if type_name in FLOATS else "quantize", source, target, "--type", type_name,
                 "-t", str(self.threads))

    def tokens(self, model, file):
        return list(map(int, self.run(self.command, "tokenize", "-m", model, "--no-bos", "-f", file).split()))

    def inspect(self, model):
        return json.loads(self.run(self.command, "inspect", "-m", model, "--json"))

    def scores(self, model, prompts, how):
        lines = "".join(" ".join(map(str, ids)) + "\n" for ids in prompts)
        return array.array("f", self.run(self.scorer, model, how, str(self.threads), text=lines.encode()))

    def against(self, model, other, file):
        return json.loads(self.run(self.command, "eval", "-m", model, "--against", other, "-f", file, "--json",
                                   "-t", str(self.threads)))


# ---- distributions -------------------------------------------------------------------------------------

def log_probabilities(logits):
    top = max(logits)
    total = top + math.log(math.fsum(math.exp(x - top) for x in logits))
    return [x - total for x in logits]


def rows(scores, vocab_size):
    return [log_probabilities(scores[i:i + vocab_size]) for i in range(0, len(scores), vocab_size)]


def compare(p, q):
    """Means over rows of log-probabilities: KL(p || q), and the share of equal top tokens."""
    if len(p) != len(q):
        sys.exit(f"the two engines have different numbers of rows of logits: {len(p)} and {len(q)}")
    kl = math.fsum(math.exp(a) * (a - b) for x, y in zip(p, q) for a, b in zip(x, y)) / len(p)
    same = sum(x.index(max(x)) == y.index(max(y)) for x, y in zip(p, q)) / len(p)
    return dict(kl=kl, same_top=same)


# ---- the tables ----------------------------------------------------------------------------------------

class Experiment:
    def __init__(self, a, scratch):
        self.a, self.scratch, self.dsmoe = a, scratch, Dsmoe(a.build, a.threads)
        self.types = a.types.split(",")
        if unknown := set(self.types) - set(TYPES):
            sys.exit(f"no such type: {', '.join(unknown)}")
        self.exact = self.path("f32")
        self.dsmoe.write(a.model, self.exact, "f32")
        config = self.dsmoe.inspect(self.exact)["config"]
        self.vocab_size, self.hidden_size = config["vocab_size"], config["hidden_size"]
        self.text_tokens = self.dsmoe.tokens(self.exact, a.text) if a.text else self.some_tokens()
        self.prompts = self.make_prompts(self.text_tokens, config["max_position_embeddings"])
        self.reference = self.ours(self.exact, "prompt")

    def path(self, type_name, maker="dsmoe"):
        return os.path.join(self.scratch, f"{maker}-{type_name}.gguf")

    def some_tokens(self):
        """Enough token ids for all prompts, random so that routing has no pattern, and the same in every run."""
        rng = random.Random(0)
        return [rng.randrange(self.vocab_size) for _ in range(2 * self.a.prompts * self.a.tokens)]

    def make_prompts(self, tokens, n_ctx):
        n, length = self.a.prompts, min(self.a.tokens, n_ctx)
        if len(tokens) < n * length:
            sys.exit(f"{self.a.text}: {len(tokens)} tokens, but {n} prompts of {length} are wanted")
        step = (len(tokens) - length) // max(n - 1, 1)
        return [tokens[i * step:i * step + length] for i in range(n)]

    def ours(self, file, how):
        return rows(self.dsmoe.scores(file, self.prompts, how), self.vocab_size)

    def theirs(self, file):
        scores = llama.scores if self.a.text else llama.library_scores
        return rows(scores(self.a.peer_folder, file, self.prompts, self.a.threads), self.vocab_size)

    def same_tokens(self):
        if not self.a.text:
            return None
        with open(self.a.text, encoding="utf-8", newline="") as file:
            return llama.tokens(self.a.peer_folder, self.exact, file.read()) == self.text_tokens

    def engines(self, type_name):
        file = self.path(type_name)
        if type_name != "f32":
            self.dsmoe.write(self.exact, file, type_name)
        ours, theirs = self.ours(file, "prompt"), self.theirs(file)
        return dict(type=type_name, bytes=os.path.getsize(file), prompt=compare(ours, theirs),
                    decode=compare(self.ours(file, "decode"), theirs), dsmoe_kl=compare(self.reference, ours)["kl"],
                    llama_kl=compare(self.reference, theirs)["kl"])

    def quantiser(self, type_name):
        a, theirs = self.a, self.path(type_name, "llama")
        llama.quantize(a.peer_folder, self.exact, theirs, type_name, self.hidden_size, a.threads)
        result = dict(type=type_name, bytes=os.path.getsize(self.path(type_name)), llama_bytes=os.path.getsize(theirs))
        result["opens"] = compare(self.ours(theirs, "prompt"), self.theirs(theirs))
        for name, file in (("dsmoe", self.path(type_name)), ("llama", theirs)) if a.text else ():
            report = self.dsmoe.against(file, self.exact, a.text)
            result[name] = {key: report[key] for key in ("kl", "kl_error", "same_top", "perplexity")}
        return result

    def quantiser_or_refusal(self, type_name):
        """llama.cpp may give some matrices a type that dsmoe does not have."""
        try:
            return self.quantiser(type_name)
        except Refused as reason:
            return dict(type=type_name, refused=str(reason))


def show_engines(tokens_agree, results, n_rows):
    print(f"1. The same file, written by dsmoe, in both engines; {n_rows} next tokens.")
    words = {True: "the same", False: "NOT the same", None: "made up, as there is no text"}
    print(f"   Tokens of the text: {words[tokens_agree]}.\n")
    print(f"{'':<8}{'':>10}{'prompt in one pass':>22}{'token by token':>22}{'KL from the unquantised':>28}")
    print(f"{'type':<8}{'MB':>10}{'KL':>13}{'same top':>9}{'KL':>13}{'same top':>9}{'dsmoe':>15}{'llama.cpp':>13}")
    for r in results:
        print(f"{r['type']:<8}{r['bytes'] / 1e6:>10.1f}{r['prompt']['kl']:>13.2e}{r['prompt']['same_top']:>9.1%}"
              f"{r['decode']['kl']:>13.2e}{r['decode']['same_top']:>9.1%}{r['dsmoe_kl']:>15.2e}{r['llama_kl']:>13.2e}")


def show_opened(results, refused):
    print("\n2. The same file, quantised by llama.cpp, in both engines.\n")
    print(f"{'type':<8}{'MB':>10}{'KL':>13}{'same top':>9}")
    for r in results:
        print(f"{r['type']:<8}{r['llama_bytes'] / 1e6:>10.1f}{r['opens']['kl']:>13.2e}{r['opens']['same_top']:>9.1%}")
    for r in refused:
        print(f"{r['type']:<8}refused: {r['refused']}")


def show_quantisers(results):
    print("\n3. What quantising costs: KL from the unquantised model over the whole text, in dsmoe.\n")
    print(f"{'type':<8}{'by dsmoe':>24}{'by llama.cpp':>24}{'ratio':>8}{'perplexity':>14}{'llama.cpp':>11}{'bytes':>16}")
    for r in results:
        d, l = r["dsmoe"], r["llama"]
        size = "the same" if r["bytes"] == r["llama_bytes"] else f"{r['bytes'] / r['llama_bytes']:.3f} x"
        print(f"{r['type']:<8}{d['kl']:>13.5f} +/- {d['kl_error']:.5f}{l['kl']:>13.5f} +/- {l['kl_error']:.5f}"
              f"{d['kl'] / l['kl']:>8.3f}{d['perplexity']:>14.4f}{l['perplexity']:>11.4f}{size:>16}")


def main():
    a = parse()
    llama.need_package(a.peer_folder)
    with tempfile.TemporaryDirectory() as folder:
        if a.scratch:
            os.makedirs(a.scratch, exist_ok=True)
        e = Experiment(a, a.scratch or folder)
        tokens_agree = e.same_tokens()
        engines = [e.engines(name) for name in e.types]
        quantisers = [e.quantiser_or_refusal(name) for name in e.types if name not in FLOATS]
    if a.json:
        print(json.dumps(dict(tokens_agree=tokens_agree, engines=engines, quantisers=quantisers), indent=1))
        return
    show_engines(tokens_agree, engines, len(e.prompts) * len(e.prompts[0]))
    opened = [r for r in quantisers if "refused" not in r]
    if quantisers:
        show_opened(opened, [r for r in quantisers if "refused" in r])
    if opened and a.text:
        show_quantisers(opened)


if __name__ == "__main__":
    try:
        main()
    except Refused as reason:
        sys.exit(str(reason))

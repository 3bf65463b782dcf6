"""The prebuilt llama.cpp in the npm package node-llama-cpp, for bench/interop.py and bench/gguf.py.

Speed, tokens and logits come through bench/llama.mjs. The library inside the package can also be called
without JavaScript: for its quantiser, which the package does not offer, for models without a tokenizer,
which the package does not open, and for speed. This runs in a separate process, because the library ends
the program on errors and prints many messages:

    bench/llama.py quantize|speed|scores FOLDER ARGUMENTS…
"""
import array
import ctypes
import glob
import json
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_FOLDER = os.path.normpath(os.path.join(HERE, "..", "build", "peer"))

MIN_ROUNDS = 3
PIECE = 512  # of a prompt, as in dsmoe and llama-bench


def need_package(folder):
    """If the folder does not contain the package, ends the program with a message that says how to install it."""
    missing = [] if shutil.which("node") else ["node (Debian: nodejs, npm)"]
    if not os.path.isdir(os.path.join(folder, "node_modules", "node-llama-cpp")):
        missing.append("node-llama-cpp")
    if missing:
        sys.exit(f"missing: {' and '.join(missing)}. To install llama.cpp for this benchmark:\n"
                 f"  mkdir -p {folder} && cd {folder} && npm install --no-save --ignore-scripts node-llama-cpp\n"
                 "or name the folder that contains node_modules/node-llama-cpp with --peer-folder")


def ask(folder, command, file, options=None, text=""):
    """Returns the output of llama.mjs."""
    words = ["node", os.path.join(HERE, "llama.mjs"), command, os.path.abspath(file), json.dumps(options or {})]
    run = subprocess.run(words, cwd=folder, input=text.encode(), stdout=subprocess.PIPE)
    if run.returncode:
        sys.exit(f"llama.cpp failed with {file}: see its message above")
    return run.stdout


def speed(folder, file, prompt, generate, threads, seconds):
    """Tokens/s. For decoded tokens the time includes the package's sampling and a call into JavaScript."""
    return json.loads(ask(folder, "speed", file, dict(prompt=prompt, generate=generate, threads=threads,
                                                      seconds=seconds)))


def tokens(folder, file, text):
    return json.loads(ask(folder, "tokens", file, text=text))


def scores(folder, file, prompts, threads, lora=None):
    """Logits of all prompts, row after row, with the GGUF adapter `lora` if it is given."""
    lines = "\n".join(" ".join(map(str, ids)) for ids in prompts)
    options = dict(threads=threads)
    if lora:
        options["lora"] = os.path.abspath(lora)
    return array.array("f", ask(folder, "scores", file, options, lines + "\n"))


# ---- the library itself -------------------------------------------------------------------------------

def call(*words, text=""):
    """Runs this file as a program and returns its output."""
    run = subprocess.run([sys.executable, os.path.abspath(__file__), *map(str, words)], input=text.encode(),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if run.returncode:
        sys.exit(f"llama.cpp failed: {' '.join(map(str, words))}\n{run.stderr[-1000:].decode(errors='replace')}")
    return run.stdout


def library_speed(folder, file, prompt, generate, threads, seconds):
    """Like speed(), but without JavaScript and without sampling."""
    return json.loads(call("speed", folder, os.path.abspath(file), prompt, generate, threads, seconds))


def library_scores(folder, file, prompts, threads):
    """Like scores(), but token by token; works for models without a tokenizer too."""
    return array.array("f", call("scores", folder, os.path.abspath(file), threads, text=json.dumps(prompts)))


def quantize(folder, source, target, type_name, hidden_size, threads):
    """Quantises an unquantised GGUF file to `target` with llama.cpp."""
    call("quantize", folder, source, target, type_name, hidden_size, threads)


def load_library(folder):
    """Loads all parts of the library. Returns the last one and the folder of the parts."""
    machine = "x64" if os.uname().machine == "x86_64" else "arm64"
    place = os.path.join(folder, "node_modules", "@node-llama-cpp", f"linux-{machine}", "bins", f"linux-{machine}")
    library = None
    for name in ("libggml-base*.so", "libggml.*so", "libllama.*so"):
        found = glob.glob(os.path.join(place, name))
        if not found:
            sys.exit(f"{place} has no {name}: this is another version of the package, or it is not for this machine")
        library = ctypes.CDLL(found[0], mode=ctypes.RTLD_GLOBAL)
    return library, place


# Structures of llama.h. Only their first fields are declared, which have not changed for years; `rest` has room for the others.
class QuantizeOptions(ctypes.Structure):
    _fields_ = [("n_threads", ctypes.c_int32), ("file_type", ctypes.c_int32), ("output_type", ctypes.c_int32),
                ("embedding_type", ctypes.c_int32), ("allow_requantize", ctypes.c_bool),
                ("quantize_output", ctypes.c_bool), ("only_copy", ctypes.c_bool), ("pure", ctypes.c_bool),
                ("rest", ctypes.c_char * 512)]


class ModelOptions(ctypes.Structure):
    _fields_ = [("rest", ctypes.c_char * 1024)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("n_ctx", ctypes.c_uint32), ("n_batch", ctypes.c_uint32), ("n_ubatch", ctypes.c_uint32),
                ("rest", ctypes.c_char * 1024)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("tokens", ctypes.c_void_p), ("rest", ctypes.c_void_p * 5)]


# llama_ftype for the type names of dsmoe quantize. In llama.cpp two of them are mixtures, so the option `pure` is set for them.
FILE_TYPES = dict(q8_0=7, q4_0=2, q5_0=8, q5_1=9, q4_k=14, q5_k=16, q6_k=18, q4_k_m=15)
PURE = ("q4_k", "q5_k")
Q8_0, Q6_K = 8, 14  # ggml_type


def main_quantize(folder, source, target, type_name, hidden_size, threads):
    library, _ = load_library(folder)
    library.llama_model_quantize_default_params.restype = QuantizeOptions
    options = library.llama_model_quantize_default_params()
    options.n_threads, options.file_type = int(threads), FILE_TYPES[type_name]
    if type_name in PURE:  # `pure` includes the head, unless its type is given
        options.pure, options.output_type = True, Q8_0 if int(hidden_size) % 256 else Q6_K
    return library.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(options))


class Context:
    """A model file, ready to be timed."""

    def __init__(self, folder, file, n_ctx, n_batch, threads):
        library, place = load_library(folder)
        library.llama_model_default_params.restype = ModelOptions
        library.llama_context_default_params.restype = ContextOptions
        library.llama_batch_get_one.restype = Batch
        for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_get_memory",
                     "llama_model_get_vocab"):
            getattr(library, name).restype = ctypes.c_void_p
        library.ggml_backend_load_all_from_path(place.encode())
        model = library.llama_model_load_from_file(file.encode(), library.llama_model_default_params())
        options = library.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = n_ctx, n_batch, min(n_batch, PIECE)
        self.context = ctypes.c_void_p(model and library.llama_init_from_model(ctypes.c_void_p(model), options))
        if not self.context:
            sys.exit(f"{file}: llama.cpp cannot open it")
        library.llama_set_n_threads(self.context, threads, threads)
        vocab = ctypes.c_void_p(library.llama_model_get_vocab(ctypes.c_void_p(model)))
        self.library, self.vocab_size = library, library.llama_vocab_n_tokens(vocab)
        self.memory = ctypes.c_void_p(library.llama_get_memory(self.context))

    def clear(self):
        self.library.llama_memory_clear(self.memory, True)

    def logits(self, token):
        """Appends the token and returns the logits of the next one."""
        self.seconds((ctypes.c_int32 * 1)(token))
        self.library.llama_get_logits.restype = ctypes.POINTER(ctypes.c_float)
        return array.array("f", self.library.llama_get_logits(self.context)[:self.vocab_size])

    def seconds(self, tokens):
        """Appends the tokens in one pass and returns its duration."""
        batch = self.library.llama_batch_get_one(tokens, len(tokens))
        start = time.perf_counter()
        if self.library.llama_decode(self.context, batch):
            sys.exit("llama_decode failed")
        self.library.llama_synchronize(self.context)
        return time.perf_counter() - start


def main_speed(folder, file, prompt, generate, threads, seconds):
    prompt, generate = int(prompt), int(generate)
    c = Context(folder, file, prompt + generate + 8, prompt, int(threads))
    rng = random.Random(0)
    tokens = [rng.randrange(c.vocab_size) for _ in range(prompt + generate)]
    start, best = None, [math.inf, math.inf]
    rounds = 0
    while rounds < 1 + MIN_ROUNDS or time.perf_counter() - start < float(seconds):
        c.clear()
        first = c.seconds((ctypes.c_int32 * prompt)(*tokens[:prompt]))
        rest = sum(c.seconds((ctypes.c_int32 * 1)(token)) for token in tokens[prompt:])
        if rounds:  # the first one reads the file and does not count
            best = [min(best[0], first), min(best[1], rest)]
        start, rounds = start or time.perf_counter(), rounds + 1
    print(json.dumps(dict(prefill_tps=prompt / best[0], decode_tps=generate / best[1],
                          peak_rss_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)))


def main_scores(folder, file, threads):
    prompts = json.load(sys.stdin)
    c = Context(folder, file, max(map(len, prompts)) + 8, 1, int(threads))
    for prompt in prompts:
        c.clear()
        for token in prompt:
            sys.stdout.buffer.write(c.logits(token).tobytes())
    sys.stdout.flush()
    os._exit(0)  # without waiting for the library's threads


if __name__ == "__main__":
    sys.exit(dict(quantize=main_quantize, speed=main_speed, scores=main_scores)[sys.argv[1]](*sys.argv[2:]))

/* runner.h - what `generate` and `chat` share: a model with its engine and sampler, the options
 * that shape them, prompts in pieces that can be interrupted, the loop that picks tokens, and the
 * time all that took. */
#ifndef DSMOE_CLI_RUNNER_H
#define DSMOE_CLI_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/lora.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "dsmoe.h"

enum { RUNNER_MAX_STOPS = 16, RUNNER_MAX_BIASES = 256, RUNNER_N_OPTIONS = 25 };

typedef struct runner_options {
    const char *model;
    model_path found; /* what `model` points to if a training run was named */
    const char *url, *api_key, *unix_path, *ca_file; /* a server instead of a model */
    int64_t n_predict, n_ctx, n_batch, n_threads;
    const char *kv_type;
    lora_list lora;
    /* Values that the options cannot have mean: as the model has it. */
    double temp, top_p, min_p, repeat_penalty;
    int64_t top_k, repeat_last_n, seed;
    double presence_penalty, frequency_penalty;
    bool ignore_eos, special, no_repack;
    const char *stops[RUNNER_MAX_STOPS], *bias_texts[RUNNER_MAX_BIASES];
    option_words stop, logit_bias;
    dsmoe_logit_bias biases[RUNNER_MAX_BIASES]; /* logit_bias, parsed */
    const dsmoe_peers *peers;                   /* other ranks, which run experts; NULL: alone */
} runner_options;

/* The part of --help that belongs to these options. */
#define RUNNER_HELP                                                                                   \
    "      --ignore-eos         continue after the token that ends a text\n"                          \
    "  -c, --ctx-size N         most tokens of prompt and text together (default: the model's)\n"     \
    "  -b, --batch-size N       tokens of a prompt that are processed together (512)\n"               \
    "  -t, --threads N          threads (all processors)\n"                                           \
    "      --kv-type TYPE       keys and values of the context as f32, f16 or q8_0 (f16)\n"           \
    "      --no-repack          keep no copies of quantised weights in the kernels' order: slower,\n" \
    "                           but processes that run the same file share its memory\n" LORA_HELP    \
    "\n"                                                                                              \
    "sampling (defaults: the model's generation_config.json if it samples, otherwise as shown):\n"    \
    "      --temp X             temperature; 0 always takes the likeliest token (0.8)\n"              \
    "      --top-k N            choose among the N likeliest tokens; 0: all (40)\n"                   \
    "      --top-p X            ... among the likeliest that make up this probability (0.95)\n"       \
    "      --min-p X            ... among those with this share of the likeliest's (0.05)\n"          \
    "      --repeat-penalty X   make recent tokens less likely; 1: no change (1)\n"                   \
    "      --repeat-last-n N    how many tokens are recent; -1: all (64)\n"                           \
    "      --presence-penalty X   lower the score of each token in the text by X (0)\n"               \
    "      --frequency-penalty X  ... by X for each time that it occurs (0)\n"                        \
    "  -l, --logit-bias ID:X    add X to the score of a token; -100 bans it. May be given\n"          \
    "                           several times, and be written ID+X or ID-X\n"                         \
    "  -s, --seed N             the same seed gives the same text (default: from the clock)\n"        \
    "      --stop TEXT          end the text before this one; may be given several times\n"           \
    "\n"                                                                                              \
    "a server instead of a model (dsmoe serve, or any other with OpenAI's interface):\n"              \
    "      --url URL            the server's address; options not given are up to the server\n"       \
    "      --api-key KEY        the key, if the server needs one (better in the variable\n"           \
    "                           DSMOE_API_KEY: others on this machine can read options)\n"            \
    "      --unix PATH          the server listens on this Unix socket; needs no --url\n"             \
    "      --cacert FILE        trust the certificates of this PEM file, and no others\n"             \
    "  -h, --help               this text\n"

/* Fills in defaults and the rows of the option table, RUNNER_N_OPTIONS of them. `options` must not move. */
void runner_options_rows(runner_options *options, option_row *rows);

/* How to sample from a model: as its generation_config.json says if it samples, otherwise the defaults. */
dsmoe_sampler_options runner_model_sampling(const dsmoe_generation_config *config,
                                            int64_t capacity);

/* Checks that the options make sense together, and finds the model unless a server is named. CLI_OK, or an
 * exit code after a message. */
int runner_options_check(const char *command, runner_options *options);

typedef struct runner {
    const char *path; /* of the model */
    dsmoe_model *model;
    lora_list *lora;            /* of the options */
    dsmoe_tokenizer *tokenizer; /* NULL if none was asked for */
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    dsmoe_sampler *sampler;
    dsmoe_sampler_options sampling; /* points to the biases of the runner_options */
    bool sampler_is_new;            /* it has not seen the sequence's tokens */
    int64_t capacity, n_batch;
    uint64_t seed;
    bool ignore_eos;
    int32_t answer_end; /* ends an answer in the chat form; -1: not a conversation */
    float *logits;      /* scores of the token after the sequence */
    int32_t *tokens;    /* those in the sequence */
    int64_t n_prompt_tokens, n_decoded_tokens;
    double prompt_seconds, decode_seconds;
    double others_memory; /* bytes on the other rank that has most; 0: alone */
} runner;

/* `tokenizer_hint` is added to the message if there is no tokenizer; NULL: none is opened. On failure the
 * message is printed and the exit code returned, otherwise CLI_OK. Call runner_close in either case; it also
 * ends the other ranks. The options must not move until then. */
int runner_open(const char *command, runner_options *options, const char *tokenizer_hint,
                runner *r);
void runner_close(runner *r);

/* Called before a prompt is read after another text: penalties then treat that text as prompt. */
void runner_begin_text(runner *r);

/* Makes another sampler with the next seed, for a text that continues from an earlier point: what was taken
 * back does not count as repeated, and is not generated again. CLI_OK, or an exit code after a message. */
int runner_reseed(const char *command, runner *r);

typedef enum runner_end {
    RUNNER_EOS,         /* the model ended the text */
    RUNNER_STOPPED,     /* `emit` ended the text */
    RUNNER_LIMIT,       /* as many tokens as asked for */
    RUNNER_FULL,        /* no room in the context */
    RUNNER_INTERRUPTED, /* by Ctrl-C */
    RUNNER_FAILED,      /* `error` says why */
} runner_end;

/* Makes the sequence hold exactly these tokens, at least one and at most `capacity`. Only tokens that it does
 * not already hold are processed. RUNNER_STOPPED means success, otherwise RUNNER_INTERRUPTED or
 * RUNNER_FAILED. */
runner_end runner_read(runner *r, const int32_t *ids, int64_t n_ids, dsmoe_error *error);

/* Picks at most `limit` tokens (-1: no limit) and passes each to `emit`; `is_end` is true for the one that
 * ends the text. No more are picked once `emit` returns false. */
typedef bool runner_emit_fn(void *context, int32_t token, bool is_end);
runner_end runner_generate(runner *r, int64_t limit, runner_emit_fn *emit, void *context,
                           dsmoe_error *error);

/* Prints times, memory and seed as one line on stderr. */
void runner_report(const runner *r);
/* A part of that line: "prompt: 7 tokens in 0.10 s (70.00 tokens/s)". */
void runner_report_speed(const char *what, int64_t n_tokens, double seconds);

#endif

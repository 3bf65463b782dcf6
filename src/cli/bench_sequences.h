/* bench_sequences.h - the part of `dsmoe bench model` that decodes many sequences together. */
#ifndef DSMOE_CLI_BENCH_SEQUENCES_H
#define DSMOE_CLI_BENCH_SEQUENCES_H

#include "cli/bench.h"
#include "cli/lora.h"

enum { BENCH_MAX_CASES = 16, BENCH_MAX_SEQUENCES = 1024 };

typedef struct bench_sequences_options {
    int64_t n[BENCH_MAX_CASES]; /* sequences of each case */
    int n_cases;
    int64_t n_prompt, n_batch; /* of the prompt whose logits are all computed */
    int n_threads;
    dsmoe_dtype kv_type;
    bool same_bits;
    double seconds;
    const lora_list *lora;
} bench_sequences_options;

typedef struct bench_sequences_case {
    double tokens_per_s;    /* of all sequences together, the best */
    double bandwidth_share; /* medians */
    double fma_share;
    double experts; /* different experts of a layer that a step chose, on average */
    double bytes;   /* that a token reads, including its share of the experts */
} bench_sequences_case;

typedef struct bench_sequences_result {
    bench_sequences_case cases[BENCH_MAX_CASES];
    double prompt_logits_tps; /* of a prompt with logits of every token */
} bench_sequences_result;

/* `probe` measures the limits right before and after each case. */
dsmoe_status bench_sequences_run(const dsmoe_model *model, const bench_sequences_options *options,
                                 const bench_probe *probe, bench_sequences_result *result,
                                 dsmoe_error *error);
void bench_sequences_print(const bench_sequences_options *options,
                           const bench_sequences_result *result);
/* "sequences":[…],"prompt_logits_tps":… */
void bench_sequences_print_json(const bench_sequences_options *options,
                                const bench_sequences_result *result);

#endif

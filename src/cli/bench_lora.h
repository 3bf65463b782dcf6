/* bench_lora.h - the part of `dsmoe bench model --lora` that measures what the adapters cost. */
#ifndef DSMOE_CLI_BENCH_LORA_H
#define DSMOE_CLI_BENCH_LORA_H

#include "cli/bench.h"
#include "cli/lora.h"

typedef struct bench_lora_options {
    int n_threads;
    dsmoe_dtype kv_type;
    bool same_bits;
    double seconds;
    const lora_list *lora;
} bench_lora_options;

/* Decoding: median tokens/s, and the share of tokens/s that is lost with adapters, pair by pair. */
typedef struct bench_lora_result {
    int n_pairs; /* 0: there are no adapters */
    double with_tps, without_tps;
    double lost_median, lost_mean;
    double lost_reach; /* the 95 % interval of the mean, to each side */
} bench_lora_result;

dsmoe_status bench_lora_run(const dsmoe_model *model, const bench_lora_options *options,
                            bench_lora_result *result, dsmoe_error *error);
void bench_lora_print(const bench_lora_result *result);
/* "lora":{…} */
void bench_lora_print_json(const bench_lora_result *result);

#endif

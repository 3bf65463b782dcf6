/* scores.c - the logits of a model after every token of some prompts. bench/interop.py compares them with
 * the logits of another engine.
 *
 *   cmake --build build --target bench_scores
 *   echo "1 2 3" | build/bench_scores MODEL prompt|decode [N_THREADS [ADAPTER]] > scores.f32
 *
 * Each line of the input is a prompt: token ids separated by spaces. For every id it writes a row of the
 * whole vocabulary in float32: the logits of the token that follows. `prompt` runs a prompt in one
 * pass, and `decode` token by token. The two use different kernels for products. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsmoe.h"

enum { MOST_TOKENS = 4096 };

typedef struct scorer {
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    size_t vocab_size;
    int one_by_one;
} scorer;

static void must(dsmoe_status status, const dsmoe_error *error)
{
    if (status == DSMOE_OK) return;
    fprintf(stderr, "bench_scores: %s\n", error->message);
    exit(1);
}

static void put_row(void *context, int64_t row, const float *logits)
{
    const scorer *s = context;
    (void)row;
    fwrite(logits, sizeof *logits, s->vocab_size, stdout);
}

/* Reads the ids of a line. The library checks them. */
static int64_t parse_ids(const char *line, int32_t ids[MOST_TOKENS])
{
    int64_t n = 0;
    for (char *end; n < MOST_TOKENS; n++, line = end) {
        ids[n] = (int32_t)strtol(line, &end, 10);
        if (end == line) break;
    }
    return n;
}

static void score(scorer *s, const int32_t *ids, int64_t n_ids)
{
    dsmoe_error error;
    must(dsmoe_sequence_rewind(s->sequence, 0, &error), &error);
    int64_t step = s->one_by_one ? 1 : n_ids;
    for (int64_t i = 0; i < n_ids; i += step) {
        dsmoe_turn turn = {.sequence = s->sequence,
                           .tokens = ids + i,
                           .n_tokens = step,
                           .n_logits = step,
                           .visit = put_row,
                           .context = s};
        must(dsmoe_engine_forward(s->engine, &turn, 1, &error), &error);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3 || (strcmp(argv[2], "prompt") && strcmp(argv[2], "decode"))) {
        fprintf(stderr, "usage: %s MODEL prompt|decode [N_THREADS [ADAPTER]] < PROMPTS\n", argv[0]);
        return 2;
    }
    dsmoe_error error;
    dsmoe_model *model;
    must(dsmoe_model_open(argv[1], &model, &error), &error);
    scorer s = {.vocab_size = (size_t)dsmoe_model_config(model)->vocab_size,
                .one_by_one = !strcmp(argv[2], "decode")};
    dsmoe_adapter *adapter = NULL;
    if (argc > 4) must(dsmoe_adapter_open(argv[4], model, &adapter, &error), &error);
    const dsmoe_adapter *adapters[] = {adapter};
    const dsmoe_engine_options options = {.n_ctx = MOST_TOKENS,
                                          .n_threads = argc > 3 ? atoi(argv[3]) : 0,
                                          .adapters = adapters,
                                          .n_adapters = adapter != NULL};
    must(dsmoe_engine_create(model, &options, &s.engine, &error), &error);
    must(dsmoe_sequence_create(s.engine, &s.sequence, &error), &error);
    char *line = NULL;
    size_t size = 0;
    static int32_t ids[MOST_TOKENS];
    while (getline(&line, &size, stdin) > 0) {
        int64_t n_ids = parse_ids(line, ids);
        if (n_ids > 0) score(&s, ids, n_ids);
    }
    free(line);
    dsmoe_engine_free(s.engine);
    dsmoe_adapter_free(adapter);
    dsmoe_model_free(model);
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    fprintf(stderr, "bench_scores: cannot write: %s\n", strerror(errno));
    return 1;
}

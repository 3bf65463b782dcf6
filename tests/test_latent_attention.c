/* test_latent_attention.c - latent attention in both forms, with every type of cache, against a model in
 * plain double arithmetic that keeps the keys and values of every head. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_model.h"
#include "model/config_write.h"
#include "model/kv_cache.h"
#include "naive_model.h"
#include "scratch.h"

enum { N_TOKENS = 265, VOCAB = 61 }; /* some pages, and chunks of the absorbed form */

/* Shapes of heads, some of which fill no register or only a few. */
typedef struct shape {
    int64_t heads, q_rank, rank, nope, rope, value;
    bool q8_0;  /* whether rows of the cache are whole blocks */
    double f16; /* how far the largest logit may be off with a float16 cache */
} shape;

static const shape shapes[] = {
    {3, 18, 21, 9, 6, 11, false, 1e-2},
    {5, 0, 64, 16, 32, 8, true, 1e-2},
    /* more than a group of queries, and more than a stretch of columns */
    {17, 0, 288, 20, 32, 24, true, 1e-2},
    /* a key of one number is a small difference of 250 large ones, where integers of 12 bits are inexact */
    {1, 7, 250, 1, 2, 1, false, 3e-2},
};

/* All layers are dense, as a router could flip a close choice because of the last digit. */
static made_model make_model(const shape *s)
{
    dsmoe_config c = made_latent_config();
    c.num_hidden_layers = c.first_k_dense_replace = 2;
    c.num_attention_heads = c.num_key_value_heads = s->heads;
    c.q_lora_rank = s->q_rank;
    c.kv_lora_rank = s->rank;
    c.qk_nope_head_dim = s->nope;
    c.qk_rope_head_dim = s->rope;
    c.v_head_dim = s->value;
    return made_model_create(&c, "F32", 5);
}

static float logits[N_TOKENS][VOCAB];

static void keep_row(void *context, int64_t row, const float *of)
{
    memcpy(((float(*)[VOCAB])context)[row], of, VOCAB * sizeof *of);
}

/* Logits of every token: a prompt in one call, then `step` at a time. */
static void run(const dsmoe_model *model, const dsmoe_engine_options *options,
                const int32_t *tokens, int64_t n_prompt, int64_t step)
{
    dsmoe_error error = {0};
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    must(dsmoe_engine_create(model, options, &engine, &error), &error, "an engine");
    must(dsmoe_sequence_create(engine, &sequence, &error), &error, "a sequence");
    for (int64_t at = 0, n; at < N_TOKENS; at += n) {
        n = at == 0 ? n_prompt : step < N_TOKENS - at ? step : N_TOKENS - at;
        dsmoe_turn turn = {.sequence = sequence,
                           .tokens = tokens + at,
                           .n_tokens = n,
                           .n_logits = n,
                           .visit = keep_row,
                           .context = logits[at]};
        must(dsmoe_engine_forward(engine, &turn, 1, &error), &error, "forward");
    }
    dsmoe_engine_free(engine);
}

/* The bounds that docs/model.md states for each type of cache, relative to the largest logit. */
static double most_off(const shape *s, dsmoe_dtype type)
{
    return type == DSMOE_F32 ? 1e-5 : type == DSMOE_F16 ? s->f16 : 1e-1;
}

static const dsmoe_dtype caches[] = {DSMOE_F32, DSMOE_F16, DSMOE_Q8_0};

/* Prompts whose pieces are expanded or absorbed, single tokens, and one form for all. */
static const struct {
    int64_t n_prompt, step;
    bool same_bits;
    int n_threads;
} ways[] = {{N_TOKENS, 1, false, 2}, {1, 1, false, 1},    {100, 1, false, 3},
            {3, 7, false, 1},        {150, 115, true, 2}, {60, 205, false, 3}};

static void check_shape(const shape *s)
{
    made_model made = make_model(s);
    dsmoe_error error = {0};
    made_model_write(&made, directory, false);
    must(config_write(directory, &made.config, DSMOE_F32, &error), &error, "config.json");
    dsmoe_model *model = open_model(directory);
    int32_t tokens[N_TOKENS];
    made_tokens(&made, tokens, N_TOKENS, 3);
    naive_result expected = naive_model_run(&made, tokens, N_TOKENS);
    for (size_t c = 0; c < COUNT(caches); c++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            if (caches[c] == DSMOE_Q8_0 && !s->q8_0) continue;
            dsmoe_engine_options options = {.n_ctx = N_TOKENS,
                                            .n_batch = N_TOKENS,
                                            .n_threads = ways[w].n_threads,
                                            .same_bits = ways[w].same_bits,
                                            .kv_type = caches[c]};
            run(model, &options, tokens, ways[w].n_prompt, ways[w].step);
            double off = worst_difference(logits[0], expected.logits, N_TOKENS * VOCAB);
            if (!(off <= most_off(s, caches[c])))
                fail_msg("%d heads, rank %d, cache %s, prompt of %d, then %d: off by %g",
                         (int)s->heads, (int)s->rank, dsmoe_dtype_name(caches[c]),
                         (int)ways[w].n_prompt, (int)ways[w].step, off);
        }
    naive_result_free(&expected);
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(directory);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(shapes); i++) check_shape(&shapes[i]);
}

/* Only latents are stored: kv_lora_rank + qk_rope_head_dim numbers per token and layer. */
static void test_cache_size(void **state)
{
    (void)state;
    static const struct {
        dsmoe_dtype type;
        size_t size;
    } sizes[] = {{DSMOE_F32, 27ull * 576 * 32768 * 4},
                 {DSMOE_F16, 27ull * 576 * 32768 * 2}, /* 1.02 GB */
                 {DSMOE_Q8_0, 27ull * 576 / 32 * 34 * 32768}};
    dsmoe_config config;
    must(dsmoe_config_preset("v2-lite", &config, NULL), NULL, "the preset");
    for (size_t i = 0; i < COUNT(sizes); i++)
        assert_int_equal(kv_pages_size(&config, sizes[i].type, 32768 / KV_PAGE), sizes[i].size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_cache_size),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

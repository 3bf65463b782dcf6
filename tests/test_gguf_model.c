/* test_gguf_model.c - a model from a GGUF file has the same properties and results as a folder with the
 * same weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_gguf.h"
#include "model/model.h"
#include "model/rope.h"
#include "scratch.h"
#include "support.h"

enum { N_TOKENS = 37 };

/* Logits of all tokens in one piece, in rows. */
typedef struct rows_of {
    float *at;
    int64_t width;
} rows_of;

static void keep_row(void *context, int64_t row, const float *logits)
{
    const rows_of *to = context;
    memcpy(to->at + row * to->width, logits, (size_t)to->width * sizeof *logits);
}

static float *logits_of(const dsmoe_model *model, const int32_t *tokens)
{
    int64_t vocab = dsmoe_model_config(model)->vocab_size;
    rows_of all = {malloc((size_t)(N_TOKENS * vocab) * sizeof(float)), vocab};
    assert_non_null(all.at);
    dsmoe_sequence *sequence = make_sequence(model, 64, 16, 2);
    dsmoe_turn turn = {.sequence = sequence,
                       .tokens = tokens,
                       .n_tokens = N_TOKENS,
                       .n_logits = N_TOKENS,
                       .visit = keep_row,
                       .context = &all};
    dsmoe_error error = {0};
    must(dsmoe_engine_forward(dsmoe_sequence_engine(turn.sequence), &turn, 1, &error), &error,
         "a pass");
    free_sequence(sequence);
    return all.at;
}

/* The root mean square of the differences divided by that of the logits. */
static double difference(const float *a, const float *b, int64_t n)
{
    double differences = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        differences += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        squares += (double)b[i] * b[i];
    }
    return sqrt(differences / squares);
}

/* The distance between the logits of the file and of the folder, with or without a probe. */
static double distance(const made_model *m, const dsmoe_probe *probe)
{
    int32_t tokens[N_TOKENS];
    made_tokens(m, tokens, N_TOKENS, 5);
    const char *const paths[] = {made_file, directory};
    float *logits[2];
    for (int i = 0; i < 2; i++) {
        dsmoe_model *model = open_model(paths[i]), *probed = NULL;
        dsmoe_error error = {0};
        if (probe) must(dsmoe_model_probe(model, probe, &probed, &error), &error, "a probe");
        logits[i] = logits_of(probe ? probed : model, tokens);
        dsmoe_model_free(probed);
        dsmoe_model_free(model);
    }
    double apart = difference(logits[0], logits[1], N_TOKENS * m->config.vocab_size);
    free(logits[0]);
    free(logits[1]);
    return apart;
}

/* ---- the same model ------------------------------------------------------------------------ */

static void check_same(dsmoe_config config, const char *dtype)
{
    made_model m = made_model_create(&config, dtype, 3);
    made_model_write(&m, directory, false);
    made_gguf_write(&m, made_file, NULL);
    double apart = distance(&m, NULL);
    if (!(apart < 2e-6)) fail_msg("logits of %s are %g apart", dtype, apart);
    made_model_free(&m);
}

/* The results differ only by the order in which a query and a key are multiplied. */
static void test_same_logits(void **state)
{
    (void)state;
    check_same(made_config(), "F32");
    check_same(made_config(), "F16");
    check_same(made_config(), "BF16");
    dsmoe_config c = made_config();
    c.num_attention_heads = 7;
    c.num_key_value_heads = 1;
    check_same(c, "F32");
    c = made_config();
    c.n_shared_experts = 0;
    c.first_k_dense_replace = 0;
    check_same(c, "F32");
    c = made_config();
    c.attention_bias = true;
    c.rope_scaling = DSMOE_ROPE_LINEAR;
    c.rope_scaling_factor = 2.5;
    check_same(c, "F32");
    c = made_config();
    c.n_routed_experts = c.num_experts_per_tok = c.n_shared_experts = 0;
    check_same(c, "F32");
    c = made_config();
    c.tie_word_embeddings = true;
    check_same(c, "F32");
}

static void test_pairs(void **state)
{
    (void)state;
    enum { D = 6 };
    const float cosines[] = {0.5f, 0.25f, 2}, sines[] = {3, 4, 5};
    float halves[D] = {1, 2, 3, 4, 5, 6}, pairs[D] = {1, 4, 2, 5, 3, 6};
    rope_turn(D, cosines, sines, halves);
    rope_turn_pairs(D, cosines, sines, pairs);
    for (int i = 0; i < D / 2; i++) {
        assert_true(pairs[2 * i] == halves[i]);
        assert_true(pairs[2 * i + 1] == halves[i + D / 2]);
    }
    assert_true(halves[0] != 1);
}

static void check_config(const dsmoe_config *is, const dsmoe_config *should_be)
{
    const int64_t *a = (const int64_t *)is, *b = (const int64_t *)should_be;
    for (size_t i = 0; i < offsetof(dsmoe_config, norm_topk_prob) / sizeof *a; i++)
        assert_int_equal(a[i], b[i]);
    assert_int_equal(is->norm_topk_prob, should_be->norm_topk_prob);
    assert_int_equal(is->seq_aux, should_be->seq_aux);
    assert_int_equal(is->attention_bias, should_be->attention_bias);
    assert_int_equal(is->tie_word_embeddings, should_be->tie_word_embeddings);
    /* Decimal numbers are restored exactly, though the file holds float32. */
    assert_true(is->aux_loss_alpha == should_be->aux_loss_alpha);
    assert_true(is->initializer_range == should_be->initializer_range);
    assert_true(is->rms_norm_eps == should_be->rms_norm_eps);
    assert_true(is->rope_theta == should_be->rope_theta);
    assert_int_equal(is->rope_scaling, should_be->rope_scaling);
    assert_true(is->rope_scaling_factor == should_be->rope_scaling_factor);
    assert_int_equal(is->bos_token_id, should_be->bos_token_id);
    assert_int_equal(is->eos_token_id, should_be->eos_token_id);
}

static void test_config(void **state)
{
    (void)state;
    dsmoe_config c = made_config(), read;
    c.aux_loss_alpha = 0.003;
    c.initializer_range = 0.006;
    c.rms_norm_eps = 1e-5;
    c.seq_aux = false;
    c.eos_token_id = -1;
    c.rope_scaling = DSMOE_ROPE_LINEAR;
    c.rope_scaling_factor = 1.7;
    made_model m = made_model_create(&c, "F32", 1);
    made_gguf_write(&m, made_file, NULL);
    dsmoe_error error = {0};
    must(dsmoe_config_read(made_file, &read, &error), &error, "the configuration");
    check_config(&read, &c);
    dsmoe_model *model = open_model(made_file);
    check_config(dsmoe_model_config(model), &c);
    const dsmoe_generation_config *g = dsmoe_model_generation_config(model);
    assert_false(g->do_sample);
    assert_int_equal(g->bos_token_id, 0);
    assert_int_equal(g->n_eos_token_ids, 0);
    dsmoe_model_free(model);

    /* Keys that may be left out. */
    static const made_key absent[] = {
        {"deepseek.vocab_size", MADE_ABSENT, 0, NULL},
        {"deepseek.attention.head_count_kv", MADE_ABSENT, 0, NULL},
        {"deepseek.rope.dimension_count", MADE_ABSENT, 0, NULL},
        {"deepseek.rope.freq_base", MADE_ABSENT, 0, NULL},
        {"deepseek.rope.scaling.type", MADE_ABSENT, 0, NULL}, /* a factor alone means linear */
        {"deepseek.expert_weights_scale", MADE_ABSENT, 0, NULL},
        {"deepseek.attention.key_length", MADE_U32, 14, NULL},
        {"deepseek.expert_gating_func", MADE_U32, 1, NULL},
        {"dsmoe.aux_loss_alpha", MADE_ABSENT, 0, NULL},
        {"dsmoe.initializer_range", MADE_ABSENT, 0, NULL},
        {"dsmoe.seq_aux", MADE_ABSENT, 0, NULL},
        {"dsmoe.generation_config", MADE_STRING, 0,
         "{\"do_sample\": true, \"temperature\": 0.7, \"eos_token_id\": [3, 5]}"},
    };
    made_gguf_write(&m, made_file, &(made_gguf_options){.keys = absent, .n_keys = COUNT(absent)});
    model = open_model(made_file);
    c.aux_loss_alpha = 0.001;
    c.initializer_range = 0.02;
    c.seq_aux = true;
    check_config(dsmoe_model_config(model), &c);
    g = dsmoe_model_generation_config(model);
    assert_true(g->do_sample && g->temperature == 0.7);
    assert_int_equal(g->n_eos_token_ids, 2);
    assert_int_equal(g->eos_token_id[1], 5);
    dsmoe_model_free(model);
    made_model_free(&m);
}

static void test_tensors(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    made_model m = made_model_create(&c, "F16", 1);
    made_model_write(&m, directory, false);
    made_gguf_write(&m, made_file, &(made_gguf_options){.extra = "rope_freqs.weight"});
    dsmoe_model *packed = open_model(made_file), *folder = open_model(directory);
    size_t n = dsmoe_model_tensor_count(folder);
    assert_int_equal(dsmoe_model_tensor_count(packed), n);
    size_t more = 0; /* for norms and routers, which are float32 */
    for (size_t i = 0; i < n; i++) {
        dsmoe_tensor_info a = dsmoe_model_tensor(packed, i), b = dsmoe_model_tensor(folder, i);
        assert_string_equal(a.name, b.name);
        assert_int_equal(a.n_dims, b.n_dims);
        assert_memory_equal(a.shape, b.shape, sizeof a.shape);
        bool wide = a.n_dims == 1 || strstr(a.name, "mlp.gate.weight");
        assert_int_equal(a.dtype, wide ? DSMOE_F32 : DSMOE_F16);
        assert_int_equal(a.size, wide ? 2 * b.size : b.size);
        more += wide ? b.size : 0;
    }
    assert_int_equal(dsmoe_model_extra_count(packed), 1);
    assert_string_equal(dsmoe_model_extra(packed, 0), "rope_freqs.weight");
    assert_null(dsmoe_model_extra(packed, 1));
    assert_int_equal(dsmoe_model_bytes_per_token(packed),
                     dsmoe_model_bytes_per_token(folder) + more);
    dsmoe_model_free(packed);
    dsmoe_model_free(folder);
    made_model_free(&m);
}

/* A head in another type that copies the embedding, for readers that require a head. */
static void test_copied_head(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    made_model m = made_model_create(&c, "F32", 1);
    const made_tensor *embedding = made_model_find(&m, "model.embed_tokens.weight");
    made_tensor *head = made_model_find(&m, "lm_head.weight");
    memcpy(head->data, embedding->data, (size_t)head->n * sizeof *head->data);
    made_model_write(&m, directory, false);
    static const made_key tied[] = {{"dsmoe.tie_word_embeddings", MADE_BOOL, 1, NULL}};
    made_gguf_write(&m, made_file, &(made_gguf_options){.keys = tied, .n_keys = 1});
    assert_true(distance(&m, NULL) < 2e-6);
    dsmoe_model *packed = open_model(made_file), *folder = open_model(directory);
    assert_true(dsmoe_model_config(packed)->tie_word_embeddings);
    assert_int_equal(dsmoe_model_extra_count(packed), 0);
    assert_int_equal(dsmoe_model_tensor_count(packed), dsmoe_model_tensor_count(folder) - 1);
    assert_int_equal(dsmoe_model_bytes_per_token(packed), dsmoe_model_bytes_per_token(folder));
    dsmoe_model_free(packed);
    dsmoe_model_free(folder);
    made_model_free(&m);
}

static void test_probe(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    made_model m = made_model_create(&c, "F32", 8);
    made_model_write(&m, directory, false);
    made_gguf_write(&m, made_file, NULL);
    assert_true(distance(&m, &(dsmoe_probe){.mask_top = 0.2}) < 2e-6);
    made_model_free(&m);
}

static void check_trainer(dsmoe_config c, const char *dtype)
{
    made_model m = made_model_create(&c, dtype, 8);
    made_model_write(&m, directory, false);
    made_gguf_write(&m, made_file, NULL);
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = 1;
    options.sequence_length = 8;
    options.n_threads = 1;
    dsmoe_trainer *trainers[2];
    const char *const paths[] = {made_file, directory};
    dsmoe_error error = {0};
    for (int i = 0; i < 2; i++) {
        dsmoe_model *model = open_model(paths[i]);
        must(dsmoe_trainer_create(&c, &options, &trainers[i], &error), &error, "a trainer");
        must(dsmoe_trainer_load(trainers[i], model, &error), &error, "loading");
        dsmoe_model_free(model);
    }
    const dsmoe_model *model = dsmoe_trainer_model(trainers[0]);
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++) {
        dsmoe_tensor_info t = dsmoe_model_tensor(model, i);
        assert_same_bits(dsmoe_trainer_weight(trainers[0], i), dsmoe_trainer_weight(trainers[1], i),
                         t.size / sizeof(float), t.name);
    }
    dsmoe_trainer_free(trainers[0]);
    dsmoe_trainer_free(trainers[1]);
    made_model_free(&m);
}

/* The trainer gets the rows in the order of the public layout. */
static void test_trainer(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    check_trainer(c, "BF16");
    c.attention_bias = true;
    c.num_attention_heads = 7;
    c.num_key_value_heads = 1;
    check_trainer(c, "F32");
}

/* ---- quantised types ----------------------------------------------------------------------- */

/* Sizes that quantised blocks divide. All experts are chosen, so that rounding cannot change the choice. */
static dsmoe_config block_config(void)
{
    dsmoe_config c = made_config();
    c.num_hidden_layers = 2;
    c.num_experts_per_tok = c.n_routed_experts = 2;
    c.hidden_size = c.intermediate_size = c.moe_intermediate_size = 256;
    c.num_attention_heads = c.num_key_value_heads = 4;
    return c;
}

/* Inputs of products are rounded to 8 bits, so results are close to those of the dequantised weights. */
static void check_blocks(dsmoe_dtype type)
{
    dsmoe_config c = block_config();
    made_model m = made_model_create(&c, "F32", 2);
    made_gguf_write(&m, made_file, &(made_gguf_options){.type = type, .has_type = true});
    dsmoe_model *model = open_model(made_file);
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = options.sequence_length = options.n_threads = 1;
    dsmoe_trainer *trainer;
    dsmoe_error error = {0};
    must(dsmoe_trainer_create(&c, &options, &trainer, &error), &error, "a trainer");
    must(dsmoe_trainer_load(trainer, model, &error), &error, "loading");
    size_t bytes = 0;
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++) {
        dsmoe_tensor_info t = dsmoe_model_tensor(model, i);
        bool wide = t.n_dims == 1 || strstr(t.name, "mlp.gate.weight");
        assert_int_equal(t.dtype, wide ? DSMOE_F32 : type);
        assert_int_equal(
            t.size, dtype_bytes(t.dtype, t.n_dims == 1 ? t.shape[0] : t.shape[0] * t.shape[1]));
        bytes += t.size;
        made_tensor *made = made_model_find(&m, t.name);
        memcpy(made->data, dsmoe_trainer_weight(trainer, i), (size_t)made->n * sizeof(float));
    }
    assert_true(dsmoe_model_bytes_per_token(model) < bytes);
    made_model_write(&m, directory, false);
    double apart = distance(&m, NULL);
    if (!(apart < 0.06)) fail_msg("logits of %s are %g apart", dsmoe_dtype_name(type), apart);
    dsmoe_trainer_free(trainer);
    dsmoe_model_free(model);
    made_model_free(&m);
}

static void test_blocks(void **state)
{
    (void)state;
    for (int type = DSMOE_Q8_0; type < DSMOE_N_DTYPES; type++) check_blocks((dsmoe_dtype)type);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_logits), cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_config),      cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_copied_head), cmocka_unit_test(test_probe),
        cmocka_unit_test(test_trainer),     cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, made_gguf_set_up, made_gguf_tear_down);
}

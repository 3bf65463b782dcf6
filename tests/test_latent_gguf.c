/* test_latent_gguf.c - models with latent attention as GGUF files of both layouts: read, written, and
 * converted back to folders, with every number in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversions.h"
#include "formats/shards.h"
#include "kernels/quantize.h"
#include "latent_gguf.h"
#include "made_model.h"
#include "model/model.h"
#include "same_config.h"
#include "scratch.h"
#include "support.h"
#include "tiny_run.h"

static const char *const folders[] = {"v2_lite", "v2_plain", "v2_group", "v3_gate"};

static const char *data(const char *name) { return tiny_path(TEST_DATA "/lm_v2", name); }

static gguf *open_gguf(const char *name)
{
    gguf *file;
    dsmoe_error error = {0};
    must(gguf_open(name, &file, &error), &error, name);
    return file;
}

static dsmoe_config config_of(const char *from)
{
    dsmoe_config config;
    dsmoe_error error = {0};
    must(dsmoe_config_read(from, &config, &error), &error, from);
    return config;
}

static dsmoe_config folder_config(const char *folder)
{
    return config_of(tiny_path(folder, "config.json"));
}

/* All tensors of two folders must be the same, bit by bit. */
static void assert_same_tensors(const char *a, const char *b)
{
    shards *left, *right;
    dsmoe_error error = {0};
    must(shards_open(a, &left, &error), &error, a);
    must(shards_open(b, &right, &error), &error, b);
    assert_int_equal(shards_count(left), shards_count(right));
    for (size_t i = 0; i < shards_count(left); i++) {
        const safetensors_tensor *x = shards_at(left, i), *y = shards_at(right, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->n_dims, y->n_dims);
        assert_memory_equal(x->shape, y->shape, (size_t)x->n_dims * sizeof *x->shape);
        if (memcmp(x->data, y->data, x->size)) fail_msg("%s differs", x->name);
    }
    shards_close(left);
    shards_close(right);
}

/* ---- the tiny models of each kind ------------------------------------------------------------ */

/* Files of other writers, in both layouts, give the folder's model and can be converted back to the
 * folder. */
static void test_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(folders); i++)
        for (int old = 0; old < 2; old++) {
            latent_gguf_write(data(folders[i]), in("b.gguf"), &(latent_gguf_options){.old = old});
            dsmoe_config is = config_of(in("b.gguf")), should_be = folder_config(data(folders[i]));
            assert_same_config(&is, &should_be);
            dsmoe_model *model = open_model(in("b.gguf"));
            assert_int_equal(model->weights->kv_b_split, !old);
            assert_int_equal(dsmoe_model_extra_count(model), 0);
            dsmoe_model_free(model);
            convert(in("b.gguf"), in("c"), NULL);
            assert_same_tensors(data(folders[i]), in("c"));
            dsmoe_config again = folder_config(in("c"));
            assert_same_config(&again, &should_be);
            REMOVE("b.gguf", "c");
        }
}

/* Our files have the tensors of the new layout with numbers in the right order, and can be converted
 * back. */
static void test_write(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(folders); i++) {
        latent_gguf_write(data(folders[i]), in("a.gguf"), NULL);
        convert(data(folders[i]), in("b.gguf"), NULL);
        gguf *wanted = open_gguf(in("a.gguf")), *made = open_gguf(in("b.gguf"));
        assert_int_equal(gguf_count(made), gguf_count(wanted));
        for (size_t j = 0; j < gguf_count(made); j++) {
            const gguf_tensor *x = gguf_at(made, j), *y = gguf_at(wanted, j);
            assert_string_equal(x->name, y->name);
            assert_int_equal(x->type, y->type);
            assert_int_equal(x->n_dims, y->n_dims);
            assert_memory_equal(x->shape, y->shape, sizeof x->shape);
            if (memcmp(x->data, y->data, x->size)) fail_msg("%s differs", x->name);
        }
        gguf_close(wanted);
        gguf_close(made);
        dsmoe_config is = config_of(in("b.gguf")), should_be = folder_config(data(folders[i]));
        assert_same_config(&is, &should_be);
        convert(in("b.gguf"), in("c"), NULL);
        assert_same_tensors(data(folders[i]), in("c"));
        convert(in("b.gguf"), in("d.gguf"), NULL);
        tiny_assert_same(in("b.gguf"), in("d.gguf"));
        REMOVE("a.gguf", "b.gguf", "c", "d.gguf");
    }
}

static int64_t int_of(const gguf *file, const char *key)
{
    int64_t value;
    dsmoe_error error = {0};
    must(gguf_get_int(file, key, &value, NULL, &error), &error, key);
    return value;
}

static double number_of(const gguf *file, const char *key)
{
    double value;
    dsmoe_error error = {0};
    must(gguf_get_float(file, key, &value, NULL, &error), &error, key);
    return value;
}

/* The keys that other readers need to compute the same. */
static void test_keys(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t value;
    } lite[] = {
        {"deepseek2.attention.head_count", 4},
        {"deepseek2.attention.head_count_kv", 1},
        {"deepseek2.attention.key_length", 32},
        {"deepseek2.attention.value_length", 24},
        {"deepseek2.attention.key_length_mla", 24},
        {"deepseek2.attention.value_length_mla", 12},
        {"deepseek2.attention.kv_lora_rank", 24},
        {"deepseek2.attention.q_lora_rank", 0},
        {"deepseek2.rope.dimension_count", 8},
        {"deepseek2.expert_gating_func", 1},
        {"deepseek2.leading_dense_block_count", 1},
        {"deepseek2.expert_shared_count", 2},
        {"deepseek2.rope.scaling.original_context_length", 16},
    };
    convert(data("v2_lite"), in("b.gguf"), NULL);
    gguf *file = open_gguf(in("b.gguf"));
    for (size_t i = 0; i < COUNT(lite); i++)
        assert_int_equal(int_of(file, lite[i].key), lite[i].value);
    assert_true(number_of(file, "deepseek2.rope.scaling.factor") == 40);
    assert_true(number_of(file, "deepseek2.rope.scaling.yarn_log_multiplier") == (double)0.0707f);
    gguf_close(file);
    tiny_remove(in("b.gguf"));

    /* V2 does not scale normalised weights, but other readers do. */
    convert(data("v2_plain"), in("b.gguf"), NULL);
    file = open_gguf(in("b.gguf"));
    assert_true(number_of(file, "deepseek2.expert_weights_scale") == 1);
    assert_true(number_of(file, "dsmoe.routed_scaling_factor") == 2.5);
    gguf_close(file);
    tiny_remove(in("b.gguf"));

    convert(data("v3_gate"), in("b.gguf"), NULL);
    file = open_gguf(in("b.gguf"));
    assert_int_equal(int_of(file, "deepseek2.expert_gating_func"), 2);
    assert_true(number_of(file, "deepseek2.expert_weights_scale") == (double)2.446f);
    gguf_close(file);
    tiny_remove(in("b.gguf"));

    convert(data("v2_group"), in("b.gguf"), NULL);
    file = open_gguf(in("b.gguf"));
    assert_int_equal(int_of(file, "deepseek2.expert_group_count"), 4);
    assert_int_equal(int_of(file, "deepseek2.expert_group_used_count"), 2);
    assert_int_equal(int_of(file, "deepseek2.attention.q_lora_rank"), 20);
    gguf_close(file);
    REMOVE("b.gguf");
}

/* A model in two files; the second has only one half of kv_b_proj. */
static void test_split_file(void **state)
{
    (void)state;
    static const char name[] = "blk.1.attn_k_b.weight";
    convert(data("v2_lite"), in("whole.gguf"), NULL);
    gguf *whole = open_gguf(in("whole.gguf"));
    const made_key first[] = {{"split.no", MADE_U32, 0, NULL},
                              {"split.count", MADE_U32, 2, NULL},
                              {"split.tensors.count", MADE_U32, (double)gguf_count(whole), NULL}};
    const made_key second[] = {{"split.no", MADE_U32, 1, NULL}, {"split.count", MADE_U32, 2, NULL}};
    gguf_close(whole);
    latent_gguf_write(data("v2_lite"), in("m-00001-of-00002.gguf"),
                      &(latent_gguf_options){.left_out = name, .keys = first, .n_keys = 3});
    latent_gguf_write(data("v2_lite"), in("m-00002-of-00002.gguf"),
                      &(latent_gguf_options){.alone = name, .keys = second, .n_keys = 2});
    convert(in("m-00002-of-00002.gguf"), in("c"), NULL);
    assert_same_tensors(data("v2_lite"), in("c"));
    REMOVE("whole.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "c");
}

/* With the tensors of both layouts, the keys decide which are used; the rest is extra. */
static void test_both_layouts(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        latent_gguf_write(data("v2_lite"), in("b.gguf"),
                          &(latent_gguf_options){.old = old, .both = true});
        dsmoe_model *model = open_model(in("b.gguf"));
        assert_int_equal(model->weights->kv_b_split, !old);
        assert_int_equal(dsmoe_model_extra_count(model), old ? 6 : 3);
        assert_string_equal(dsmoe_model_extra(model, 0),
                            old ? "blk.0.attn_k_b.weight" : "blk.0.attn_kv_b.weight");
        dsmoe_model_free(model);
        REMOVE("b.gguf");
    }
}

/* Keys that newer and older files may lack or have in addition. */
static void test_other_files(void **state)
{
    (void)state;
    static const made_key keys[] = {
        {"deepseek2.vocab_size", MADE_ABSENT, 0, NULL},
        {"deepseek2.attention.head_count_kv", MADE_ABSENT, 0, NULL},
        {"deepseek2.attention.key_length", MADE_ABSENT, 0, NULL},
        {"deepseek2.expert_weights_scale", MADE_F32, 0, NULL}, /* 0: no scale */
        {"deepseek2.expert_gating_func", MADE_U32, 1, NULL},
        {"deepseek2.expert_group_count", MADE_U32, 1, NULL},
        {"deepseek2.expert_group_used_count", MADE_U32, 1, NULL},
        {"deepseek2.attention.q_lora_rank", MADE_U32, 0, NULL},
        {"deepseek2.rope.scaling.yarn_beta_fast", MADE_F32, 32, NULL},
        {"deepseek2.nextn_predict_layers", MADE_U32, 0, NULL},
    };
    latent_gguf_write(data("v2_lite"), in("b.gguf"),
                      &(latent_gguf_options){.keys = keys, .n_keys = COUNT(keys)});
    dsmoe_config is = config_of(in("b.gguf")), should_be = folder_config(data("v2_lite"));
    assert_same_config(&is, &should_be);

    /* A layer for predicting further tokens is the last one and is not run. */
    static const made_key ahead[] = {{"deepseek2.nextn_predict_layers", MADE_U32, 1, NULL}};
    latent_gguf_write(data("v2_lite"), in("b.gguf"),
                      &(latent_gguf_options){.keys = ahead, .n_keys = 1});
    dsmoe_model *model = open_model(in("b.gguf"));
    assert_int_equal(dsmoe_model_config(model)->num_hidden_layers, 2);
    assert_true(dsmoe_model_extra_count(model) > 0);
    dsmoe_model_free(model);

    /* Files without the keys that say how YaRN scales. */
    static const made_key silent[] = {
        {"deepseek2.rope.scaling.yarn_log_multiplier", MADE_ABSENT, 0, NULL},
        {"deepseek2.rope.scaling.original_context_length", MADE_ABSENT, 0, NULL}};
    latent_gguf_write(data("v2_lite"), in("b.gguf"),
                      &(latent_gguf_options){.keys = silent, .n_keys = 2});
    is = config_of(in("b.gguf"));
    assert_true(is.mscale == 1 && is.mscale_all_dim == 0);
    assert_int_equal(is.original_max_position_embeddings, 640);
    REMOVE("b.gguf");
}

/* ---- types ----------------------------------------------------------------------------------- */

/* Row lengths as in the released models: rows of k_b_proj are too short for blocks of 256. */
static dsmoe_config blocky_latent(void)
{
    dsmoe_config c;
    assert_int_equal(dsmoe_config_preset("v2-lite", &c, NULL), DSMOE_OK);
    c.vocab_size = 301;
    c.hidden_size = c.intermediate_size = 256;
    c.moe_intermediate_size = 96;
    c.num_hidden_layers = 9;
    c.num_attention_heads = c.num_key_value_heads = 2;
    c.n_routed_experts = 5;
    c.num_experts_per_tok = 3;
    c.bos_token_id = c.eos_token_id = -1;
    return c;
}

static void assert_type(const gguf *file, const char *name, dsmoe_dtype type)
{
    const gguf_tensor *t = gguf_find(file, name);
    if (!t) fail_msg("there is no %s", name);
    if (t->type != type)
        fail_msg("%s is %s, not %s", name, dsmoe_dtype_name(t->type), dsmoe_dtype_name(type));
}

/* As in the public tool: no part of kv_b_proj gets more bits if it is split. */
static void test_mixture(void **state)
{
    (void)state;
    dsmoe_config config = blocky_latent();
    init(in("a"), &config, DSMOE_BF16);
    convert(in("a"), in("b.gguf"), "q4_k_m");
    gguf *file = open_gguf(in("b.gguf"));
    static const struct {
        const char *name;
        dsmoe_dtype type;
    } cases[] = {
        {"blk.0.attn_kv_a_mqa.weight", DSMOE_Q4_K}, {"blk.0.attn_kv_a_norm.weight", DSMOE_F32},
        {"blk.0.attn_k_b.weight", DSMOE_Q5_0},      {"blk.0.attn_v_b.weight", DSMOE_Q4_K},
        {"blk.0.attn_q.weight", DSMOE_Q4_K},        {"blk.0.attn_output.weight", DSMOE_Q4_K},
        {"blk.0.ffn_down.weight", DSMOE_Q6_K},      {"blk.1.ffn_gate_inp.weight", DSMOE_F32},
        {"blk.1.ffn_down_exps.weight", DSMOE_Q5_0}, {"blk.8.ffn_down_exps.weight", DSMOE_Q8_0},
        {"blk.8.attn_v_b.weight", DSMOE_Q4_K},      {"output.weight", DSMOE_Q6_K},
    };
    for (size_t i = 0; i < COUNT(cases); i++) assert_type(file, cases[i].name, cases[i].type);
    gguf_close(file);
    tiny_remove(in("b.gguf"));
    convert(in("a"), in("b.gguf"), "q6_k");
    file = open_gguf(in("b.gguf"));
    assert_type(file, "blk.3.attn_k_b.weight", DSMOE_Q8_0);
    assert_type(file, "blk.3.attn_v_b.weight", DSMOE_Q6_K);
    gguf_close(file);
    REMOVE("a", "b.gguf");
}

/* Row i of a GGUF tensor as float32. */
static void row_of(const gguf_tensor *t, int64_t row, float *out)
{
    int64_t width = t->shape[t->n_dims - 1];
    kernels_get()->dtypes[t->type].widen(width, t->data + row * dtype_bytes(t->type, width), out);
}

/* A quantised file in the old layout: rows of v_b_proj are copied from kv_b_proj byte by byte. Columns of
 * kv_b_proj cannot stay quantised and become float16. A folder made from the file has the dequantised
 * numbers. */
static void test_old_blocks(void **state)
{
    (void)state;
    enum { HEADS = 2, NOPE = 128, V = 128, RANK = 512 };
    static const char *const types[] = {"q8_0", "q4_k"};
    dsmoe_config config = blocky_latent();
    config.num_hidden_layers = 2;
    init(in("a"), &config, DSMOE_F32);
    for (size_t k = 0; k < COUNT(types); k++) {
        latent_gguf_write(in("a"), in("old.gguf"),
                          &(latent_gguf_options){.old = true, .type = types[k]});
        convert(in("old.gguf"), in("new.gguf"), NULL);
        gguf *old = open_gguf(in("old.gguf")), *new = open_gguf(in("new.gguf"));
        const gguf_tensor *kv = gguf_find(old, "blk.1.attn_kv_b.weight");
        const gguf_tensor *keys = gguf_find(new, "blk.1.attn_k_b.weight");
        const gguf_tensor *values = gguf_find(new, "blk.1.attn_v_b.weight");
        assert_true(kv && keys && values);
        assert_int_equal(keys->type, DSMOE_F16);
        assert_int_equal(values->type, kv->type);
        static float whole[HEADS * (NOPE + V)][RANK], key[NOPE];
        for (int i = 0; i < HEADS * (NOPE + V); i++) row_of(kv, i, whole[i]);
        for (int h = 0; h < HEADS; h++) {
            size_t size = (size_t)dtype_bytes(kv->type, V * RANK);
            assert_memory_equal(values->data + (size_t)h * size,
                                kv->data + dtype_bytes(kv->type, (h * (NOPE + V) + NOPE) * RANK),
                                size);
            for (int j = 0; j < RANK; j++) {
                row_of(keys, h * RANK + j, key);
                for (int i = 0; i < NOPE; i++) {
                    float x = whole[h * (NOPE + V) + i][j];
                    assert_true(key[i] >= x - 1e-4f && key[i] <= x + 1e-4f);
                }
            }
        }
        convert(in("old.gguf"), in("c"), "f32");
        shards *set;
        assert_int_equal(shards_open(in("c"), &set, NULL), DSMOE_OK);
        const safetensors_tensor *again =
            shards_find(set, "model.layers.1.self_attn.kv_b_proj.weight", NULL);
        assert_memory_equal(again->data, whole, sizeof whole);
        shards_close(set);
        gguf_close(old);
        gguf_close(new);
        tiny_remove(in("old.gguf"));
        tiny_remove(in("new.gguf"));
        tiny_remove(in("c"));
    }
    REMOVE("a");
}

/* A newly initialised file has the same numbers as a newly initialised folder. */
static void test_fresh(void **state)
{
    (void)state;
    dsmoe_config config = folder_config(data("v3_gate"));
    dsmoe_error error = {0};
    init(in("a"), &config, DSMOE_F32);
    convert(in("a"), in("fresh.gguf"), "f16");
    assert_int_equal(rename(in("fresh.gguf"), in("b.gguf")), 0);
    dsmoe_convert_options options = {.type = "f16", .n_threads = 2};
    must(dsmoe_model_init_gguf(in("fresh.gguf"), &config, NULL, 5, &options, &error), &error,
         "fresh");
    gguf *made = open_gguf(in("fresh.gguf")), *wanted = open_gguf(in("b.gguf"));
    assert_int_equal(gguf_count(made), gguf_count(wanted));
    for (size_t i = 0; i < gguf_count(made); i++) {
        const gguf_tensor *x = gguf_at(made, i), *y = gguf_at(wanted, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->size, y->size);
        if (memcmp(x->data, y->data, x->size)) fail_msg("%s differs", x->name);
    }
    gguf_close(made);
    gguf_close(wanted);
    tiny_remove(in("fresh.gguf"));
    options.type = "q4_k_m";
    config = blocky_latent();
    must(dsmoe_model_init_gguf(in("fresh.gguf"), &config, NULL, 5, &options, &error), &error,
         "fresh");
    dsmoe_model *model = open_model(in("fresh.gguf"));
    assert_true(model->weights->kv_b_split);
    assert_int_equal(model->weights->layers[3].k_b_proj.type, DSMOE_Q5_0);
    dsmoe_model_free(model);
    REMOVE("a", "b.gguf", "fresh.gguf");
}

/* Importances of heads: the only column that matters is kept best. */
static void test_importance(void **state)
{
    (void)state;
    enum { HEADS = 2, NOPE = 128, RANK = 512, COLUMN = 40 };
    static const char name[] = "blk.1.attn_k_b.weight";
    dsmoe_config config = blocky_latent();
    config.num_hidden_layers = 2;
    init(in("a"), &config, DSMOE_F32);
    convert(in("a"), in("exact.gguf"), NULL);
    gguf_writer *writer;
    dsmoe_error error = {0};
    must(gguf_writer_create(in("m.gguf"), &writer, &error), &error, "imatrix");
    gguf_writer_string(writer, "general.type", "imatrix", 7);
    const int64_t sums[] = {HEADS, NOPE}, counts[] = {HEADS, 1};
    must(gguf_writer_declare(writer, "blk.1.attn_k_b.weight.in_sum2", DSMOE_F32, 2, sums, &error),
         &error, "sums");
    must(gguf_writer_declare(writer, "blk.1.attn_k_b.weight.counts", DSMOE_F32, 2, counts, &error),
         &error, "counts");
    float squares[HEADS][NOPE], n[HEADS] = {100, 100};
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < NOPE; i++) squares[h][i] = h == 1 && i == COLUMN ? 1e6f : 1e-3f;
    must(gguf_writer_write(writer, squares, sizeof squares, &error), &error, "sums");
    must(gguf_writer_write(writer, n, sizeof n, &error), &error, "counts");
    must(gguf_writer_finish(writer, &error), &error, "imatrix");
    int64_t n_without = -1, n_weighed = -1;
    dsmoe_convert_options options = {.type = "q4_0",
                                     .n_threads = 2,
                                     .imatrix = in("m.gguf"),
                                     .n_without_importance = &n_without,
                                     .n_weighed = &n_weighed};
    must(dsmoe_convert(in("a"), in("b.gguf"), &options, &error), &error, "q4_0");
    assert_int_equal(n_without, n_weighed - 1);
    convert(in("a"), in("c.gguf"), "q4_0");
    const char *const files[] = {"b.gguf", "c.gguf"};
    gguf *exact = open_gguf(in("exact.gguf"));
    double errors[2] = {0};
    for (int k = 0; k < 2; k++) {
        gguf *file = open_gguf(in(files[k]));
        for (int j = 0; j < RANK; j++) {
            float x[NOPE], y[NOPE];
            row_of(gguf_find(file, name), RANK + j, x);
            row_of(gguf_find(exact, name), RANK + j, y);
            errors[k] += ((double)x[COLUMN] - y[COLUMN]) * ((double)x[COLUMN] - y[COLUMN]);
        }
        gguf_close(file);
    }
    gguf_close(exact);
    if (!(errors[0] < 0.2 * errors[1])) fail_msg("errors %g and %g", errors[0], errors[1]);
    REMOVE("a", "exact.gguf", "m.gguf", "b.gguf", "c.gguf");
}

/* ---- configurations that a file cannot express ----------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    dsmoe_config config = blocky_latent();
    dsmoe_error error = {0};
    const dsmoe_convert_options options = {.type = "f16", .n_threads = 1};
    config.mscale = 1;
    assert_int_equal(dsmoe_model_init_gguf(in("b.gguf"), &config, NULL, 5, &options, &error),
                     DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "mscale"));
    config.mscale = config.mscale_all_dim = 0;
    assert_int_equal(dsmoe_model_init_gguf(in("b.gguf"), &config, NULL, 5, &options, &error),
                     DSMOE_ERROR_CONFIG);
    assert_int_equal(count_files(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, clean_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_read),         TEST(test_write),       TEST(test_keys),    TEST(test_split_file),
        TEST(test_both_layouts), TEST(test_other_files), TEST(test_mixture), TEST(test_old_blocks),
        TEST(test_fresh),        TEST(test_importance),  TEST(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

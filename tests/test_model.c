/* test_model.c - whole models against plain double arithmetic, in every shape and type that a checkpoint
 * may have, and folders that must be refused. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/safetensors.h"
#include "naive_check.h"
#include "scratch.h"

static const char *const dtypes[] = {"F32", "F16", "BF16"};

/* ---- against plain arithmetic --------------------------------------------------------------- */

typedef void change_fn(dsmoe_config *config);

static void plain_case(dsmoe_config *c) { c->num_hidden_layers = 3; }
static void with_bias(dsmoe_config *c) { c->attention_bias = true; }
static void tied(dsmoe_config *c) { c->tie_word_embeddings = true; }

static void grouped(dsmoe_config *c)
{
    c->hidden_size = 36;
    c->num_attention_heads = 6;
    c->num_key_value_heads = 2;
    c->norm_topk_prob = true;
}

static void one_kv_head(dsmoe_config *c)
{
    c->num_key_value_heads = 1;
    c->attention_bias = true;
    c->rope_theta = 500;
}

static void linear_rope(dsmoe_config *c)
{
    c->max_position_embeddings = 20;
    c->rope_scaling = DSMOE_ROPE_LINEAR;
    c->rope_scaling_factor = 2.5;
}

static void dynamic_rope(dsmoe_config *c)
{
    c->max_position_embeddings = 20;
    c->rope_scaling = DSMOE_ROPE_DYNAMIC;
    c->rope_scaling_factor = 2;
}

static void every_second(dsmoe_config *c)
{
    c->num_hidden_layers = 5;
    c->first_k_dense_replace = 0;
    c->moe_layer_freq = 2;
}

static void every_third(dsmoe_config *c)
{
    c->num_hidden_layers = 4;
    c->first_k_dense_replace = 2; /* only layer 3 is MoE */
    c->moe_layer_freq = 3;
}

static void no_shared(dsmoe_config *c) { c->n_shared_experts = 0; }

static void all_dense(dsmoe_config *c)
{
    c->n_routed_experts = c->num_experts_per_tok = c->n_shared_experts = 0;
}

static void all_ones(dsmoe_config *c)
{
    c->vocab_size = 2;
    c->hidden_size = 2;
    c->num_attention_heads = c->num_key_value_heads = 1;
    c->intermediate_size = c->moe_intermediate_size = c->n_shared_experts = 1;
    c->n_routed_experts = c->num_experts_per_tok = 1;
}

static void narrow_experts(dsmoe_config *c)
{
    c->moe_intermediate_size = 1;
    c->n_routed_experts = 33;
    c->num_experts_per_tok = 9;
}

static void wide(dsmoe_config *c)
{
    c->vocab_size = 301;
    c->hidden_size = 130;
    c->num_attention_heads = 5;
    c->num_key_value_heads = 5;
    c->intermediate_size = 257;
    c->moe_intermediate_size = 33;
    c->n_routed_experts = 16;
    c->num_experts_per_tok = 6;
}

static void aligned(dsmoe_config *c)
{
    c->vocab_size = 128;
    c->hidden_size = 64;
    c->num_attention_heads = c->num_key_value_heads = 4;
    c->intermediate_size = 96;
    c->moe_intermediate_size = 32;
    c->n_routed_experts = 8;
}

static void one_of_many(dsmoe_config *c)
{
    c->num_experts_per_tok = 1;
    c->norm_topk_prob = true; /* no effect on a single expert */
}

static void all_of_them(dsmoe_config *c)
{
    c->num_experts_per_tok = c->n_routed_experts;
    c->norm_topk_prob = true;
    c->rms_norm_eps = 1e-3;
}

/* `group` query heads for each key head; heads have two numbers. */
static void many_queries(dsmoe_config *c, int64_t n_kv_heads, int64_t group)
{
    c->num_hidden_layers = 2;
    c->num_key_value_heads = n_kv_heads;
    c->num_attention_heads = n_kv_heads * group;
    c->hidden_size = 2 * c->num_attention_heads;
}

static void group_of_19(dsmoe_config *c) { many_queries(c, 2, 19); }
static void group_of_130(dsmoe_config *c) { many_queries(c, 1, 130); }
static void group_of_300(dsmoe_config *c) { many_queries(c, 1, 300); }

static void small_vocabulary(dsmoe_config *c)
{
    c->vocab_size = 1;
    c->hidden_size = 20;
    c->num_attention_heads = c->num_key_value_heads = 2; /* of 10 numbers each */
    c->num_hidden_layers = 1;
    c->first_k_dense_replace = 0;
}

/* All experts are chosen, so that none of thousands of tokens has a tie. */
static void tiny_layers(dsmoe_config *c)
{
    c->vocab_size = 7;
    c->hidden_size = 4;
    c->num_attention_heads = 2;
    c->num_key_value_heads = 1;
    c->num_hidden_layers = 2;
    c->moe_intermediate_size = 3;
    c->n_routed_experts = c->num_experts_per_tok = 3;
}

/* Feed-forward networks that take more memory than attention. */
static void wide_networks(dsmoe_config *c)
{
    c->hidden_size = 4;
    c->num_attention_heads = c->num_key_value_heads = 1;
    c->intermediate_size = 3001;
    c->moe_intermediate_size = 701;
    c->n_shared_experts = 4;
    c->n_routed_experts = 3;
    c->num_experts_per_tok = 2;
}

typedef struct model_case {
    const char *name;
    change_fn *change;
    int64_t n_tokens, n_batch;
} model_case;

static const model_case cases[] = {
    {"plain", plain_case, 37, 0},
    {"one token", plain_case, 1, 0},
    {"longer than a batch", plain_case, 37, 8},
    {"longer than a block of attention", plain_case, 300, 0},
    {"long, in batches", grouped, 300, 70},
    {"attention_bias", with_bias, 20, 0},
    {"tie_word_embeddings", tied, 20, 0},
    {"grouped heads, norm_topk_prob", grouped, 37, 0},
    {"one head of keys", one_kv_head, 37, 16},
    {"linear rope", linear_rope, 50, 0},
    {"dynamic rope, short", dynamic_rope, 20, 0},
    {"dynamic rope", dynamic_rope, 50, 0},
    {"dynamic rope in batches", dynamic_rope, 33, 16},
    {"moe_layer_freq 2", every_second, 20, 0},
    {"moe_layer_freq 3", every_third, 20, 0},
    {"no shared experts", no_shared, 20, 0},
    {"dense", all_dense, 20, 0},
    {"all ones", all_ones, 9, 0},
    {"experts of width 1", narrow_experts, 30, 0},
    {"wide", wide, 40, 0},
    {"powers of two", aligned, 40, 0},
    {"one of seven experts", one_of_many, 30, 0},
    {"all experts", all_of_them, 30, 7},
    {"19 queries a key", group_of_19, 70, 9},
    {"130 queries a key", group_of_130, 20, 0},
    {"300 queries a key", group_of_300, 5, 0},
    {"wide networks", wide_networks, 40, 0},
    {"a vocabulary of one", small_vocabulary, 20, 0},
    {"more than a piece of the MoE layer", tiny_layers, 2100, 2100},
};

static void check_case(const model_case *c, const char *dtype, bool odd, uint64_t seed)
{
    dsmoe_config config = made_config();
    c->change(&config);
    naive_check(&(naive_case){c->name, &config, dtype, odd, seed, c->n_tokens, c->n_batch, 0},
                directory);
}

static void test_against_plain_arithmetic(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t d = 0; d < COUNT(dtypes); d++)
            check_case(&cases[i], dtypes[d], (i + d) % 2 == 0, 7 * i + d + 1);
    made_model_remove(directory);
}

/* Several types in one model, as some scripts write them. */
static void test_mixed_types(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "BF16", 5); /* BF16 values fit the other types */
    for (int i = 0; i < made.n_tensors; i++)
        if (i % 2) made.tensors[i].dtype = "F32";
    made_model_write(&made, directory, true);
    int32_t tokens[12];
    made_tokens(&made, tokens, 12, 5);
    naive_result expected = naive_model_run(&made, tokens, 12);
    dsmoe_model *model = open_model(directory);
    dsmoe_sequence *sequence = make_sequence(model, 12, 0, 1);
    naive_check_whole(sequence,
                      &(naive_case){.name = "mixed types", .config = &config, .n_tokens = 12},
                      tokens, &expected);
    free_sequence(sequence);
    dsmoe_model_free(model);
    naive_result_free(&expected);
    made_model_free(&made);
    made_model_remove(directory);
}

/* ---- plain arithmetic against PyTorch ------------------------------------------------------- */

/* The plain arithmetic gives the same results as PyTorch. */
static void test_plain_arithmetic(void **state)
{
    (void)state;
    static const char *const names[] = {"lm/base",        "lm/bf16",        "lm/dense",
                                        "lm/gqa",         "lm/sharded",     "lm_v2/v2_lite",
                                        "lm_v2/v2_plain", "lm_v2/v2_group", "lm_v2/v3_gate"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char folder[512], name[600];
        snprintf(folder, sizeof folder, TEST_DATA "/%s", names[i]);
        snprintf(name, sizeof name, "%s/expected.safetensors", folder);
        safetensors *file;
        assert_int_equal(safetensors_open(name, &file, NULL), DSMOE_OK);
        const safetensors_tensor *ids = safetensors_find(file, "input_ids");
        const safetensors_tensor *logits = safetensors_find(file, "logits");
        assert_true(ids && logits);
        int64_t length = ids->shape[1], vocab = logits->shape[2];
        size_t n = (size_t)(length * vocab);
        int32_t *tokens = malloc((size_t)length * sizeof *tokens);
        float *right = malloc(n * sizeof *right);
        assert_true(tokens && right);
        made_model made = made_model_read(folder);
        for (int64_t row = 0; row < ids->shape[0]; row++) {
            for (int64_t t = 0; t < length; t++) {
                int64_t id;
                safetensors_tensor_read_i64(ids, (size_t)(row * length + t), 1, &id);
                tokens[t] = (int32_t)id;
            }
            naive_result ours = naive_model_run(&made, tokens, length);
            safetensors_tensor_read_f32(logits, (size_t)row * n, n, right);
            double worst = worst_difference(right, ours.logits, (int64_t)n);
            if (!(worst <= 1e-5)) fail_msg("%s: off by %g", names[i], worst);
            naive_result_free(&ours);
        }
        made_model_free(&made);
        free(right);
        free(tokens);
        safetensors_close(file);
    }
}

/* ---- information about a model -------------------------------------------------------------- */

static size_t bytes_of(const made_tensor *t) { return (size_t)t->n * (t->dtype[0] == 'F' ? 4 : 2); }

static size_t token_bytes(const made_model *made)
{
    const dsmoe_config *c = &made->config;
    double sum = 0;
    for (int i = 0; i < made->n_tensors; i++) {
        const made_tensor *t = &made->tensors[i];
        double bytes = (double)bytes_of(t);
        if (!strcmp(t->name, "model.embed_tokens.weight") && !c->tie_word_embeddings)
            bytes /= (double)c->vocab_size;
        else if (strstr(t->name, ".experts."))
            bytes = bytes * (double)c->num_experts_per_tok / (double)c->n_routed_experts;
        sum += bytes;
    }
    return (size_t)lrint(sum);
}

static void check_listing(const made_model *made, const dsmoe_model *model)
{
    assert_int_equal(dsmoe_model_tensor_count(model), made->n_tensors);
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++) {
        dsmoe_tensor_info info = dsmoe_model_tensor(model, i);
        const made_tensor *t = made_model_find(made, info.name);
        assert_int_equal(info.n_dims, t->n_dims);
        assert_int_equal(info.shape[0], t->shape[0]);
        if (t->n_dims == 2) assert_int_equal(info.shape[1], t->shape[1]);
        assert_int_equal(info.dtype, t->dtype[0] == 'F' ? DSMOE_F32 : DSMOE_BF16);
        assert_int_equal(info.size, bytes_of(t));
    }
    assert_null(dsmoe_model_tensor(model, (size_t)made->n_tensors).name); /* after the last one */
    assert_null(dsmoe_model_tensor(model, SIZE_MAX).name);
    assert_int_equal(dsmoe_model_bytes_per_token(model), token_bytes(made));
}

static void test_listing(void **state)
{
    (void)state;
    change_fn *const changes[] = {plain_case, tied, with_bias, all_dense, every_second, no_shared};
    for (size_t i = 0; i < COUNT(changes); i++) {
        dsmoe_config config = made_config();
        changes[i](&config);
        made_model made = made_model_create(&config, i % 2 ? "F32" : "BF16", 1);
        made_model_write(&made, directory, false);
        dsmoe_model *model = open_model(directory);
        check_listing(&made, model);
        assert_int_equal(dsmoe_model_extra_count(model), 0);
        assert_int_equal(dsmoe_model_config(model)->hidden_size, config.hidden_size);
        assert_int_equal(dsmoe_model_config(model)->rope_scaling, config.rope_scaling);
        dsmoe_model_free(model);
        made_model_free(&made);
    }
    made_model_remove(directory);
}

/* A head although the embedding is tied, or buffers of an older program: they are listed, but not an
 * error. */
static void test_extra_tensors(void **state)
{
    (void)state;
    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "F32", 1);
    made.config.tie_word_embeddings = true;
    strcpy(made_model_find(&made, "model.norm.weight")->name, "model.norm.height");
    made_model_write(&made, directory, false);
    dsmoe_error error = {0};
    dsmoe_model *model = NULL;
    assert_int_equal(dsmoe_model_open(directory, &model, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "model.norm.weight"));
    strcpy(made_model_find(&made, "model.norm.height")->name, "model.norm.weight");
    made_model_write(&made, directory, false);
    model = open_model(directory);
    assert_int_equal(dsmoe_model_extra_count(model), 1);
    assert_string_equal(dsmoe_model_extra(model, 0), "lm_head.weight");
    assert_null(dsmoe_model_extra(model, 1));
    dsmoe_model_free(model);
    made_model_free(&made);
    made_model_remove(directory);
}

/* ---- folders that must be refused ------------------------------------------------------------ */

static void leave_out(made_tensor *t) { t->left_out = true; }
static void as_i32(made_tensor *t) { t->dtype = "I32"; }
static void as_f64(made_tensor *t) { t->dtype = "F64"; }

static void transpose(made_tensor *t)
{
    int64_t rows = t->shape[0];
    t->shape[0] = t->n_dims == 2 ? t->shape[1] : 1;
    t->shape[1] = rows;
    t->n_dims = 2;
}

static void as_column(made_tensor *t)
{
    t->n_dims = 2;
    t->shape[1] = 1;
}

static void flatten(made_tensor *t)
{
    t->n_dims = 1;
    t->shape[0] = t->n;
}

static void shorten(made_tensor *t)
{
    t->n -= t->n_dims == 2 ? t->shape[1] : 1;
    t->shape[0]--;
}

static void assert_refused(const made_model *made, dsmoe_status status, const char *says)
{
    dsmoe_error error = {0};
    dsmoe_model *model = NULL;
    made_model_write(made, directory, false);
    assert_int_equal(dsmoe_model_open(directory, &model, &error), status);
    if (!strstr(error.message, says) || !strstr(error.message, directory))
        fail_msg("'%s' does not say '%s' and where", error.message, says);
    assert_int_equal(dsmoe_model_open(directory, &model, NULL), status);
}

static void test_faulty_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        void (*harm)(made_tensor *);
    } faults[] = {
        {"model.embed_tokens.weight", leave_out},
        {"lm_head.weight", leave_out},
        {"model.layers.1.self_attn.k_proj.bias", leave_out},
        {"model.layers.2.mlp.experts.6.up_proj.weight", leave_out},
        {"model.layers.1.mlp.gate.weight", leave_out},
        {"model.layers.0.mlp.down_proj.weight", leave_out},
        {"model.layers.1.mlp.shared_experts.gate_proj.weight", leave_out},
        {"model.layers.2.mlp.experts.3.down_proj.weight", as_i32},
        {"model.layers.0.input_layernorm.weight", as_i32},
        {"model.norm.weight", as_f64},
        {"model.layers.1.mlp.gate.weight", as_f64},
        {"model.embed_tokens.weight", transpose},
        {"model.layers.0.self_attn.q_proj.bias", transpose},
        {"model.layers.0.mlp.gate_proj.weight", transpose},
        {"model.norm.weight", as_column},
        {"model.layers.1.mlp.experts.0.gate_proj.weight", flatten},
        {"model.embed_tokens.weight", shorten},
        {"model.layers.2.post_attention_layernorm.weight", shorten},
        {"model.layers.2.self_attn.o_proj.weight", shorten},
    };
    dsmoe_config config = made_config();
    config.attention_bias = true;
    for (size_t i = 0; i < COUNT(faults); i++) {
        made_model made = made_model_create(&config, "F32", 3);
        faults[i].harm(made_model_find(&made, faults[i].name));
        assert_refused(&made, DSMOE_ERROR_FORMAT, faults[i].name);
        made_model_free(&made);
    }
    made_model_remove(directory);
}

static void test_wrong_folders(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    dsmoe_model *model = NULL;
    assert_int_equal(dsmoe_model_open("/nonexistent/model", &model, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "/nonexistent/model"));
    assert_int_equal(dsmoe_model_open(directory, &model, &error), DSMOE_ERROR_IO); /* empty */
    assert_non_null(strstr(error.message, "config.json"));
    assert_int_equal(dsmoe_model_open(NULL, &model, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_model_open(directory, NULL, &error), DSMOE_ERROR_ARGUMENT);

    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "F32", 3);
    made.config.num_experts_per_tok = 8; /* of 7 */
    assert_refused(&made, DSMOE_ERROR_CONFIG, "num_experts_per_tok");
    made.config = config;
    made.config.num_hidden_layers = 4; /* there are 3 */
    assert_refused(&made, DSMOE_ERROR_FORMAT, "model.layers.3.");
    made.config.num_hidden_layers = 1 << 16; /* no memory is taken for missing experts */
    made.config.n_routed_experts = 1 << 24;
    assert_refused(&made, DSMOE_ERROR_FORMAT, "model.layers.1.mlp.gate.weight");
    made.config = config;
    made_model_write(&made, directory, false);
    assert_int_equal(truncate(path, 1000), 0); /* path: see main */
    assert_int_equal(dsmoe_model_open(directory, &model, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "model.safetensors"));
    remove(path);
    assert_int_equal(dsmoe_model_open(directory, &model, &error), DSMOE_ERROR_IO);
    dsmoe_model_free(NULL);
    made_model_free(&made);
    made_model_remove(directory);
}

static int make_folder(void **state)
{
    int failed = make_directory(state);
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    return failed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_arithmetic), cmocka_unit_test(test_against_plain_arithmetic),
        cmocka_unit_test(test_mixed_types),      cmocka_unit_test(test_listing),
        cmocka_unit_test(test_extra_tensors),    cmocka_unit_test(test_faulty_tensors),
        cmocka_unit_test(test_wrong_folders),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_directory);
}

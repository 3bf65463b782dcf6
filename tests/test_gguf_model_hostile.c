/* test_gguf_model_hostile.c - GGUF files that are not the models they claim to be: impossible sizes,
 * tensors that do not fit them, NaN and infinity, files that shrink. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "made_gguf.h"
#include "scratch.h"
#include "support.h"

static void must_fail(const char *from, dsmoe_status status, const char *message)
{
    dsmoe_error error = {0};
    dsmoe_model *model = (dsmoe_model *)1;
    assert_int_equal(dsmoe_model_open(from, &model, &error), status);
    assert_null(model);
    if (!strstr(error.message, message) || !strstr(error.message, from) ||
        strchr(error.message, '\n'))
        fail_msg("\"%s\" says nothing of \"%s\"", error.message, message);
}

/* Writes the model with one key replaced and checks the message. */
static void check_key(const made_model *m, made_key key, const char *message)
{
    made_gguf_write(m, made_file, &(made_gguf_options){.keys = &key, .n_keys = 1});
    must_fail(made_file, DSMOE_ERROR_CONFIG, message);
}

static void test_bad_sizes(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "block_count",    "embedding_length", "attention.head_count", "attention.head_count_kv",
        "context_length", "vocab_size",
    };
    dsmoe_config c = made_config();
    made_model m = made_model_create(&c, "F32", 1);
    for (size_t i = 0; i < COUNT(keys); i++) {
        char key[64];
        snprintf(key, sizeof key, "deepseek.%s", keys[i]);
        check_key(&m, (made_key){key, MADE_U32, 0, NULL}, key);
        check_key(&m, (made_key){key, MADE_U32, 0x1p31, NULL}, key);
        check_key(&m, (made_key){key, MADE_U32, 4294967295.0, NULL}, key);
        check_key(&m, (made_key){key, MADE_I32, -1, NULL}, key);
    }
    static const char *const more[] = {"expert_count",        "expert_used_count",
                                       "expert_shared_count", "leading_dense_block_count",
                                       "feed_forward_length", "expert_feed_forward_length",
                                       "rope.dimension_count"};
    for (size_t i = 0; i < COUNT(more); i++) {
        char key[64];
        snprintf(key, sizeof key, "deepseek.%s", more[i]);
        check_key(&m, (made_key){key, MADE_U32, 0x1p31, NULL}, key);
        check_key(&m, (made_key){key, MADE_I32, -1, NULL}, key);
    }
    made_model_free(&m);
}

static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        made_key key;
        const char *message;
    } cases[] = {
        {{"general.architecture", MADE_STRING, 0, "llama"}, "general.architecture \"llama\""},
        {{"general.type", MADE_STRING, 0, "imatrix"}, "not a model: general.type is \"imatrix\""},
        {{"deepseek.attention.head_count", MADE_U32, 4, NULL},
         "deepseek.embedding_length 42 is not divisible by deepseek.attention.head_count 4"},
        {{"deepseek.attention.head_count", MADE_U32, 2, NULL}, "is odd"},
        {{"deepseek.attention.head_count_kv", MADE_U32, 2, NULL},
         "deepseek.attention.head_count_kv 2"},
        {{"deepseek.expert_used_count", MADE_U32, 8, NULL},
         "deepseek.expert_used_count 8 is more than deepseek.expert_count 7"},
        {{"deepseek.expert_used_count", MADE_U32, 0, NULL}, "deepseek.expert_used_count"},
        {{"deepseek.expert_feed_forward_length", MADE_ABSENT, 0, NULL},
         "deepseek.expert_feed_forward_length is missing"},
        {{"deepseek.feed_forward_length", MADE_ABSENT, 0, NULL},
         "deepseek.feed_forward_length is missing"},
        {{"deepseek.rope.dimension_count", MADE_U32, 0, NULL},
         "deepseek.rope.dimension_count is 0"},
        {{"deepseek.rope.dimension_count", MADE_U32, 7, NULL},
         "deepseek.rope.dimension_count is 7"},
        {{"deepseek.attention.key_length", MADE_U32, 192, NULL},
         "deepseek.attention.key_length is 192; only 14 is supported"},
        {{"deepseek.attention.value_length", MADE_U32, 1, NULL}, "value_length"},
        {{"deepseek.expert_weights_scale", MADE_F32, 2.5, NULL}, "expert_weights_scale is 2.5"},
        {{"deepseek.expert_weights_scale", MADE_F32, NAN, NULL}, "expert_weights_scale is nan"},
        {{"deepseek.expert_weights_norm", MADE_BOOL, 1, NULL}, "expert_weights_norm is true"},
        {{"deepseek.expert_gating_func", MADE_U32, 2, NULL}, "expert_gating_func is 2"},
        {{"deepseek.rope.freq_base", MADE_F32, NAN, NULL}, "deepseek.rope.freq_base is nan"},
        {{"deepseek.rope.freq_base", MADE_F32, 0, NULL}, "deepseek.rope.freq_base is 0"},
        {{"deepseek.attention.layer_norm_rms_epsilon", MADE_F32, -1, NULL}, "rms_epsilon is -1"},
        {{"deepseek.rope.scaling.type", MADE_STRING, 0, "yarn"}, "rope.scaling.type \"yarn\""},
        {{"tokenizer.ggml.bos_token_id", MADE_U32, 61, NULL}, "bos_token_id is 61"},
        {{"tokenizer.ggml.eos_token_id", MADE_U32, 4294967295.0, NULL},
         "eos_token_id is 4294967295"},
        {{"tokenizer.ggml.eos_token_id", MADE_I32, -1, NULL}, "eos_token_id is -1"},
        {{"dsmoe.aux_loss_alpha", MADE_F32, INFINITY, NULL}, "dsmoe.aux_loss_alpha is inf"},
    };
    dsmoe_config c = made_config();
    made_model m = made_model_create(&c, "F32", 1);
    for (size_t i = 0; i < COUNT(cases); i++) check_key(&m, cases[i].key, cases[i].message);
    static const made_key scaled[] = {{"deepseek.rope.scaling.type", MADE_STRING, 0, "linear"},
                                      {"deepseek.rope.scaling.factor", MADE_F32, 0.5, NULL}};
    made_gguf_write(&m, made_file, &(made_gguf_options){.keys = scaled, .n_keys = 2});
    must_fail(made_file, DSMOE_ERROR_CONFIG, "deepseek.rope.scaling.factor is 0.5");
    static const made_key sampled[] = {
        {"dsmoe.generation_config", MADE_STRING, 0, "{\"top_p\": 7}"}};
    made_gguf_write(&m, made_file, &(made_gguf_options){.keys = sampled, .n_keys = 1});
    must_fail(made_file, DSMOE_ERROR_CONFIG, "dsmoe.generation_config: top_p is 7");
    made_model_free(&m);
}

/* Required keys that are missing or have values of the wrong type. */
static void test_missing_keys(void **state)
{
    (void)state;
    static const char *const required[] = {"general.architecture", "deepseek.block_count",
                                           "deepseek.embedding_length",
                                           "deepseek.attention.head_count"};
    dsmoe_config c = made_config();
    made_model m = made_model_create(&c, "F32", 1);
    dsmoe_error error;
    dsmoe_model *model;
    for (size_t i = 0; i < COUNT(required); i++) {
        for (int kind = MADE_ABSENT; kind <= MADE_BOOL; kind += MADE_BOOL) {
            made_key key = {required[i], (made_key_kind)kind, 1, NULL};
            made_gguf_write(&m, made_file, &(made_gguf_options){.keys = &key, .n_keys = 1});
            assert_int_not_equal(dsmoe_model_open(made_file, &model, &error), DSMOE_OK);
            assert_non_null(strstr(error.message, required[i]));
            assert_non_null(strstr(error.message, made_file));
        }
    }
    made_model_free(&m);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    made_model m = made_model_create(&c, "F32", 1);
    static const char *const names[] = {"token_embd.weight",           "output_norm.weight",
                                        "blk.0.attn_q.weight",         "blk.2.ffn_norm.weight",
                                        "blk.1.ffn_gate_inp.weight",   "blk.1.ffn_up_exps.weight",
                                        "blk.2.ffn_down_shexp.weight", "blk.0.ffn_gate.weight"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char message[128];
        made_gguf_write(&m, made_file, &(made_gguf_options){.left_out = names[i]});
        snprintf(message, sizeof message, "tensor %s is missing", names[i]);
        must_fail(made_file, DSMOE_ERROR_FORMAT, message);
        made_gguf_write(&m, made_file, &(made_gguf_options){.longer = names[i]});
        snprintf(message, sizeof message, "tensor %s has the shape [", names[i]);
        must_fail(made_file, DSMOE_ERROR_FORMAT, message);
    }
    made_gguf_write(&m, made_file, &(made_gguf_options){.longer = "blk.1.ffn_up_exps.weight"});
    must_fail(made_file, DSMOE_ERROR_FORMAT, "[8, 13, 42], but the metadata requires [7, 13, 42]");
    made_model_free(&m);

    c.hidden_size = 96; /* a multiple of 32 */
    m = made_model_create(&c, "F32", 1);
    made_gguf_write(&m, made_file, &(made_gguf_options){.quantised = "blk.1.attn_norm.weight"});
    must_fail(made_file, DSMOE_ERROR_FORMAT, "tensor blk.1.attn_norm.weight has type q8_0");
    made_model_free(&m);
}

/* The file claims so many layers or experts that they would fill any memory. */
static void test_lies_cost_nothing(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    made_model m = made_model_create(&c, "F32", 1);
    made_key key = {"deepseek.block_count", MADE_U32, 65536, NULL};
    made_gguf_write(&m, made_file, &(made_gguf_options){.keys = &key, .n_keys = 1});
    must_fail(made_file, DSMOE_ERROR_FORMAT, "tensor blk.3.attn_norm.weight is missing");
    key = (made_key){"deepseek.expert_count", MADE_U32, 1 << 24, NULL};
    made_gguf_write(&m, made_file, &(made_gguf_options){.keys = &key, .n_keys = 1});
    must_fail(made_file, DSMOE_ERROR_FORMAT,
              "tensor blk.1.ffn_gate_inp.weight has the shape [7, 42]");
    made_model_free(&m);
}

/* Weights whose names contain `part` (NULL: all) are NaN or infinite; with one token and with many. */
static void check_not_finite(const char *part, float value, dsmoe_dtype type)
{
    enum { MANY = 40 };
    dsmoe_config c = made_config();
    if (dtype_is_block(type)) {
        c.hidden_size = c.intermediate_size = c.moe_intermediate_size = 256;
        c.num_attention_heads = c.num_key_value_heads = 4;
        c.num_hidden_layers = 2;
        c.n_routed_experts = c.num_experts_per_tok = 2; /* so that each is used */
    }
    made_model m = made_model_create(&c, "F32", 1);
    for (int i = 0; i < m.n_tensors; i++)
        for (int64_t j = 0; j < m.tensors[i].n; j++)
            if (!part || strstr(m.tensors[i].name, part)) m.tensors[i].data[j] = value;
    made_gguf_write(&m, made_file, &(made_gguf_options){.type = type, .has_type = true});
    dsmoe_model *model = open_model(made_file);
    dsmoe_sequence *sequence = make_sequence(model, MANY, MANY, 2);
    int32_t tokens[MANY] = {0};
    float logits[61];
    for (int n = 1; n <= MANY; n += MANY - 1) {
        dsmoe_error error = {0};
        assert_int_equal(dsmoe_sequence_append(sequence, tokens, n, logits, &error),
                         DSMOE_ERROR_NONFINITE);
        assert_non_null(strstr(error.message, "finite"));
        assert_int_equal(dsmoe_sequence_length(sequence), 0);
    }
    free_sequence(sequence);
    dsmoe_model_free(model);
    made_model_free(&m);
}

static void test_not_finite(void **state)
{
    (void)state;
    check_not_finite(NULL, NAN, DSMOE_F32);
    check_not_finite(NULL, INFINITY, DSMOE_F32);
    check_not_finite("mlp.gate.weight", NAN, DSMOE_F32);
    check_not_finite("mlp.gate.weight", -INFINITY, DSMOE_F32);
    check_not_finite("experts", NAN, DSMOE_F32);
    check_not_finite("experts", NAN, DSMOE_F16);
}

static void test_not_finite_blocks(void **state)
{
    (void)state;
    for (int type = DSMOE_Q8_0; type < DSMOE_N_DTYPES; type++) {
        check_not_finite("layers.1.self_attn.v_proj", NAN, (dsmoe_dtype)type);
        check_not_finite("experts.0.down_proj", NAN, (dsmoe_dtype)type);
        check_not_finite("lm_head", NAN, (dsmoe_dtype)type);
    }
}

static void test_not_gguf(void **state)
{
    (void)state;
    write_bytes("{\"a\": 1}", 8);
    must_fail(path, DSMOE_ERROR_FORMAT, "not a GGUF file");
    write_bytes("GG", 2);
    must_fail(path, DSMOE_ERROR_FORMAT, "not a GGUF file");
    write_bytes("GGUF", 4);
    must_fail(path, DSMOE_ERROR_FORMAT, "");
    dsmoe_error error;
    dsmoe_model *model;
    assert_int_equal(dsmoe_model_open("/nowhere/model.gguf", &model, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "/nowhere/model.gguf"));
    assert_int_equal(dsmoe_model_open("/dev/null", &model, &error), DSMOE_ERROR_IO);
}

/* A file that is cut while it is mapped ends the current pass and every later one with an error. */
static void check_cut(const char *opened, const char *cut)
{
    dsmoe_model *model = open_model(opened), *probed;
    dsmoe_error error = {0};
    float logits[61];
    const int32_t seven = 7;
    must(dsmoe_model_probe(model, &(dsmoe_probe){0}, &probed, &error), &error, "a probe");
    dsmoe_sequence *sequence = make_sequence(model, 8, 8, 2),
                   *other = make_sequence(probed, 8, 8, 1);
    decode(sequence, 5, logits);
    assert_int_equal(truncate(cut, 100), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dsmoe_sequence_append(sequence, &seven, 1, logits, &error),
                         DSMOE_ERROR_IO);
        assert_non_null(strstr(error.message, cut));
        assert_non_null(strstr(error.message, "the file changed"));
        assert_int_equal(dsmoe_sequence_length(sequence), 1);
    }
    assert_int_equal(dsmoe_sequence_append(other, &seven, 1, NULL, &error), DSMOE_ERROR_IO);
    free_sequence(sequence);
    free_sequence(other);
    dsmoe_model_free(probed);
    dsmoe_model_free(model);
}

static void test_cut_while_open(void **state)
{
    (void)state;
    dsmoe_config c = made_config();
    made_model m = made_model_create(&c, "F32", 1);
    made_gguf_write(&m, made_file, NULL);
    made_model_write(&m, directory, false);
    char weights[320];
    snprintf(weights, sizeof weights, "%s/model.safetensors", directory);
    check_cut(made_file, made_file);
    check_cut(directory, weights);
    made_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_sizes),         cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_missing_keys),      cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_lies_cost_nothing), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_not_finite_blocks), cmocka_unit_test(test_not_gguf),
        cmocka_unit_test(test_cut_while_open),
    };
    return cmocka_run_group_tests(tests, made_gguf_set_up, made_gguf_tear_down);
}

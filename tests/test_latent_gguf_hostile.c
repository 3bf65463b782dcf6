/* test_latent_gguf_hostile.c - GGUF files of the architecture deepseek2 that are not the models they claim
 * to be: impossible ranks and widths, missing halves, unknown gates. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "latent_gguf.h"
#include "made_model.h"
#include "scratch.h"
#include "support.h"

static char made[320];

static void must_fail(dsmoe_status status, const char *message)
{
    dsmoe_error error = {0};
    dsmoe_model *model = (dsmoe_model *)1;
    assert_int_equal(dsmoe_model_open(made, &model, &error), status);
    assert_null(model);
    if (!strstr(error.message, message) || !strstr(error.message, made) ||
        strchr(error.message, '\n'))
        fail_msg("\"%s\" says nothing of \"%s\"", error.message, message);
}

static void check_key(const char *folder, bool old, made_key key, dsmoe_status status,
                      const char *message)
{
    char folder_path[320];
    snprintf(folder_path, sizeof folder_path, TEST_DATA "/lm_v2/%s", folder);
    latent_gguf_write(folder_path, made,
                      &(latent_gguf_options){.old = old, .keys = &key, .n_keys = 1});
    must_fail(status, message);
}

/* Sizes that are 0, or larger than any model's, in both layouts. */
static void test_bad_sizes(void **state)
{
    (void)state;
    static const char *const keys[] = {"attention.kv_lora_rank",   "rope.dimension_count",
                                       "attention.key_length",     "attention.value_length",
                                       "attention.key_length_mla", "attention.value_length_mla",
                                       "attention.head_count"};
    for (int old = 0; old < 2; old++)
        for (size_t i = 0; i < COUNT(keys); i++) {
            char key[64];
            snprintf(key, sizeof key, "deepseek2.%s", keys[i]);
            if (old && strstr(key, "_mla")) continue;
            static const double values[] = {0, 0x1p31, 4294967295.0};
            for (size_t j = 0; j < COUNT(values); j++)
                check_key("v2_lite", old, (made_key){key, MADE_U32, values[j], NULL},
                          DSMOE_ERROR_CONFIG, key);
            check_key("v2_lite", old, (made_key){key, MADE_I32, -1, NULL}, DSMOE_ERROR_CONFIG, key);
        }
    static const char *const more[] = {"attention.q_lora_rank", "expert_group_count",
                                       "expert_group_used_count", "nextn_predict_layers"};
    for (size_t i = 0; i < COUNT(more); i++) {
        char key[64];
        snprintf(key, sizeof key, "deepseek2.%s", more[i]);
        check_key("v2_group", false, (made_key){key, MADE_U32, 4294967295.0, NULL},
                  DSMOE_ERROR_CONFIG, key);
        if (strcmp(more[i], "expert_group_count"))
            check_key("v2_group", false, (made_key){key, MADE_I32, -1, NULL}, DSMOE_ERROR_CONFIG,
                      key);
    }
}

static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        const char *folder;
        made_key key;
        const char *message;
    } cases[] = {
        {"v2_lite",
         {"deepseek2.attention.head_count_kv", MADE_U32, 4, NULL},
         "deepseek2.attention.head_count_kv is 4; only 1 is supported"},
        {"v2_lite",
         {"deepseek2.attention.key_length_mla", MADE_U32, 8, NULL},
         "deepseek2.attention.key_length_mla 8 is not more than deepseek2.rope.dimension_count 8"},
        {"v2_lite", {"deepseek2.attention.key_length_mla", MADE_ABSENT, 0, NULL}, "key_length_mla"},
        {"v2_lite",
         {"deepseek2.attention.key_length", MADE_U32, 24, NULL},
         "deepseek2.attention.key_length is 24; only 32 is supported"},
        {"v2_lite",
         {"deepseek2.attention.value_length", MADE_U32, 12, NULL},
         "deepseek2.attention.value_length is 12; only 24 is supported"},
        {"v2_lite",
         {"deepseek2.rope.dimension_count", MADE_U32, 7, NULL},
         "deepseek2.rope.dimension_count 7 is odd"},
        {"v2_lite",
         {"deepseek2.expert_gating_func", MADE_U32, 3, NULL},
         "deepseek2.expert_gating_func is 3"},
        {"v3_gate",
         {"deepseek2.expert_gating_func", MADE_U32, 1, NULL},
         "blk.1.exp_probs_b.bias corrects a sigmoid's scores"},
        {"v2_lite",
         {"deepseek2.expert_weights_scale", MADE_F32, NAN, NULL},
         "deepseek2.expert_weights_scale is nan"},
        {"v2_lite",
         {"deepseek2.expert_weights_scale", MADE_F32, -1, NULL},
         "deepseek2.expert_weights_scale is -1"},
        {"v2_plain", {"dsmoe.routed_scaling_factor", MADE_F32, INFINITY, NULL}, "is inf"},
        {"v2_group",
         {"deepseek2.expert_group_count", MADE_U32, 5, NULL},
         "deepseek2.expert_group_count 5 does not divide deepseek2.expert_count 12"},
        {"v2_group",
         {"deepseek2.expert_group_used_count", MADE_U32, 5, NULL},
         "deepseek2.expert_group_used_count 5 of 4 groups"},
        {"v2_lite",
         {"deepseek2.rope.scaling.type", MADE_STRING, 0, "linear"},
         "deepseek2.rope.scaling.type \"linear\""},
        {"v2_lite",
         {"deepseek2.rope.scaling.factor", MADE_F32, 0.5, NULL},
         "deepseek2.rope.scaling.factor is 0.5"},
        {"v2_lite",
         {"deepseek2.rope.scaling.factor", MADE_F32, NAN, NULL},
         "deepseek2.rope.scaling.factor is nan"},
        {"v2_lite",
         {"deepseek2.rope.scaling.original_context_length", MADE_U32, 4294967295.0, NULL},
         "deepseek2.rope.scaling.original_context_length is 4294967295"},
        {"v2_lite", {"deepseek2.rope.scaling.yarn_log_multiplier", MADE_F32, NAN, NULL}, "mscale"},
        {"v2_lite", {"deepseek2.rope.scaling.yarn_log_multiplier", MADE_F32, -1, NULL}, "mscale"},
        {"v2_lite",
         {"deepseek2.rope.scaling.yarn_beta_fast", MADE_F32, -1, NULL},
         "deepseek2.rope.scaling.yarn_beta_fast is -1"},
        {"v2_lite",
         {"deepseek2.rope.scaling.yarn_ext_factor", MADE_F32, 0, NULL},
         "deepseek2.rope.scaling.yarn_ext_factor is 0; only 1 is supported"},
        {"v2_lite",
         {"deepseek2.attention.temperature_scale", MADE_F32, 0.1, NULL},
         "deepseek2.attention.temperature_scale is 0.1; only 0 is supported"},
        {"v2_lite",
         {"deepseek2.nextn_predict_layers", MADE_U32, 3, NULL},
         "deepseek2.nextn_predict_layers is 3 of 3 layers"},
        {"v2_lite",
         {"deepseek2.attention.kv_lora_rank", MADE_STRING, 0, "24"},
         "deepseek2.attention.kv_lora_rank"},
        {"v2_lite",
         {"deepseek2.expert_weights_norm", MADE_U32, 1, NULL},
         "deepseek2.expert_weights_norm"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dsmoe_error error = {0};
        dsmoe_model *model;
        char folder_path[320];
        snprintf(folder_path, sizeof folder_path, TEST_DATA "/lm_v2/%s", cases[i].folder);
        latent_gguf_write(folder_path, made,
                          &(latent_gguf_options){.keys = &cases[i].key, .n_keys = 1});
        dsmoe_status status = dsmoe_model_open(made, &model, &error);
        if (status == DSMOE_OK || !strstr(error.message, cases[i].message))
            fail_msg("%s: \"%s\" says nothing of \"%s\"", cases[i].key.key, error.message,
                     cases[i].message);
    }
    check_key("v2_lite", true, (made_key){"deepseek2.attention.head_count_kv", MADE_U32, 1, NULL},
              DSMOE_ERROR_CONFIG, "deepseek2.attention.head_count_kv is 1; only 4 is supported");
}

static void test_missing_keys(void **state)
{
    (void)state;
    static const char *const required[] = {
        "deepseek2.attention.kv_lora_rank", "deepseek2.rope.dimension_count",
        "deepseek2.attention.value_length_mla", "deepseek2.embedding_length"};
    for (size_t i = 0; i < COUNT(required); i++)
        for (int old = 0; old < 2; old++) {
            if (old && strstr(required[i], "_mla")) continue;
            dsmoe_error error = {0};
            dsmoe_model *model;
            made_key key = {required[i], MADE_ABSENT, 0, NULL};
            latent_gguf_write(TEST_DATA "/lm_v2/v2_lite", made,
                              &(latent_gguf_options){.old = old, .keys = &key, .n_keys = 1});
            assert_int_not_equal(dsmoe_model_open(made, &model, &error), DSMOE_OK);
            assert_non_null(strstr(error.message, required[i]));
        }
}

static void check_tensor(const char *folder, bool old, const char *name)
{
    char folder_path[320], message[128];
    snprintf(folder_path, sizeof folder_path, TEST_DATA "/lm_v2/%s", folder);
    latent_gguf_write(folder_path, made, &(latent_gguf_options){.old = old, .left_out = name});
    snprintf(message, sizeof message, "tensor %s is missing", name);
    must_fail(DSMOE_ERROR_FORMAT, message);
    latent_gguf_write(folder_path, made, &(latent_gguf_options){.old = old, .longer = name});
    snprintf(message, sizeof message, "tensor %s has the shape [", name);
    must_fail(DSMOE_ERROR_FORMAT, message);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    check_tensor("v2_lite", false, "blk.0.attn_k_b.weight");
    check_tensor("v2_lite", false, "blk.2.attn_v_b.weight");
    check_tensor("v2_lite", true, "blk.1.attn_kv_b.weight");
    check_tensor("v2_lite", false, "blk.1.attn_kv_a_mqa.weight");
    check_tensor("v2_lite", false, "blk.1.attn_kv_a_norm.weight");
    check_tensor("v2_group", false, "blk.1.attn_q_a.weight");
    check_tensor("v2_group", false, "blk.1.attn_q_a_norm.weight");
    check_tensor("v2_group", false, "blk.1.attn_q_b.weight");
    check_tensor("v3_gate", false, "blk.2.exp_probs_b.bias");
    latent_gguf_write(TEST_DATA "/lm_v2/v2_lite", made,
                      &(latent_gguf_options){.longer = "blk.0.attn_k_b.weight"});
    must_fail(DSMOE_ERROR_FORMAT, "[5, 24, 16], but the metadata requires [4, 24, 16]");
}

/* Possible ranks and widths that the tensors do not have: nothing of that size is allocated. */
static void test_lies_cost_nothing(void **state)
{
    (void)state;
    static const struct {
        bool old;
        const char *key;
        double value;
        const char *message;
    } cases[] = {
        {true, "deepseek2.attention.kv_lora_rank", 1 << 24, "attn_kv_a_mqa.weight has the shape"},
        {true, "deepseek2.attention.value_length", 1 << 20, "attn_kv_b.weight has the shape"},
        {true, "deepseek2.attention.key_length", 1 << 20, "attn_q.weight has the shape"},
        {true, "deepseek2.attention.q_lora_rank", 1 << 20, "attn_q_a.weight is missing"},
        {false, "deepseek2.attention.value_length_mla", 1 << 20, "attn_v_b.weight has the shape"},
        {false, "deepseek2.attention.key_length_mla", 1 << 20, "attn_q.weight has the shape"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_key("v2_lite", cases[i].old, (made_key){cases[i].key, MADE_U32, cases[i].value, NULL},
                  DSMOE_ERROR_FORMAT, cases[i].message);
}

static int set_up(void **state)
{
    int failed = make_directory(state);
    snprintf(made, sizeof made, "%s/model.gguf", directory);
    return failed;
}

static int tear_down(void **state)
{
    remove(made);
    return remove_directory(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_sizes),         cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_missing_keys),      cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_lies_cost_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* test_latent_config.c - config.json of V2 and V3: the public ones, their defaults, and every key that
 * asks for something that is not computed here. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "same_config.h"

/* ---- a small configuration of V2 or V3, with one key changed -------------------------------------- */

static const char *const common[][2] = {
    {"vocab_size", "512"},
    {"hidden_size", "64"},
    {"intermediate_size", "96"},
    {"moe_intermediate_size", "32"},
    {"num_hidden_layers", "4"},
    {"num_attention_heads", "4"},
    {"num_key_value_heads", "4"},
    {"n_routed_experts", "8"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "2"},
    {"first_k_dense_replace", "1"},
    {"kv_lora_rank", "24"},
    {"q_lora_rank", "null"},
    {"qk_nope_head_dim", "16"},
    {"qk_rope_head_dim", "8"},
    {"v_head_dim", "12"},
    {"n_group", "4"},
    {"topk_group", "2"},
};
static const char *const types[][4] = {
    {"\"deepseek_v2\"", "[\"DeepseekV2ForCausalLM\"]", "\"softmax\"", "\"group_limited_greedy\""},
    {"\"deepseek_v3\"", "[\"DeepseekV3ForCausalLM\"]", "\"sigmoid\"", "\"noaux_tc\""},
};
static const char *const type_keys[] = {"model_type", "architectures", "scoring_func",
                                        "topk_method"};
enum { V2, V3, N_TYPES };

/* The text with `key` set to `value`, or without the key if `value` is NULL. */
static size_t make_text(int type, const char *key, const char *value, char *text, size_t size)
{
    size_t length = 0;
    bool found = false;
    for (size_t i = 0; i < COUNT(common) + COUNT(type_keys); i++) {
        size_t t = i - COUNT(common);
        const char *name = i < COUNT(common) ? common[i][0] : type_keys[t];
        const char *is = i < COUNT(common) ? common[i][1] : types[type][t];
        bool changed = key && !strcmp(key, name);
        found |= changed;
        if (changed && !value) continue;
        length += (size_t)snprintf(text + length, size - length, "%s\"%s\": %s\n",
                                   length ? "," : "{", name, changed ? value : is);
    }
    if (key && value && !found)
        length += (size_t)snprintf(text + length, size - length, ",\"%s\": %s\n", key, value);
    length += (size_t)snprintf(text + length, size - length, "}");
    assert_true(length < size);
    return length;
}

static dsmoe_config read_with(int type, const char *key, const char *value)
{
    char text[4096];
    dsmoe_config config;
    dsmoe_error error = {0};
    size_t length = make_text(type, key, value, text, sizeof text);
    if (config_parse(text, length, "c", &config, &error) != DSMOE_OK)
        fail_msg("%s: %s: %s", key ? key : "no key", value ? value : "absent", error.message);
    return config;
}

/* The message must be one line that names the file and the key and says what is wrong. */
static void assert_refused(int type, const char *key, const char *value, const char *says)
{
    char text[4096];
    dsmoe_config config;
    dsmoe_error error = {0};
    size_t length = make_text(type, key, value, text, sizeof text);
    if (config_parse(text, length, "c.json", &config, &error) != DSMOE_ERROR_CONFIG)
        fail_msg("%s: %s was not refused", key, value);
    if (strncmp(error.message, "c.json: ", 8) || !strstr(error.message, key) ||
        !strstr(error.message, says) || strchr(error.message, '\n'))
        fail_msg("%s: %s gave \"%s\", not \"%s\"", key, value, error.message, says);
}

/* ---- the public ones ---------------------------------------------------------------------------- */

#define YARN(mscale)                                                                               \
    "{\"beta_fast\": 32, \"beta_slow\": 1, \"factor\": 40, \"mscale\": " mscale                    \
    ", \"mscale_all_dim\": " mscale                                                                \
    ", \"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}"
#define HEADS                                                                                      \
    "\"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,"                  \
    "\"v_head_dim\": 128,"
#define REST                                                                                       \
    "\"attention_bias\": false, \"attention_dropout\": 0.0, \"auto_map\": {}, \"ep_size\": 1,"     \
    "\"hidden_act\": \"silu\", \"initializer_range\": 0.02, \"moe_layer_freq\": 1,"                \
    "\"pretraining_tp\": 1, \"seq_aux\": true, \"tie_word_embeddings\": false,"                    \
    "\"torch_dtype\": \"bfloat16\", \"use_cache\": true}"

/* DeepSeek-Coder-V2-Lite has the same file. */
static const char v2_lite[] =
    "{\"architectures\": [\"DeepseekV2ForCausalLM\"], \"model_type\": \"deepseek_v2\","
    "\"aux_loss_alpha\": 0.001, \"bos_token_id\": 100000, \"eos_token_id\": 100001,"
    "\"first_k_dense_replace\": 1, \"hidden_size\": 2048, \"intermediate_size\": 10944,"
    "\"max_position_embeddings\": 163840, \"moe_intermediate_size\": 1408, \"n_group\": 1,"
    "\"n_routed_experts\": 64, \"n_shared_experts\": 2, \"norm_topk_prob\": false,"
    "\"num_attention_heads\": 16, \"num_experts_per_tok\": 6, \"num_hidden_layers\": 27,"
    "\"num_key_value_heads\": 16, \"q_lora_rank\": null, \"rms_norm_eps\": 1e-06,"
    "\"rope_scaling\": " YARN(
        "0.707") ", \"rope_theta\": 10000, \"routed_scaling_factor\": 1.0,"
                 "\"scoring_func\": \"softmax\", \"topk_group\": 1, \"topk_method\": \"greedy\","
                 "\"vocab_size\": 102400," HEADS REST;

static const char v2[] =
    "{\"architectures\": [\"DeepseekV2ForCausalLM\"], \"model_type\": \"deepseek_v2\","
    "\"aux_loss_alpha\": 0.001, \"bos_token_id\": 100000, \"eos_token_id\": 100001,"
    "\"first_k_dense_replace\": 1, \"hidden_size\": 5120, \"intermediate_size\": 12288,"
    "\"max_position_embeddings\": 163840, \"moe_intermediate_size\": 1536, \"n_group\": 8,"
    "\"n_routed_experts\": 160, \"n_shared_experts\": 2, \"norm_topk_prob\": false,"
    "\"num_attention_heads\": 128, \"num_experts_per_tok\": 6, \"num_hidden_layers\": 60,"
    "\"num_key_value_heads\": 128, \"q_lora_rank\": 1536, \"rms_norm_eps\": 1e-06,"
    "\"rope_scaling\": " YARN(
        "1.0") ", \"rope_theta\": 10000, \"routed_scaling_factor\": 16.0,"
               "\"scoring_func\": \"softmax\", \"topk_group\": 3,"
               "\"topk_method\": \"group_limited_greedy\", \"vocab_size\": 102400," HEADS REST;

static const char moonlight[] =
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\","
    "\"aux_loss_alpha\": 0.001, \"bos_token_id\": 163584, \"eos_token_id\": 163585,"
    "\"first_k_dense_replace\": 1, \"hidden_size\": 2048, \"intermediate_size\": 11264,"
    "\"max_position_embeddings\": 8192, \"moe_intermediate_size\": 1408, \"n_group\": 1,"
    "\"n_routed_experts\": 64, \"n_shared_experts\": 2, \"norm_topk_prob\": true,"
    "\"num_attention_heads\": 16, \"num_experts_per_tok\": 6, \"num_hidden_layers\": 27,"
    "\"num_key_value_heads\": 16, \"num_nextn_predict_layers\": 0, \"q_lora_rank\": null,"
    "\"rms_norm_eps\": 1e-05, \"rope_theta\": 50000.0, \"routed_scaling_factor\": 2.446,"
    "\"scoring_func\": \"sigmoid\", \"topk_group\": 1, \"topk_method\": \"noaux_tc\","
    "\"vocab_size\": 163840," HEADS REST;

/* Only bf16 weights of this model can be read; the file for fp8 weights has one more key. The layer that
 * predicts a further token (num_nextn_predict_layers) is not used, as in the public code. */
#define V3_KEYS                                                                                    \
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\","            \
    "\"bos_token_id\": 0, \"eos_token_id\": 1, \"first_k_dense_replace\": 3,"                      \
    "\"hidden_size\": 7168, \"intermediate_size\": 18432, \"max_position_embeddings\": 163840,"    \
    "\"moe_intermediate_size\": 2048, \"n_group\": 8, \"n_routed_experts\": 256,"                  \
    "\"n_shared_experts\": 1, \"norm_topk_prob\": true, \"num_attention_heads\": 128,"             \
    "\"num_experts_per_tok\": 8, \"num_hidden_layers\": 61, \"num_key_value_heads\": 128,"         \
    "\"num_nextn_predict_layers\": 1, \"q_lora_rank\": 1536, \"rms_norm_eps\": 1e-06,"             \
    "\"rope_scaling\": " YARN(                                                                     \
        "1.0") ", \"rope_theta\": 10000, \"routed_scaling_factor\": 2.5,"                          \
               "\"scoring_func\": \"sigmoid\", \"topk_group\": 4, \"topk_method\": \"noaux_tc\","  \
               "\"vocab_size\": 129280," HEADS
static const char v3_bf16[] = V3_KEYS REST;
static const char v3_fp8[] =
    V3_KEYS "\"quantization_config\": {\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\","
            "\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}," REST;

static dsmoe_config parse(const char *text)
{
    dsmoe_config config;
    dsmoe_error error = {0};
    if (config_parse(text, strlen(text), "c", &config, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    return config;
}

static void test_public(void **state)
{
    (void)state;
    dsmoe_config preset, read = parse(v2_lite);
    assert_int_equal(dsmoe_config_preset("v2-lite", &preset, NULL), DSMOE_OK);
    assert_same_config(&read, &preset);
    read = parse(moonlight);
    assert_int_equal(dsmoe_config_preset("moonlight", &preset, NULL), DSMOE_OK);
    assert_same_config(&read, &preset);
    /* Parameters in billions, in total and active per token, as published. */
    const struct {
        const char *text;
        double total, active;
    } sizes[] = {
        {v2_lite, 15.7, 2.7}, {moonlight, 16.0, 2.9}, {v2, 236, 21.4}, {v3_bf16, 671, 37.6}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        dsmoe_model_plan plan;
        read = parse(sizes[i].text);
        assert_int_equal(dsmoe_model_plan_make(&read, 1, &plan, NULL), DSMOE_OK);
        assert_true(fabs((double)plan.total / (1e9 * sizes[i].total) - 1) < 0.01);
        assert_true(fabs((double)plan.active / (1e9 * sizes[i].active) - 1) < 0.02);
    }
    read = parse(v2);
    assert_int_equal(read.topk_method, DSMOE_TOPK_GROUP_LIMITED_GREEDY);
    assert_int_equal(read.n_group, 8);
    assert_int_equal(read.topk_group, 3);
    dsmoe_error error = {0};
    assert_int_equal(config_parse(v3_fp8, strlen(v3_fp8), "c", &read, &error), DSMOE_ERROR_CONFIG);
    assert_string_equal(error.message, "c: quantization_config is not supported: use weights in "
                                       "bf16, or a GGUF file");
}

/* ---- accepted configurations -------------------------------------------------------------------- */

static void test_defaults(void **state)
{
    (void)state;
    for (int type = 0; type < N_TYPES; type++) {
        assert_int_equal(read_with(type, "kv_lora_rank", NULL).kv_lora_rank, 512);
        assert_int_equal(read_with(type, "q_lora_rank", NULL).q_lora_rank, 1536);
        assert_int_equal(read_with(type, "q_lora_rank", "null").q_lora_rank, 0);
        assert_int_equal(read_with(type, "qk_nope_head_dim", NULL).qk_nope_head_dim, 128);
        assert_int_equal(read_with(type, "qk_rope_head_dim", NULL).qk_rope_head_dim, 64);
        assert_int_equal(read_with(type, "v_head_dim", NULL).v_head_dim, 128);
        assert_int_equal(read_with(type, "num_key_value_heads", NULL).num_key_value_heads, 4);
        assert_int_equal(read_with(type, "n_group", "null").topk_group, 0);
        assert_int_equal(read_with(type, "n_group", "1").n_group, 0);
        assert_int_equal(read_with(type, "norm_topk_prob", NULL).norm_topk_prob, type == V3);
        assert_int_equal(read_with(type, "scoring_func", NULL).scoring_func, type == V3);
    }
    assert_int_equal(read_with(V2, "n_group", NULL).n_group, 0);
    assert_int_equal(read_with(V3, "topk_group", NULL).topk_group, 4);
    assert_refused(V3, "n_group", NULL, "n_group 8 leaves groups of one expert");
    assert_int_equal(read_with(V3, "n_routed_experts", NULL).n_routed_experts, 256);
    for (int type = 0; type < N_TYPES; type++) {
        const bool v3 = type == V3;
        assert_true(read_with(type, NULL, NULL).routed_scaling_factor == (v3 ? 2.5 : 1));
        assert_int_equal(read_with(type, "n_shared_experts", NULL).n_shared_experts, v3);
        assert_int_equal(read_with(type, "first_k_dense_replace", NULL).first_k_dense_replace,
                         3 * v3);
        assert_int_equal(read_with(type, NULL, NULL).max_position_embeddings, v3 ? 4096 : 2048);
    }
    assert_int_equal(read_with(V2, "topk_method", NULL).topk_method, DSMOE_TOPK_GREEDY);
    assert_int_equal(read_with(V2, "topk_method", "\"gready\"").topk_method, DSMOE_TOPK_GREEDY);
    assert_int_equal(read_with(V3, "topk_method", NULL).topk_method, DSMOE_TOPK_NOAUX_TC);
}

static void test_accepted(void **state)
{
    (void)state;
    const char *const pairs[][2] = {
        {"moe_layer_freq", "2"},
        {"first_k_dense_replace", "100"}, /* more than the layers: all are dense */
        {"n_shared_experts", "null"},
        {"head_dim", "64"}, /* in newer files the part with rotary positions */
        {"qk_head_dim", "24"},
        {"rope_interleave", "true"},
        {"layer_types", "[\"full_attention\", \"full_attention\", \"full_attention\","
                        " \"full_attention\"]"},
        {"layer_types", "null"},
        {"mlp_bias", "false"},
        {"attention_dropout", "0.1"},
        {"partial_rotary_factor", "1.0"},
        {"compression_config", "null"},
        {"dtype", "\"bfloat16\""},
        {"rope_parameters", "{\"rope_theta\": 5e4, \"partial_rotary_factor\": 1}"},
        {"ep_size", "8"},
        {"num_nextn_predict_layers", "1"},
        {"quantization_config", "null"},
        {"rope_scaling", "null"},
        {"rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 5e4}"},
        {"rope_scaling", "{\"type\": \"yarn\", \"rope_type\": \"yarn\", \"factor\": 4,"
                         " \"attention_factor\": null, \"truncate\": true}"},
    };
    for (int type = 0; type < N_TYPES; type++)
        for (size_t i = 0; i < COUNT(pairs); i++) read_with(type, pairs[i][0], pairs[i][1]);
}

/* In newer files rope_theta and rope_scaling are here. */
static void test_rope_parameters(void **state)
{
    (void)state;
    dsmoe_config c = read_with(V3, "rope_parameters",
                               "{\"rope_type\": \"yarn\", \"rope_theta\": 70000, \"factor\": 8,"
                               " \"original_max_position_embeddings\": 99, \"mscale_all_dim\": 1}");
    assert_int_equal(c.rope_scaling, DSMOE_ROPE_YARN);
    assert_true(c.rope_theta == 70000 && c.rope_scaling_factor == 8 && c.mscale_all_dim == 1);
    assert_int_equal(c.original_max_position_embeddings, 99);
    assert_true(c.beta_fast == 32 && c.beta_slow == 1 && c.mscale == 1);
    assert_refused(V3, "rope_parameters", "[]", "an object");
    c = read_with(V3, "rope_parameters", "{\"rope_theta\": 30000}");
    assert_int_equal(c.rope_scaling, DSMOE_ROPE_NONE);
    assert_true(c.rope_theta == 30000);
    assert_refused(V3, "rope_parameters", "{}", "no type");
    assert_refused(V3, "rope_parameters", "{\"rope_theta\": 1e4, \"factor\": 2}", "no type");
    assert_refused(V3, "rope_parameters", "{\"full_attention\": {\"rope_theta\": 1e4}}", "no type");
    assert_refused(V3, "rope_theta", "10000, \"rope_parameters\": {\"rope_theta\": \"x\"}",
                   "a number");
    assert_refused(V2, "rope_scaling",
                   "{\"type\": \"yarn\", \"factor\": 2}, \"rope_parameters\": {}",
                   "rope_parameters are both given");
}

/* The newer way to say which layers are dense. */
static void test_mlp_layer_types(void **state)
{
    (void)state;
#define D "\"dense\""
#define S "\"sparse\""
    for (int type = 0; type < N_TYPES; type++) {
        read_with(type, "mlp_layer_types", "[" D "," S "," S "," S "]");
        read_with(type, "mlp_layer_types", "null");
        dsmoe_config c =
            read_with(type, "moe_layer_freq", "2, \"mlp_layer_types\": [" D "," D "," S "," D "]");
        assert_false(dsmoe_config_layer_is_moe(&c, 1));
        assert_true(dsmoe_config_layer_is_moe(&c, 2));
        assert_refused(
            type, "mlp_layer_types", "[" D "," D "," S "," S "]",
            "first_k_dense_replace 1 and moe_layer_freq 1 at layer 1, which they make sparse");
        assert_refused(type, "mlp_layer_types", "[" D "," S "," S "]", "3 items");
        assert_refused(type, "mlp_layer_types", "\"dense\"", "an array");
        assert_refused(type, "mlp_layer_types", "[" D "," S ",7," S "]",
                       "\"dense\" and \"sparse\"");
        assert_refused(type, "mlp_layer_types", "[" D "," S ",\"moe\"," S "]", "\"sparse\" only");
    }
    /* The key alone, without first_k_dense_replace. */
    static const char alone[] =
        "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 64, \"hidden_size\": 16,"
        "\"intermediate_size\": 24, \"moe_intermediate_size\": 8, \"num_hidden_layers\": 3,"
        "\"num_attention_heads\": 2, \"mlp_layer_types\": [" D "," D "," S "]}";
    dsmoe_config c = parse(alone);
    assert_int_equal(c.first_k_dense_replace, 2);
    assert_true(c.n_routed_experts == 256 && c.num_experts_per_tok == 8 && c.n_shared_experts == 1);
    assert_true(c.n_group == 8 && c.topk_group == 4);
#undef D
#undef S
}

/* ---- what is refused by name -------------------------------------------------------------------- */

static void test_unsupported(void **state)
{
    (void)state;
    for (int type = 0; type < N_TYPES; type++) {
        assert_refused(type, "attention_bias", "true", "latent attention");
        assert_refused(type, "topk_method", "\"sinkhorn\"", "sinkhorn");
        assert_refused(type, "topk_method", "null", "a string");
        assert_refused(type, "scoring_func", "\"sqrtsoftplus\"", "sqrtsoftplus");
        assert_refused(type, "hidden_act", "\"gelu\"", "gelu");
        assert_refused(type, "rope_interleave", "false", "not supported");
        assert_refused(type, "rope_interleave", "0", "true or false");
        assert_refused(type, "mlp_bias", "true", "not supported");
        assert_refused(type, "qk_head_dim", "23", "plus qk_rope_head_dim is 24");
        assert_refused(type, "qk_head_dim", "true", "an integer");
        assert_refused(type, "partial_rotary_factor", "0.5", "only 1");
        assert_refused(
            type, "partial_rotary_factor",
            "null, \"rope_parameters\": {\"rope_theta\": 1e4, \"partial_rotary_factor\": 2}",
            "only 1");
        assert_refused(type, "layer_types",
                       "[\"full_attention\", \"sliding_attention\", \"full_attention\","
                       " \"full_attention\"]",
                       "full_attention");
        assert_refused(type, "layer_types", "[]", "0 items");
        assert_refused(type, "compression_config", "{}", "bf16");
        assert_refused(type, "index_topk", "2048", "all earlier tokens");
        assert_refused(type, "quantization_config", "{\"quant_method\": \"fp8\"}", "bf16");
        assert_refused(type, "quantization_config", "7", "bf16");
        assert_refused(type, "num_key_value_heads", "2", "num_attention_heads 4");
        assert_refused(type, "rope_scaling", "{\"type\": \"linear\", \"factor\": 2}", "linear");
        assert_refused(type, "rope_scaling", "{\"type\": \"longrope\", \"factor\": 2}", "yarn");
        assert_refused(type, "rope_scaling", "{\"type\": \"yarn\"}", "no factor");
        assert_refused(type, "rope_scaling",
                       "{\"type\": \"yarn\", \"factor\": 2, \"attention_factor\": 1.2}",
                       "attention_factor");
        assert_refused(type, "rope_scaling",
                       "{\"type\": \"yarn\", \"factor\": 2, \"truncate\": false}", "truncate");
    }
    assert_refused(V2, "topk_method", "\"noaux_tc\"", "deepseek_v2");
    assert_refused(V3, "topk_method", "\"greedy\"", "deepseek_v3");
    assert_refused(V2, "scoring_func", "\"sigmoid\"", "only \"softmax\"");
    assert_refused(V3, "scoring_func", "\"softmax\"", "only \"sigmoid\"");
    assert_refused(V2, "architectures", "[\"DeepseekV3ForCausalLM\"]", "DeepseekV2ForCausalLM");
    assert_refused(V3, "model_type", "\"deepseek_v32\"", "deepseek_v32");
}

/* Case S07 for the keys of these types. */
static void test_wrong_kind(void **state)
{
    (void)state;
    const char *const integers[] = {"kv_lora_rank",     "q_lora_rank", "qk_nope_head_dim",
                                    "qk_rope_head_dim", "v_head_dim",  "n_group",
                                    "topk_group"};
    for (int type = 0; type < N_TYPES; type++)
        for (size_t i = 0; i < COUNT(integers); i++) {
            const char *key = integers[i];
            assert_refused(type, key, "\"2\"", "an integer");
            assert_refused(type, key, "2.0", "an integer");
            assert_refused(type, key, "true", "an integer");
            assert_refused(type, key, "[2]", "an integer");
            assert_refused(type, key, "{}", "an integer");
            assert_refused(type, key, "0", "is 0");
            assert_refused(type, key, "-1", "-1");
            assert_refused(type, key, "2147483648", "2147483648");
            assert_refused(type, key, "9223372036854775807", "outside");
            assert_refused(type, key, "-9223372036854775808", "outside");
        }
    const char *const scales[] = {"0", "-1", "1e300", "\"1\"", "null", "true", "[1]"};
    for (size_t i = 0; i < COUNT(scales); i++)
        assert_refused(V3, "routed_scaling_factor", scales[i], "routed_scaling_factor");
    const char *const not_null[] = {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                                    "v_head_dim"};
    for (size_t i = 0; i < COUNT(not_null); i++) assert_refused(V2, not_null[i], "null", "null");
    const char *const yarn[][2] = {
        {"\"factor\": 0.5", "factor"},
        {"\"factor\": 1e9", "factor"},
        {"\"factor\": null", "factor"},
        {"\"beta_fast\": 0", "beta_fast"},
        {"\"beta_slow\": -1", "beta_slow"},
        {"\"mscale\": -1", "mscale"},
        {"\"mscale\": \"1\"", "mscale"},
        {"\"mscale_all_dim\": 1e300", "mscale_all_dim"},
        {"\"beta_fast\": [32]", "beta_fast"},
        {"\"original_max_position_embeddings\": 0", "is 0"},
        {"\"original_max_position_embeddings\": 4096.0", "an integer"},
    };
    for (size_t i = 0; i < COUNT(yarn); i++) {
        char text[160];
        const char *comma = strstr(yarn[i][0], "factor") ? "" : "\"factor\": 2, ";
        snprintf(text, sizeof text, "null, \"rope_parameters\": {\"type\": \"yarn\", %s%s}", comma,
                 yarn[i][0]);
        char whole[4096];
        dsmoe_config config;
        dsmoe_error error = {0};
        size_t n = make_text(V2, "rope_scaling", text, whole, sizeof whole);
        if (config_parse(whole, n, "c", &config, &error) != DSMOE_ERROR_CONFIG ||
            !strstr(error.message, yarn[i][1]))
            fail_msg("%s gave \"%s\"", yarn[i][0], error.message);
    }
}

static void test_impossible(void **state)
{
    (void)state;
    for (int type = 0; type < N_TYPES; type++) {
        assert_refused(type, "qk_rope_head_dim", "7", "odd");
        assert_refused(type, "n_group", "3", "does not divide n_routed_experts 8");
        assert_refused(type, "topk_group", "5", "5 of 4 groups");
        assert_refused(type, "moe_layer_freq", "0", "is 0");
        assert_refused(type, "num_experts_per_tok", "9", "n_routed_experts 8");
    }
    assert_refused(V2, "topk_group", NULL, "0 of 4 groups");
    assert_refused(V3, "topk_group", "null", "0 of 4 groups");
    assert_refused(V3, "n_group", "8", "groups of one expert");
    dsmoe_config c = read_with(V3, NULL, NULL);
    c.num_experts_per_tok = 5;
    dsmoe_error error = {0};
    assert_int_equal(config_check(&c, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "topk_group 2 of 4 groups of 2 experts"));
}

/* A program's own configuration with numbers that are no valid choice. */
static void test_choices(void **state)
{
    (void)state;
    const dsmoe_config good = read_with(V3, NULL, NULL);
    dsmoe_error error = {0};
    assert_int_equal(config_check(&good, &error), DSMOE_OK);
    dsmoe_config bad = good;
    bad.model_type = (dsmoe_model_type)3;
    assert_int_equal(config_check(&bad, &error), DSMOE_ERROR_CONFIG);
    assert_string_equal(error.message, "model_type is 3, outside 0 to 2");
    bad = good;
    bad.topk_method = (dsmoe_topk_method)-1;
    assert_int_equal(config_check(&bad, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "topk_method is -1"));
    bad = good;
    bad.scoring_func = (dsmoe_scoring_func)2;
    assert_int_equal(config_check(&bad, &error), DSMOE_ERROR_CONFIG);
    bad = good;
    bad.kv_lora_rank = 0; /* V3 without latent attention */
    assert_int_equal(config_check(&bad, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "kv_lora_rank"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_public),          cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_accepted),        cmocka_unit_test(test_rope_parameters),
        cmocka_unit_test(test_mlp_layer_types), cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_wrong_kind),      cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_config.c - config.json: the released one, the public defaults, and configurations that must be
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "scratch.h"

#define RELEASED TEST_DATA "/config/deepseek-moe-16b.json"

/* ---- writing configurations ----------------------------------------------------------------- */

/* Writes a small valid configuration, one key per line. `key` gets the JSON text `value`, or is left out
 * if `value` is NULL. */
static void write_with(const char *key, const char *value)
{
    static const char *const base[][2] = {
        {"vocab_size", "512"},          {"hidden_size", "64"},
        {"intermediate_size", "96"},    {"moe_intermediate_size", "32"},
        {"num_hidden_layers", "4"},     {"num_attention_heads", "4"},
        {"num_key_value_heads", "2"},   {"n_routed_experts", "8"},
        {"n_shared_experts", "1"},      {"num_experts_per_tok", "2"},
        {"first_k_dense_replace", "1"},
    };
    char text[2048];
    size_t length = 0;
    const char *separator = "{";
    bool found = false;
    for (size_t i = 0; i < sizeof base / sizeof *base; i++) {
        bool changed = key && !strcmp(key, base[i][0]);
        found |= changed;
        if (changed && !value) continue;
        length += (size_t)snprintf(text + length, sizeof text - length, "%s\"%s\": %s\n", separator,
                                   base[i][0], changed ? value : base[i][1]);
        separator = ",";
    }
    if (key && value && !found)
        length +=
            (size_t)snprintf(text + length, sizeof text - length, ",\"%s\": %s\n", key, value);
    length += (size_t)snprintf(text + length, sizeof text - length, "}");
    assert_true(length < sizeof text);
    write_bytes(text, length);
}

static dsmoe_config read_with(const char *key, const char *value)
{
    dsmoe_config config;
    dsmoe_error error = {0};
    write_with(key, value);
    if (dsmoe_config_read(path, &config, &error) != DSMOE_OK)
        fail_msg("%s: %s: %s", key ? key : "no key", value ? value : "absent", error.message);
    return config;
}

/* The message must name the file and the key, contain the word, and be one line. */
static void assert_refused(const char *key, const char *value, const char *word)
{
    dsmoe_config config;
    dsmoe_error error = {0};
    write_with(key, value);
    if (dsmoe_config_read(path, &config, &error) != DSMOE_ERROR_CONFIG)
        fail_msg("%s: %s was not refused", key, value);
    assert_int_equal(error.status, DSMOE_ERROR_CONFIG);
    if (!strstr(error.message, path) || !strstr(error.message, key) ||
        !strstr(error.message, word) || strchr(error.message, '\n'))
        fail_msg("%s: %s gave \"%s\"", key, value, error.message);
    assert_int_equal(dsmoe_config_read(path, &config, NULL), DSMOE_ERROR_CONFIG);
}

/* ---- accepted configurations ---------------------------------------------------------------- */

static void test_released(void **state)
{
    (void)state;
    dsmoe_config config;
    assert_int_equal(dsmoe_config_read(RELEASED, &config, NULL), DSMOE_OK);
    assert_int_equal(config.vocab_size, 102400);
    assert_int_equal(config.hidden_size, 2048);
    assert_int_equal(config.intermediate_size, 10944);
    assert_int_equal(config.moe_intermediate_size, 1408);
    assert_int_equal(config.num_hidden_layers, 28);
    assert_int_equal(config.num_attention_heads, 16);
    assert_int_equal(config.num_key_value_heads, 16);
    assert_int_equal(config.n_shared_experts, 2);
    assert_int_equal(config.n_routed_experts, 64);
    assert_int_equal(config.num_experts_per_tok, 6);
    assert_int_equal(config.moe_layer_freq, 1);
    assert_int_equal(config.first_k_dense_replace, 1);
    assert_int_equal(config.max_position_embeddings, 4096);
    assert_false(config.norm_topk_prob);
    assert_true(config.seq_aux);
    assert_false(config.attention_bias);
    assert_false(config.tie_word_embeddings);
    assert_true(config.aux_loss_alpha == 0.001);
    assert_true(config.initializer_range == 0.02);
    assert_true(config.rms_norm_eps == 1e-6);
    assert_true(config.rope_theta == 10000);
    assert_int_equal(config.rope_scaling, DSMOE_ROPE_NONE);
    assert_true(config.rope_scaling_factor == 1);
    assert_int_equal(config.bos_token_id, 100000);
    assert_int_equal(config.eos_token_id, 100001);
    assert_false(dsmoe_config_layer_is_moe(&config, 0));
    for (int64_t layer = 1; layer < 28; layer++)
        assert_true(dsmoe_config_layer_is_moe(&config, layer));
}

static void test_layer(void **state)
{
    (void)state;
    dsmoe_config config;
    assert_int_equal(dsmoe_config_read(RELEASED, &config, NULL), DSMOE_OK);
    config.norm_topk_prob = true;
    config.seq_aux = false;
    dsmoe_layer_config layer = dsmoe_config_layer(&config);
    assert_int_equal(layer.hidden_size, 2048);
    assert_int_equal(layer.moe_intermediate_size, 1408);
    assert_int_equal(layer.n_routed_experts, 64);
    assert_int_equal(layer.n_shared_experts, 2);
    assert_int_equal(layer.num_experts_per_tok, 6);
    assert_true(layer.norm_topk_prob);
    assert_false(layer.seq_aux);
    assert_string_equal(layer.scoring_func, "softmax");
    assert_true(layer.aux_loss_alpha == 0.001f);
    assert_int_equal(layer.n_device_groups, 0);
    assert_true(layer.device_loss_alpha == 0);
}

static void test_defaults(void **state)
{
    (void)state;
    dsmoe_config config = read_with(NULL, NULL);
    assert_true(config.aux_loss_alpha == 0.001);
    assert_true(config.seq_aux);
    assert_false(config.norm_topk_prob);
    assert_int_equal(config.moe_layer_freq, 1);
    assert_true(config.rms_norm_eps == 1e-6);
    assert_true(config.rope_theta == 10000);
    assert_false(config.attention_bias);
    assert_false(config.tie_word_embeddings);
    assert_int_equal(config.max_position_embeddings, 2048);
    assert_int_equal(config.rope_scaling, DSMOE_ROPE_NONE);
    assert_true(config.rope_scaling_factor == 1);
    assert_int_equal(config.bos_token_id, -1);
    assert_int_equal(config.eos_token_id, -1);
    assert_int_equal(read_with("first_k_dense_replace", NULL).first_k_dense_replace, 0);
    assert_int_equal(read_with("num_key_value_heads", NULL).num_key_value_heads, 4);
    assert_int_equal(read_with("num_key_value_heads", "null").num_key_value_heads, 4);
    assert_int_equal(read_with("n_shared_experts", NULL).n_shared_experts, 0);
    assert_int_equal(read_with("n_shared_experts", "null").n_shared_experts, 0);
    assert_int_equal(read_with("n_shared_experts", "0").n_shared_experts, 0);
}

static void test_all_dense(void **state)
{
    (void)state;
    const char *const values[] = {NULL, "null"};
    for (int i = 0; i < 2; i++) {
        dsmoe_config config = read_with("n_routed_experts", values[i]);
        assert_int_equal(config.n_routed_experts, 0);
        assert_int_equal(config.n_shared_experts, 0);
        assert_int_equal(config.num_experts_per_tok, 0);
        for (int64_t layer = 0; layer < 4; layer++)
            assert_false(dsmoe_config_layer_is_moe(&config, layer));
    }
}

static void test_layer_frequency(void **state)
{
    (void)state;
    dsmoe_config config = read_with("moe_layer_freq", "2");
    assert_false(dsmoe_config_layer_is_moe(&config, 0)); /* before first_k_dense_replace */
    assert_false(dsmoe_config_layer_is_moe(&config, 1));
    assert_true(dsmoe_config_layer_is_moe(&config, 2));
    assert_false(dsmoe_config_layer_is_moe(&config, 3));
    config.moe_layer_freq = 0; /* a caller's mistake must not divide by zero */
    assert_false(dsmoe_config_layer_is_moe(&config, 2));
}

static void test_accepted(void **state)
{
    (void)state;
    const char *const pairs[][2] = {
        {"model_type", "\"deepseek\""},
        {"architectures", "[\"DeepseekForCausalLM\"]"},
        {"architectures", "[\"Other\", \"DeepseekForCausalLM\"]"},
        {"architectures", "null"},
        {"scoring_func", "\"softmax\""},
        {"hidden_act", "\"silu\""},
        {"rope_scaling", "null"},
        {"rope_scaling", "{\"type\": \"linear\", \"factor\": 4}"},
        {"rope_scaling", "{\"type\": \"dynamic\", \"factor\": 2.5}"},
        {"rope_theta", "1e6"},
        {"rope_theta", "500000"},
        {"rms_norm_eps", "1e-5"},
        {"first_k_dense_replace", "100"}, /* more than the layers: all are dense */
        {"bos_token_id", "null"},
        {"head_dim", "16"},
        {"head_dim", "null"},
        {"torch_dtype", "\"float8\""},
        {"torch_dtype", "null"},
        {"attention_dropout", "\"?\""}, /* unused keys may hold anything */
        {"auto_map", "[]"},
        {"pretraining_tp", "-1"},
        {"use_cache", "null"},
        {"transformers_version", "4"},
        {"quite_unknown", "{\"a\": [null]}"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) read_with(pairs[i][0], pairs[i][1]);
    assert_true(read_with("rope_theta", "500000").rope_theta == 500000);
    assert_true(read_with("norm_topk_prob", "true").norm_topk_prob);
    assert_false(read_with("seq_aux", "false").seq_aux);
    assert_true(read_with("attention_bias", "true").attention_bias);
    assert_true(read_with("tie_word_embeddings", "true").tie_word_embeddings);
    assert_true(read_with("initializer_range", "0.006").initializer_range == 0.006);
    assert_true(read_with("aux_loss_alpha", "0").aux_loss_alpha == 0);
    assert_true(read_with("routed_scaling_factor", "2.5").routed_scaling_factor == 2.5);
    assert_int_equal(read_with("max_position_embeddings", "131072").max_position_embeddings,
                     131072);
}

static void test_token_ids(void **state)
{
    (void)state;
    assert_int_equal(read_with("bos_token_id", "0").bos_token_id, 0);
    assert_int_equal(read_with("bos_token_id", "511").bos_token_id, 511);
    assert_int_equal(read_with("eos_token_id", "7").eos_token_id, 7);
    assert_int_equal(read_with("eos_token_id", "[5, 2]").eos_token_id, 5);
    assert_int_equal(read_with("eos_token_id", "null").eos_token_id, -1);
    assert_refused("bos_token_id", "[1]", "an integer");
    assert_refused("eos_token_id", "[]", "an array of 0");
    assert_refused("eos_token_id", "[1, 512]", "512");
    assert_refused("eos_token_id", "[1, \"2\"]", "an integer");
    assert_refused("eos_token_id", "[1,1,1,1,1,1,1,1,1]", "an array of 9");
    const char *const keys[] = {"bos_token_id", "eos_token_id"};
    for (int i = 0; i < 2; i++) {
        assert_refused(keys[i], "512", "vocab_size of 512");
        assert_refused(keys[i], "-1", "is -1");
        assert_refused(keys[i], "4294967295", "4294967295");
        assert_refused(keys[i], "1.0", "an integer");
        assert_refused(keys[i], "\"1\"", "an integer");
        assert_refused(keys[i], "true", "an integer");
    }
}

static void test_rope_scaling(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        dsmoe_rope_scaling scaling;
        double factor;
    } cases[] = {
        {"{\"type\": \"linear\", \"factor\": 4}", DSMOE_ROPE_LINEAR, 4},
        {"{\"rope_type\": \"linear\", \"factor\": 1}", DSMOE_ROPE_LINEAR, 1},
        {"{\"type\": \"dynamic\", \"factor\": 2.5}", DSMOE_ROPE_DYNAMIC, 2.5},
        {"{\"type\": \"dynamic\", \"rope_type\": \"dynamic\", \"factor\": 2}", DSMOE_ROPE_DYNAMIC,
         2},
        {"{\"rope_type\": \"default\"}", DSMOE_ROPE_NONE, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dsmoe_config config = read_with("rope_scaling", cases[i].text);
        assert_int_equal(config.rope_scaling, cases[i].scaling);
        assert_true(config.rope_scaling_factor == cases[i].factor);
    }
}

/* A configuration that a program made itself, with unused members left zero. */
static void test_check(void **state)
{
    (void)state;
    const dsmoe_config good = {.vocab_size = 8,
                               .hidden_size = 4,
                               .intermediate_size = 4,
                               .num_hidden_layers = 1,
                               .num_attention_heads = 2,
                               .num_key_value_heads = 1,
                               .moe_layer_freq = 1,
                               .max_position_embeddings = 16,
                               .rope_theta = 10000};
    dsmoe_error error = {0};
    if (config_check(&good, &error) != DSMOE_OK) fail_msg("%s", error.message);
    dsmoe_config bad = good;
    bad.bos_token_id = 8;
    assert_int_equal(config_check(&bad, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "bos_token_id is 8"));
    bad = good;
    bad.eos_token_id = -2;
    assert_int_equal(config_check(&bad, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "eos_token_id is -2"));
    bad.eos_token_id = -1;
    assert_int_equal(config_check(&bad, &error), DSMOE_OK);
    bad.rope_scaling = DSMOE_ROPE_LINEAR; /* the factor is 0 */
    assert_int_equal(config_check(&bad, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "rope_scaling factor is 0"));
    bad.rope_scaling_factor = 2;
    assert_int_equal(config_check(&bad, &error), DSMOE_OK);
    bad.rope_scaling = DSMOE_ROPE_DYNAMIC; /* the heads have 2 numbers */
    assert_int_equal(config_check(&bad, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "heads wider than 2"));
    bad.rope_scaling = (dsmoe_rope_scaling)4;
    assert_int_equal(config_check(&bad, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "rope_scaling is 4"));
}

static void test_parse(void **state)
{
    (void)state;
    static const char text[] = "{\"vocab_size\": 8, \"hidden_size\": 4, \"num_hidden_layers\": 1,"
                               " \"num_attention_heads\": 2, \"intermediate_size\": 3}?";
    dsmoe_config config = {0}, same;
    dsmoe_error error = {0};
    assert_int_equal(config_parse(text, sizeof text - 2, "some text", &config, &error), DSMOE_OK);
    assert_int_equal(config.vocab_size, 8);
    memcpy(&same, &config, sizeof same);
    assert_int_equal(config_parse(text, sizeof text - 1, "some text", &config, &error),
                     DSMOE_ERROR_FORMAT);
    assert_int_equal(strncmp(error.message, "some text: ", 11), 0);
    assert_int_equal(config_parse("{}", 2, "some text", &config, &error), DSMOE_ERROR_CONFIG);
    assert_string_equal(error.message, "some text: vocab_size is missing");
    assert_memory_equal(&same, &config, sizeof config); /* unchanged */
}

/* ---- refused configurations ----------------------------------------------------------------- */

static void test_missing(void **state)
{
    (void)state;
    const char *const keys[] = {"vocab_size",          "hidden_size",       "num_hidden_layers",
                                "num_attention_heads", "intermediate_size", "moe_intermediate_size",
                                "num_experts_per_tok"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_refused(keys[i], NULL, "missing");
    assert_refused("num_experts_per_tok", "null", "missing");

    /* The width of experts may be missing without MoE layers, and the dense width without dense layers. */
    static const char *const texts[] = {
        "{\"vocab_size\": 8, \"hidden_size\": 4, \"num_hidden_layers\": 1,"
        " \"num_attention_heads\": 2, \"intermediate_size\": 3}",
        "{\"vocab_size\": 8, \"hidden_size\": 4, \"num_hidden_layers\": 1,"
        " \"num_attention_heads\": 2, \"moe_intermediate_size\": 3, \"n_routed_experts\": 5,"
        " \"num_experts_per_tok\": 5}"};
    for (int i = 0; i < 2; i++) {
        dsmoe_config config;
        write_bytes(texts[i], strlen(texts[i]));
        assert_int_equal(dsmoe_config_read(path, &config, NULL), DSMOE_OK);
        assert_int_equal(config.intermediate_size, i == 0 ? 3 : 0);
        assert_int_equal(config.moe_intermediate_size, i == 0 ? 0 : 3);
    }
}

/* Case S07, one key at a time. */
static void test_wrong_kind(void **state)
{
    (void)state;
    const char *const integers[] = {"vocab_size",
                                    "hidden_size",
                                    "intermediate_size",
                                    "moe_intermediate_size",
                                    "num_hidden_layers",
                                    "num_attention_heads",
                                    "num_key_value_heads",
                                    "n_shared_experts",
                                    "n_routed_experts",
                                    "num_experts_per_tok",
                                    "moe_layer_freq",
                                    "first_k_dense_replace",
                                    "max_position_embeddings"};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        assert_refused(integers[i], "\"2\"", "an integer");
        assert_refused(integers[i], "2.0", "an integer");
        assert_refused(integers[i], "1e2", "an integer");
        assert_refused(integers[i], "true", "an integer");
        assert_refused(integers[i], "[2]", "an integer");
        assert_refused(integers[i], "-1", "-1");
        assert_refused(integers[i], "2147483648", "2147483648");
        assert_refused(integers[i], "9223372036854775807", "outside");
        assert_refused(integers[i], "-9223372036854775808", "outside");
    }
    const char *const positive[] = {
        "vocab_size",          "hidden_size",          "intermediate_size",   "num_hidden_layers",
        "num_attention_heads", "moe_layer_freq",       "num_key_value_heads", "n_routed_experts",
        "num_experts_per_tok", "moe_intermediate_size"};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        assert_refused(positive[i], "0", "is 0");
    const char *const not_null[] = {"vocab_size",        "hidden_size",         "num_hidden_layers",
                                    "intermediate_size", "num_attention_heads", "moe_layer_freq",
                                    "norm_topk_prob",    "rms_norm_eps",        "model_type"};
    for (size_t i = 0; i < sizeof not_null / sizeof *not_null; i++)
        assert_refused(not_null[i], "null", "null");
    assert_refused("norm_topk_prob", "1", "true or false");
    assert_refused("seq_aux", "\"true\"", "true or false");
    assert_refused("rms_norm_eps", "\"1e-6\"", "a number");
    assert_refused("rms_norm_eps", "-1e-6", "outside");
    assert_refused("rope_theta", "0", "outside");
    assert_refused("aux_loss_alpha", "1e300", "outside");
    assert_refused("initializer_range", "[0.02]", "a number");
}

/* Case S07, keys that do not fit together. */
static void test_impossible(void **state)
{
    (void)state;
    assert_refused("num_experts_per_tok", "9", "n_routed_experts 8");
    assert_refused("n_routed_experts", "1", "num_experts_per_tok 2");
    assert_refused("hidden_size", "66", "num_attention_heads 4");
    assert_refused("num_attention_heads", "3", "hidden_size 64");
    assert_refused("num_attention_heads", "64", "odd"); /* an odd head size cannot be rotated */
    assert_refused("num_key_value_heads", "3", "num_attention_heads 4");
    assert_refused("num_key_value_heads", "8", "num_attention_heads 4");
    assert_refused("head_dim", "32", "is 16");
    assert_refused("head_dim", "0", "is 16");
    assert_refused("head_dim", "-16", "is 16");
    assert_refused("head_dim", "16.0", "an integer");
    assert_refused("head_dim", "\"16\"", "an integer");
    assert_refused("torch_dtype", "16", "a string");
    assert_refused("moe_layer_freq", "0", "is 0"); /* it would divide by zero */

    /* Each value is within its bounds, but the product overflows. */
    static const char text[] =
        "{\"vocab_size\": 8, \"hidden_size\": 16777216, \"num_hidden_layers\": 65536,"
        "\"num_attention_heads\": 1024, \"moe_intermediate_size\": 16777216,"
        "\"n_routed_experts\": 16777216, \"num_experts_per_tok\": 8}";
    dsmoe_config config;
    dsmoe_error error;
    write_bytes(text, strlen(text));
    assert_int_equal(dsmoe_config_read(path, &config, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "2^58"));
}

static void test_unsupported(void **state)
{
    (void)state;
    assert_refused("model_type", "\"deepseek_v4\"", "deepseek_v4");
    assert_refused("model_type", "\"llama\\nx\"", "llama?x"); /* still one line */
    assert_refused("architectures", "[\"LlamaForCausalLM\"]", "LlamaForCausalLM");
    assert_refused("architectures", "[]", "DeepseekForCausalLM");
    assert_refused("architectures", "\"DeepseekForCausalLM\"", "an array");
    assert_refused("architectures", "[1]", "strings");
    assert_refused("scoring_func", "\"sigmoid\"", "sigmoid");
    assert_refused("scoring_func", "7", "a string");
    assert_refused("hidden_act", "\"gelu\"", "gelu");
    assert_refused("rope_scaling", "{\"type\": \"yarn\", \"factor\": 4.0}", "yarn");
    assert_refused("rope_scaling", "{\"factor\": 4.0}", "no type");
    assert_refused("rope_scaling", "{\"type\": \"linear\"}", "no factor");
    assert_refused("rope_scaling", "{\"type\": \"linear\", \"factor\": \"4\"}", "a number");
    assert_refused("rope_scaling", "{\"type\": \"linear\", \"factor\": 0}", "outside");
    assert_refused("rope_scaling", "{\"type\": 1, \"factor\": 4.0}", "rope_scaling");
    assert_refused("rope_scaling", "{\"type\": \"linear\", \"factor\": 1e7}", "outside");
    assert_refused("rope_scaling", "{\"type\": \"linear\", \"factor\": -4}", "outside");
    assert_refused("rope_scaling", "{\"type\": \"linear\", \"factor\": null}", "a number");
    assert_refused("rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8.0}", "llama3");
    assert_refused("rope_scaling", "{\"rope_type\": [], \"factor\": 8.0}", "a string");
    assert_refused("rope_scaling",
                   "{\"type\": \"linear\", \"rope_type\": \"dynamic\", \"factor\": 8}",
                   "rope_type \"dynamic\"");
    assert_refused("rope_scaling", "\"linear\"", "an object");
}

static void assert_not_json(const char *text, size_t length)
{
    dsmoe_config config;
    dsmoe_error error = {0};
    write_bytes(text, length);
    assert_int_equal(dsmoe_config_read(path, &config, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, path));
    assert_null(strchr(error.message, '\n'));
}

static void test_broken_files(void **state)
{
    (void)state;
    const char *const texts[] = {"",
                                 " ",
                                 "{",
                                 "[]",
                                 "null",
                                 "3",
                                 "\"a\"",
                                 "{} {}",
                                 "{\"a\"}",
                                 "{\"hidden_size\": 1e400}",
                                 "\xff",
                                 "{\"hidden_size\": 64, \"hidden_size\": 64}",
                                 "{\"hidden_size\": 99999999999999999999}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_not_json(texts[i], strlen(texts[i]));

    enum { LARGE = 2 << 20 }; /* blanks after a value: valid, but longer than any config.json */
    char *large = malloc(LARGE);
    assert_non_null(large);
    memset(large, ' ', LARGE);
    memcpy(large, "{}", 2);
    assert_not_json(large, LARGE);
    memset(large, '[', LARGE / 4);
    assert_not_json(large, LARGE / 4);
    free(large);

    dsmoe_config config;
    dsmoe_error error;
    assert_int_equal(dsmoe_config_read(TEST_DATA "/config/absent.json", &config, &error),
                     DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "absent.json"));
    assert_int_not_equal(dsmoe_config_read(TEST_DATA, &config, &error), DSMOE_OK); /* a folder */
}

/* The released file cut at every byte is refused each time, and never crashes. */
static void test_truncated(void **state)
{
    (void)state;
    char text[4096];
    FILE *file = fopen(RELEASED, "rb");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    while (length > 0 && text[length - 1] != '}') length--;
    for (size_t cut = 0; cut < length; cut++) assert_not_json(text, cut);
}

/* Applying new sizes to the configuration of a model. */
static void test_resize(void **state)
{
    (void)state;
    dsmoe_config config, before;
    dsmoe_error error;
    assert_int_equal(dsmoe_config_preset("tiny", &config, NULL), DSMOE_OK);
    before = config;
    dsmoe_model_sizes sizes = dsmoe_model_sizes_default();
    assert_int_equal(dsmoe_config_resize(&config, &sizes, NULL), DSMOE_OK);
    assert_memory_equal(&config, &before, sizeof config); /* no size was given */
    sizes.num_attention_heads = 8;
    sizes.n_shared_experts = 0;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, NULL), DSMOE_OK);
    assert_int_equal(config.num_key_value_heads, 8); /* each head has its own, as before */
    assert_int_equal(config.n_shared_experts, 0);
    assert_int_equal(config.hidden_size, before.hidden_size);
    sizes.num_key_value_heads = 2;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, NULL), DSMOE_OK);
    sizes = dsmoe_model_sizes_default();
    sizes.num_attention_heads = 4;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, NULL), DSMOE_OK);
    assert_int_equal(config.num_key_value_heads, 2); /* the size of groups is kept */
    /* A size that no layer would use is refused. */
    sizes.intermediate_size = 100;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "intermediate_size"));
    sizes.first_k_dense_replace = 1;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, NULL), DSMOE_OK);
    assert_int_equal(config.intermediate_size, 100);
    sizes = dsmoe_model_sizes_default();
    sizes.n_routed_experts = 0;
    sizes.n_shared_experts = 1;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "n_routed_experts is 0"));
    /* Experts without a layer for them. */
    sizes = dsmoe_model_sizes_default();
    sizes.num_hidden_layers = 2;
    sizes.first_k_dense_replace = 9;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "no layer is left for experts"));
    sizes.first_k_dense_replace = -1;
    sizes.num_hidden_layers = 1; /* the first layer of a larger model */
    assert_int_equal(dsmoe_config_resize(&config, &sizes, NULL), DSMOE_OK);
    sizes.n_routed_experts = 8;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, &error), DSMOE_ERROR_CONFIG);
    sizes = dsmoe_model_sizes_default();
    sizes.n_routed_experts = 0;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, NULL), DSMOE_OK);
    assert_int_equal(config.num_experts_per_tok, 0); /* all layers are dense */
    before = config;
    sizes.hidden_size = 130;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "hidden_size 130"));
    assert_memory_equal(&config, &before, sizeof config);
    sizes.hidden_size = 0;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, &error), DSMOE_ERROR_CONFIG);
    assert_int_equal(dsmoe_config_resize(NULL, &sizes, &error), DSMOE_ERROR_ARGUMENT);
}

/* The sizes of latent attention, for models that have it. */
static void test_resize_latent(void **state)
{
    (void)state;
    dsmoe_config config, before;
    dsmoe_error error;
    dsmoe_model_sizes sizes = dsmoe_model_sizes_default();
    assert_int_equal(dsmoe_config_preset("tiny-v3", &config, NULL), DSMOE_OK);
    sizes.kv_lora_rank = 24;
    sizes.q_lora_rank = 0;
    sizes.qk_nope_head_dim = 10;
    sizes.qk_rope_head_dim = 6;
    sizes.v_head_dim = 7;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, NULL), DSMOE_OK);
    assert_int_equal(config.kv_lora_rank, 24);
    assert_int_equal(config.q_lora_rank, 0);
    assert_int_equal(config.qk_nope_head_dim, 10);
    assert_int_equal(config.qk_rope_head_dim, 6);
    assert_int_equal(config.v_head_dim, 7);
    before = config;
    static const struct {
        size_t at;
        int64_t value;
        const char *says;
    } bad[] = {
        {offsetof(dsmoe_model_sizes, kv_lora_rank), 0, "kv_lora_rank"},
        {offsetof(dsmoe_model_sizes, qk_nope_head_dim), 0, "qk_nope_head_dim"},
        {offsetof(dsmoe_model_sizes, qk_rope_head_dim), 7, "qk_rope_head_dim 7 is odd"},
        {offsetof(dsmoe_model_sizes, v_head_dim), 0, "v_head_dim"},
        {offsetof(dsmoe_model_sizes, num_key_value_heads), 2, "num_key_value_heads 2"},
        {offsetof(dsmoe_model_sizes, n_routed_experts), 63, "n_group 8 does not divide"},
        {offsetof(dsmoe_model_sizes, n_routed_experts), 8, "groups of 1 experts"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sizes = dsmoe_model_sizes_default();
        *(int64_t *)((char *)&sizes + bad[i].at) = bad[i].value;
        if (dsmoe_config_resize(&config, &sizes, &error) != DSMOE_ERROR_CONFIG ||
            !strstr(error.message, bad[i].says))
            fail_msg("%s: \"%s\"", bad[i].says, error.message);
        assert_memory_equal(&config, &before, sizeof config);
    }
    sizes = dsmoe_model_sizes_default();
    sizes.n_routed_experts = 0; /* without experts there are no groups either */
    assert_int_equal(dsmoe_config_resize(&config, &sizes, NULL), DSMOE_OK);

    assert_int_equal(dsmoe_config_preset("tiny", &config, NULL), DSMOE_OK);
    sizes = dsmoe_model_sizes_default();
    sizes.v_head_dim = 7;
    assert_int_equal(dsmoe_config_resize(&config, &sizes, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "model_type \"deepseek\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resize),       cmocka_unit_test(test_released),
        cmocka_unit_test(test_layer),        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_all_dense),    cmocka_unit_test(test_layer_frequency),
        cmocka_unit_test(test_accepted),     cmocka_unit_test(test_missing),
        cmocka_unit_test(test_wrong_kind),   cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_unsupported),  cmocka_unit_test(test_broken_files),
        cmocka_unit_test(test_truncated),    cmocka_unit_test(test_token_ids),
        cmocka_unit_test(test_rope_scaling), cmocka_unit_test(test_check),
        cmocka_unit_test(test_parse),        cmocka_unit_test(test_resize_latent),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

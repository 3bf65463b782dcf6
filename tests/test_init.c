/* test_init.c - newly initialised models: presets, the files that are written, the numbers in them, and
 * what a failure leaves behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/json.h"
#include "formats/shards.h"
#include "model/config_write.h"
#include "model/init.h"
#include "progress_watch.h"
#include "same_config.h"
#include "scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- help ----------------------------------------------------------------------------------- */

static char folder[300];

/* A path in the scratch folder; the second call after this one overwrites it. */
static const char *in(const char *where, const char *name)
{
    static char paths[2][600];
    static int turn;
    turn = !turn;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", where, name);
    return paths[turn];
}

static char *read_file(const char *name, size_t *length)
{
    FILE *file = fopen(name, "rb");
    if (!file) fail_msg("%s: %s", name, strerror(errno));
    static const size_t most = 1 << 20;
    char *text = calloc(1, most);
    assert_non_null(text);
    *length = fread(text, 1, most - 1, file);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* Removes a folder of files; returns their number, or -1 if there is no folder. */
static int remove_folder(const char *name)
{
    DIR *list = opendir(name);
    if (!list) return -1;
    int n = 0;
    for (struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_name[0] == '.') continue;
        assert_int_equal(remove(in(name, entry->d_name)), 0);
        n++;
    }
    closedir(list);
    assert_int_equal(rmdir(name), 0);
    return n;
}

static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    snprintf(folder, sizeof folder, "%s/model", directory);
    return 0;
}

/* A model with everything: a dense layer, two MoE layers, biases, grouped keys and values. */
static dsmoe_config small(void)
{
    dsmoe_config config;
    assert_int_equal(dsmoe_config_preset("tiny", &config, NULL), DSMOE_OK);
    config.vocab_size = 301;
    config.hidden_size = 48;
    config.intermediate_size = 80;
    config.moe_intermediate_size = 20;
    config.num_hidden_layers = 3;
    config.num_key_value_heads = 2;
    config.n_routed_experts = 5;
    config.n_shared_experts = 2;
    config.num_experts_per_tok = 3;
    config.first_k_dense_replace = 1;
    config.attention_bias = true;
    config.bos_token_id = 7;
    config.eos_token_id = 9;
    return config;
}

static void write_model(const char *where, const dsmoe_config *config, dsmoe_dtype dtype,
                        uint64_t seed, int n_threads)
{
    dsmoe_error error = {0};
    if (dsmoe_model_init(where, config, dtype, seed, n_threads, NULL, NULL, &error))
        fail_msg("%s", error.message);
}

static shards *open_shards(const char *where)
{
    shards *set;
    dsmoe_error error = {0};
    if (shards_open(where, &set, &error)) fail_msg("%s", error.message);
    return set;
}

/* A tensor as float32, to be freed. */
static float *read_tensor(const shards *set, const char *name, int64_t n)
{
    const safetensors_tensor *tensor = shards_find(set, name, NULL);
    if (!tensor) fail_msg("there is no %s", name);
    assert_int_equal(tensor->n_elements, n);
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    assert_true(safetensors_tensor_read_f32(tensor, 0, (size_t)n, values));
    return values;
}

/* Every tensor of `some` must be in `all` with the same bytes. */
static void assert_contained(const char *some, const char *all)
{
    shards *a = open_shards(some), *b = open_shards(all);
    for (size_t i = 0; i < shards_count(a); i++) {
        const safetensors_tensor *x = shards_at(a, i), *y = shards_find(b, x->name, NULL);
        assert_non_null(y);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->size, y->size);
        if (memcmp(x->data, y->data, x->size)) fail_msg("%s differs", x->name);
    }
    shards_close(a);
    shards_close(b);
}

/* ---- configurations ------------------------------------------------------------------------- */

static void test_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double total, active;
    } presets[] = {{"tiny", 11.8e6, 3.6e6},
                   {"2b", 2.0e9, 0.32e9},
                   {"16b", 16.4e9, 2.83e9},
                   {"v2-lite", 15.7e9, 2.66e9},
                   {"moonlight", 16.0e9, 2.9e9}};
    for (size_t i = 0; i < COUNT(presets); i++) {
        dsmoe_config config;
        dsmoe_model_plan plan;
        dsmoe_error error = {0};
        assert_int_equal(dsmoe_config_preset(presets[i].name, &config, &error), DSMOE_OK);
        if (dsmoe_model_plan_make(&config, 1, &plan, &error)) fail_msg("%s", error.message);
        assert_true(fabs((double)plan.total / presets[i].total - 1) < 0.01);
        assert_true(fabs((double)plan.active / presets[i].active - 1) < 0.02);
    }
    dsmoe_config config;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_config_preset("7b", &config, &error), DSMOE_ERROR_ARGUMENT);
    assert_string_equal(
        error.message,
        "there is no preset '7b', only tiny, 2b, 16b, tiny-v2, tiny-v3, v2-lite and moonlight");
    assert_int_equal(dsmoe_config_preset(NULL, &config, &error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_config_preset("tiny", NULL, &error), DSMOE_ERROR_ARGUMENT);
}

/* Removes all occurrences of a word. */
static void cut_short(char *text, const char *word)
{
    size_t n = strlen(word);
    for (char *at = text; (at = strstr(at, word));) memmove(at, at + n, strlen(at + n) + 1);
}

/* config.json of the released model is reproduced, except for the location of the PyTorch code. */
static void test_released_config(void **state)
{
    (void)state;
    dsmoe_config config, read;
    static const char public_file[] = TEST_DATA "/config/deepseek-moe-16b.json";
    assert_int_equal(dsmoe_config_preset("16b", &config, NULL), DSMOE_OK);
    assert_int_equal(dsmoe_config_read(public_file, &read, NULL), DSMOE_OK);
    assert_same_config(&config, &read);
    assert_int_equal(config_write(directory, &config, DSMOE_BF16, NULL), DSMOE_OK);
    size_t n, expected_n;
    char *text = read_file(in(directory, "config.json"), &n);
    char *expected = read_file(public_file, &expected_n);
    assert_non_null(strstr(text, "deepseek-ai/deepseek-moe-16b-base--modeling_deepseek"));
    cut_short(text, "deepseek-ai/deepseek-moe-16b-base--");
    assert_string_equal(text, expected);
    free(text);
    free(expected);
    assert_int_equal(remove(in(directory, "config.json")), 0);
}

static void assert_survives(const dsmoe_config *config)
{
    dsmoe_config read;
    dsmoe_error error = {0};
    if (config_write(directory, config, DSMOE_F32, &error) ||
        dsmoe_config_read(in(directory, "config.json"), &read, &error))
        fail_msg("%s", error.message);
    assert_int_equal(remove(in(directory, "config.json")), 0);
    assert_same_config(&read, config);
}

/* Written configurations are read back unchanged, whatever the values. */
static void test_config_round_trip(void **state)
{
    (void)state;
    static const char *const names[] = {"v2-lite", "moonlight", "tiny-v2", "tiny-v3",
                                        "tiny",    "2b",        "16b"};
    dsmoe_config config;
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(dsmoe_config_preset(names[i], &config, NULL), DSMOE_OK);
        assert_survives(&config);
    }
    config.norm_topk_prob = config.attention_bias = config.tie_word_embeddings = true;
    config.seq_aux = false;
    config.routed_scaling_factor = 2.5;
    config.aux_loss_alpha = 1.0 / 3;
    config.rms_norm_eps = 1e-5;
    config.rope_theta = 500000.25;
    config.rope_scaling = DSMOE_ROPE_LINEAR;
    config.rope_scaling_factor = 2.5;
    config.num_key_value_heads = 4;
    config.moe_layer_freq = 2;
    config.bos_token_id = 0;
    config.eos_token_id = -1;
    assert_survives(&config);
    config.rope_scaling = DSMOE_ROPE_DYNAMIC;
    config.n_shared_experts = 0;
    assert_survives(&config);
    config.n_routed_experts = config.num_experts_per_tok = config.moe_intermediate_size = 0;
    assert_survives(&config);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static void assert_about(const char *what, double value, double expected, double error)
{
    if (!(fabs(value - expected) <= error))
        fail_msg("%s is %g, where %g ± %g is expected", what, value, expected, error);
}

static void check_matrix(const shards *set, const char *name, int64_t n, double deviation)
{
    float *values = read_tensor(set, name, n);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += values[i];
        squares += (double)values[i] * values[i];
    }
    assert_about(name, sum / (double)n, 0, 4 * deviation / sqrt((double)n));
    assert_about(name, sqrt(squares / (double)n), deviation, 4 * deviation / sqrt((double)n));
    free(values);
}

static void check_constant(const shards *set, const char *name, int64_t n, float expected)
{
    float *values = read_tensor(set, name, n);
    for (int64_t i = 0; i < n; i++) assert_true(values[i] == expected);
    free(values);
}

static void test_values(void **state)
{
    (void)state;
    dsmoe_config config = small();
    for (dsmoe_dtype dtype = DSMOE_F32; dtype <= DSMOE_BF16; dtype++) {
        write_model(folder, &config, dtype, 1, 2);
        shards *set = open_shards(folder);
        /* embedding, norm and head; norms and attention of the layers; one dense and two MoE layers */
        assert_int_equal(shards_count(set), 3 + 3 * (2 + 8) + 3 + 2 * (1 + 5 * 3 + 3));
        check_matrix(set, "model.embed_tokens.weight", 301 * 48, 0.02);
        check_matrix(set, "lm_head.weight", 301 * 48, 0.02);
        check_matrix(set, "model.layers.0.mlp.down_proj.weight", 48 * 80, 0.02);
        check_matrix(set, "model.layers.0.self_attn.k_proj.weight", 24 * 48, 0.02);
        check_matrix(set, "model.layers.2.mlp.experts.4.up_proj.weight", 20 * 48, 0.02);
        check_matrix(set, "model.layers.2.mlp.shared_experts.gate_proj.weight", 40 * 48, 0.02);
        check_matrix(set, "model.layers.1.mlp.gate.weight", 5 * 48, 1 / sqrt(3 * 48.0));
        check_constant(set, "model.layers.1.input_layernorm.weight", 48, 1);
        check_constant(set, "model.norm.weight", 48, 1);
        check_constant(set, "model.layers.2.self_attn.q_proj.bias", 48, 0);
        float *router = read_tensor(set, "model.layers.2.mlp.gate.weight", 5 * 48);
        for (int i = 0; i < 5 * 48; i++) assert_true(fabsf(router[i]) <= 0.1445f);
        free(router);
        shards_close(set);
        assert_int_equal(remove_folder(folder), 3);
    }
}

/* Every machine must compute these numbers. */
static void test_golden(void **state)
{
    (void)state;
    dsmoe_config config = small();
    write_model(folder, &config, DSMOE_F32, 42, 1);
    shards *set = open_shards(folder);
    uint64_t hash = 0;
    for (size_t i = 0; i < shards_count(set); i++) {
        const safetensors_tensor *tensor = shards_at(set, i);
        for (size_t j = 0; j < tensor->size; j++) hash = hash * 0x100000001b3u + tensor->data[j];
    }
    shards_close(set);
    assert_int_equal(remove_folder(folder), 3);
    assert_int_equal(hash, 0x084c2526146b8a8au);
}

/* Numbers do not depend on threads, layers or preceding tensors, but on the seed. */
static void test_independence(void **state)
{
    (void)state;
    char other[300];
    snprintf(other, sizeof other, "%s/other", directory);
    dsmoe_config config = small();
    write_model(folder, &config, DSMOE_BF16, 3, 1);
    write_model(other, &config, DSMOE_BF16, 3, 3);
    assert_contained(folder, other);
    remove_folder(other);
    config.num_hidden_layers = 1;
    config.tie_word_embeddings = true;
    write_model(other, &config, DSMOE_BF16, 3, 0);
    assert_contained(other, folder);
    remove_folder(other);

    config.num_hidden_layers = 3;
    write_model(other, &config, DSMOE_BF16, 4, 2);
    shards *a = open_shards(folder), *b = open_shards(other);
    const safetensors_tensor *x = shards_find(a, "model.embed_tokens.weight", NULL),
                             *y = shards_find(b, "model.embed_tokens.weight", NULL),
                             *up = shards_find(a, "model.layers.1.mlp.experts.0.up_proj.weight",
                                               NULL),
                             *gate = shards_find(a, "model.layers.1.mlp.experts.0.gate_proj.weight",
                                                 NULL);
    assert_memory_not_equal(x->data, y->data, x->size);
    assert_memory_not_equal(up->data, gate->data, up->size);
    shards_close(a);
    shards_close(b);
    remove_folder(other);
    remove_folder(folder);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void write_shards(const dsmoe_config *config, size_t shard_size)
{
    init_options options = {
        .dtype = DSMOE_BF16, .seed = 3, .n_threads = 2, .shard_size = shard_size};
    dsmoe_error error = {0};
    if (init_folder(folder, config, &options, &error)) fail_msg("%s", error.message);
}

/* shards_open checks that the index and the files agree. */
static void test_shards(void **state)
{
    (void)state;
    char whole[300];
    snprintf(whole, sizeof whole, "%s/whole", directory);
    dsmoe_config config = small();
    write_model(whole, &config, DSMOE_BF16, 3, 1);
    static const size_t sizes[] = {1, 4000, 40000, 100000}; /* the embedding has 28896 bytes */
    for (size_t i = 0; i < COUNT(sizes); i++) {
        write_shards(&config, sizes[i]);
        assert_contained(whole, folder);
        shards *set = open_shards(folder);
        size_t n_tensors = shards_count(set);
        assert_non_null(strstr(shards_path(set, 0), "model-000"));
        shards_close(set);
        int n_files = remove_folder(folder);
        if (sizes[i] == 1) assert_int_equal(n_files, n_tensors + 3); /* one file for each tensor */
        if (sizes[i] == 100000) assert_int_equal(n_files, 3 + 3);    /* 205 kB altogether */
    }
    remove_folder(whole);
}

static void test_files(void **state)
{
    (void)state;
    dsmoe_config config = small(), read;
    dsmoe_error error = {0};
    write_model(folder, &config, DSMOE_F16, 3, 1);
    if (dsmoe_config_read(in(folder, "config.json"), &read, &error)) fail_msg("%s", error.message);
    assert_int_equal(read.num_hidden_layers, 3);
    json_node *root;
    assert_int_equal(json_node_read(in(folder, "config.json"), 10000, &root, NULL), DSMOE_OK);
    assert_string_equal(json_node_string(json_node_member(root, "torch_dtype"), NULL), "float16");
    json_node_free(root);
    assert_int_equal(json_node_read(in(folder, "generation_config.json"), 10000, &root, NULL),
                     DSMOE_OK);
    assert_int_equal(json_node_integer(json_node_member(root, "bos_token_id")), 7);
    assert_int_equal(json_node_integer(json_node_member(root, "eos_token_id")), 9);
    json_node_free(root);
    safetensors *file;
    assert_int_equal(safetensors_open(in(folder, "model.safetensors"), &file, NULL), DSMOE_OK);
    assert_string_equal(safetensors_metadata(file, "format"), "pt");
    safetensors_close(file);
    dsmoe_model *model;
    if (dsmoe_model_open(folder, &model, &error)) fail_msg("%s", error.message);
    assert_int_equal(dsmoe_model_extra_count(model), 0);
    dsmoe_model_free(model);
    assert_int_equal(remove_folder(folder), 3);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    dsmoe_config config = small();
    dsmoe_error error = {0};
    /* Names of files that are a model or part of one. */
    static const char *const taken[] = {"config.json", "generation_config.json", "x.safetensors",
                                        "model.safetensors.index.json"};
    assert_int_equal(mkdir(folder, 0777), 0);
    for (size_t i = 0; i < COUNT(taken); i++) {
        FILE *file = fopen(in(folder, taken[i]), "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(dsmoe_model_init(folder, &config, DSMOE_F32, 0, 1, NULL, NULL, &error),
                         DSMOE_ERROR_IO);
        assert_non_null(strstr(error.message, folder));
        assert_non_null(strstr(error.message, taken[i]));
        assert_int_equal(remove(in(folder, taken[i])), 0);
    }
    assert_int_equal(remove_folder(folder), 0);

    assert_int_equal(
        dsmoe_model_init(in(folder, "deeper"), &config, DSMOE_F32, 0, 1, NULL, NULL, &error),
        DSMOE_ERROR_IO);
    assert_int_equal(dsmoe_model_init(TEST_DATA "/config/deepseek-moe-16b.json", &config, DSMOE_F32,
                                      0, 1, NULL, NULL, &error),
                     DSMOE_ERROR_IO);
    assert_int_equal(dsmoe_model_init(NULL, &config, DSMOE_F32, 0, 1, NULL, NULL, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_model_init(folder, NULL, DSMOE_F32, 0, 1, NULL, NULL, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_model_init(folder, &config, (dsmoe_dtype)3, 0, 1, NULL, NULL, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_model_init(folder, &config, DSMOE_F32, 0, -1, NULL, NULL, &error),
                     DSMOE_ERROR_ARGUMENT);
    config.hidden_size = 47;
    assert_int_equal(dsmoe_model_init(folder, &config, DSMOE_F32, 0, 1, NULL, NULL, &error),
                     DSMOE_ERROR_CONFIG);
    assert_int_equal(remove_folder(folder), -1);
}

/* A stop at any point leaves only what was there before. */
static void test_stop(void **state)
{
    (void)state;
    dsmoe_config config = small();
    progress_watch w = {0};
    init_options options = {.dtype = DSMOE_F32,
                            .n_threads = 2,
                            .shard_size = 100000,
                            .progress = watch_progress,
                            .context = &w};
    assert_int_equal(init_folder(folder, &config, &options, NULL), DSMOE_OK);
    assert_true(w.done == w.total && w.total > 3e5);
    remove_folder(folder);
    int n_calls = w.calls;
    assert_true(n_calls > 4);
    for (int stop_at = 1; stop_at <= n_calls; stop_at++) {
        bool there_before = stop_at % 2;
        if (there_before) assert_int_equal(mkdir(folder, 0777), 0);
        dsmoe_error error = {0};
        w = (progress_watch){.stop_at = stop_at};
        assert_int_equal(init_folder(folder, &config, &options, &error), DSMOE_ERROR_STOPPED);
        assert_non_null(strstr(error.message, "stopped"));
        assert_int_equal(remove_folder(folder), there_before ? 0 : -1);
    }
}

static void test_full_disk(void **state)
{
    (void)state;
    dsmoe_config config = small();
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    static const rlim_t limits[] = {10, 5000, 100000};
    for (size_t i = 0; i < COUNT(limits); i++) {
        tight = before;
        tight.rlim_cur = limits[i];
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        dsmoe_error error = {0};
        dsmoe_status status =
            dsmoe_model_init(folder, &config, DSMOE_F32, 0, 2, NULL, NULL, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, DSMOE_ERROR_IO);
        assert_non_null(strstr(error.message, "model.safetensors"));
        assert_non_null(strstr(error.message, strerror(EFBIG)));
        assert_int_equal(remove_folder(folder), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_released_config),
        cmocka_unit_test(test_config_round_trip),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_independence),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, set_up, remove_directory);
}

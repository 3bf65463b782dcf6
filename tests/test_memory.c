/* test_memory.c - the memory that a model takes: opening one reads the headers, running one takes the
 * memory of its sequence while the weights stay in the files, and training takes what was stated before.
 * The kernel reports the process's own memory (RssAnon) and pages of files (RssFile). */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "made_model.h"
#include "scratch.h"

enum { MEGABYTE = 1 << 20, VOCAB = 8192 };

static const char *const names[] = {"model.safetensors", "generation_config.json", "config.json"};
static char folder[300];
static size_t weights; /* bytes in the files */

typedef struct resident {
    long long own, of_files; /* bytes */
} resident;

static resident measure(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    resident now = {0};
    char line[256];
    long long kilobytes;
    if (!file) skip(); /* another system */
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "RssAnon: %lld", &kilobytes) == 1) now.own = kilobytes * 1024;
        if (sscanf(line, "RssFile: %lld", &kilobytes) == 1) now.of_files = kilobytes * 1024;
    }
    fclose(file);
    if (now.own == 0) skip();
    return now;
}

/* 47 MB of float32. Another process writes them, so that this process has no freed memory in which a copy
 * of the weights could hide. */
static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    snprintf(folder, sizeof folder, "%s/model", directory);
    dsmoe_config config;
    if (dsmoe_config_preset("tiny", &config, NULL) != DSMOE_OK) return -1;
    pid_t child = fork();
    if (child == 0)
        _exit(dsmoe_model_init(folder, &config, DSMOE_F32, 1, 1, NULL, NULL, NULL) != DSMOE_OK);
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    for (size_t i = 0; i < COUNT(names); i++) {
        char name[400];
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        remove(name);
    }
    rmdir(folder);
    return remove_directory(state);
}

static void must_be_below(const char *what, long long bytes, size_t limit)
{
    if (bytes > (long long)limit)
        fail_msg("%s: %lld bytes more, where %zu are the limit (weights: %zu)", what, bytes, limit,
                 weights);
}

static void test_opening(void **state)
{
    (void)state;
    resident before = measure();
    dsmoe_model *model = open_model(folder);
    resident after = measure();
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++)
        weights += dsmoe_model_tensor(model, i).size;
    dsmoe_model_free(model);
    assert_true(weights > 40 * MEGABYTE);
    must_be_below("memory of an open model", after.own - before.own, 4 * MEGABYTE);
    /* Headers and norms, each with the neighbouring pages that the kernel maps too. */
    must_be_below("pages of an open model", after.of_files - before.of_files, weights / 2);
}

static void test_running(void **state)
{
    (void)state;
    static const int32_t tokens[] = {1, 20, 300, 4000, 5, 60, 700, 8000};
    static float logits[VOCAB] = {1}; /* written to before measuring */
    dsmoe_engine_options options = {.n_ctx = 64, .n_batch = 8, .n_threads = 1};
    resident before = measure();
    dsmoe_model *model = open_model(folder);
    dsmoe_sequence *sequence = make_sequence(model, options.n_ctx, options.n_batch, 1);
    dsmoe_engine_memory size = dsmoe_engine_memory_size(model, &options);
    dsmoe_error error = {0};
    must(dsmoe_sequence_append(sequence, tokens, 8, logits, &error), &error, "a prompt");
    for (int i = 0; i < 8; i++)
        must(dsmoe_sequence_append(sequence, &tokens[i], 1, logits, &error), &error, "a token");
    resident after = measure();
    assert_true(size.kv_cache + size.workspace < weights / 3);
    must_be_below("memory of a model at work", after.own - before.own,
                  size.kv_cache + size.workspace + 8 * MEGABYTE);
    free_sequence(sequence);
    dsmoe_model_free(model);
}

/* A long context takes memory only for the part in use. */
static void test_long_context(void **state)
{
    (void)state;
    static const int32_t tokens[] = {1, 2, 3};
    dsmoe_engine_options options = {.n_ctx = 1 << 20, .n_batch = 8, .n_threads = 1};
    dsmoe_model *model = open_model(folder);
    assert_true(dsmoe_engine_memory_size(model, &options).kv_cache > (size_t)1 << 30);
    resident before = measure();
    dsmoe_sequence *sequence = make_sequence(model, options.n_ctx, options.n_batch, 1);
    dsmoe_error error = {0};
    must(dsmoe_sequence_append(sequence, tokens, 3, NULL, &error), &error, "a prompt");
    resident after = measure();
    must_be_below("a short text in a long context", after.own - before.own, 64 * MEGABYTE);
    free_sequence(sequence);
    dsmoe_model_free(model);
}

enum { LENGTH = 64, SEQUENCES = 4 };

/* All memory is taken at the start; no step takes more. */
static void check_training(const dsmoe_config *config, const dsmoe_trainer_options *options,
                           size_t least)
{
    static int32_t tokens[SEQUENCES * LENGTH] = {1, 20, 300, 4000};
    dsmoe_error error = {0};
    dsmoe_trainer_memory m = dsmoe_trainer_memory_size(config, options);
    size_t stated = m.weights + m.gradients + m.moments + m.activations + m.workspace;
    assert_true(stated > least && stated < 400 * MEGABYTE);
    resident before = measure();
    dsmoe_trainer *trainer;
    must(dsmoe_trainer_create(config, options, &trainer, &error), &error, "a trainer");
    dsmoe_trainer_init(trainer, 1);
    resident created = measure();
    for (int i = 0; i < 2; i++) {
        const dsmoe_batch batch = {.tokens = tokens, .targets = tokens};
        must(dsmoe_trainer_backward(trainer, &batch, NULL, &error), &error, "a batch");
        must(dsmoe_trainer_update(trainer, 1e-3, NULL, &error), &error, "an update");
    }
    resident after = measure();
    assert_true(created.own - before.own >
                (long long)stated - 4 * MEGABYTE); /* it is really used */
    /* Five arrays, each rounded up to huge pages, and the names and addresses of the tensors. */
    must_be_below("memory of a trainer", created.own - before.own, stated + 12 * MEGABYTE);
    must_be_below("memory of training", after.own - created.own, 2 * MEGABYTE);
    dsmoe_trainer_free(trainer);
}

static dsmoe_trainer_options training_options(void)
{
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = SEQUENCES;
    options.sequence_length = LENGTH;
    options.n_threads = 2;
    return options;
}

/* About 100 MB. */
static void test_training(void **state)
{
    (void)state;
    dsmoe_config config;
    dsmoe_trainer_options options = training_options();
    assert_int_equal(dsmoe_config_preset("tiny", &config, NULL), DSMOE_OK);
    config.num_hidden_layers = 2;
    check_training(&config, &options, 80 * MEGABYTE);
}

/* The base model stays in its file, and the stated size is that of the file's weights. */
static void test_tuning(void **state)
{
    (void)state;
    dsmoe_model *model = open_model(folder);
    dsmoe_tuning tuning = {.base = model,
                           .train = DSMOE_TRAIN_LORA,
                           .rank = 8,
                           .alpha = 8,
                           .targets = "attention,routed"};
    dsmoe_trainer_options options = training_options();
    options.tuning = &tuning;
    dsmoe_trainer_memory m = dsmoe_trainer_memory_size(dsmoe_model_config(model), &options);
    assert_int_equal(m.base, weights);
    check_training(dsmoe_model_config(model), &options, 8 * MEGABYTE);
    dsmoe_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),      cmocka_unit_test(test_running),
        cmocka_unit_test(test_long_context), cmocka_unit_test(test_training),
        cmocka_unit_test(test_tuning),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

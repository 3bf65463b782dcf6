/* test_checkpoint.c - a trainer on disk: it is read back bit for bit, and damage is found and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "made_checkpoint.h"
#include "same_config.h"
#include "scratch.h"

static void assert_same_bytes(const void *a, const void *b, int64_t n, const char *what)
{
    if (memcmp(a, b, (size_t)n * sizeof(float))) fail_msg("%s differ", what);
}

static void assert_same_trainer(const dsmoe_trainer *t, const dsmoe_trainer *u)
{
    assert_same_bytes(t->weights, u->weights, t->n_numbers, "weights");
    assert_same_bytes(t->first_moment, u->first_moment, t->n_numbers, "first moments");
    assert_same_bytes(t->second_moment, u->second_moment, t->n_numbers, "second moments");
}

/* ---- writing and reading --------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1), *u = make_trainer(2);
    /* Bits that no float arithmetic would preserve. */
    uint32_t odd[] = {0x7fc12345u, 0xff800000u, 1u, 0x80000000u};
    memcpy(t->weights, odd, sizeof odd);
    memcpy(t->first_moment, odd, sizeof odd);
    t->n_updates = 41;
    const char *written = write_step(t, 200);
    assert_string_equal(written, tiny_path(run, "checkpoints/step-00000200"));
    assert_link("latest", "checkpoints/step-00000200");

    checkpoint_state expected = make_state(200), read;
    expected.n_updates = 41;
    dsmoe_error error;
    u->n_batches = 3;
    u->poisoned = true;
    if (checkpoint_read(written, u, &read, &error)) fail_msg("%s", error.message);
    assert_memory_equal(&read, &expected, sizeof read);
    assert_int_equal(u->n_updates, 41);
    assert_int_equal(u->n_batches, 0);
    assert_false(u->poisoned);
    assert_same_trainer(t, u);
    dsmoe_trainer_free(t);
    dsmoe_trainer_free(u);
    tiny_remove(run);
}

/* A checkpoint opens as a model like any other. */
static void test_model(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(3);
    write_to(tiny_path(directory, "tokenizer.json"), "mine\n", 5);
    char written[CHECKPOINT_PATH];
    dsmoe_error error;
    const checkpoint_options options = {.tokenizer = directory};
    strcpy(written, write_as(t, 7, options));
    dsmoe_model *model;
    if (dsmoe_model_open(written, &model, &error)) fail_msg("%s", error.message);
    assert_same_config(dsmoe_model_config(model), &t->config);
    assert_int_equal(dsmoe_model_tensor_count(model), t->n_parameters);
    assert_int_equal(dsmoe_model_extra_count(model), 0);
    dsmoe_trainer *u = make_trainer(4);
    if (dsmoe_trainer_load(u, model, &error)) fail_msg("%s", error.message);
    assert_same_bytes(t->weights, u->weights, t->n_numbers, "weights");
    dsmoe_model_free(model);
    assert_true(tiny_exists(tiny_path(written, "generation_config.json")));
    assert_false(tiny_exists(tiny_path(written, "tokenizer_config.json"))); /* there was none */
    tiny_assert_same(tiny_path(written, "tokenizer.json"), tiny_path(directory, "tokenizer.json"));
    assert_int_equal(unlink(tiny_path(directory, "tokenizer.json")), 0);

    /* A checkpoint whose tokenizer is missing is not written. */
    assert_int_not_equal(
        checkpoint_write(run, t, &options, &(checkpoint_state){.step = 8}, written, &error),
        DSMOE_OK);
    assert_non_null(strstr(error.message, "tokenizer.json"));
    assert_false(has_step(8));
    assert_false(tiny_exists(tiny_path(run, "checkpoints/.step-00000008.partial")));
    assert_true(has_step(7));
    dsmoe_trainer_free(t);
    dsmoe_trainer_free(u);
    tiny_remove(run);
}

/* Writing the same step again replaces the old checkpoint. */
static void test_again(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1), *u = make_trainer(2);
    write_step(t, 5);
    const char *written = write_step(u, 5);
    checkpoint_state read;
    dsmoe_error error;
    if (checkpoint_read(written, t, &read, &error)) fail_msg("%s", error.message);
    assert_same_bytes(t->weights, u->weights, t->n_numbers, "weights");
    assert_false(tiny_exists(tiny_path(run, "checkpoints/.step-00000005.old")));
    dsmoe_trainer_free(t);
    dsmoe_trainer_free(u);
    tiny_remove(run);
}

/* Several files of weights, as large models have: the model opens, the trainer is read back, damage is
 * named, and pruning leaves nothing. */
static void test_shards(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1), *u = make_trainer(2);
    const char *written = write_as(t, 30, (checkpoint_options){.shard_size = 20000});
    assert_false(tiny_exists(tiny_path(written, "model.safetensors")));
    assert_true(tiny_exists(tiny_path(written, "model.safetensors.index.json")));
    dsmoe_model *model;
    checkpoint_state read;
    dsmoe_error error;
    if (dsmoe_model_open(written, &model, &error)) fail_msg("%s", error.message);
    dsmoe_model_free(model);
    if (checkpoint_read(written, u, &read, &error)) fail_msg("%s", error.message);
    assert_same_trainer(t, u);
    char name[64], found[64] = "";
    for (int n = 2; n < 20 && !*found; n++) {
        snprintf(name, sizeof name, "model-00002-of-%05d.safetensors", n);
        if (tiny_exists(tiny_path(written, name))) strcpy(found, name);
    }
    assert_true(*found);
    FILE *list = fopen(tiny_path(written, found), "r+b");
    assert_non_null(list);
    assert_int_equal(fseek(list, -1, SEEK_END), 0);
    fputc(0x55, list);
    assert_int_equal(fclose(list), 0);
    assert_int_equal(checkpoint_check(written, &read, &error), DSMOE_ERROR_FORMAT);
    if (!strstr(error.message, found)) fail_msg("%s", error.message);
    write_step(t, 40);
    prune(1, -1);
    assert_false(has_step(30));
    dsmoe_trainer_free(t);
    dsmoe_trainer_free(u);
    tiny_remove(run);
}

/* bfloat16 weights in half the bytes for others to load, and the exact weights to resume from. */
static void test_bf16(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1), *u = make_trainer(2);
    const char *written = write_as(t, 30, (checkpoint_options){.dtype = DSMOE_BF16});
    dsmoe_model *model;
    checkpoint_state read;
    dsmoe_error error;
    if (dsmoe_model_open(written, &model, &error)) fail_msg("%s", error.message);
    assert_int_equal(dsmoe_model_tensor(model, 0).dtype, DSMOE_BF16);
    dsmoe_model_free(model);
    if (checkpoint_read(written, u, &read, &error)) fail_msg("%s", error.message);
    assert_same_trainer(t, u);
    struct stat exact, half;
    assert_int_equal(stat(tiny_path(written, "training.safetensors"), &exact), 0);
    assert_int_equal(stat(tiny_path(written, "model.safetensors"), &half), 0);
    int64_t n = 0;
    for (size_t i = 0; i < t->n_parameters; i++) n += t->parameters[i].n;
    double size = (double)(exact.st_size + half.st_size), said = checkpoint_size(n, DSMOE_BF16);
    assert_true(said <= size && size < said + 20000); /* headers */
    dsmoe_trainer_free(t);
    dsmoe_trainer_free(u);
    tiny_remove(run);
}

static void test_evaluation(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    const char *written = write_step(t, 30);
    double loss = -1, exact = nextafter(3, 4);
    assert_false(checkpoint_get_evaluation(written, &loss));
    assert_int_equal(checkpoint_put_evaluation(written, exact, NULL), DSMOE_OK);
    assert_true(checkpoint_get_evaluation(written, &loss) && loss == exact);
    assert_int_equal(checkpoint_put_evaluation(written, NAN, NULL), DSMOE_OK);
    assert_true(checkpoint_get_evaluation(written, &loss) && isnan(loss));
    write_to(tiny_path(written, "evaluation.json"), "mine\n", 5);
    assert_false(checkpoint_get_evaluation(written, &loss));
    write_step(t, 40);
    prune(1, -1);
    assert_false(has_step(30));
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

/* ---- files that cannot be opened ------------------------------------------------------------- */

static const char *denied; /* a name; NULL: none */

int __real_open(const char *file, int flags, mode_t mode);
int __wrap_open(const char *file, int flags, mode_t mode);
int __wrap_open(const char *file, int flags, mode_t mode)
{
    if (denied && strstr(file, denied)) {
        errno = EACCES;
        return -1;
    }
    return __real_open(file, flags, mode);
}

/* The error is about reading; the checkpoint is not reported as damaged. */
static void test_denied(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    const char *written = write_step(t, 30);
    static const char *const names[] = {"training.safetensors", "config.json", "model.safetensors"};
    for (int i = 0; i < 3; i++) {
        checkpoint_state read;
        dsmoe_error error;
        denied = names[i];
        assert_int_equal(checkpoint_check(written, &read, &error), DSMOE_ERROR_IO);
        denied = NULL;
        if (!strstr(error.message, names[i])) fail_msg("%s", error.message);
        assert_int_equal(unlink(tiny_path(written, names[i])), 0);
        assert_int_equal(checkpoint_check(written, &read, &error), DSMOE_ERROR_FORMAT);
        if (!strstr(error.message, "missing")) fail_msg("%s", error.message);
        written = write_step(t, 30);
    }
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void assert_damaged(const char *written, const char *file)
{
    checkpoint_state read;
    dsmoe_error error = {0};
    dsmoe_trainer *t = make_trainer(9);
    assert_int_not_equal(checkpoint_check(written, &read, &error), DSMOE_OK);
    if (!strstr(error.message, file)) fail_msg("'%s' does not name %s", error.message, file);
    assert_int_not_equal(checkpoint_read(written, t, &read, NULL), DSMOE_OK);
    dsmoe_trainer_free(t);
}

static void test_damage(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    const char *written = write_step(t, 200);
    static const char *const names[] = {"model.safetensors", "training.safetensors", "config.json"};
    for (int i = 0; i < 3; i++) {
        char file[TINY_PATH];
        snprintf(file, sizeof file, "%s", tiny_path(written, names[i]));
        size_t size;
        char *bytes = tiny_read(file, &size);
        /* One flipped bit, in the header and in the data, at the first and last places too. */
        for (size_t at = 8; at < size; at += at < 2000 ? 7 : size / 13) {
            bytes[at] ^= 4;
            write_to(file, bytes, size);
            checkpoint_state read, whole = make_state(200);
            dsmoe_error error = {0};
            whole.n_updates = t->n_updates;
            /* A bit of the header's padding may not matter. */
            if (checkpoint_check(written, &read, &error) == DSMOE_OK) {
                assert_string_equal(names[i], "training.safetensors");
                assert_memory_equal(&read, &whole, sizeof read);
            } else {
                assert_non_null(strstr(error.message, names[i]));
            }
            bytes[at] ^= 4;
        }
        bytes[size - 1] ^= 1;
        write_to(file, bytes, size);
        assert_damaged(written, names[i]);
        bytes[size - 1] ^= 1;
        for (size_t cut = 1; cut < size; cut += size / 7) {
            write_to(file, bytes, size - cut);
            assert_damaged(written, names[i]);
        }
        assert_int_equal(unlink(file), 0);
        assert_damaged(written, names[i]);
        write_to(file, bytes, size);
        checkpoint_state read;
        assert_int_equal(checkpoint_check(written, &read, NULL), DSMOE_OK);
        free(bytes);
    }
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

/* Intact files that belong to another checkpoint. */
static void test_swapped(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1), *u = make_trainer(2);
    char first[CHECKPOINT_PATH];
    snprintf(first, sizeof first, "%s", write_step(t, 10));
    const char *second = write_step(u, 20);
    static const char *const names[] = {"model.safetensors", "training.safetensors"};
    for (int i = 0; i < 2; i++) {
        char ours[TINY_PATH], theirs[TINY_PATH], aside[TINY_PATH];
        snprintf(ours, sizeof ours, "%s", tiny_path(first, names[i]));
        snprintf(theirs, sizeof theirs, "%s", tiny_path(second, names[i]));
        snprintf(aside, sizeof aside, "%s", tiny_path(run, "aside"));
        assert_int_equal(rename(ours, aside), 0);
        assert_int_equal(rename(theirs, ours), 0);
        assert_damaged(first, names[i]);
        assert_int_equal(rename(ours, theirs), 0);
        assert_int_equal(rename(aside, ours), 0);
    }
    /* A checkpoint is not read into a trainer of another shape. */
    dsmoe_config config = tiny_config();
    config.n_routed_experts = 5;
    dsmoe_trainer *other;
    dsmoe_error error;
    assert_int_equal(dsmoe_trainer_create(&config, &t->options, &other, &error), DSMOE_OK);
    checkpoint_state read;
    assert_int_equal(checkpoint_read(first, other, &read, &error), DSMOE_ERROR_FORMAT);
    assert_non_null(strstr(error.message, "model.safetensors"));
    dsmoe_trainer_free(other);
    dsmoe_trainer_free(t);
    dsmoe_trainer_free(u);
    tiny_remove(run);
}

/* ---- the earlier format ---------------------------------------------------------------------- */

/* Where the value of a key begins in the header of a training.safetensors. */
static char *value_at(char *header, const char *key)
{
    char quoted[80];
    snprintf(quoted, sizeof quoted, "\"%s\":\"", key);
    char *at = strstr(header, quoted);
    if (!at) fail_msg("no %s in the header", key);
    return at + strlen(quoted);
}

/* Blanks out an entry and the comma after it. */
static void blank(char *header, const char *key)
{
    char *value = value_at(header, key), *end = strchr(value, '"');
    value -= strlen(key) + 4;
    assert_true(end[1] == ',');
    memset(value, ' ', (size_t)(end + 2 - value));
}

static void add_value(hash_state *h, char *header, const char *key)
{
    const char *value = value_at(header, key);
    hash_add(h, value, strcspn(value, "\""));
    hash_add(h, "", 1);
}

static void put_digits(char *header, const char *key, uint64_t hash)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%016" PRIx64, hash);
    memcpy(value_at(header, key), digits, 16);
}

/* Replaces the hash of a file by one of the old kind. */
static void put_old_hash(const char *folder, const char *name, char *header)
{
    size_t size;
    char key[64], *bytes = tiny_read(tiny_path(folder, name), &size);
    snprintf(key, sizeof key, "hash of %s", name);
    put_digits(header, key, hash_bytes_as(HASH_OLD, bytes, size, 0));
    free(bytes);
}

/* Turns the header into format 2: with the old hashes, and without the values of the current log
 * interval. */
static void make_older(const char *folder, char *header, const char *data, size_t data_size)
{
    static const char *const gone[] = {"logged_loss",          "interval_n",
                                       "interval_loss",        "interval_aux_loss",
                                       "interval_device_loss", "interval_layers"};
    static const char *const left[] = {"format",
                                       "step",
                                       "n_updates",
                                       "n_skipped",
                                       "sequences",
                                       "data_hash",
                                       "loss",
                                       "best_loss",
                                       "best_step",
                                       "lowest_loss",
                                       "n_worse",
                                       "evaluated_step",
                                       "is_due",
                                       "kernels",
                                       "model_files",
                                       "hash of config.json",
                                       "hash of model.safetensors",
                                       "numbers_hash"};
    hash_state h;
    hash_begin_as(&h, HASH_OLD, 0);
    put_old_hash(folder, "config.json", header);
    put_old_hash(folder, "model.safetensors", header);
    put_digits(header, "numbers_hash", hash_bytes_as(HASH_OLD, data, data_size, 0));
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) blank(header, gone[i]);
    strchr(value_at(header, "format"), '4')[0] = '2';
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) add_value(&h, header, left[i]);
    put_digits(header, "state_hash", hash_end(&h));
}

static void test_format_before(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    const dsmoe_layer_losses layers[] = {{.aux_loss = 0.1f, .device_loss = 0.2f}};
    char written[CHECKPOINT_PATH];
    snprintf(
        written, sizeof written, "%s",
        write_as(t, 10, (checkpoint_options){.interval_layers = layers, .n_interval_layers = 1}));
    dsmoe_layer_losses read_layers[2];
    checkpoint_read_interval(written, read_layers, 1);
    assert_true(read_layers[0].aux_loss == 0.1f && read_layers[0].device_loss == 0.2f);
    checkpoint_read_interval(written, read_layers, 2); /* for another model */
    assert_true(read_layers[0].aux_loss == 0 && read_layers[1].device_loss == 0);
    size_t size;
    char *bytes = tiny_read(tiny_path(written, "training.safetensors"), &size);
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    char *header = strndup(bytes + 8, (size_t)length);
    make_older(written, header, bytes + 8 + length, size - 8 - (size_t)length);
    memcpy(bytes + 8, header, (size_t)length);
    write_to(tiny_path(written, "training.safetensors"), bytes, size);
    checkpoint_state read;
    dsmoe_error error;
    if (checkpoint_check(written, &read, &error)) fail_msg("%s", error.message);
    assert_true(read.step == 10 && read.logged_loss == read.loss && read.interval_n == 0);
    checkpoint_read_interval(written, read_layers, 1);
    assert_true(read_layers[0].aux_loss == 0);
    free(header);
    free(bytes);
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_model),
        cmocka_unit_test(test_again),      cmocka_unit_test(test_shards),
        cmocka_unit_test(test_bf16),       cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_denied),     cmocka_unit_test(test_damage),
        cmocka_unit_test(test_swapped),    cmocka_unit_test(test_format_before),
    };
    return cmocka_run_group_tests(tests, make_run, remove_run);
}

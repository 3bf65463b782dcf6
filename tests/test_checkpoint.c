/* test_checkpoint.c - a trainer on disk: it comes back bit for bit, damage is seen and named, and only
 * what belongs to a checkpoint is ever removed. */
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
#include "base/rng.h"
#include "formats/folder.h"
#include "same_config.h"
#include "scratch.h"
#include "tiny_run.h"
#include "train/checkpoint.h"

static char run[300];

static int make_run(void **state)
{
    if (make_directory(state)) return -1;
    snprintf(run, sizeof run, "%.250s/run", directory);
    return 0;
}

static int remove_run(void **state)
{
    tiny_remove(run);
    return remove_directory(state);
}

/* ---- help ------------------------------------------------------------------------------------ */

static dsmoe_trainer *make_trainer(uint64_t seed)
{
    dsmoe_config config = tiny_config();
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = 1;
    options.sequence_length = 4;
    options.n_threads = 1;
    dsmoe_trainer *t;
    dsmoe_error error;
    if (dsmoe_trainer_create(&config, &options, &t, &error)) fail_msg("%s", error.message);
    dsmoe_trainer_init(t, seed);
    for (size_t i = 0; i < t->n_parameters; i++) {
        const parameter *p = &t->parameters[i];
        rng_normal(t->first_moment + p->begin, p->n, seed, 2 * i, 0, 1e-3f);
        rng_uniform(t->second_moment + p->begin, p->n, seed, 2 * i + 1, 0, 0, 1e-6f);
    }
    t->n_updates = 1;
    return t;
}

static checkpoint_state make_state(int64_t step)
{
    return (checkpoint_state){.step = step,
                              .n_skipped = 1,
                              .sequences = 3 * step,
                              .data_hash = 0xfedcba9876543210u,
                              .loss = 0.1 + 0.2,
                              .best_loss = nextafter(2, 3),
                              .best_step = step - 1,
                              .lowest_loss = nextafter(1, 2),
                              .n_worse = 3,
                              .evaluated_step = step - 2,
                              .is_due = 1,
                              .logged_loss = nextafter(3, 4),
                              .interval_n = 1,
                              .interval_loss = nextafter(4, 5),
                              .interval_aux_loss = nextafter(5, 6),
                              .interval_device_loss = nextafter(6, 7),
                              .kernels = "some"};
}

/* The path of what was written. */
static const char *write_as(dsmoe_trainer *t, int64_t step, checkpoint_options options)
{
    static char written[CHECKPOINT_PATH];
    checkpoint_state state = make_state(step);
    dsmoe_error error;
    if (checkpoint_write(run, t, &options, &state, written, &error)) fail_msg("%s", error.message);
    return written;
}

static const char *write_step(dsmoe_trainer *t, int64_t step)
{
    return write_as(t, step, (checkpoint_options){0});
}

static bool has_step(int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08" PRId64, step);
    return tiny_exists(tiny_path(run, name));
}

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

static void prune(int64_t keep, int64_t best_step)
{
    dsmoe_error error;
    if (checkpoint_prune(run, keep, best_step, &error)) fail_msg("%s", error.message);
}

static void assert_link(const char *name, const char *target)
{
    char found[256] = "";
    if (readlink(tiny_path(run, name), found, sizeof found - 1) < 0 || strcmp(found, target))
        fail_msg("%s leads to '%s', not '%s'", name, found, target);
}

static void touch(const char *file)
{
    FILE *f = fopen(file, "w");
    if (!f) fail_msg("%s: %s", file, strerror(errno));
    fputs("mine\n", f);
    fclose(f);
}

/* ---- there and back -------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1), *u = make_trainer(2);
    /* What no float arithmetic could bring back. */
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

/* Without knowing where it comes from. */
static void test_model(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(3);
    touch(tiny_path(directory, "tokenizer.json"));
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

    /* One without the tokenizer that it should have is none. */
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

/* The same step again: the new one is there, the old one gone. */
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

/* Several files of weights, as a large model has: a model that opens, a trainer that comes back, damage
 * that is named, and nothing left when it goes. */
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

/* Weights for others to load in half the bytes, and the exact ones to go on with. */
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
    touch(tiny_path(written, "evaluation.json"));
    assert_false(checkpoint_get_evaluation(written, &loss));
    write_step(t, 40);
    prune(1, -1);
    assert_false(has_step(30));
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

/* ---- the disk -------------------------------------------------------------------------------- */

/* The link that the run's folder had when it was last synced: what is found after a power loss. */
static char synced_link[256];

int __wrap_fsync(int descriptor);
int __wrap_fsync(int descriptor)
{
    struct stat synced, folder;
    char link[sizeof synced_link] = "";
    if (fstat(descriptor, &synced) == 0 && stat(run, &folder) == 0 &&
        synced.st_ino == folder.st_ino && synced.st_dev == folder.st_dev &&
        readlink(tiny_path(run, "latest"), link, sizeof link - 1) > 0)
        memcpy(synced_link, link, sizeof link);
    return 0;
}

/* Before an older checkpoint goes nothing on the disk may lead to it any more. */
static void test_links_are_synced(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    write_step(t, 1);
    assert_string_equal(synced_link, "checkpoints/step-00000001");
    write_step(t, 2);
    assert_string_equal(synced_link, "checkpoints/step-00000002");
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

/* ---- files that cannot be opened just now ---------------------------------------------------- */

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

/* Nothing is known of the checkpoint then, least of all that it is damaged. */
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

static void write_file(const char *file, const char *bytes, size_t size)
{
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

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
        /* One bit, in the header and in the data, first and last among them. */
        for (size_t at = 8; at < size; at += at < 2000 ? 7 : size / 13) {
            bytes[at] ^= 4;
            write_file(file, bytes, size);
            checkpoint_state read, whole = make_state(200);
            dsmoe_error error = {0};
            whole.n_updates = t->n_updates;
            /* A bit of the header's padding may mean nothing. */
            if (checkpoint_check(written, &read, &error) == DSMOE_OK) {
                assert_string_equal(names[i], "training.safetensors");
                assert_memory_equal(&read, &whole, sizeof read);
            } else {
                assert_non_null(strstr(error.message, names[i]));
            }
            bytes[at] ^= 4;
        }
        bytes[size - 1] ^= 1;
        write_file(file, bytes, size);
        assert_damaged(written, names[i]);
        bytes[size - 1] ^= 1;
        for (size_t cut = 1; cut < size; cut += size / 7) {
            write_file(file, bytes, size - cut);
            assert_damaged(written, names[i]);
        }
        assert_int_equal(unlink(file), 0);
        assert_damaged(written, names[i]);
        write_file(file, bytes, size);
        checkpoint_state read;
        assert_int_equal(checkpoint_check(written, &read, NULL), DSMOE_OK);
        free(bytes);
    }
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

/* Whole files that belong to another checkpoint. */
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
    /* A trainer of another shape is not filled. */
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

/* ---- the format before ----------------------------------------------------------------------- */

/* Where the value of a key begins in the header of a training.safetensors. */
static char *value_at(char *header, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":\"", key);
    char *at = strstr(header, quoted);
    if (!at) fail_msg("no %s in the header", key);
    return at + strlen(quoted);
}

/* Takes an entry out, with the comma after it. */
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

/* The header as the format before has it: without what the log has begun. */
static void make_older(char *header)
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
    hash_begin(&h, 0);
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) blank(header, gone[i]);
    strchr(value_at(header, "format"), '3')[0] = '2';
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) add_value(&h, header, left[i]);
    char digits[24];
    snprintf(digits, sizeof digits, "%016" PRIx64, hash_end(&h));
    memcpy(value_at(header, "state_hash"), digits, 16);
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
    checkpoint_read_interval(written, read_layers, 2); /* of another model */
    assert_true(read_layers[0].aux_loss == 0 && read_layers[1].device_loss == 0);
    size_t size;
    char *bytes = tiny_read(tiny_path(written, "training.safetensors"), &size);
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    char *header = strndup(bytes + 8, (size_t)length);
    make_older(header);
    memcpy(bytes + 8, header, (size_t)length);
    FILE *file = fopen(tiny_path(written, "training.safetensors"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
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

/* ---- which stay ------------------------------------------------------------------------------ */

/* The step of the newest checkpoint below a step. */
static int64_t newest(int64_t below, char found[CHECKPOINT_PATH])
{
    int64_t step = 0;
    assert_int_equal(checkpoint_newest(run, below, &step, found, NULL), DSMOE_OK);
    return step;
}

static void test_newest(void **state)
{
    (void)state;
    char found[CHECKPOINT_PATH];
    assert_int_equal(newest(INT64_MAX, found), -1); /* no run at all */
    assert_int_equal(folder_make(tiny_path(run, "checkpoints/.step-00000900.partial"), NULL), 0);
    assert_int_equal(newest(INT64_MAX, found), -1);
    static const char *const names[] = {
        "step-00000005",      "step-00000020",         "step-123456789", "step-20",
        "step-00000020.copy", "damaged-step-00009999", "step-000000099", "step-"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "checkpoints/%s", names[i]);
        assert_int_equal(folder_make(tiny_path(run, name), NULL), DSMOE_OK);
    }
    assert_int_equal(newest(INT64_MAX, found), 123456789);
    assert_string_equal(found, tiny_path(run, "checkpoints/step-123456789"));
    assert_int_equal(newest(123456789, found), 20);
    assert_int_equal(newest(20, found), 5);
    assert_string_equal(found, tiny_path(run, "checkpoints/step-00000005"));
    assert_int_equal(newest(5, found), -1);
    tiny_remove(run);
}

/* What cannot be listed is not taken for empty. */
static void test_newest_unknown(void **state)
{
    (void)state;
    char found[CHECKPOINT_PATH];
    int64_t step = 7;
    dsmoe_error error = {0};
    assert_int_equal(folder_make(run, NULL), DSMOE_OK);
    touch(tiny_path(run, "checkpoints")); /* no folder */
    assert_int_equal(checkpoint_newest(run, INT64_MAX, &step, found, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "checkpoints: cannot read the folder"));
    assert_int_equal(step, -1);
    assert_int_equal(checkpoint_prune(run, 1, -1, &error), DSMOE_ERROR_IO);
    tiny_remove(run);
}

/* Links lead to what is there, or are not there. */
static void test_mend_links(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    for (int64_t step = 1; step <= 3; step++) write_step(t, step);
    prune(3, 3);
    checkpoint_mend_links(run, 2, 1); /* both lead somewhere */
    assert_link("latest", "checkpoints/step-00000003");
    assert_link("best", "checkpoints/step-00000003");
    assert_int_equal(checkpoint_set_aside(run, 3, NULL), DSMOE_OK);
    checkpoint_mend_links(run, 2, 1);
    assert_link("latest", "checkpoints/step-00000002");
    assert_link("best", "checkpoints/step-00000001");
    tiny_remove(tiny_path(run, "checkpoints/step-00000001"));
    checkpoint_mend_links(run, 2, 1);
    assert_false(tiny_exists(tiny_path(run, "best")));
    assert_link("latest", "checkpoints/step-00000002");
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

static void test_prune(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    for (int64_t step = 1; step <= 5; step++) write_step(t, step);
    prune(2, 1);
    assert_link("best", "checkpoints/step-00000001");
    assert_link("latest", "checkpoints/step-00000005");
    assert_true(has_step(1) && has_step(4) && has_step(5));
    assert_false(has_step(2) || has_step(3));
    prune(0, 4); /* the newest stays whatever was asked for */
    assert_link("best", "checkpoints/step-00000004");
    assert_true(has_step(4) && has_step(5));
    assert_false(has_step(1));
    prune(1, -1);
    assert_true(has_step(5));
    assert_false(has_step(4));
    checkpoint_state read;
    assert_int_equal(checkpoint_check(tiny_path(run, "latest"), &read, NULL), DSMOE_OK);
    /* Nothing else is left of those that went. */
    for (int step = 1; step <= 4; step++) {
        char name[64];
        snprintf(name, sizeof name, "checkpoints/.step-%08d.old", step);
        assert_false(tiny_exists(tiny_path(run, name)));
    }
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

static void test_foreign_files(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    for (int64_t step = 1; step <= 3; step++) write_step(t, step);
    touch(tiny_path(run, "checkpoints/step-00000001/notes.txt"));
    assert_int_equal(folder_make(tiny_path(run, "checkpoints/step-00000002/mine"), NULL), DSMOE_OK);
    touch(tiny_path(run, "checkpoints/other"));
    prune(1, -1);
    checkpoint_state read;
    for (int step = 1; step <= 3; step++) { /* whole, as they were */
        char name[64];
        snprintf(name, sizeof name, "checkpoints/step-%08d", step);
        assert_int_equal(checkpoint_check(tiny_path(run, name), &read, NULL), DSMOE_OK);
    }
    assert_true(tiny_exists(tiny_path(run, "checkpoints/step-00000001/notes.txt")));
    assert_true(tiny_exists(tiny_path(run, "checkpoints/other")));
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

/* What a writer that was killed left, also with a file that it did not write. */
static void test_sweep(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    write_step(t, 3);
    static const char *const folders[] = {"checkpoints/.step-00000004.partial",
                                          "checkpoints/.step-00000001.old",
                                          "checkpoints/.step-00000002.old"};
    for (int i = 0; i < 3; i++) {
        char left[TINY_PATH];
        snprintf(left, sizeof left, "%s", tiny_path(run, folders[i]));
        assert_int_equal(folder_make(left, NULL), DSMOE_OK);
        touch(tiny_path(left, "model.safetensors.partial"));
        touch(tiny_path(left, "config.json"));
    }
    prune(1, -1);
    for (int i = 0; i < 3; i++) assert_false(tiny_exists(tiny_path(run, folders[i])));
    assert_true(has_step(3));

    assert_int_equal(folder_make(tiny_path(run, folders[0]), NULL), DSMOE_OK);
    touch(tiny_path(run, "checkpoints/.step-00000004.partial/mine"));
    prune(1, -1);
    assert_true(tiny_exists(tiny_path(run, "checkpoints/.step-00000004.partial/mine")));
    /* The next one writes there all the same. */
    write_step(t, 4);
    prune(1, -1);
    assert_true(has_step(4));
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

static void test_links(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    /* A folder of somebody's where the link would be: it stays, and nothing fails. */
    assert_int_equal(folder_make(tiny_path(run, "latest/mine"), NULL), DSMOE_OK);
    write_step(t, 1);
    prune(1, 1);
    assert_true(tiny_exists(tiny_path(run, "latest/mine")));
    assert_link("best", "checkpoints/step-00000001");
    prune(1, 77); /* not there: the link stays what it is */
    assert_link("best", "checkpoints/step-00000001");
    /* One that was left half-way, and a link that leads nowhere. */
    assert_int_equal(symlink("nowhere", tiny_path(run, ".best.partial")), 0);
    write_step(t, 2);
    prune(1, 2);
    assert_link("best", "checkpoints/step-00000002");
    assert_false(tiny_exists(tiny_path(run, ".best.partial")));
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

static void test_set_aside(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    for (int i = 0; i < 2; i++) { /* the second time something is there */
        write_step(t, 6);
        assert_int_equal(checkpoint_set_aside(run, 6, NULL), DSMOE_OK);
        assert_false(has_step(6));
        assert_true(
            tiny_exists(tiny_path(run, "checkpoints/damaged-step-00000006/model.safetensors")));
    }
    dsmoe_error error;
    assert_int_equal(checkpoint_set_aside(run, 7, &error), DSMOE_ERROR_IO);
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

/* ---- folders --------------------------------------------------------------------------------- */

static void test_folder_make(void **state)
{
    (void)state;
    dsmoe_error error;
    assert_int_equal(folder_make(tiny_path(run, "a//b/c/"), &error), DSMOE_OK);
    assert_int_equal(folder_make(tiny_path(run, "a/b/c"), &error), DSMOE_OK);
    assert_true(tiny_exists(tiny_path(run, "a/b/c")));
    touch(tiny_path(run, "a/file"));
    assert_int_equal(folder_make(tiny_path(run, "a/file/b"), &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "a/file/b: cannot create"));
    assert_int_equal(folder_make(tiny_path(run, "a/file"), &error), DSMOE_ERROR_IO);
    assert_int_equal(folder_sync(tiny_path(run, "none"), &error), DSMOE_ERROR_IO);
    assert_int_equal(folder_copy(tiny_path(run, "a"), "none", run, true, &error), DSMOE_ERROR_IO);
    assert_int_equal(folder_copy(tiny_path(run, "a"), "none", run, false, &error), DSMOE_OK);
    assert_int_equal(folder_copy(tiny_path(run, "a"), "file", run, false, &error), DSMOE_OK);
    tiny_assert_same(tiny_path(run, "file"), tiny_path(run, "a/file"));
    assert_int_equal(folder_copy(tiny_path(run, "a/file"), "copy", run, true, &error), DSMOE_OK);
    tiny_assert_same(tiny_path(run, "copy"), tiny_path(run, "a/file"));
    tiny_remove(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_links_are_synced),
        cmocka_unit_test(test_denied),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_swapped),
        cmocka_unit_test(test_format_before),
        cmocka_unit_test(test_newest),
        cmocka_unit_test(test_newest_unknown),
        cmocka_unit_test(test_mend_links),
        cmocka_unit_test(test_prune),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_set_aside),
        cmocka_unit_test(test_folder_make),
    };
    return cmocka_run_group_tests(tests, make_run, remove_run);
}

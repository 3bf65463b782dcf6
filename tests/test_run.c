/* test_run.c - training runs: what they leave behind, where the model comes from, what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "formats/folder.h"
#include "model/config_write.h"
#include "report/metrics.h"
#include "run_witness.h"
#include "scratch.h"

/* ---- faults that a test controls ------------------------------------------------------------- */

static unsigned long disk_left; /* in bytes; 0: as it is */
int __real_statvfs(const char *path, struct statvfs *disk);
int __wrap_statvfs(const char *path, struct statvfs *disk);
int __wrap_statvfs(const char *name, struct statvfs *disk)
{
    int result = __real_statvfs(name, disk);
    if (disk_left) {
        disk->f_frsize = 1;
        disk->f_bavail = disk_left;
    }
    return result;
}

static bool fail_lines; /* of the log, except the first */
dsmoe_status __real_metrics_put_step(metrics *m, const metrics_step *step, dsmoe_error *error);
dsmoe_status __wrap_metrics_put_step(metrics *m, const metrics_step *step, dsmoe_error *error);
dsmoe_status __wrap_metrics_put_step(metrics *m, const metrics_step *step, dsmoe_error *error)
{
    if (fail_lines) return status_fail(error, DSMOE_ERROR_IO, "metrics.jsonl: no space");
    return __real_metrics_put_step(m, step, error);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void test_whole_run(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "deep/er/run");
    s.keep = 1;
    witness w = {0};
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 2}, &w);
    assert_true(r.finished);
    assert_int_equal(r.step, 6);
    assert_true(r.loss == w.last_loss && r.held_out_loss > 0 && r.best_loss <= r.held_out_loss);
    assert_true(w.last_loss < w.first_loss);
    assert_int_equal(w.n_steps, 6);
    assert_int_equal(w.n_evals, 3);   /* at steps 2, 4, 6 */
    assert_int_equal(w.n_samples, 2); /* at steps 3, 6 */
    assert_int_equal(w.n_checkpoints, 3);
    assert_int_equal(w.n_messages, 0);
    assert_int_equal(w.vocab_size, 320);
    char run[TINY_PATH];
    copy_path(run, directory, "deep/er/run");
    static const char *const files[] = {"settings.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "data.cache",
                                        "metrics.jsonl",
                                        "report.html",
                                        "latest",
                                        "best"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!tiny_exists(tiny_path(run, files[i]))) fail_msg("there is no %s", files[i]);
    assert_false(tiny_exists(tiny_path(run, ".preparing")));
    assert_string_equal(r.checkpoint, tiny_path(run, "checkpoints/step-00000006"));
    assert_string_equal(r.report, tiny_path(run, "report.html"));
    assert_false(tiny_exists(tiny_path(run, "checkpoints/step-00000002")));

    /* The checkpoint is a model with its tokenizer. */
    dsmoe_model *model;
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    if (dsmoe_model_open(tiny_path(run, "best"), &model, &error)) fail_msg("%s", error.message);
    if (dsmoe_tokenizer_open(tiny_path(run, "best"), &tokenizer, &error))
        fail_msg("%s", error.message);
    assert_int_equal(dsmoe_model_config(model)->eos_token_id, dsmoe_tokenizer_eos(tokenizer));
    assert_int_equal(dsmoe_tokenizer_size(tokenizer), 300);
    dsmoe_model_free(model);
    dsmoe_tokenizer_free(tokenizer);

    /* The saved settings are those of the run, with absolute paths. */
    dsmoe_run_settings saved = dsmoe_run_settings_default();
    if (dsmoe_run_settings_read(tiny_path(run, "settings.json"), &saved, &error))
        fail_msg("%s", error.message);
    assert_true(saved.steps == 6 && saved.seq == 16 && saved.lr == 0.01);
    assert_true(saved.data[0][0] == '/' && saved.out[0] == '/' && saved.config[0] == '/');
    tiny_remove(run_folder("deep"));
}

static void test_metrics(void **state)
{
    (void)state;
    size_t size;
    char *text = tiny_read(tiny_path(run_folder("straight"), "metrics.jsonl"), &size);
    static const char *const lines[] = {"start",  "step",    "load", "eval",
                                        "sample", "routing", "end"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char type[64];
        snprintf(type, sizeof type, "{\"type\":\"%s\",", lines[i]);
        if (!strstr(text, type)) fail_msg("no line of type %s", lines[i]);
    }
    assert_non_null(strstr(text, "\"finished\":true"));
    /* Only one of two kinds has held-out text, so only that one is reported. */
    assert_true(strstr(text, "\"kinds\":[\"sums\"],\"load\":[[[") ||
                strstr(text, "\"kinds\":[\"names\"],\"load\":[[["));
    free(text);
}

/* Evaluations, samples and checkpoints do not change the model. */
static void test_looking(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "blind");
    s.eval_every = s.sample_every = s.save_every = 0;
    s.log_every = 4;
    witness w = {0};
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 3}, &w);
    assert_true(isnan(r.held_out_loss) && isnan(r.best_loss));
    assert_int_equal(w.n_evals + w.n_samples, 0);
    assert_int_equal(w.n_checkpoints, 1); /* at the end */
    assert_false(tiny_exists(tiny_path(run_folder("blind"), "best")));
    char x[TINY_PATH], y[TINY_PATH];
    copy_path(x, run_folder("blind"), "latest/model.safetensors");
    copy_path(y, run_folder("straight"), "latest/model.safetensors");
    tiny_assert_same(x, y);
    tiny_remove(run_folder("blind"));
}

/* The loss in a line is the mean since the line before: here of steps 2, 3 and 4. */
static void test_interval(void **state)
{
    (void)state;
    witness each = {0}, some = {0};
    dsmoe_run_settings s = tiny_settings(directory, "each");
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, &each);
    s = tiny_settings(directory, "some");
    s.log_every = 4;
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, &some);
    double mean = (each.losses[1] + each.losses[2] + each.losses[3]) / 3;
    assert_true(some.losses[0] == each.losses[0] && some.losses[1] == each.losses[1]);
    assert_true(fabs(some.losses[3] - mean) < 1e-12 && some.losses[4] == each.losses[4]);
    size_t size;
    char *text = tiny_read(tiny_path(run_folder("some"), "metrics.jsonl"), &size);
    const char *line = strstr(text, "{\"type\":\"step\",\"step\":4,");
    assert_non_null(line);
    assert_true(fabs(strtod(strstr(line, "\"loss\":") + 7, NULL) - mean) < 1e-5);
    free(text);
    tiny_remove(run_folder("each"));
    tiny_remove(run_folder("some"));
}

/* If the log cannot be written, lines are lost, but no steps. */
static void test_failing_metrics(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "silent");
    fail_lines = true;
    witness w = {0};
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
    fail_lines = false;
    assert_true(r.finished && w.n_messages == 1); /* reported once */
    assert_non_null(strstr(w.message, "training continues"));
    assert_same_end("straight", "silent");
    tiny_remove(run_folder("silent"));
}

/* bf16 weights in half the bytes for others to load; training continues with the exact ones. */
static void test_dtype(void **state)
{
    (void)state;
    char run[TINY_PATH];
    copy_path(run, directory, "half");
    dsmoe_run_settings s = tiny_settings(directory, "half");
    strcpy(s.dtype, "bf16");
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 3}, NULL);
    must_resume(run, 0, 2, NULL);
    dsmoe_model *half, *whole;
    assert_int_equal(dsmoe_model_open(tiny_path(run, "latest"), &half, NULL), DSMOE_OK);
    assert_int_equal(dsmoe_model_open(tiny_path(run_folder("straight"), "latest"), &whole, NULL),
                     DSMOE_OK);
    assert_int_equal(dsmoe_model_tensor(half, 3).dtype, DSMOE_BF16);
    dsmoe_model_free(half);
    dsmoe_model_free(whole);
    char x[TINY_PATH], y[TINY_PATH];
    copy_path(x, run, "latest/evaluation.json");
    copy_path(y, run_folder("straight"), "latest/evaluation.json");
    tiny_assert_same(x, y);
    tiny_remove(run);
    strcpy(s.dtype, "q4_0");
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_CONFIG, "dtype is 'q4_0'");
}

/* ---- where the model comes from -------------------------------------------------------------- */

static void test_init(void **state)
{
    (void)state;
    char run[TINY_PATH], model[TINY_PATH];
    copy_path(run, directory, "tuned");
    copy_path(model, directory, "straight/latest");
    dsmoe_run_settings s = tiny_settings(directory, "tuned");
    *s.config = '\0';
    memcpy(s.init, model, sizeof model);
    s.lr = 0; /* so that the weights do not change */
    s.steps = 1;
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    tiny_assert_same(tiny_path(run, "latest/model.safetensors"),
                     tiny_path(model, "model.safetensors"));
    tiny_assert_same(tiny_path(run, "tokenizer.json"), tiny_path(model, "tokenizer.json"));
    tiny_remove(run);

    /* A model without a tokenizer needs another tokenizer. */
    char bare[TINY_PATH];
    copy_path(bare, directory, "bare");
    assert_int_equal(folder_make(bare, NULL), DSMOE_OK);
    assert_int_equal(folder_copy(model, "config.json", bare, true, NULL), DSMOE_OK);
    assert_int_equal(folder_copy(model, "model.safetensors", bare, true, NULL), DSMOE_OK);
    memcpy(s.init, bare, sizeof bare);
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_IO, "bare: has no tokenizer.json");
    snprintf(s.tokenizer, sizeof s.tokenizer, "%s/tokenizer.json", model);
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    tiny_assert_same(tiny_path(run, "latest/model.safetensors"),
                     tiny_path(model, "model.safetensors"));
    tiny_remove(run_folder("tuned"));
    tiny_remove(run_folder("bare"));
}

static void test_preset(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "preset");
    *s.config = '\0';
    s.seq = 600;
    s.held_out = 0.5;
    witness w = {.stop_at_start = true};
    must_run(&s, (dsmoe_run_options){0}, &w);
    assert_int_equal(w.n_starts, 1);
    assert_int_equal(w.vocab_size, 320); /* 300, rounded up */
    assert_int_equal(w.max_position_embeddings, 600);
    tiny_remove(run_folder("preset"));
    s.seq = 16; /* fewer than the preset has: only these positions are learned */
    w = (witness){.stop_at_start = true};
    must_run(&s, (dsmoe_run_options){0}, &w);
    assert_int_equal(w.max_position_embeddings, 16);
    tiny_remove(run_folder("preset"));
    strcpy(s.preset, "nano");
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_ARGUMENT, "no preset 'nano'");
    tiny_remove(run_folder("preset"));
}

/* Shards of tokens need no tokenizer. Without one there are no samples. */
static void test_shard(void **state)
{
    (void)state;
    int32_t header[256] = {20240520, 1, 400};
    uint16_t tokens[400];
    for (int i = 0; i < 400; i++) tokens[i] = (uint16_t)(i * 37 % 300);
    char shard[TINY_PATH], run[TINY_PATH];
    copy_path(shard, directory, "tokens.bin");
    copy_path(run, directory, "shard");
    FILE *f = fopen(shard, "wb");
    assert_non_null(f);
    fwrite(header, sizeof header, 1, f);
    fwrite(tokens, sizeof tokens, 1, f);
    assert_int_equal(fclose(f), 0);
    dsmoe_run_settings s = tiny_settings(directory, "shard");
    memcpy(s.data[0], shard, sizeof shard);
    witness w = {0};
    dsmoe_run_result r = must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 3}, &w);
    assert_int_equal(w.n_samples, 0);
    r = must_resume(run, 0, 2, NULL);
    assert_true(r.finished);
    assert_false(tiny_exists(tiny_path(run, "tokenizer.json")));
    assert_false(tiny_exists(tiny_path(run, "latest/tokenizer.json")));
    tiny_remove(run);
    /* A token that the configuration does not have is an error that names the file. */
    f = fopen(shard, "r+b");
    assert_non_null(f);
    tokens[0] = 320;
    fseek(f, sizeof header, SEEK_SET);
    fwrite(tokens, sizeof *tokens, 1, f);
    assert_int_equal(fclose(f), 0);
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_FORMAT, "tokens.bin");
    tiny_remove(run_folder("shard"));
    tiny_remove(run_folder("tokens.bin"));
}

/* A model that is trained further keeps its number of positions if that is enough. */
static void test_positions_of_init(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "further");
    *s.config = '\0';
    copy_path(s.init, directory, "straight/latest"); /* has 16 positions */
    static const int64_t lengths[][2] = {{8, 16}, {24, 24}};
    for (int i = 0; i < 2; i++) {
        s.seq = lengths[i][0];
        witness w = {.stop_at_start = true};
        must_run(&s, (dsmoe_run_options){0}, &w);
        assert_int_equal(w.max_position_embeddings, lengths[i][1]);
        tiny_remove(run_folder("further"));
    }
}

/* ---- refused settings ------------------------------------------------------------------------ */

static void touch(const char *file, const char *text) { write_to(file, text, strlen(text)); }

static void test_folder_in_use(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "straight");
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_IO, "straight: already holds a run");

    char run[TINY_PATH];
    copy_path(run, directory, "used");
    s = tiny_settings(directory, "used");
    assert_int_equal(mkdir(run, 0777), 0);
    touch(tiny_path(run, "tokenizer.json"), "mine");
    touch(tiny_path(run, "notes.txt"), "mine");
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_IO, "used: already holds 'tokenizer.json'");
    /* Files left by an interrupted start do no harm. */
    touch(tiny_path(run, ".preparing"), "");
    touch(tiny_path(run, "tokenizer_config.json"), "rubbish");
    int lock = open(run, O_RDONLY);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_IO, "used: another process");
    close(lock);
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    assert_same_end("straight", "used");
    assert_true(tiny_exists(tiny_path(run, "notes.txt")));
    lock = open(run, O_RDONLY);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    must_fail(NULL, (dsmoe_run_options){.resume = run}, DSMOE_ERROR_IO, "used: another process");
    close(lock);
    tiny_remove(run);

    /* A tokenizer in the run's folder is used in place if it is asked for. */
    assert_int_equal(mkdir(run, 0777), 0);
    char straight[TINY_PATH];
    copy_path(straight, directory, "straight");
    assert_int_equal(folder_copy(straight, "tokenizer.json", run, true, NULL), DSMOE_OK);
    assert_int_equal(folder_copy(straight, "tokenizer_config.json", run, true, NULL), DSMOE_OK);
    memcpy(s.tokenizer, run, sizeof run);
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    assert_same_end("straight", "used");
    tiny_remove(run);
}

static void test_refused(void **state)
{
    (void)state;
    const dsmoe_run_options plain = {.n_threads = 1};
    const dsmoe_run_settings good = tiny_settings(directory, "refused");
    dsmoe_run_settings s = good;
    must_fail(NULL, plain, DSMOE_ERROR_ARGUMENT, "no settings");
    s.lr = NAN;
    must_fail(&s, plain, DSMOE_ERROR_CONFIG, "settings: lr");
    s = good;
    *s.data[0] = '\0';
    must_fail(&s, plain, DSMOE_ERROR_CONFIG, "data");
    s = good;
    *s.out = '\0';
    must_fail(&s, plain, DSMOE_ERROR_CONFIG, "out");
    s = good;
    strcat(s.data[0], "/none");
    must_fail(&s, plain, DSMOE_ERROR_IO, "text/none");
    s = good;
    memcpy(s.data[0], directory, sizeof directory); /* the run's folder is in the data */
    must_fail(&s, plain, DSMOE_ERROR_ARGUMENT, "lies in the data");
    s = good;
    strcat(s.config, "x");
    must_fail(&s, plain, DSMOE_ERROR_IO, "config.jsonx");
    s = good;
    dsmoe_config config = tiny_config();
    config.vocab_size = 299;
    assert_int_equal(mkdir(run_folder("small"), 0777), 0);
    assert_int_equal(config_write(run_folder("small"), &config, DSMOE_F32, NULL), DSMOE_OK);
    snprintf(s.config, sizeof s.config, "%s", run_folder("small")); /* or its folder */
    must_fail(&s, plain, DSMOE_ERROR_CONFIG, "config.json: a vocab_size of 299 is too small");
    tiny_remove(run_folder("small"));
    s = good;
    s.seq = 100000;
    must_fail(&s, plain, DSMOE_ERROR_ARGUMENT, "sequence");
    s = good;
    s.device_groups = 3; /* does not divide 4 experts */
    must_fail(&s, plain, DSMOE_ERROR_ARGUMENT, "3 device groups");
    s = good;
    snprintf(s.out, sizeof s.out, "%.256s/config.json", directory);
    must_fail(&s, plain, DSMOE_ERROR_IO, "config.json: cannot create");
    tiny_remove(run_folder("refused"));
    char folder[TINY_PATH];
    copy_path(folder, directory, "nowhere");
    must_fail(NULL, (dsmoe_run_options){.resume = folder}, DSMOE_ERROR_IO,
              "nowhere: not a training run");
    copy_path(folder, directory, "text");
    must_fail(NULL, (dsmoe_run_options){.resume = folder}, DSMOE_ERROR_IO,
              "text: not a training run");
}

/* ---- failing starts -------------------------------------------------------------------------- */

/* A disk without room for one checkpoint is reported before the first step, not at the first save. */
static void test_small_disk(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "full");
    disk_left = 1000;
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_IO, "the disk has 0 MB left");
    disk_left = 400000; /* room for one checkpoint, not for all */
    witness w = {0};
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, &w);
    assert_int_equal(w.n_messages, 1);
    assert_non_null(strstr(w.message, "checkpoints can take up to"));
    disk_left = 0;
    tiny_remove(run_folder("full"));
}

static void test_small_memory(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "large");
    *s.config = '\0';
    strcpy(s.preset, "16b");
    must_fail(&s, (dsmoe_run_options){.n_threads = 1}, DSMOE_ERROR_MEMORY, "GB is available here");
    assert_false(tiny_exists(run_folder("large")));
}

/* Whatever the error, only what was there before is left. */
static void test_no_debris(void **state)
{
    (void)state;
    const dsmoe_run_options plain = {.n_threads = 1};
    dsmoe_run_settings s = tiny_settings(directory, "failed/deep/run");
    s.seq = 100000; /* longer than the text: found after the tokenizer is trained */
    must_fail(&s, plain, DSMOE_ERROR_ARGUMENT, "");
    assert_false(tiny_exists(run_folder("failed")));

    char run[TINY_PATH];
    copy_path(run, directory, "failed");
    assert_int_equal(mkdir(run, 0777), 0);
    touch(tiny_path(run, "notes.txt"), "mine");
    s = tiny_settings(directory, "failed");
    s.seq = 100000;
    must_fail(&s, plain, DSMOE_ERROR_ARGUMENT, "");
    assert_int_equal(unlink(tiny_path(run, "notes.txt")), 0);
    assert_int_equal(rmdir(run), 0); /* the folder was empty */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_run),     cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_looking),       cmocka_unit_test(test_init),
        cmocka_unit_test(test_preset),        cmocka_unit_test(test_shard),
        cmocka_unit_test(test_folder_in_use), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_interval),      cmocka_unit_test(test_failing_metrics),
        cmocka_unit_test(test_dtype),         cmocka_unit_test(test_positions_of_init),
        cmocka_unit_test(test_small_disk),    cmocka_unit_test(test_small_memory),
        cmocka_unit_test(test_no_debris),
    };
    return cmocka_run_group_tests(tests, make_straight_run, remove_straight_run);
}

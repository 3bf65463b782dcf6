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
#include <unistd.h>

#include "formats/folder.h"
#include "model/config_write.h"
#include "run_witness.h"
#include "scratch.h"

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
    assert_int_equal(w.n_evals, 3);   /* 2, 4, 6 */
    assert_int_equal(w.n_samples, 2); /* 3, 6 */
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

    /* It is a model, and its tokenizer is there. */
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

    /* Settings name no file by a relative path, and are those of the run. */
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
    assert_non_null(strstr(text, "\"sums\"")); /* a kind of text */
    free(text);
}

/* Whoever looks changes nothing. */
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
    s.lr = 0; /* the weights stay what they are */
    s.steps = 1;
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    tiny_assert_same(tiny_path(run, "latest/model.safetensors"),
                     tiny_path(model, "model.safetensors"));
    tiny_assert_same(tiny_path(run, "tokenizer.json"), tiny_path(model, "tokenizer.json"));
    tiny_remove(run);

    /* A model without a tokenizer needs one beside it. */
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
    s.held_out = 0.2;
    witness w = {.stop_at_start = true};
    must_run(&s, (dsmoe_run_options){0}, &w);
    assert_int_equal(w.n_starts, 1);
    assert_int_equal(w.vocab_size, 320); /* 300 rounded up */
    assert_int_equal(w.max_position_embeddings, 600);
    tiny_remove(run_folder("preset"));
    strcpy(s.preset, "nano");
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_ARGUMENT, "no preset 'nano'");
    tiny_remove(run_folder("preset"));
}

/* Tokens that are tokens already need no tokenizer; there is then nothing to read in a sample. */
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
    /* One that the configuration does not have is an error that names the file. */
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

/* ---- what is refused ------------------------------------------------------------------------- */

static void touch(const char *file, const char *text)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

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
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_IO, "used: already holds tokenizer.json");
    /* What an interrupted start left is no obstacle. */
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

    /* A tokenizer that lies there and is asked for is used where it is. */
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
    memcpy(s.data[0], directory, sizeof directory); /* and the run lies in it */
    must_fail(&s, plain, DSMOE_ERROR_ARGUMENT, "lies in the data");
    s = good;
    strcat(s.config, "x");
    must_fail(&s, plain, DSMOE_ERROR_IO, "config.jsonx");
    s = good;
    dsmoe_config config = tiny_config();
    config.vocab_size = 299;
    assert_int_equal(mkdir(run_folder("small"), 0777), 0);
    assert_int_equal(config_write(run_folder("small"), &config, DSMOE_F32, NULL), DSMOE_OK);
    snprintf(s.config, sizeof s.config, "%s", run_folder("small")); /* its folder does as well */
    must_fail(&s, plain, DSMOE_ERROR_CONFIG, "config.json: a vocab_size of 299 is too small");
    tiny_remove(run_folder("small"));
    s = good;
    s.seq = 100000;
    must_fail(&s, plain, DSMOE_ERROR_ARGUMENT, "sequence");
    s = good;
    s.device_groups = 3; /* do not divide 4 experts */
    must_fail(&s, plain, DSMOE_ERROR_ARGUMENT, "3 device groups");
    s = good;
    snprintf(s.out, sizeof s.out, "%.256s/config.json", directory);
    must_fail(&s, plain, DSMOE_ERROR_IO, "config.json: cannot create");
    tiny_remove(run_folder("refused"));
    char folder[TINY_PATH];
    copy_path(folder, directory, "nowhere");
    must_fail(NULL, (dsmoe_run_options){.resume = folder}, DSMOE_ERROR_IO, "nowhere: holds no run");
    copy_path(folder, directory, "text");
    must_fail(NULL, (dsmoe_run_options){.resume = folder}, DSMOE_ERROR_IO, "text: holds no run");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_run),     cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_looking),       cmocka_unit_test(test_init),
        cmocka_unit_test(test_preset),        cmocka_unit_test(test_shard),
        cmocka_unit_test(test_folder_in_use), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_straight_run, remove_straight_run);
}

/* test_settings.c - the settings of a run: written settings are read back unchanged, and invalid ones are
 * refused with a message that names the file and the key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scratch.h"
#include "tiny_run.h"
#include "train/settings.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static dsmoe_status read_text(const char *text, dsmoe_run_settings *s, dsmoe_error *error)
{
    write_bytes(text, strlen(text));
    return dsmoe_run_settings_read(path, s, error);
}

static void test_defaults(void **state)
{
    (void)state;
    dsmoe_run_settings s = dsmoe_run_settings_default();
    assert_int_equal(settings_check(&s, "here", NULL), DSMOE_OK);
    assert_string_equal(s.schedule, "step");
    assert_int_equal(s.batch * s.seq, 2048);
    assert_true(s.beta2 == 0.95 && s.weight_decay == 0.1 && s.clip == 1);
    dsmoe_run_settings before = s;
    assert_int_equal(read_text("{}", &s, NULL), DSMOE_OK);
    assert_memory_equal(&s, &before, sizeof s);
}

/* The paper's settings: 100B tokens in batches of 4M, 2T tokens in batches of 18M. */
static void test_paper(void **state)
{
    (void)state;
    static const struct {
        const char *path, *preset;
        double tokens, batch, lr, alpha;
    } sizes[] = {{TEST_DATA "/../../settings/2b.json", "2b", 100e9, 4e6, 1.08e-3, 0.01},
                 {TEST_DATA "/../../settings/16b.json", "16b", 2e12, 18e6, 4.2e-4, 0.001}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        dsmoe_run_settings s = dsmoe_run_settings_default();
        dsmoe_error error = {0};
        if (dsmoe_run_settings_read(sizes[i].path, &s, &error) != DSMOE_OK)
            fail_msg("%s", error.message);
        double batch = (double)(s.batch * s.accumulate * s.seq);
        assert_string_equal(s.preset, sizes[i].preset);
        assert_true(fabs(batch / sizes[i].batch - 1) < 0.06);
        assert_true(fabs(batch * (double)s.steps / sizes[i].tokens - 1) < 0.06);
        assert_true(s.lr == sizes[i].lr && s.aux_loss_alpha == sizes[i].alpha);
        assert_true(s.warmup == 2000 && s.init_std == 0.006 && s.weight_decay == 0.1 &&
                    s.clip == 1 && s.beta1 == 0.9 && s.beta2 == 0.95);
        assert_string_equal(s.schedule, "step");
    }
}

/* Settings in which every member differs from its default. */
static dsmoe_run_settings unusual(void)
{
    dsmoe_run_settings s = dsmoe_run_settings_default();
    strcpy(s.data[0], "a \"quoted\" path\\with ü");
    strcpy(s.data[1], "second");
    strcpy(s.out, "out");
    strcpy(s.tokenizer, "t");
    strcpy(s.config, "c");
    s.model = (dsmoe_model_sizes){20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 34, 35};
    s.vocab_size = 300;
    s.steps = 17;
    s.batch = 3;
    s.seq = 5;
    s.accumulate = 7;
    s.lr = 0.1 + 0.2; /* needs 17 digits */
    strcpy(s.schedule, "cosine");
    s.warmup = 2;
    s.weight_decay = 1.0 / 3;
    s.clip = 0;
    s.beta1 = 0.123456789012345678;
    s.beta2 = 0.5;
    s.eps = 1e-300 * 1e280;
    s.aux_loss_alpha = 0.003;
    s.device_groups = 2;
    s.device_loss_alpha = 0.01;
    s.bias_speed = 0.002;
    s.init_std = 0.006;
    s.recompute = true;
    s.seed = (1ll << 53) - 1;
    s.held_out = 0.25;
    s.eval_every = 11;
    s.eval_sequences = 12;
    s.patience = 20;
    s.sample_every = 13;
    s.sample_tokens = 14;
    strcpy(s.sample_prompt, "Once\nupon");
    s.save_every = 15;
    s.keep = 16;
    strcpy(s.dtype, "bf16");
    s.log_every = 18;
    s.report_every = 19;
    return s;
}

static void test_round_trip(void **state)
{
    (void)state;
    dsmoe_run_settings written = unusual(), read = dsmoe_run_settings_default();
    dsmoe_error error;
    if (settings_write(directory, &written, &error)) fail_msg("%s", error.message);
    const char *file = tiny_path(directory, "settings.json");
    if (dsmoe_run_settings_read(file, &read, &error)) fail_msg("%s", error.message);
    assert_memory_equal(&read, &written, sizeof read);
    /* A file changes only the settings that it gives. */
    dsmoe_run_settings before = read;
    assert_int_equal(read_text("{\"steps\": 3, \"data\": [\"x\"]}", &read, &error), DSMOE_OK);
    assert_int_equal(read.steps, 3);
    assert_string_equal(read.data[0], "x");
    assert_string_equal(read.data[1], "");
    read.steps = before.steps;
    memcpy(read.data, before.data, sizeof read.data);
    assert_memory_equal(&read, &before, sizeof read);
    assert_int_equal(unlink(file), 0);
}

static void test_one_line(void **state)
{
    (void)state;
    dsmoe_run_settings written = unusual(), read = dsmoe_run_settings_default();
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    settings_put(file, &written);
    assert_int_equal(fclose(file), 0);
    size_t size;
    char *text = tiny_read(path, &size);
    assert_null(strchr(text, '\n'));
    free(text);
    assert_int_equal(dsmoe_run_settings_read(path, &read, NULL), DSMOE_OK);
    assert_memory_equal(&read, &written, sizeof read);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"{\"step\": 3}", "there is no setting 'step'"},
        {"{\"steps\": 3.0}", "steps must be an integer"},
        {"{\"steps\": \"3\"}", "steps must be an integer"},
        {"{\"steps\": null}", "steps must be an integer, not null"},
        {"{\"steps\": 0}", "steps is 0"},
        {"{\"steps\": -5}", "steps is -5"},
        {"{\"steps\": 9223372036854775807}", "steps is"},
        {"{\"steps\": 99999999999999999999}", "settings"},
        {"{\"warmup\": -2}", "warmup is -2"},
        {"{\"lr\": \"fast\"}", "lr must be a number"},
        {"{\"lr\": -0.5}", "lr is -0.5"},
        {"{\"lr\": 1e400}", "settings"},
        {"{\"lr\": NaN}", "settings"},
        {"{\"beta1\": 1}", "beta1 is 1"},
        {"{\"eps\": 0}", "eps is 0"},
        {"{\"init_std\": -0.1}", "init_std is -0.1"},
        {"{\"recompute\": 1}", "recompute must be true or false"},
        {"{\"data\": \"x\"}", "data must be an array"},
        {"{\"data\": [1]}", "data must be a string"},
        {"{\"out\": 7}", "out must be a string"},
        {"{\"preset\": \"0123456789012345678901234567890123456789\"}", "preset has 40 bytes"},
        {"{\"schedule\": \"linear\"}", "schedule is 'linear'"},
        {"{\"preset\": \"tiny\", \"init\": \"m\"}", "only one of config, preset and init"},
        {"{\"patience\": -1}", "patience is -1"},
        {"{\"patience\": 3, \"eval_every\": 0}", "patience counts evaluations"},
        {"{\"keep\": 0}", "keep is 0"},
        {"{\"hidden_size\": 0}", "hidden_size is 0"},
        {"{\"n_shared_experts\": -2}", "n_shared_experts is -2"},
        {"{\"held_out\": 1}", "held_out is 1"},
        {"{\"seed\": -1}", "seed is -1"},
        {"{\"steps\": 1, \"steps\": 2}", "settings"},
        {"{\"steps\": 1000000000, \"batch\": 65536, \"accumulate\": 65536, \"seq\": 1024}",
         "too many tokens"},
        {"[]", "must be an object"},
        {"", "settings"},
        {"{", "settings"},
    };
    char settings_path[300];
    snprintf(settings_path, sizeof settings_path, "%s", path);
    for (size_t i = 0; i < COUNT(cases); i++) {
        dsmoe_run_settings s = unusual(), before = s;
        dsmoe_error error = {0};
        if (*s.config && strstr(cases[i].text, "preset")) *s.config = *before.config = '\0';
        assert_int_not_equal(read_text(cases[i].text, &s, &error), DSMOE_OK);
        const char *words = strcmp(cases[i].words, "settings") ? cases[i].words : settings_path;
        if (strncmp(error.message, path, strlen(path)) || !strstr(error.message, words))
            fail_msg("%s: '%s' does not say '%s'", cases[i].text, error.message, cases[i].words);
        assert_memory_equal(&s, &before, sizeof s); /* nothing was changed */
    }
    dsmoe_run_settings s = unusual();
    char many[4096] = "{\"data\": [";
    for (int i = 0; i < DSMOE_MAX_DATA + 1; i++) strcat(many, i ? ", \"x\"" : "\"x\"");
    strcat(many, "]}");
    dsmoe_error error;
    assert_int_not_equal(read_text(many, &s, &error), DSMOE_OK);
    assert_non_null(strstr(error.message, "data has 17 entries"));
    assert_int_equal(dsmoe_run_settings_read(tiny_path(directory, "none"), &s, &error),
                     DSMOE_ERROR_IO);
}

/* Settings that do not come from a file are checked, too. */
static void test_check(void **state)
{
    (void)state;
    dsmoe_error error;
    dsmoe_run_settings s = unusual();
    assert_int_equal(settings_check(&s, "here", NULL), DSMOE_OK);
    s.lr = NAN;
    assert_int_equal(settings_check(&s, "here", &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "here: lr"));
    s = unusual();
    s.clip = INFINITY;
    assert_int_equal(settings_check(&s, "here", &error), DSMOE_ERROR_CONFIG);
    s = unusual();
    memset(s.out, 'x', sizeof s.out); /* without a NUL */
    assert_int_equal(settings_check(&s, "here", &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "here: out has more than"));
    s = unusual();
    strcpy(s.data[1], "\xff\xfe");
    assert_int_equal(settings_check(&s, "here", &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "here: data is not UTF-8"));
}

static void test_schedule(void **state)
{
    (void)state;
    dsmoe_run_settings s = dsmoe_run_settings_default();
    dsmoe_schedule schedule = settings_schedule(&s);
    assert_int_equal(schedule.kind, DSMOE_SCHEDULE_STEP);
    assert_int_equal(schedule.n_warmup, 50);
    assert_int_equal(schedule.n_steps, 1000);
    s.steps = 1000000;
    assert_int_equal(settings_schedule(&s).n_warmup, 2000);
    s.warmup = 0;
    strcpy(s.schedule, "constant");
    schedule = settings_schedule(&s);
    assert_int_equal(schedule.kind, DSMOE_SCHEDULE_CONSTANT);
    assert_int_equal(schedule.n_warmup, 0);
    strcpy(s.schedule, "cosine");
    assert_int_equal(settings_schedule(&s).kind, DSMOE_SCHEDULE_COSINE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_one_line), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_check),    cmocka_unit_test(test_schedule),
        cmocka_unit_test(test_paper),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

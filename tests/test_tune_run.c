/* test_tune_run.c - runs that train a part of a model: what their checkpoints contain, that they are
 * resumed to the same bits, alone or with ranks, and only with the base model they started from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_witness.h"
#include "scratch.h"
#include "socket_peers.h"

/* ---- settings ---------------------------------------------------------------------------------- */

/* The base model is the last checkpoint of the run "straight". */
static dsmoe_run_settings tune_settings(const char *name, const char *train)
{
    dsmoe_run_settings s = tiny_settings(directory, name);
    *s.config = '\0';
    snprintf(s.init, sizeof s.init, "%s/latest", run_folder("straight"));
    snprintf(s.train, sizeof s.train, "%s", train);
    snprintf(s.targets, sizeof s.targets, "attention,shared,dense,routed");
    s.rank = 3;
    return s;
}

static char *latest(const char *run, const char *name)
{
    static char paths[4][2 * TINY_PATH];
    static int next;
    char *at = paths[next++ % 4];
    snprintf(at, sizeof paths[0], "%s/latest/%s", run_folder(run), name);
    return at;
}

static bool has(const char *run, const char *name) { return tiny_exists(latest(run, name)); }

static void assert_same(const char *a, const char *b, const char *name)
{
    tiny_assert_same(latest(a, name), latest(b, name));
}

/* ---- low-rank adapters ------------------------------------------------------------------------- */

static void test_lora(void **state)
{
    (void)state;
    dsmoe_run_settings s = tune_settings("lora", "lora");
    must_run(&s, (dsmoe_run_options){.n_threads = 2}, NULL);
    assert_true(has("lora", "adapter_config.json") && has("lora", "adapter_model.safetensors"));
    assert_true(has("lora", "training.safetensors") && has("lora", "tokenizer.json"));
    assert_false(has("lora", "model.safetensors") || has("lora", "config.json"));
    size_t size;
    char *config = tiny_read(latest("lora", "adapter_config.json"), &size);
    assert_non_null(strstr(config, "/straight/")); /* the target of the link `latest` */
    free(config);
    /* The checkpoint opens as an adapter of the base model. */
    dsmoe_error error = {0};
    dsmoe_model *base;
    dsmoe_adapter *adapter;
    assert_int_equal(dsmoe_model_open(s.init, &base, &error), DSMOE_OK);
    char folder[2 * TINY_PATH];
    snprintf(folder, sizeof folder, "%s/latest", run_folder("lora"));
    assert_int_equal(dsmoe_adapter_open(folder, base, &adapter, &error), DSMOE_OK);
    dsmoe_adapter_free(adapter);
    dsmoe_model_free(base);
}

static void test_lora_resumed(void **state)
{
    (void)state;
    dsmoe_run_settings s = tune_settings("lora-stopped", "lora");
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 3}, NULL);
    must_resume(run_folder("lora-stopped"), 0, 3, NULL);
    assert_same("lora", "lora-stopped", "adapter_model.safetensors");
    assert_same("lora", "lora-stopped", "training.safetensors");
}

/* Adapters are saved in 16 bits, but the run resumes from the exact numbers. */
static void test_lora_of_halves(void **state)
{
    (void)state;
    static const char *const names[] = {"halves", "halves-stopped"};
    for (int i = 0; i < 2; i++) {
        dsmoe_run_settings s = tune_settings(names[i], "lora");
        strcpy(s.dtype, "bf16");
        must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = i ? 3 : 0}, NULL);
    }
    must_resume(run_folder("halves-stopped"), 0, 3, NULL);
    assert_same("halves", "halves-stopped", "adapter_model.safetensors");
    assert_same("halves", "halves-stopped", "training.safetensors");
    size_t size;
    char *file = tiny_read(latest("halves", "adapter_model.safetensors"), &size);
    assert_true(size > 200 && memmem(file, size, "\"BF16\"", 6) &&
                !memmem(file, size, "\"F32\"", 5));
    free(file);
}

/* ---- experts ------------------------------------------------------------------------------------- */

static void test_experts(void **state)
{
    (void)state;
    dsmoe_run_settings s = tune_settings("experts", "experts");
    snprintf(s.expert_score, sizeof s.expert_score, "token");
    s.expert_share = 0.3;
    must_run(&s, (dsmoe_run_options){.n_threads = 2}, NULL);
    assert_true(has("experts", "model.safetensors") && has("experts", "expert_cfg.json"));
    assert_true(has("experts", "config.json"));
    assert_false(has("experts", "adapter_config.json"));
    size_t part, whole;
    free(tiny_read(latest("experts", "model.safetensors"), &part));
    free(tiny_read(latest("straight", "model.safetensors"), &whole));
    assert_true(part < whole / 2);

    s = tune_settings("experts-stopped", "experts");
    snprintf(s.experts, sizeof s.experts, "%s/expert_cfg.json", run_folder("experts"));
    must_run(&s, (dsmoe_run_options){.n_threads = 1, .stop_after = 3}, NULL);
    must_resume(run_folder("experts-stopped"), 0, 2, NULL);
    assert_same("experts", "experts-stopped", "model.safetensors");
    assert_same("experts", "experts-stopped", "expert_cfg.json");
}

/* ---- ranks ------------------------------------------------------------------------------------- */

static void test_ranks(void **state)
{
    (void)state;
    static const char *const parts[] = {"lora", "experts"};
    for (int i = 0; i < 2; i++) {
        char alone[32], together[32];
        snprintf(alone, sizeof alone, "%s-alone", parts[i]);
        snprintf(together, sizeof together, "%s-ranks", parts[i]);
        dsmoe_run_settings s = tune_settings(alone, parts[i]);
        s.accumulate = 3;
        must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
        run_crew crew = {.settings = tune_settings(together, parts[i])};
        crew.settings.accumulate = 3;
        assert_true(socket_peers_run(2, run_rank, &crew, NULL, NULL));
        assert_same(alone, together, i == 0 ? "adapter_model.safetensors" : "model.safetensors");
        assert_same(alone, together, "training.safetensors");
    }
}

/* ---- refused settings -------------------------------------------------------------------------- */

static void test_other_base(void **state)
{
    (void)state;
    dsmoe_run_settings s = tiny_settings(directory, "other-base");
    s.seed = 99;
    s.steps = 2;
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    dsmoe_run_settings tuned = tune_settings("moved", "lora");
    snprintf(tuned.init, sizeof tuned.init, "%s/latest", run_folder("other-base"));
    must_run(&tuned, (dsmoe_run_options){.n_threads = 1, .stop_after = 2}, NULL);
    tiny_remove(run_folder("other-base"));
    s.seed = 100;
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    must_fail(NULL, (dsmoe_run_options){.resume = run_folder("moved")}, DSMOE_ERROR_CONFIG,
              "is not the model that this run began with");
}

static void test_refused(void **state)
{
    (void)state;
    dsmoe_run_settings s = tune_settings("refused", "lora");
    *s.init = '\0';
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_CONFIG, "needs a model to train");
    s = tune_settings("refused", "some");
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_CONFIG, "not all, experts or lora");
    s = tune_settings("refused", "lora");
    snprintf(s.targets, sizeof s.targets, "attention,nothing");
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_ARGUMENT, "\"nothing\"");
    s = tune_settings("refused", "experts");
    snprintf(s.experts, sizeof s.experts, "%s", path);
    write_bytes("{\"experts\": {\"0\": [1]}}", 23);
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_FORMAT, "has experts");
    write_bytes("{\"experts\": {\"1\": [4]}}", 23);
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_FORMAT, "0 to 3");
    write_bytes("{\"experts\": {\"1\": []}} ", 23);
    must_fail(&s, (dsmoe_run_options){0}, DSMOE_ERROR_ARGUMENT, "no routed expert");
}

static int remove_all(void **state)
{
    (void)state;
    tiny_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lora),           cmocka_unit_test(test_lora_resumed),
        cmocka_unit_test(test_lora_of_halves), cmocka_unit_test(test_experts),
        cmocka_unit_test(test_ranks),          cmocka_unit_test(test_other_base),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_straight_run, remove_all);
}

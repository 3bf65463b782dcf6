/* test_verify_model.c - the reference models pass in every form, a changed number is reported under its
 * name, what cannot be checked is reported as skipped, and an expected.safetensors that does not fit its
 * model is an error that names it. test_verify_training.c tests training. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "made_model.h"
#include "scratch.h"
#include "verify_folder.h"

static const char all_checks[] = "logits;logits in pieces;logits token by token;"
                                 "logits of rows together;loss;aux_loss;greedy;";
static const char all_logits[] = "logits;logits in pieces;logits token by token;"
                                 "logits of rows together;";
static const char all_training[] = "training loss;training aux_loss;training grad_norm;";

/* ---- running it ---------------------------------------------------------------------------- */

static file_image load_expected(void)
{
    char source[512];
    model_path("base", "/expected.safetensors", source);
    return image_load(source);
}

static void assert_error(file_image *image, const char *says)
{
    verify_outcome outcome = verify_image(image);
    if (outcome.status == DSMOE_OK) fail_msg("accepted: %s", says);
    if (strncmp(outcome.error.message, path, strlen(path)) != 0 ||
        !strstr(outcome.error.message + strlen(path), says))
        fail_msg("'%s' does not say '%s'", outcome.error.message, says);
    assert_int_equal(outcome.status, DSMOE_ERROR_FORMAT);
    assert_false(outcome.all_ok);
    assert_int_equal(outcome.n_checks + outcome.n_skipped, 0);
    assert_int_equal(dsmoe_verify_model_folder(directory, 1e-5, 1, NULL, NULL, NULL, NULL),
                     DSMOE_ERROR_FORMAT);
}

/* ---- good folders ---------------------------------------------------------------------------- */

static void test_reference_models(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n_gradients, n_final; /* base has a train.safetensors */
    } models[] = {{"base", 101, 104},   {"bf16", 104, 0},     {"dense", 21, 0},
                  {"gqa", 104, 0},      {"sharded", 113, 0},  {"v2_lite", 107, 0},
                  {"v2_plain", 104, 0}, {"v2_group", 113, 0}, {"v3_gate", 107, 0}};
    for (size_t i = 0; i < COUNT(models); i++) {
        char folder[512], names[512];
        model_path(models[i].name, "", folder);
        snprintf(names, sizeof names, "%s%s", all_checks, models[i].n_final ? all_training : "");
        verify_outcome one = verify_folder(folder, 1), two = verify_folder(folder, 2);
        if (one.status != DSMOE_OK) fail_msg("%s", one.error.message);
        if (!one.all_ok) fail_msg("%s: %s", folder, one.failed);
        assert_int_equal(two.status, DSMOE_OK);
        assert_true(two.all_ok);
        assert_string_equal(one.names, names);
        assert_string_equal(two.names, names);
        assert_int_equal(one.n_gradients, models[i].n_gradients);
        assert_int_equal(one.n_final, models[i].n_final);
        assert_int_equal(one.n_skipped, 0);
        assert_true(one.sum == two.sum); /* the same bits for any number of threads */
    }
}

/* ---- wrong numbers ---------------------------------------------------------------------------- */

static void test_changed_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        size_t element;
        const char *failed;
    } cases[] = {
        {"logits", 0, all_logits},
        {"logits", 2 * 40 * 128 - 1, all_logits},
        {"loss", 0, "loss;"},
        {"aux_loss", 0, "aux_loss;"},
        {"grad.model.norm.weight", 0, "grad.model.norm.weight;"},
        {"grad.model.embed_tokens.weight", 128 * 48 - 1, "grad.model.embed_tokens.weight;"},
        {"grad.model.layers.1.mlp.gate.weight", 7, "grad.model.layers.1.mlp.gate.weight;"},
        {"grad.model.layers.2.mlp.shared_experts.up_proj.weight", 100,
         "grad.model.layers.2.mlp.shared_experts.up_proj.weight;"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        static const float changes[] = {1e-3f, NAN, INFINITY};
        for (size_t j = 0; j < COUNT(changes); j++) {
            file_image image = load_expected();
            image_add(&image, cases[i].tensor, cases[i].element, changes[j]);
            assert_fails(&image, cases[i].failed);
        }
    }
    file_image image = load_expected();
    int64_t token;
    char *last = image_tensor(&image, "greedy") + 31 * sizeof token;
    memcpy(&token, last, sizeof token);
    token = (token + 1) % 128;
    memcpy(last, &token, sizeof token);
    assert_fails(&image, "greedy;");
}

/* ---- other shapes ------------------------------------------------------------------------------ */

static void test_other_shapes(void **state)
{
    (void)state;
    file_image image = load_expected();
    image_replace(&image, "\"loss\"", "\"Loss\""); /* it is skipped then */
    image_replace(&image, "\"greedy\"", "\"Greedy\"");
    verify_outcome outcome = verify_image(&image);
    assert_int_equal(outcome.status, DSMOE_OK);
    assert_true(outcome.all_ok);
    assert_int_equal(outcome.n_checks, 5 + 101);
    assert_int_equal(outcome.n_skipped, 2);

    image = load_expected(); /* so is a gradient with another name */
    image_replace(&image, "\"grad.model.norm.weight\"", "\"Grad.model.norm.weight\"");
    outcome = verify_image(&image);
    assert_true(outcome.all_ok);
    assert_int_equal(outcome.n_gradients, 100);
    assert_int_equal(outcome.n_skipped, 1);

    image = load_expected(); /* one row of 80 tokens: half of them get other contexts */
    image_replace(&image, "\"shape\":[2,40]", "\"shape\":[1,80]");
    outcome = verify_image(&image);
    assert_int_equal(outcome.status, DSMOE_OK);
    assert_string_equal(outcome.names, "logits;logits in pieces;logits token by token;loss;"
                                       "aux_loss;greedy;");
    const char *failed = "logits;logits in pieces;logits token by token;loss;aux_loss;grad.";
    assert_int_equal(strncmp(outcome.failed, failed, strlen(failed)), 0);

    static const char *const shapes[] = {"\"shape\":[16,5]", "\"shape\":[80,1]"};
    for (size_t i = 0; i < COUNT(shapes); i++) { /* more rows than one pass takes */
        image = load_expected();
        image_replace(&image, "\"shape\":[2,40]", shapes[i]);
        image_replace(&image, "\"greedy\"", "\"Greedy\"");
        image_replace(&image, "\"loss\"", "\"Loss\"");
        outcome = verify_image(&image);
        if (outcome.status != DSMOE_OK) fail_msg("%s", outcome.error.message);
        assert_int_equal(strncmp(outcome.names, all_logits, strlen(all_logits)), 0);
        assert_false(outcome.all_ok);
    }
}

/* ---- files that do not fit the model ------------------------------------------------------------ */

static void test_broken_headers(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"input_ids\"", "\"input_Ids\"", "'input_ids' is missing"},
        {"\"logits\"", "\"Logits\"", "'logits' is missing"},
        {"\"dtype\":\"I64\",\"shape\":[2,40]", "\"dtype\":\"F64\",\"shape\":[2,40]",
         "'input_ids' has dtype F64"},
        {"\"shape\":[2,40]", "\"shape\":[ 80 ]", "'input_ids' has shape [80]"},
        {"\"shape\":[2,40,128]", "\"shape\":[2,128,40]", "'logits' has shape [2,128,40]"},
        {"\"shape\":[2,40,128]", "\"shape\":[4,40, 64]", "where [80,128] is expected"},
        {"\"dtype\":\"F32\",\"shape\":[2,40,128]", "\"dtype\":\"I32\",\"shape\":[2,40,128]",
         "'logits' has dtype I32"},
        {"\"shape\":[2,40]", "\"shape\":[80,1]", "'loss'"},
        {"\"shape\":[2,40]", "\"shape\":[16,5]", "'greedy' does not begin"},
        {"\"greedy\":{\"dtype\":\"I64\",\"shape\":[32]",
         "\"greedy\":{\"dtype\":\"I64\",\"shape\":[ 4]", "greedy"},
        {"\"loss\":{\"dtype\":\"F32\"", "\"loss\":{\"dtype\":\"I32\"", "'loss' has dtype I32"},
        {"\"aux_loss\":{\"dtype\":\"F32\"", "\"aux_loss\":{\"dtype\":\"U32\"",
         "'aux_loss' has dtype U32"},
        {"\"grad.model.norm.weight\"", "\"grad.model.norm.height\"",
         "'grad.model.norm.height' belongs to no parameter"},
        {"\"grad.model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[48]",
         "\"grad.model.norm.weight\":{\"dtype\":\"I32\",\"shape\":[48]",
         "'grad.model.norm.weight' has dtype I32"},
        {"\"grad.lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[128,48]",
         "\"grad.lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[48,128]",
         "'grad.lm_head.weight' has shape [48,128]"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        file_image image = load_expected();
        image_replace(&image, cases[i].from, cases[i].to);
        assert_error(&image, cases[i].says);
    }
}

static void test_wrong_tokens(void **state)
{
    (void)state;
    static const int64_t wrong[] = {-1, 128, INT64_MAX, INT64_MIN, (int64_t)1 << 32};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        file_image image = load_expected();
        memcpy(image_tensor(&image, "input_ids") + 79 * sizeof *wrong, &wrong[i], sizeof *wrong);
        assert_error(&image, "'input_ids': element 79");
        image = load_expected();
        memcpy(image_tensor(&image, "greedy") + 20 * sizeof *wrong, &wrong[i], sizeof *wrong);
        assert_error(&image, "'greedy': element 20");
    }
    file_image image = load_expected();
    memcpy(image_tensor(&image, "greedy") + 3 * sizeof *wrong, &(int64_t){7}, sizeof *wrong);
    assert_error(&image, "'greedy' does not begin with the first 8 tokens");
}

static void test_truncated(void **state)
{
    (void)state;
    file_image image = load_expected();
    for (size_t size = 1; size < image.size; size += size < 16 ? 1 : 49999) {
        write_bytes(image.bytes, size);
        verify_outcome outcome = verify_folder(directory, 1);
        assert_int_equal(outcome.status, DSMOE_ERROR_FORMAT);
        assert_non_null(strstr(outcome.error.message, path));
    }
    free(image.bytes);
    remove(path);
    verify_outcome outcome = verify_folder(directory, 1);
    assert_int_equal(outcome.status, DSMOE_ERROR_IO);
    assert_non_null(strstr(outcome.error.message, path));
}

/* A model that breaks during the check: the message still names it. */
static void test_not_finite(void **state)
{
    (void)state;
    char name[512];
    model_path("base", "", name);
    made_model made = made_model_read(name);
    made_model_find(&made, "model.layers.1.mlp.gate.weight")->data[0] = NAN;
    made_model_write(&made, directory, false);
    file_image image = load_expected();
    verify_outcome outcome = verify_image(&image);
    assert_int_equal(outcome.status, DSMOE_ERROR_NONFINITE);
    assert_int_equal(strncmp(outcome.error.message, directory, strlen(directory)), 0);
    made_model_find(&made, "model.layers.1.mlp.gate.weight")->data[0] = 0.5f;
    made_model_write(&made, directory, false);
    image = load_expected();
    outcome = verify_image(&image);
    assert_int_equal(outcome.status, DSMOE_OK);
    assert_false(outcome.all_ok);
    made_model_free(&made);
}

static void test_arguments(void **state)
{
    (void)state;
    char folder[512];
    bool all_ok = true;
    model_path("dense", "", folder);
    const dsmoe_status argument = DSMOE_ERROR_ARGUMENT;
    assert_int_equal(dsmoe_verify_model_folder(NULL, 1e-5, 1, NULL, NULL, &all_ok, NULL), argument);
    assert_int_equal(dsmoe_verify_model_folder(folder, NAN, 1, NULL, NULL, &all_ok, NULL),
                     argument);
    assert_int_equal(dsmoe_verify_model_folder(folder, -1, 1, NULL, NULL, &all_ok, NULL), argument);
    assert_int_equal(dsmoe_verify_model_folder(folder, 1e-5, 0, NULL, NULL, &all_ok, NULL),
                     argument);
    assert_false(all_ok);
    assert_int_equal(verify_folder("/nonexistent/model", 1).status, DSMOE_ERROR_IO);
    /* The callback is optional. */
    assert_int_equal(dsmoe_verify_model_folder(folder, 1e-5, 1, NULL, NULL, &all_ok, NULL),
                     DSMOE_OK);
    assert_true(all_ok);
    /* float32 cannot meet a tolerance of 0. */
    assert_int_equal(dsmoe_verify_model_folder(folder, 0, 1, NULL, NULL, &all_ok, NULL), DSMOE_OK);
    assert_false(all_ok);
}

/* The model of the base folder, without expected.safetensors. */
static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    char folder[512];
    model_path("base", "", folder);
    made_model made = made_model_read(folder);
    made_model_write(&made, directory, false);
    made_model_free(&made);
    snprintf(path, sizeof path, "%s/expected.safetensors", directory);
    return 0;
}

static int tear_down(void **state)
{
    made_model_remove(directory);
    return remove_directory(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_models), cmocka_unit_test(test_changed_numbers),
        cmocka_unit_test(test_other_shapes),     cmocka_unit_test(test_broken_headers),
        cmocka_unit_test(test_wrong_tokens),     cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_arguments),        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

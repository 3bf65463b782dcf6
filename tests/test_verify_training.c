/* test_verify_training.c - train.safetensors of a reference model: its steps are run and compared, a
 * changed number is reported under its name, and a file that contradicts itself is an error that
 * names it. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/safetensors_writer.h"
#include "image.h"
#include "made_model.h"
#include "made_trainer.h"
#include "scratch.h"
#include "verify_folder.h"

/* The scratch folder holds the base model and its expected.safetensors. `path` is the train.safetensors
 * there: the first steps of the reference, and a few weights after these steps. test_verify_model.c runs
 * all the steps. */
enum { STEPS = 3, SEQUENCES = 4, LENGTH = 32, TOKENS = SEQUENCES * LENGTH };

static char steps_path[400];
static const char *const final_names[] = {"model.layers.1.mlp.gate.weight", "model.norm.weight",
                                          "lm_head.weight"};

static file_image load_steps(void) { return image_load(steps_path); }

/* The message must be one line that names the folder and the file. */
static void assert_error(file_image *image, const char *says)
{
    verify_outcome outcome = verify_image(image);
    const char *message = outcome.error.message;
    if (outcome.status == DSMOE_OK) fail_msg("accepted: %s", says);
    if (strncmp(message, directory, strlen(directory)) != 0 ||
        !strstr(message, "train.safetensors") || !strstr(message, says) || strchr(message, '\n'))
        fail_msg("'%s' does not say '%s'", message, says);
    assert_false(outcome.all_ok);
}

/* ---- good files ------------------------------------------------------------------------------- */

static void test_steps(void **state)
{
    (void)state;
    static const char *const absent[][2] = {
        {"\"loss\"", "\"Loss\""},
        {"\"aux_loss\"", "\"aux_Loss\""},
        {"\"grad_norm\"", "\"Grad_norm\""},
        {"\"final.model.norm.weight\"", "\"Final.model.norm.weight\""},
    };
    file_image image = load_steps();
    assert_fails(&image, "");
    verify_outcome all = verify_folder(directory, 2), less;
    assert_int_equal(all.n_final, COUNT(final_names));
    image = load_steps(); /* what is absent is not compared */
    for (size_t i = 0; i < COUNT(absent); i++) image_replace(&image, absent[i][0], absent[i][1]);
    less = verify_image(&image);
    assert_int_equal(less.status, DSMOE_OK);
    assert_true(less.all_ok);
    assert_int_equal(less.n_checks, all.n_checks - (int)COUNT(absent));
}

/* ---- wrong numbers ---------------------------------------------------------------------------- */

static void test_changed_numbers(void **state)
{
    (void)state;
    file_image image = load_steps(); /* each is reported by its name */
    image_add(&image, "loss", 0, 1e-2f);
    image_add(&image, "grad_norm", STEPS - 1, -1e-2f);
    image_add(&image, "final.model.norm.weight", 47, 1e-2f);
    assert_fails(&image, "training loss;training grad_norm;final.model.norm.weight;");
    image = load_steps();
    image_add(&image, "loss", STEPS - 1, NAN);
    image_add(&image, "aux_loss", 1, 1e-3f);
    image_add(&image, "grad_norm", 0, INFINITY);
    image_add(&image, "final.lm_head.weight", 0, NAN);
    assert_fails(&image,
                 "training loss;training aux_loss;training grad_norm;final.lm_head.weight;");
    image = load_steps(); /* ten times the tolerance: 5e-4 for a loss of 5 */
    image_add(&image, "loss", STEPS - 1, 2e-4f);
    assert_fails(&image, "");
    image = load_steps();
    image_add(&image, "loss", STEPS - 1, 2e-3f);
    assert_fails(&image, "training loss;");
}

/* Another learning rate or another token changes what follows, but not what came before. */
static void test_other_steps(void **state)
{
    (void)state;
    static const char all[] = "training loss;training aux_loss;training grad_norm;final.";
    file_image image = load_steps();
    image_add(&image, "lr", 1, 1e-3f);
    verify_outcome outcome = verify_image(&image);
    assert_int_equal(outcome.status, DSMOE_OK);
    assert_int_equal(strncmp(outcome.failed, all, strlen(all)), 0);
    image = load_steps();
    image_add(&image, "lr", STEPS - 1, 1e-3f); /* in the last step */
    outcome = verify_image(&image);
    assert_int_equal(outcome.status, DSMOE_OK);
    assert_int_equal(strncmp(outcome.failed, "final.", 6), 0);
    image = load_steps();
    char *first = image_tensor(&image, "input_ids");
    int64_t token;
    memcpy(&token, first, sizeof token);
    token = (token + 1) % 128;
    memcpy(first, &token, sizeof token);
    outcome = verify_image(&image);
    assert_int_equal(outcome.status, DSMOE_OK);
    assert_int_equal(strncmp(outcome.failed, all, strlen(all)), 0);
}

/* ---- impossible files ------------------------------------------------------------------------ */

static void test_broken_headers(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"input_ids\"", "\"input_Ids\"", "'input_ids' is missing"},
        {"\"lr\"", "\"LR\"", "'lr' is missing"},
        {"\"dtype\":\"I64\"", "\"dtype\":\"F64\"", "'input_ids' has dtype F64"},
        {"\"shape\":[3,4,32]", "\"shape\":[ 12,32]", "'input_ids' has shape [12,32]"},
        {"\"shape\":[3,4,32]", "\"shape\":[6,64,1]", "'input_ids' has shape [6,64,1]"},
        {"\"shape\":[3,4,32]", "\"shape\":[6,2,32]", "'lr' has shape [3]"},
        {"\"lr\":{\"dtype\":\"F32\"", "\"lr\":{\"dtype\":\"I32\"", "'lr' has dtype I32"},
        {"\"loss\":{\"dtype\":\"F32\"", "\"loss\":{\"dtype\":\"U32\"", "'loss' has dtype U32"},
        {"\"grad_norm\":{\"dtype\":\"F32\"", "\"grad_norm\":{\"dtype\":\"I32\"",
         "'grad_norm' has dtype I32"},
        {"\"final.lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[128,48]",
         "\"final.lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[48,128]",
         "'final.lm_head.weight' has shape [48,128]"},
        {"\"final.model.norm.weight\":{\"dtype\":\"F32\"",
         "\"final.model.norm.weight\":{\"dtype\":\"I32\"",
         "'final.model.norm.weight' has dtype I32"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        file_image image = load_steps();
        image_replace(&image, cases[i].from, cases[i].to);
        assert_error(&image, cases[i].says);
    }
}

static void test_wrong_tokens(void **state)
{
    (void)state;
    static const int64_t wrong[] = {-1, 128, INT64_MIN, (int64_t)1 << 32};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        size_t at = i == 1 ? STEPS * TOKENS - 1 : i; /* the last token of all, or a first one */
        file_image image = load_steps();
        memcpy(image_tensor(&image, "input_ids") + at * sizeof *wrong, &wrong[i], sizeof *wrong);
        char says[32];
        snprintf(says, sizeof says, "%lld", (long long)wrong[i]);
        assert_error(&image, says);
    }
}

static void test_wrong_rates(void **state)
{
    (void)state;
    static const float wrong[STEPS] = {NAN, INFINITY, -1};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        file_image image = load_steps();
        memcpy(image_tensor(&image, "lr") + i * sizeof *wrong, &wrong[i], sizeof *wrong);
        assert_error(&image, "learning rate");
    }
}

static void test_truncated(void **state)
{
    (void)state;
    file_image image = load_steps();
    for (size_t size = 1; size < image.size; size += size < 16 ? 5 : 9973) {
        write_bytes(image.bytes, size);
        verify_outcome outcome = verify_folder(directory, 1);
        assert_int_equal(outcome.status, DSMOE_ERROR_FORMAT);
        assert_non_null(strstr(outcome.error.message, "train.safetensors"));
    }
    free(image.bytes);
    remove(path);
    verify_outcome outcome = verify_folder(directory, 1); /* the file is optional */
    assert_int_equal(outcome.status, DSMOE_OK);
    assert_true(outcome.all_ok && outcome.n_final == 0 && outcome.n_gradients == 101);
}

/* ---- the folder ------------------------------------------------------------------------------- */

/* A tensor of the reference, which must exist. */
static const safetensors_tensor *take(const safetensors *reference, const char *name)
{
    const safetensors_tensor *t = safetensors_find(reference, name);
    if (!t) fail_msg("no %s in the reference", name);
    return t;
}

static dsmoe_trainer *train(const char *folder, const safetensors *reference)
{
    dsmoe_model *model = open_model(folder);
    dsmoe_trainer_options options = made_options(SEQUENCES, LENGTH);
    dsmoe_trainer *trainer = fresh_trainer(dsmoe_model_config(model), &options, 0);
    dsmoe_error error = {0};
    must(dsmoe_trainer_load(trainer, model, &error), &error, "loading");
    dsmoe_model_free(model);
    for (size_t step = 0; step < STEPS; step++) {
        int32_t tokens[TOKENS], targets[TOKENS];
        float lr;
        for (size_t i = 0; i < TOKENS; i++) {
            int64_t token;
            safetensors_tensor_read_i64(take(reference, "input_ids"), step * TOKENS + i, 1, &token);
            tokens[i] = (int32_t)token;
        }
        for (size_t i = 0; i < TOKENS; i++) targets[i] = (i + 1) % LENGTH ? tokens[i + 1] : -1;
        safetensors_tensor_read_f32(take(reference, "lr"), step, 1, &lr);
        run_batch(trainer, &(made_batch){TOKENS, tokens, targets});
        run_update(trainer, lr);
    }
    return trainer;
}

static void write_steps(const safetensors *reference, dsmoe_trainer *trainer)
{
    static const char *const series[] = {"lr", "loss", "aux_loss", "grad_norm"};
    const int64_t shape[] = {STEPS, SEQUENCES, LENGTH};
    safetensors_writer *w;
    dsmoe_error error = {0};
    dsmoe_status status = safetensors_writer_create(steps_path, &w, &error);
    must(status, &error, "a file");
    status = safetensors_writer_declare(w, "input_ids", SAFETENSORS_I64, 3, shape, &error);
    for (size_t i = 0; i < COUNT(series) && !status; i++)
        status = safetensors_writer_declare(w, series[i], SAFETENSORS_F32, 1, shape, &error);
    for (size_t i = 0; i < COUNT(final_names) && !status; i++) {
        dsmoe_tensor_info info =
            dsmoe_model_tensor(dsmoe_trainer_model(trainer), trainer_find(trainer, final_names[i]));
        char name[128];
        snprintf(name, sizeof name, "final.%s", info.name);
        status =
            safetensors_writer_declare(w, name, SAFETENSORS_F32, info.n_dims, info.shape, &error);
    }
    must(status, &error, "a header");
    status = safetensors_writer_write(w, take(reference, "input_ids")->data,
                                      STEPS * TOKENS * sizeof(int64_t), &error);
    for (size_t i = 0; i < COUNT(series) && !status; i++)
        status = safetensors_writer_write(w, take(reference, series[i])->data,
                                          STEPS * sizeof(float), &error);
    for (size_t i = 0; i < COUNT(final_names) && !status; i++) {
        size_t index = trainer_find(trainer, final_names[i]);
        status =
            safetensors_writer_write(w, dsmoe_trainer_weight(trainer, index),
                                     (size_t)trainer_count(trainer, index) * sizeof(float), &error);
    }
    must(status, &error, "data");
    must(safetensors_writer_finish(w, &error), &error, "the end");
}

/* ---- files that shrink during the check ------------------------------------------------------- */

typedef struct cut {
    const char *check, *path; /* cut `path` at this check */
} cut;

static void cut_short(void *context, const dsmoe_check *check)
{
    const cut *c = context;
    if (!strcmp(check->name, c->check)) assert_int_equal(truncate(c->path, 2000), 0);
}

static void assert_lost(const char *check, const char *name)
{
    char lost[400];
    bool all_ok = true;
    dsmoe_error error = {0};
    snprintf(lost, sizeof lost, "%s/%s", directory, name);
    cut context = {check, lost};
    assert_int_equal(
        dsmoe_verify_model_folder(directory, 1e-5, 1, cut_short, &context, &all_ok, &error),
        DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, name));
    assert_non_null(strstr(error.message, "the file changed"));
    assert_false(all_ok);
}

/* The last case damages a file that all other tests need. */
static void test_lost(void **state)
{
    (void)state;
    file_image image = load_steps();
    write_bytes(image.bytes, image.size);
    free(image.bytes);
    assert_lost("training loss", "train.safetensors");
    remove(path);
    assert_lost("loss", "expected.safetensors");
}

static int set_up(void **state)
{
    if (make_directory(state)) return -1;
    char name[512];
    safetensors *reference;
    model_path("base", "", name);
    made_model made = made_model_read(name);
    made_model_write(&made, directory, false);
    made_model_free(&made);
    model_path("base", "/train.safetensors", name);
    assert_int_equal(safetensors_open(name, &reference, NULL), DSMOE_OK);
    snprintf(steps_path, sizeof steps_path, "%s/steps.safetensors", directory);
    dsmoe_trainer *trainer = train(directory, reference);
    write_steps(reference, trainer);
    dsmoe_trainer_free(trainer);
    safetensors_close(reference);
    remove(path);
    model_path("base", "/expected.safetensors", name);
    file_image expected = image_load(name);
    snprintf(path, sizeof path, "%s/expected.safetensors", directory);
    write_bytes(expected.bytes, expected.size);
    free(expected.bytes);
    snprintf(path, sizeof path, "%s/train.safetensors", directory);
    return 0;
}

static int tear_down(void **state)
{
    char expected[400];
    made_model_remove(directory);
    remove(steps_path);
    snprintf(expected, sizeof expected, "%s/expected.safetensors", directory);
    remove(expected);
    return remove_directory(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),        cmocka_unit_test(test_changed_numbers),
        cmocka_unit_test(test_other_steps),  cmocka_unit_test(test_broken_headers),
        cmocka_unit_test(test_wrong_tokens), cmocka_unit_test(test_wrong_rates),
        cmocka_unit_test(test_truncated),    cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

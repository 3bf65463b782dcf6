/* verify_folder.c - runs the check of a model folder and collects what it reports. */
#include "verify_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scratch.h"
#include "support.h"

static void append(char *list, size_t size, const char *name)
{
    assert_true(strlen(list) + strlen(name) + 2 < size);
    strcat(strcat(list, name), ";");
}

static void collect(void *context, const dsmoe_check *check)
{
    verify_outcome *outcome = context;
    if (check->skipped) {
        assert_false(check->ok);
        outcome->n_skipped++;
        return;
    }
    bool gradient = !strncmp(check->name, "grad.", 5), final = !strncmp(check->name, "final.", 6);
    outcome->n_checks++;
    outcome->n_gradients += gradient;
    outcome->n_final += final;
    outcome->sum += check->max_abs + check->max_rel;
    if (!gradient && !final) append(outcome->names, sizeof outcome->names, check->name);
    if (!check->ok) append(outcome->failed, sizeof outcome->failed, check->name);
}

verify_outcome verify_folder(const char *folder, int n_threads)
{
    verify_outcome outcome = {.all_ok = true};
    outcome.status = dsmoe_verify_model_folder(folder, 1e-5, n_threads, collect, &outcome,
                                               &outcome.all_ok, &outcome.error);
    return outcome;
}

verify_outcome verify_image(file_image *image)
{
    write_bytes(image->bytes, image->size);
    free(image->bytes);
    return verify_folder(directory, 1);
}

void assert_fails(file_image *image, const char *failed)
{
    verify_outcome outcome = verify_image(image);
    if (outcome.status != DSMOE_OK) fail_msg("%s", outcome.error.message);
    assert_string_equal(outcome.failed, failed);
    assert_int_equal(outcome.all_ok, *failed == '\0');
    assert_int_equal(outcome.n_skipped, 0);
}

void model_path(const char *model, const char *file, char text[512])
{
    const char *room = !strncmp(model, "v2_", 3) || !strncmp(model, "v3_", 3) ? "lm_v2" : "lm";
    snprintf(text, 512, TEST_DATA "/%s/%s%s", room, model, file);
}

/* test_checkpoint_folder.c - the checkpoints of a run: which is the newest, which are kept, where links
 * point; and that only files of a checkpoint are ever removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/folder.h"
#include "made_checkpoint.h"
#include "scratch.h"

/* ---- the disk -------------------------------------------------------------------------------- */

/* A link on disk must point to the new checkpoint before an older one is removed. */
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

/* ---- which checkpoints are kept -------------------------------------------------------------- */

/* The step of the newest checkpoint before step `below`. */
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
    assert_int_equal(newest(INT64_MAX, found), -1); /* there is no run */
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

/* A folder that cannot be listed is not treated as empty. */
static void test_newest_unknown(void **state)
{
    (void)state;
    char found[CHECKPOINT_PATH];
    int64_t step = 7;
    dsmoe_error error = {0};
    assert_int_equal(folder_make(run, NULL), DSMOE_OK);
    write_to(tiny_path(run, "checkpoints"), "mine\n", 5); /* not a folder */
    assert_int_equal(checkpoint_newest(run, INT64_MAX, &step, found, &error), DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "checkpoints: cannot read the folder"));
    assert_int_equal(step, -1);
    assert_int_equal(checkpoint_prune(run, 1, -1, &error), DSMOE_ERROR_IO);
    tiny_remove(run);
}

/* Mended links point to an existing checkpoint or are removed. */
static void test_mend_links(void **state)
{
    (void)state;
    dsmoe_trainer *t = make_trainer(1);
    for (int64_t step = 1; step <= 3; step++) write_step(t, step);
    prune(3, 3);
    checkpoint_mend_links(run, 2, 1); /* both links are fine and stay */
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
    prune(0, 4); /* the newest is always kept */
    assert_link("best", "checkpoints/step-00000004");
    assert_true(has_step(4) && has_step(5));
    assert_false(has_step(1));
    prune(1, -1);
    assert_true(has_step(5));
    assert_false(has_step(4));
    checkpoint_state read;
    assert_int_equal(checkpoint_check(tiny_path(run, "latest"), &read, NULL), DSMOE_OK);
    /* Removed checkpoints leave nothing else behind. */
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
    write_to(tiny_path(run, "checkpoints/step-00000001/notes.txt"), "mine\n", 5);
    assert_int_equal(folder_make(tiny_path(run, "checkpoints/step-00000002/mine"), NULL), DSMOE_OK);
    write_to(tiny_path(run, "checkpoints/other"), "mine\n", 5);
    prune(1, -1);
    checkpoint_state read;
    for (int step = 1; step <= 3; step++) { /* complete and unchanged */
        char name[64];
        snprintf(name, sizeof name, "checkpoints/step-%08d", step);
        assert_int_equal(checkpoint_check(tiny_path(run, name), &read, NULL), DSMOE_OK);
    }
    assert_true(tiny_exists(tiny_path(run, "checkpoints/step-00000001/notes.txt")));
    assert_true(tiny_exists(tiny_path(run, "checkpoints/other")));
    dsmoe_trainer_free(t);
    tiny_remove(run);
}

/* Folders left by a killed writer are removed, unless one has a file that the writer did not write. */
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
        write_to(tiny_path(left, "model.safetensors.partial"), "mine\n", 5);
        write_to(tiny_path(left, "config.json"), "mine\n", 5);
    }
    prune(1, -1);
    for (int i = 0; i < 3; i++) assert_false(tiny_exists(tiny_path(run, folders[i])));
    assert_true(has_step(3));

    assert_int_equal(folder_make(tiny_path(run, folders[0]), NULL), DSMOE_OK);
    write_to(tiny_path(run, "checkpoints/.step-00000004.partial/mine"), "mine\n", 5);
    prune(1, -1);
    assert_true(tiny_exists(tiny_path(run, "checkpoints/.step-00000004.partial/mine")));
    /* The next checkpoint of that step is written all the same. */
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
    /* The user's own folder in place of the link is kept, and nothing fails. */
    assert_int_equal(folder_make(tiny_path(run, "latest/mine"), NULL), DSMOE_OK);
    write_step(t, 1);
    prune(1, 1);
    assert_true(tiny_exists(tiny_path(run, "latest/mine")));
    assert_link("best", "checkpoints/step-00000001");
    prune(1, 77); /* does not exist: the link is unchanged */
    assert_link("best", "checkpoints/step-00000001");
    /* A half-made link is replaced. */
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
    for (int i = 0; i < 2; i++) { /* the second time the target exists */
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
    write_to(tiny_path(run, "a/file"), "mine\n", 5);
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
        cmocka_unit_test(test_links_are_synced),
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

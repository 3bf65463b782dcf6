/* test_choices.c - settings that a comparison gives to single architectures, and the configurations that
 * follow. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "study/choices.h"

static int name_of(const char *name)
{
    for (int i = 0; i < N_CHOICES; i++)
        if (!strcmp(choice_names[i], name)) return i;
    fail_msg("no choice %s", name);
    return -1;
}

static dsmoe_status take(study_choices *c, const char *name, const char *one, const char *other,
                         dsmoe_error *error)
{
    const char *texts[] = {one, other};
    return choices_take(c, name_of(name), texts, other ? 2 : 1, error);
}

static void must_take(study_choices *c, const char *name, const char *one, const char *other)
{
    dsmoe_error error = {0};
    if (take(c, name, one, other, &error) != DSMOE_OK) fail_msg("%s: %s", name, error.message);
}

static const char *text_of(const study_choices *c)
{
    static char text[2048];
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    choices_put(file, c);
    fclose(file);
    return text;
}

static void test_paper(void **state)
{
    (void)state;
    study_choices c = choices_paper(0.002);
    assert_int_equal(choices_settle(&c, NULL), DSMOE_OK);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const study_choice *own = &c.of[i];
        assert_true(own->lr == 0.002 && own->aux_loss_alpha == 0.01 && own->seq_aux &&
                    !own->norm_topk_prob && own->initializer_range == 0.02 &&
                    own->routed_scaling_factor == 0);
    }
    assert_string_equal(text_of(&c), "--lr 0.002\n"); /* as before choices existed */
}

static void test_fair(void **state)
{
    (void)state;
    study_choices c = choices_fair(0.002);
    assert_int_equal(choices_settle(&c, NULL), DSMOE_OK);
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const study_choice *own = &c.of[i];
        int64_t n_routed = architecture_routed(&architectures[i]);
        bool is_dense = !strcmp(architectures[i].name, "dense");
        assert_true(own->lr == (is_dense ? 0.001 : 0.002) && !own->seq_aux);
        assert_true(own->norm_topk_prob == (n_routed > 1));
        assert_true(own->routed_scaling_factor == (n_routed == 1 ? 4 : 0));
    }
    assert_string_equal(
        text_of(&c), "--lr 0.002\n--lr dense=0.001\n--norm-topk-prob yes\n"
                     "--routed-scaling-factor switch=4\n--routed-scaling-factor gshard+shared=4\n"
                     "--balance batch\n");
    must_take(&c, "lr", "0.004", NULL); /* what is given for all counts for all */
    assert_true(c.of[architecture_find("dense")].lr == 0.004);
}

/* A setting for one model overrides the setting for all, in any order. */
static void test_own(void **state)
{
    (void)state;
    int owner = architecture_find("switch"), other = architecture_find("gshard");
    for (int order = 0; order < 2; order++) {
        study_choices c = choices_paper(0.002);
        must_take(&c, "lr", order ? "0.004" : "switch=1e-3", order ? "switch=1e-3" : "0.004");
        must_take(&c, "norm-topk-prob", "yes", NULL);
        must_take(&c, "balance", "batch", "gshard=sequence");
        must_take(&c, "routed-scaling-factor", "switch=4", NULL);
        assert_int_equal(choices_settle(&c, NULL), DSMOE_OK);
        assert_true(c.of[owner].lr == 1e-3 && c.of[other].lr == 0.004);
        assert_true(!c.of[owner].norm_topk_prob && c.of[other].norm_topk_prob);
        assert_true(c.of[owner].routed_scaling_factor == 4 &&
                    c.of[other].routed_scaling_factor == 0);
        assert_true(!c.of[owner].seq_aux && c.of[other].seq_aux);
        assert_string_equal(text_of(&c), "--lr 0.004\n--lr switch=0.001\n--norm-topk-prob yes\n"
                                         "--routed-scaling-factor switch=4\n--balance batch\n"
                                         "--balance gshard=sequence\n");
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const wrong[][3] = {
        {"lr", "0", "from 1e-09"},         {"lr", "nan", "must be a number"},
        {"lr", "1e-3x", "must be"},        {"lr", "", "must be"},
        {"lr", "switch=", "must be"},      {"lr", "nobody=1e-3", "no model 'nobody'"},
        {"balance", "both", "sequence"},   {"norm-topk-prob", "1", "yes or no"},
        {"init-std", "-0.1", "from 0 to"}, {"aux-loss-alpha", "inf", "not 'inf'"},
    };
    dsmoe_error error = {0};
    study_choices c = choices_paper(0.002);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(take(&c, wrong[i][0], wrong[i][1], NULL, &error), DSMOE_ERROR_ARGUMENT);
        if (!strstr(error.message, wrong[i][2])) fail_msg("%s: %s", wrong[i][1], error.message);
    }
    static const char *const idle[][2] = {{"norm-topk-prob", "switch=yes"},
                                          {"norm-topk-prob", "gshard+shared=yes"},
                                          {"routed-scaling-factor", "dense=2"},
                                          {"aux-loss-alpha", "dense-x16=1"}};
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        c = choices_paper(0.002);
        must_take(&c, idle[i][0], idle[i][1], NULL);
        assert_int_equal(choices_settle(&c, &error), DSMOE_ERROR_ARGUMENT);
        assert_non_null(strstr(error.message, "has no effect"));
    }
    c = choices_paper(0.002);
    must_take(&c, "norm-topk-prob", "yes", NULL);
    must_take(&c, "routed-scaling-factor", "gshard=2", NULL);
    assert_int_equal(choices_settle(&c, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "normalised"));
}

/* The paper's equality holds: all expert parameters and those active for a token. Other models differ as
 * intended. */
static void test_configurations(void **state)
{
    (void)state;
    const study_scale *scale = study_scale_find("tiny");
    architecture_common common = {300, 0, 1, 64};
    study_choices c = choices_paper(0.002);
    architecture_parameters all[N_ARCHITECTURES];
    dsmoe_config configs[N_ARCHITECTURES];
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        dsmoe_error error = {0};
        configs[i] = architecture_config(&architectures[i], scale, &common, &c.of[i]);
        if (architecture_count(&configs[i], &all[i], &error) != DSMOE_OK)
            fail_msg("%s: %s", architectures[i].name, error.message);
    }
    const architecture_parameters *gshard = &all[architecture_find("gshard")];
    for (int i = 0; i < N_ARCHITECTURES; i++)
        if (architectures[i].is_equal) {
            assert_int_equal(all[i].experts, gshard->experts);
            assert_int_equal(all[i].active_experts, gshard->active_experts);
        }
    const architecture_parameters *half = &all[architecture_find("half-active")];
    assert_int_equal(half->experts, gshard->experts);
    assert_int_equal(2 * half->active_experts, gshard->active_experts);
    const architecture_parameters *wide = &all[architecture_find("dense-x16")];
    assert_int_equal(wide->experts, gshard->experts);
    assert_int_equal(wide->active_experts, gshard->experts);
    assert_int_equal(2 * all[architecture_find("gshard-x1.5")].experts, 3 * gshard->experts);
    const dsmoe_config *two = &configs[architecture_find("shared-2")];
    assert_true(two->n_shared_experts == 2 && two->num_experts_per_tok == 6 &&
                two->n_routed_experts == 62);
    const dsmoe_config *four = &configs[architecture_find("shared-4")];
    assert_true(four->n_shared_experts == 4 && four->num_experts_per_tok == 4 &&
                four->n_routed_experts == 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paper),
        cmocka_unit_test(test_fair),
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_configurations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

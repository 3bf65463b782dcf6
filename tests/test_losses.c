/* test_losses.c - the losses that a comparison measures: each has its own name and probe, and a model is
 * asked only for those that make sense for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "study/choices.h"
#include "study/losses.h"

static void test_names(void **state)
{
    (void)state;
    char name[LOSS_NAME];
    for (int i = 0; i < N_LOSSES; i++) assert_int_equal(loss_find(loss_name(i, name)), i);
    assert_int_equal(loss_find("nothing"), -1);
    /* names as in folders of earlier versions */
    assert_int_equal(loss_find("plain"), LOSS_PLAIN);
    assert_int_equal(loss_find("mask 4/16"), LOSS_MASK + 4);
    assert_int_equal(loss_find("replaced"), LOSS_REPLACED);
    assert_int_equal(loss_find("active 1"), LOSS_FEWER);
    assert_int_equal(loss_find("active 6"), LOSS_FEWER + 5);
    assert_int_equal(loss_find("mask first 1/16"), LOSS_MASK_FIRST + 1);
}

static void test_probes(void **state)
{
    (void)state;
    dsmoe_probe plain = loss_probe(LOSS_PLAIN), mask = loss_probe(LOSS_MASK + 2);
    assert_true(plain.mask_top == 0 && !plain.replace_shared && plain.num_experts_per_tok == 0);
    assert_true(mask.mask_top == 0.125 && !mask.mask_before_softmax);
    dsmoe_probe first = loss_probe(LOSS_MASK_FIRST + 3);
    assert_true(first.mask_top == 0.1875 && first.mask_before_softmax);
    assert_true(loss_probe(LOSS_REPLACED).replace_shared);
    assert_int_equal(loss_probe(LOSS_FEWER + 5).num_experts_per_tok, 6);
}

static int count_asked(const char *name, bool normalised)
{
    architecture_common common = {300, 0, 1, 64};
    study_choices c = choices_paper(0.002);
    int place = architecture_find(name), n = 0;
    c.of[place].norm_topk_prob = normalised;
    dsmoe_config config =
        architecture_config(&architectures[place], study_scale_find("tiny"), &common, &c.of[place]);
    for (int i = 0; i < N_LOSSES; i++) n += loss_is_asked(&architectures[place], &config, i);
    return n;
}

static void test_asked(void **state)
{
    (void)state;
    assert_int_equal(count_asked("dense", false), 1);
    assert_int_equal(count_asked("gshard", false), 9); /* plain, 4 masks, each in two ways */
    assert_int_equal(count_asked("gshard", true), 5);
    assert_int_equal(count_asked("fine-m2", false), 2);      /* plain, shared expert replaced */
    assert_int_equal(count_asked("deepseekmoe", false), 16); /* also with 1 to 6 experts */
    assert_int_equal(count_asked("deepseekmoe", true), 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

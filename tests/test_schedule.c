/* test_schedule.c - the learning rate of every step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "dsmoe.h"

static void assert_lr(const dsmoe_schedule *s, int64_t step, double expected)
{
    double lr = dsmoe_schedule_lr(s, step);
    if (!(fabs(lr - expected) <= 1e-15 * fabs(expected)))
        fail_msg("step %lld: %.17g, not %.17g", (long long)step, lr, expected);
}

static void test_warmup(void **state)
{
    (void)state;
    for (int kind = DSMOE_SCHEDULE_STEP; kind <= DSMOE_SCHEDULE_CONSTANT; kind++) {
        dsmoe_schedule s = {(dsmoe_schedule_kind)kind, 0.5, 10, 100};
        for (int64_t i = 0; i < 10; i++) assert_lr(&s, i, 0.05 * (double)(i + 1));
        assert_lr(&s, 10, 0.5);
        s.n_warmup = 0;
        assert_lr(&s, 0, 0.5);
        s.n_warmup = 200; /* longer than the run: the full rate is never reached */
        assert_lr(&s, 99, 0.25);
    }
}

static void test_step(void **state)
{
    (void)state;
    dsmoe_schedule s = {DSMOE_SCHEDULE_STEP, 1, 10, 1000};
    assert_lr(&s, 799, 1);
    assert_lr(&s, 800, 0.316);
    assert_lr(&s, 899, 0.316);
    assert_lr(&s, 900, 0.316 * 0.316);
    assert_lr(&s, 999, 0.316 * 0.316);
    /* If 80 and 90 per cent are no whole steps, the rate changes at the next step. */
    for (int64_t n = 1; n < 50; n++) {
        s = (dsmoe_schedule){DSMOE_SCHEDULE_STEP, 1, 0, n};
        for (int64_t i = 0; i < n; i++)
            assert_lr(&s, i, (10 * i >= 8 * n ? 0.316 : 1) * (10 * i >= 9 * n ? 0.316 : 1));
    }
}

static void test_cosine(void **state)
{
    (void)state;
    dsmoe_schedule s = {DSMOE_SCHEDULE_COSINE, 2, 20, 120};
    assert_lr(&s, 20, 2);
    assert_lr(&s, 70, 2 * 0.55);
    assert_lr(&s, 120, 0.2);
    assert_lr(&s, 500, 0.2);
    for (int64_t i = 21; i < 120; i++) {
        assert_true(dsmoe_schedule_lr(&s, i) < dsmoe_schedule_lr(&s, i - 1));
        assert_true(dsmoe_schedule_lr(&s, i) > 0.2);
    }
}

static void test_constant(void **state)
{
    (void)state;
    dsmoe_schedule s = {DSMOE_SCHEDULE_CONSTANT, 3e-4, 5, 50};
    for (int64_t i = 5; i < 60; i++) assert_true(dsmoe_schedule_lr(&s, i) == 3e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_cosine),
        cmocka_unit_test(test_constant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

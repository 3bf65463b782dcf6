/* test_statistics.c - Student's t, paired differences and Holm's correction against values computed
 * elsewhere: the density of t was integrated numerically with 40 digits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/statistics.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void near(double got, double expected, double share)
{
    if (!(fabs(got - expected) <= share * fabs(expected)))
        fail_msg("%.17g, not %.17g", got, expected);
}

static void test_distribution(void **state)
{
    (void)state;
    static const double cases[][3] = {
        {0.5, 1, 0.70483276469913346},
        {2, 2, 0.18350341907227396},
        {3, 3, 0.0576688856224373},
        {-1.5, 4, 0.208},
        {6, 5, 0.00184613828959402},
        {2.2, 7.5, 0.06119946590611606},
        {12, 9, 7.69988622299e-7},
        {1.96, 1000, 0.05027318495574872},
        {0, 3, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        near(student_tails(cases[i][0], cases[i][1]), cases[i][2], 1e-11);
        near(student_tails(-cases[i][0], cases[i][1]), cases[i][2], 1e-11);
    }
    assert_true(student_tails(INFINITY, 3) == 0 && student_tails(-INFINITY, 3) == 0);
}

static void test_quantiles(void **state)
{
    (void)state;
    static const double cases[][3] = {
        {0.975, 1, 12.706204736174705}, {0.975, 2, 4.3026527297494639},
        {0.975, 3, 3.1824463052837096}, {0.975, 4, 2.7764451051977944},
        {0.975, 9, 2.2621571627982055}, {0.975, 30, 2.0422724563012383},
        {0.995, 3, 5.8409093097333573}, {0.9, 6, 1.4397557472651484},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        near(student_quantile(cases[i][0], cases[i][1]), cases[i][2], 1e-12);
        near(student_quantile(1 - cases[i][0], cases[i][1]), -cases[i][2], 1e-12);
    }
    near(student_quantile(0.5, 4) + 1, 1, 1e-12);
    assert_true(isnan(student_quantile(0, 3)) && isnan(student_quantile(1, 3)));
    assert_true(isnan(student_quantile(0.5, 0)) && isnan(student_quantile(NAN, 3)));
}

static void test_spread(void **state)
{
    (void)state;
    const double values[] = {2, NAN, 4, 4, 4, INFINITY, 5, 5, 7, 9};
    spread s = spread_of(values, COUNT(values));
    assert_int_equal(s.n, 8);
    near(s.mean, 5, 1e-15);
    near(s.deviation, sqrt(32.0 / 7), 1e-15);
    s = spread_of(values, 2);
    assert_true(s.n == 1 && s.mean == 2 && s.deviation == 0);
    s = spread_of(values + 1, 1);
    assert_true(s.n == 0 && isnan(s.mean));
}

static void test_pairs(void **state)
{
    (void)state;
    const double one[] = {3.947, 3.954, 3.975, NAN, 3.9}, other[] = {3.929, 3.927, 3.944, 1, NAN};
    paired_difference d = paired_compare(one, other, 5);
    assert_int_equal(d.n, 3);
    near(d.mean, 0.0253333333333333333, 1e-12);
    near(d.deviation, 0.00665832811847939297, 1e-12);
    near(d.low, 0.00879312935701104681, 1e-11);
    near(d.high, 0.0418735373096556199, 1e-11);
    near(d.p, 0.0222603399844641684, 1e-11);
    const double before[] = {3.6161, 3.6385, 3.6327}, after[] = {3.6106, 3.5655, 3.5746};
    d = paired_compare(before, after, 3);
    near(d.low, -0.0425574030397827377, 1e-11);
    near(d.high, 0.133624069706449404, 1e-11);
    near(d.p, 0.156156134243800000, 1e-11);
    paired_difference back = paired_compare(after, before, 3);
    assert_true(back.mean == -d.mean && back.low == -d.high && back.p == d.p);
}

static void test_few_pairs(void **state)
{
    (void)state;
    const double one[] = {2, 2, NAN}, other[] = {1, 1, 1};
    paired_difference d = paired_compare(one, other, 1);
    assert_true(d.n == 1 && d.mean == 1 && isnan(d.low) && isnan(d.high) && isnan(d.p));
    d = paired_compare(one + 2, other, 1);
    assert_true(d.n == 0 && isnan(d.mean) && isnan(d.p));
    d = paired_compare(one, other, 2); /* the differences are all equal */
    assert_true(d.mean == 1 && d.low == 1 && d.high == 1 && d.p == 0);
    d = paired_compare(one, one, 2);
    assert_true(d.mean == 0 && d.p == 1);
}

static void test_holm(void **state)
{
    (void)state;
    const double p[] = {0.01, 0.04, 0.03, NAN, 0.005}, expected[] = {0.03, 0.06, 0.06, NAN, 0.02};
    double corrected[5];
    holm_correct(p, 5, corrected);
    for (size_t i = 0; i < 5; i++)
        if (isnan(expected[i]))
            assert_true(isnan(corrected[i]));
        else
            near(corrected[i], expected[i], 1e-12);
    const double equal[] = {0.02, 0.02, 0.9};
    holm_correct(equal, 3, corrected);
    near(corrected[0], 0.06, 1e-12);
    near(corrected[1], 0.06, 1e-12);
    near(corrected[2], 0.9, 1e-12);
    const double large[] = {0.6, 0.7};
    holm_correct(large, 2, corrected);
    assert_true(corrected[0] == 1 && corrected[1] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_spread),       cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_few_pairs),    cmocka_unit_test(test_holm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_comparison.c - the paper's claims held against losses of several seeds: only an interval beside 0 says
 * something, and only after the correction for all that was asked. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "study/comparison.h"

enum { SEEDS = 4 };

typedef struct losses {
    double of[N_ARCHITECTURES][SEEDS];
} losses;

static losses none(void)
{
    losses l;
    for (int i = 0; i < N_ARCHITECTURES; i++)
        for (int seed = 0; seed < SEEDS; seed++) l.of[i][seed] = NAN;
    return l;
}

/* Around a mean, with a part that seeds have in common and one of `own` that they do not. */
static void put(losses *l, const char *name, double mean, double own, int n_seeds)
{
    static const double common[SEEDS] = {0.02, -0.05, 0.04, -0.01},
                        single[SEEDS] = {1, -1, 0.5, -0.5};
    for (int seed = 0; seed < n_seeds; seed++)
        l->of[architecture_find(name)][seed] = mean + common[seed] + own * single[seed];
}

static const study_comparison *find(const study_comparison *all, int n, const char *name,
                                    const char *other)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(all[i].claim->name, name) && !strcmp(all[i].claim->other, other))
            return &all[i];
    fail_msg("%s is not compared with %s", name, other);
    return NULL;
}

static const char *told(const study_comparison *c)
{
    static char text[512];
    memset(text, 0, sizeof text);
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    study_tell(file, c);
    fclose(file);
    return text;
}

static void expect(const study_comparison *c, study_verdict verdict, const char *words)
{
    if (c->verdict != verdict || !strstr(told(c), words))
        fail_msg("%s to %s: %d, %s", c->claim->name, c->claim->other, (int)c->verdict, told(c));
}

static void test_claims(void **state)
{
    (void)state;
    for (int i = 0; i < N_CLAIMS; i++) {
        int one = architecture_find(study_claims[i].name);
        int other = architecture_find(study_claims[i].other);
        assert_true(one >= 0 && other >= 0 && one != other);
        double paper = architectures[one].paper_loss - architectures[other].paper_loss;
        if (isnan(paper)) continue; /* told in words only */
        assert_true(study_claims[i].paper == STUDY_AHEAD ? paper < -0.01 : fabs(paper) < 0.01);
    }
    study_comparison all[N_CLAIMS];
    losses l = none();
    assert_int_equal(study_compare(l.of[0], SEEDS, all), 0);
}

static void test_verdicts(void **state)
{
    (void)state;
    study_comparison all[N_CLAIMS];
    losses l = none();
    put(&l, "dense", 4.1, 0, SEEDS);
    put(&l, "switch", 4.3, 0.001, SEEDS);  /* clearly behind */
    put(&l, "gshard", 3.95, 0.002, SEEDS); /* clearly ahead of both */
    put(&l, "deepseekmoe", 3.94, 0.05, SEEDS);
    put(&l, "gshard-x1.5", 4.5, 0.001, 1);
    int n = study_compare(l.of[0], SEEDS, all);
    assert_int_equal(n, 6);
    expect(find(all, n, "switch", "dense"), STUDY_HIGHER, "is behind Dense by 0.200");
    assert_non_null(strstr(told(find(all, n, "switch", "dense")), "not as in the paper"));
    expect(find(all, n, "gshard", "dense"), STUDY_LOWER, ", as in the paper");
    expect(find(all, n, "gshard", "switch"), STUDY_LOWER, ", as in the paper");
    const study_comparison *near = find(all, n, "deepseekmoe", "gshard");
    expect(near, STUDY_NOT_TOLD, "are not told apart");
    assert_null(strstr(told(near), "as in the paper"));
    expect(find(all, n, "deepseekmoe", "gshard-x1.5"), STUDY_TOO_FEW, "one seed");
}

/* Alone p of about 0.03 would do; among others it does not. */
static void test_correction(void **state)
{
    (void)state;
    study_comparison all[N_CLAIMS];
    losses l = none();
    static const double seeds[SEEDS] = {0.05, 0.04, 0.12, 0.09};
    put(&l, "gshard", 4, 0, SEEDS);
    for (int seed = 0; seed < SEEDS; seed++)
        l.of[architecture_find("deepseekmoe")][seed] =
            l.of[architecture_find("gshard")][seed] - seeds[seed];
    int n = study_compare(l.of[0], SEEDS, all);
    assert_int_equal(n, 1);
    expect(&all[0], STUDY_LOWER, ", as in the paper");
    assert_true(all[0].corrected_p == all[0].difference.p && all[0].difference.p > 0.02);
    put(&l, "dense", 4, 0.5, SEEDS);
    put(&l, "switch", 4, -0.5, SEEDS);
    n = study_compare(l.of[0], SEEDS, all);
    const study_comparison *c = find(all, n, "deepseekmoe", "gshard");
    assert_true(c->corrected_p > c->difference.p);
    expect(c, STUDY_UNSETTLED, "a hint");
    assert_null(strstr(told(c), "as in the paper"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_correction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_comparison.c - the paper's claims tested on losses of several seeds: a difference counts only if
 * its interval excludes 0, and only after correction for the number of claims. */
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
    study_losses seeds[SEEDS];
} losses;

static losses none(void)
{
    losses l;
    for (int seed = 0; seed < SEEDS; seed++)
        for (int i = 0; i < N_ARCHITECTURES; i++)
            for (int which = 0; which < N_LOSSES; which++) l.seeds[seed].of[i][which] = NAN;
    return l;
}

static double *loss_of(losses *l, int seed, const char *name, int which)
{
    return &l->seeds[seed].of[architecture_find(name)][which];
}

/* Losses around a mean, with a part that all models of a seed have in common and one of `own` that they do not. */
static void put_probed(losses *l, const char *name, int which, double mean, double own, int n_seeds)
{
    static const double common[SEEDS] = {0.02, -0.05, 0.04, -0.01},
                        single[SEEDS] = {1, -1, 0.5, -0.5};
    for (int seed = 0; seed < n_seeds; seed++)
        *loss_of(l, seed, name, which) = mean + common[seed] + own * single[seed];
}

static void put(losses *l, const char *name, double mean, double own, int n_seeds)
{
    put_probed(l, name, LOSS_PLAIN, mean, own, n_seeds);
}

static const study_comparison *find_measure(const study_comparison *all, int n, const char *name,
                                            const char *other, study_measure measure)
{
    for (int i = 0; i < n; i++)
        if (all[i].claim->measure == measure && !strcmp(all[i].claim->name, name) &&
            !strcmp(all[i].claim->other, other))
            return &all[i];
    fail_msg("%s is not compared with %s", name, other);
    return NULL;
}

static const study_comparison *find(const study_comparison *all, int n, const char *name,
                                    const char *other)
{
    return find_measure(all, n, name, other, STUDY_LOSS);
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
        assert_true(one >= 0 && other >= 0);
        assert_true((one == other) == (study_claims[i].measure == STUDY_REPLACED));
        if (study_claims[i].measure != STUDY_LOSS) continue;
        double paper = architectures[one].paper_loss - architectures[other].paper_loss;
        if (isnan(paper)) continue; /* compared only in words */
        assert_true(study_claims[i].paper == STUDY_AHEAD ? paper < -0.01 : fabs(paper) < 0.01);
    }
    study_comparison all[N_CLAIMS];
    losses l = none();
    assert_int_equal(study_compare(l.seeds, SEEDS, all), 0);
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
    int n = study_compare(l.seeds, SEEDS, all);
    assert_int_equal(n, 6);
    expect(find(all, n, "switch", "dense"), STUDY_HIGHER, "is behind Dense by 0.200");
    assert_non_null(strstr(told(find(all, n, "switch", "dense")), "not as in the paper"));
    expect(find(all, n, "gshard", "dense"), STUDY_LOWER, ", as in the paper");
    expect(find(all, n, "gshard", "switch"), STUDY_LOWER, ", as in the paper");
    const study_comparison *near = find(all, n, "deepseekmoe", "gshard");
    expect(near, STUDY_NOT_TOLD, "cannot be told apart");
    assert_null(strstr(told(near), "as in the paper"));
    expect(find(all, n, "deepseekmoe", "gshard-x1.5"), STUDY_TOO_FEW, "one seed");
}

/* A p of about 0.03 is enough for a single claim, but not among several. */
static void test_correction(void **state)
{
    (void)state;
    study_comparison all[N_CLAIMS];
    losses l = none();
    static const double seeds[SEEDS] = {0.05, 0.04, 0.12, 0.09};
    put(&l, "gshard", 4, 0, SEEDS);
    for (int seed = 0; seed < SEEDS; seed++)
        *loss_of(&l, seed, "deepseekmoe", LOSS_PLAIN) =
            *loss_of(&l, seed, "gshard", LOSS_PLAIN) - seeds[seed];
    int n = study_compare(l.seeds, SEEDS, all);
    assert_int_equal(n, 1);
    expect(&all[0], STUDY_LOWER, ", as in the paper");
    assert_true(all[0].corrected_p == all[0].difference.p && all[0].difference.p > 0.02);
    put(&l, "dense", 4, 0.5, SEEDS);
    put(&l, "switch", 4, -0.5, SEEDS);
    n = study_compare(l.seeds, SEEDS, all);
    const study_comparison *c = find(all, n, "deepseekmoe", "gshard");
    assert_true(c->corrected_p > c->difference.p);
    expect(c, STUDY_UNSETTLED, "a hint");
    assert_null(strstr(told(c), "as in the paper"));
}

/* The probes are compared as the paper does it: the rise of a loss, a loss without the shared expert or with
 * fewer experts against a loss as trained. */
static void test_probes(void **state)
{
    (void)state;
    study_comparison all[N_CLAIMS];
    losses l = none();
    put(&l, "gshard", 4, 0.001, SEEDS);
    put(&l, "gshard-x1.5", 3.9, 0.001, SEEDS);
    put(&l, "deepseekmoe", 3.9, 0.002, SEEDS);
    put_probed(&l, "deepseekmoe", LOSS_REPLACED, 4.4, 0.003, SEEDS);
    put_probed(&l, "deepseekmoe", LOSS_FEWER + 3, 4, 0.05, SEEDS);
    for (int i = 1; i < LOSS_N_MASKS; i++) {
        put_probed(&l, "gshard", LOSS_MASK + i, 5 + i, 0.001, SEEDS); /* rises by 2, 3, 4, 5 */
        put_probed(&l, "deepseekmoe", LOSS_MASK + i, 5.9, 0.002, SEEDS);
    }
    int n = study_compare(l.seeds, SEEDS, all);
    assert_int_equal(n, 5);
    expect(find_measure(all, n, "deepseekmoe", "deepseekmoe", STUDY_REPLACED), STUDY_HIGHER,
           "DeepSeekMoE without its shared expert is behind DeepSeekMoE as trained by 0.500");
    assert_non_null(strstr(told(find_measure(all, n, "deepseekmoe", "deepseekmoe", STUDY_REPLACED)),
                           ", as in the paper"));
    expect(find_measure(all, n, "deepseekmoe", "gshard", STUDY_FEWER), STUDY_NOT_TOLD,
           "DeepSeekMoE with 4 routed experts for a token and GShard, top-2 cannot be told apart");
    const study_comparison *rise = find_measure(all, n, "deepseekmoe", "gshard", STUDY_MASKED);
    assert_float_equal(rise->difference.mean, 2 - 3.5, 1e-12);
    expect(
        rise, STUDY_LOWER,
        "The rise in loss of DeepSeekMoE with masked experts is below that of GShard, top-2 by 1.5");

    for (int i = 1; i < LOSS_N_MASKS; i++)
        put_probed(&l, "gshard-x1.5", LOSS_MASK + i, 5.5, 0.001, SEEDS);
    n = study_compare(l.seeds, SEEDS, all);
    assert_int_equal(n, 6);
    expect(find_measure(all, n, "deepseekmoe", "gshard-x1.5", STUDY_MASKED), STUDY_HIGHER,
           ", as in the paper");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_correction),
        cmocka_unit_test(test_probes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_plan.c - exact binomial coefficients, the paper's three architectures, and the counts of a model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsmoe.h"

/* ---- combinations --------------------------------------------------------------------------- */

static void assert_combinations(int64_t n, int64_t k, const char *expected)
{
    char *digits;
    dsmoe_error error;
    assert_int_equal(dsmoe_combinations(n, k, &digits, &error), DSMOE_OK);
    assert_string_equal(digits, expected);
    free(digits);
}

static void test_combinations_known(void **state)
{
    (void)state;
    assert_combinations(16, 2, "120");
    assert_combinations(64, 8, "4426165368");
    assert_combinations(63, 7, "553270671");
    assert_combinations(64, 6, "74974368");
    assert_combinations(100, 50, "100891344545564193334812497256");
    assert_combinations(1000000, 3, "166666166667000000");
    assert_combinations(INT64_MAX, 1, "9223372036854775807");
    /* 2^63-1 times 2^63-2, divided by 2 */
    assert_combinations(INT64_MAX, 2, "42535295865117307919086767873688862721");
}

static void test_combinations_edges(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 70; n++) {
        assert_combinations(n, 0, "1");
        assert_combinations(n, n, "1");
        assert_combinations(n, n + 1, "0");
    }
    assert_combinations(INT64_MAX, INT64_MAX, "1");
    assert_combinations(3, INT64_MAX, "0");
    char *digits;
    dsmoe_error error;
    assert_int_equal(dsmoe_combinations(-1, 0, &digits, &error), DSMOE_ERROR_ARGUMENT);
    assert_null(digits);
    assert_int_equal(dsmoe_combinations(4, -1, &digits, NULL), DSMOE_ERROR_ARGUMENT);
}

/* All of Pascal's triangle that fits 64 bits: its rule in integers against our function in digits. */
static void test_combinations_pascal(void **state)
{
    (void)state;
    enum { ROWS = 63 }; /* C(62, 31) < 2^63 */
    uint64_t row[ROWS + 1] = {1};
    for (int n = 0; n < ROWS; n++) {
        for (int k = 0; k <= n; k++) {
            char expected[24];
            snprintf(expected, sizeof expected, "%llu", (unsigned long long)row[k]);
            assert_combinations(n, k, expected);
        }
        for (int k = n + 1; k > 0; k--) row[k] += row[k - 1];
    }
}

static uint64_t digits_modulo(const char *digits, uint64_t modulus)
{
    uint64_t remainder = 0;
    for (; *digits; digits++) remainder = (remainder * 10 + (uint64_t)(*digits - '0')) % modulus;
    return remainder;
}

/* C(n, k) mod p by Pascal's rule alone. */
static uint64_t pascal_modulo(int n, int k, uint64_t p)
{
    uint64_t *row = calloc((size_t)k + 1, sizeof *row);
    assert_non_null(row);
    row[0] = 1;
    for (int i = 0; i < n; i++)
        for (int j = k; j > 0; j--) row[j] = (row[j] + row[j - 1]) % p;
    uint64_t value = row[k];
    free(row);
    return value;
}

static void test_combinations_large(void **state)
{
    (void)state;
    const struct {
        int n, k;
        size_t n_digits;
        const char *leading;
    } cases[] = {{1000, 500, 300, "2702882409454365695156146936259752754"},
                 {4096, 512, 669, "3165267499703397879865306652407390018"},
                 {1024, 128, 167, "1356176108543545565396957126557341710"}};
    /* Three primes below 2^31: a wrong value cannot agree with all of them by chance. */
    static const uint64_t primes[] = {2147483647, 2147483629, 1000000007};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *digits, *mirrored;
        assert_int_equal(dsmoe_combinations(cases[i].n, cases[i].k, &digits, NULL), DSMOE_OK);
        assert_int_equal(strlen(digits), cases[i].n_digits);
        assert_memory_equal(digits, cases[i].leading, strlen(cases[i].leading));
        for (int p = 0; p < 3; p++)
            assert_int_equal(digits_modulo(digits, primes[p]),
                             pascal_modulo(cases[i].n, cases[i].k, primes[p]));
        assert_int_equal(dsmoe_combinations(cases[i].n, cases[i].n - cases[i].k, &mirrored, NULL),
                         DSMOE_OK);
        assert_string_equal(digits, mirrored);
        free(digits);
        free(mirrored);
    }
}

static void test_combinations_too_large(void **state)
{
    (void)state;
    char *digits;
    dsmoe_error error;
    assert_int_equal(dsmoe_combinations(1 << 24, 1 << 23, &digits, &error), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "C(16777216, 8388608)"));
    assert_int_equal(dsmoe_combinations(INT64_MAX, INT64_MAX / 2, &digits, &error),
                     DSMOE_ERROR_ARGUMENT);
    assert_null(digits);
}

/* ---- the three architectures ---------------------------------------------------------------- */

static void assert_row(const dsmoe_plan_row *row, int64_t shared, int64_t routed, int64_t active,
                       int64_t width, int64_t router, const char *combinations)
{
    assert_int_equal(row->n_shared_experts, shared);
    assert_int_equal(row->n_routed_experts, routed);
    assert_int_equal(row->num_experts_per_tok, active);
    assert_int_equal(row->moe_intermediate_size, width);
    assert_int_equal(row->router_parameters, router);
    assert_string_equal(row->combinations, combinations);
}

static void assert_constant(const dsmoe_plan *plan, int64_t parameters, int64_t active)
{
    const dsmoe_plan_row *rows[] = {&plan->conventional, &plan->fine_grained,
                                    &plan->shared_isolation};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rows[i]->expert_parameters, parameters);
        assert_int_equal(rows[i]->active_parameters, active);
        assert_int_equal(rows[i]->flops_per_token, 2 * active);
    }
}

static void test_plan_paper(void **state)
{
    (void)state;
    dsmoe_plan plan;
    assert_int_equal(dsmoe_plan_make(16, 2, 4, 1, 2048, 5632, &plan, NULL), DSMOE_OK);
    assert_row(&plan.conventional, 0, 16, 2, 5632, 16 * 2048, "120");
    assert_row(&plan.fine_grained, 0, 64, 8, 1408, 64 * 2048, "4426165368");
    assert_row(&plan.shared_isolation, 1, 63, 7, 1408, 63 * 2048, "553270671");
    assert_constant(&plan, 16 * 3 * 2048 * 5632, 2 * 3 * 2048 * 5632);
    dsmoe_plan_free(&plan);
    dsmoe_plan_free(&plan); /* it is empty now */
    dsmoe_plan_free(NULL);
}

static void test_plan_sweep(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 6; n++)
        for (int64_t k = 1; k <= n; k++)
            for (int64_t m = 1; m <= 8; m *= 2)
                for (int64_t shared = 0; shared < m * k; shared++) {
                    dsmoe_plan plan;
                    assert_int_equal(dsmoe_plan_make(n, k, m, shared, 5, 24, &plan, NULL),
                                     DSMOE_OK);
                    assert_constant(&plan, n * 3 * 5 * 24, k * 3 * 5 * 24);
                    dsmoe_plan_free(&plan);
                }
}

static void assert_refused(int64_t n, int64_t k, int64_t m, int64_t shared, int64_t hidden,
                           int64_t ffn, const char *message)
{
    dsmoe_plan plan;
    dsmoe_error error;
    assert_int_equal(dsmoe_plan_make(n, k, m, shared, hidden, ffn, &plan, &error),
                     DSMOE_ERROR_ARGUMENT);
    if (!strstr(error.message, message)) fail_msg("\"%s\" lacks \"%s\"", error.message, message);
    assert_null(plan.conventional.combinations);
    assert_null(plan.shared_isolation.combinations);
}

static void test_plan_refuses(void **state)
{
    (void)state;
    assert_refused(16, 2, 3, 1, 2048, 5632, "m = 3 does not divide the FFN size 5632 (2 and 4 do)");
    assert_refused(16, 2, 6000, 1, 2048, 5632, "(5632 does)");
    assert_refused(16, 2, INT64_MAX, 0, 2048, 5632, "(5632 does)");
    assert_refused(16, 17, 4, 1, 2048, 5632, "K = 17");
    assert_refused(16, 2, 4, 8, 2048, 5632, "Ks = 8");
    assert_refused(16, 2, 4, 8, 2048, 5632, "at most 7");
    assert_refused(0, 2, 4, 1, 2048, 5632, "N = 0");
    assert_refused(16, 0, 4, 1, 2048, 5632, "K = 0");
    assert_refused(16, 2, 0, 1, 2048, 5632, "m = 0");
    assert_refused(16, 2, -4, 1, 2048, 5632, "m = -4");
    assert_refused(16, 2, 4, -1, 2048, 5632, "Ks = -1");
    assert_refused(16, 2, 4, 1, 0, 5632, "hidden_size = 0");
    assert_refused(16, 2, 4, 1, 2048, INT64_MIN, "FFN size");
    assert_refused(INT64_MAX, 2, 4, 1, 2048, 5632, "N = 9223372036854775807");
    assert_refused(16, 2, 1, 1, INT64_MAX, 5632, "63 bits");
    assert_refused(1 << 30, 2, 1, 1, 1 << 20, 1 << 20, "63 bits");
    assert_refused(1 << 24, 1 << 23, 1, 0, 8, 8, "C(16777216, 8388608)");
}

/* ---- a whole model -------------------------------------------------------------------------- */

static dsmoe_config read_16b(void)
{
    dsmoe_config config;
    dsmoe_error error = {0};
    if (dsmoe_config_read(TEST_DATA "/config/deepseek-moe-16b.json", &config, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    return config;
}

static void test_model_16b(void **state)
{
    (void)state;
    dsmoe_config config = read_16b();
    dsmoe_model_plan plan;
    assert_int_equal(dsmoe_model_plan_make(&config, 4096, &plan, NULL), DSMOE_OK);
    assert_int_equal(plan.n_moe_layers, 27);
    assert_int_equal(plan.embedding, 102400 * 2048);
    assert_int_equal(plan.lm_head, 102400 * 2048);
    assert_int_equal(plan.attention, 28 * 4 * 2048 * 2048);
    assert_int_equal(plan.dense_ffn, 3 * 2048 * 10944);
    assert_int_equal(plan.routed_experts, INT64_C(27) * 64 * 3 * 2048 * 1408);
    assert_int_equal(plan.active_routed_experts, 27 * 6 * 3 * 2048 * 1408);
    assert_int_equal(plan.shared_experts, 27 * 2 * 3 * 2048 * 1408);
    assert_int_equal(plan.router, 27 * 64 * 2048);
    assert_int_equal(plan.norms, 57 * 2048);
    assert_int_equal(plan.total, INT64_C(16375728128)); /* 32,751,456,256 bytes of bf16 */
    assert_int_equal(plan.active, INT64_C(2828650496));
    assert_true(plan.matmul_flops == 6.0 * (2828650496.0 - 209715200.0) * 4096);
    assert_true(plan.attention_flops == 12.0 * 28 * 2048 * 4096 * 4096);
}

static void test_model_variants(void **state)
{
    (void)state;
    dsmoe_config config = read_16b();
    dsmoe_model_plan base, plan;
    assert_int_equal(dsmoe_model_plan_make(&config, 1, &base, NULL), DSMOE_OK);

    config.tie_word_embeddings = true;
    assert_int_equal(dsmoe_model_plan_make(&config, 1, &plan, NULL), DSMOE_OK);
    assert_int_equal(plan.lm_head, 0);
    assert_int_equal(plan.total, base.total - base.lm_head);
    assert_true(plan.matmul_flops == base.matmul_flops); /* the tied table is multiplied too */

    config = read_16b();
    config.attention_bias = true;
    config.num_key_value_heads = 4;
    assert_int_equal(dsmoe_model_plan_make(&config, 1, &plan, NULL), DSMOE_OK);
    assert_int_equal(plan.attention, 28 * (2 * 2048 * (2048 + 512) + 2 * (2048 + 512)));

    config = read_16b();
    config.n_routed_experts = config.n_shared_experts = config.num_experts_per_tok = 0;
    assert_int_equal(dsmoe_model_plan_make(&config, 1, &plan, NULL), DSMOE_OK);
    assert_int_equal(plan.n_moe_layers, 0);
    assert_int_equal(plan.dense_ffn, INT64_C(28) * 3 * 2048 * 10944);
    assert_int_equal(plan.total, plan.active);
}

/* A configuration built by a program is checked like one from a file. */
static void test_model_refuses(void **state)
{
    (void)state;
    dsmoe_config config = read_16b();
    dsmoe_model_plan plan;
    dsmoe_error error;
    assert_int_equal(dsmoe_model_plan_make(&config, 0, &plan, &error), DSMOE_ERROR_ARGUMENT);
    config.moe_layer_freq = 0;
    assert_int_equal(dsmoe_model_plan_make(&config, 1, &plan, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "moe_layer_freq"));
    config = read_16b();
    config.num_attention_heads = 0;
    assert_int_equal(dsmoe_model_plan_make(&config, 1, &plan, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "num_attention_heads"));
    config = read_16b();
    config.num_key_value_heads = 0;
    assert_int_equal(dsmoe_model_plan_make(&config, 1, &plan, &error), DSMOE_ERROR_CONFIG);
    assert_non_null(strstr(error.message, "num_key_value_heads"));
    config = (dsmoe_config){0};
    assert_int_equal(dsmoe_model_plan_make(&config, 1, &plan, &error), DSMOE_ERROR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_combinations_known),
        cmocka_unit_test(test_combinations_edges),
        cmocka_unit_test(test_combinations_pascal),
        cmocka_unit_test(test_combinations_large),
        cmocka_unit_test(test_combinations_too_large),
        cmocka_unit_test(test_plan_paper),
        cmocka_unit_test(test_plan_sweep),
        cmocka_unit_test(test_plan_refuses),
        cmocka_unit_test(test_model_16b),
        cmocka_unit_test(test_model_variants),
        cmocka_unit_test(test_model_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

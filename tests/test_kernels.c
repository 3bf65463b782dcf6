/* test_kernels.c - the packing and the tile of every set of kernels against the specification (scalar.c)
 * and against sums in double, at odd sizes, from misaligned addresses, in arrays without a spare byte; and
 * which set is chosen. */
#include "operands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/kernels.h"

/* Lengths around every vector step of a kernel. */
static const int lengths[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,  14,  15,
                              16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,  29,  30,  31,
                              32, 33, 34, 35, 36, 37, 38, 39, 40, 63, 64, 65, 511, 512, 513, 1000};

static int round_up(int64_t n, int step) { return (int)((n + step - 1) / step * step); }

/* ---- packing -------------------------------------------------------------------------------- */

enum { SLACK = 8 }; /* floats that packing may write past a panel */

/* Packs `width` columns of n rows, or their transpose. */
static floats pack(const kernels *set, bool transposed, rows src, int64_t n, int64_t width,
                   int group)
{
    int64_t size = transposed ? round_up(n, group) * width : round_up(width, group) * n;
    floats panel = floats_make(size + SLACK, 1);
    (transposed ? set->pack_transposed : set->pack)(panel.at, src, n, width, group);
    return panel;
}

static void pack_case(const kernels *set, bool transposed, int64_t n, int64_t width, int group)
{
    operand src = operand_make(n, width, 3, width % 2, 11);
    floats ours = pack(set, transposed, src.rows, n, width, group);
    floats spec = pack(&kernels_scalar, transposed, src.rows, n, width, group);
    for (int64_t i = 0; i < ours.n - SLACK; i++)
        if (memcmp(&ours.at[i], &spec.at[i], sizeof(float)) != 0)
            fail_msg("%s, %d rows of %d%s in groups of %d: float %d of the panel differs",
                     set->name, (int)n, (int)width, transposed ? ", transposed," : "", group,
                     (int)i);
    floats_free(spec);
    floats_free(ours);
    operand_free(&src);
}

static void pack_set(const kernels *set)
{
    static const int few[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 33};
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (size_t j = 0; j < COUNT(few); j++) {
            pack_case(set, false, lengths[i], few[j], set->tile_m);
            pack_case(set, false, few[j], lengths[i], set->tile_n);
            pack_case(set, true, lengths[i], few[j], set->tile_n);
            pack_case(set, true, few[j], lengths[i], set->tile_m);
        }
    for (int group = 1; group < set->tile_m; group++)
        for (size_t i = 0; i < COUNT(lengths); i++) pack_case(set, true, group, lengths[i], group);
}

/* The specification itself, against the layout that kernels.h describes. */
static void test_pack_layout(void **state)
{
    (void)state;
    enum { N = 5, WIDTH = 7, GROUP = 4 };
    operand src = operand_make(N, WIDTH, 2, true, 12);
    floats panel = pack(&kernels_scalar, false, src.rows, N, WIDTH, GROUP);
    for (int j = 0; j < 8; j++)
        for (int k = 0; k < N; k++)
            assert_true(panel.at[(j / GROUP * N + k) * GROUP + j % GROUP] ==
                        (j < WIDTH ? rows_at(src.rows, k)[j] : 0.0f));
    floats_free(panel);
    panel = pack(&kernels_scalar, true, src.rows, N, WIDTH, GROUP);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < WIDTH; k++)
            assert_true(panel.at[(i / GROUP * WIDTH + k) * GROUP + i % GROUP] ==
                        (i < N ? rows_at(src.rows, i)[k] : 0.0f));
    floats_free(panel);
    operand_free(&src);
}

/* ---- the tile ------------------------------------------------------------------------------- */

/* c = a·b, m by n, over k terms. Operands have a row for each term or, transposed, a row for each row (a)
 * or column (b) of c. */
typedef struct tile_case {
    int64_t m, n, k;
    bool a_transposed, b_transposed, accumulate;
} tile_case;

static floats pack_operand(const kernels *set, bool transposed, rows src, int64_t size, int64_t k,
                           int group)
{
    return transposed ? pack(set, true, src, size, k, group)
                      : pack(set, false, src, k, size, group);
}

static void run_tiles(const kernels *set, tile_case c, rows a, rows b, result *out)
{
    floats as = pack_operand(set, c.a_transposed, a, c.m, c.k, set->tile_m);
    floats bs = pack_operand(set, c.b_transposed, b, c.n, c.k, set->tile_n);
    for (int64_t i = 0; i < c.m; i += set->tile_m)
        for (int64_t j = 0; j < c.n; j += set->tile_n) {
            int m = c.m - i < set->tile_m ? (int)(c.m - i) : set->tile_m;
            int n = c.n - j < set->tile_n ? (int)(c.n - j) : set->tile_n;
            set->tile(c.k, as.at + i * c.k, bs.at + j * c.k, out->data.at + i * out->stride + j,
                      out->stride, c.accumulate, m, n, (patch){(const unsigned char *)bs.at, 0});
        }
    floats_free(as);
    floats_free(bs);
}

static exact exact_tile(tile_case c, rows a, int64_t i, rows b, int64_t j)
{
    exact sum = {0};
    for (int64_t t = 0; t < c.k; t++) {
        double left = c.a_transposed ? rows_at(a, i)[t] : rows_at(a, t)[i];
        sum = exact_add(sum, left * (c.b_transposed ? rows_at(b, j)[t] : rows_at(b, t)[j]));
    }
    return exact_add(sum, c.accumulate ? 3.0 : 0.0);
}

static operand make_operand(bool transposed, int64_t size, int64_t k, bool gather, uint64_t seed)
{
    return transposed ? operand_make(size, k, 2, gather, seed)
                      : operand_make(k, size, 1, gather, seed);
}

static void check_tile(const kernels *set, tile_case c)
{
    operand a = make_operand(c.a_transposed, c.m, c.k, c.n % 2, 31);
    operand b = make_operand(c.b_transposed, c.n, c.k, c.m % 2, 32);
    result ours = result_make(c.m, c.n), spec = result_make(c.m, c.n);
    if (c.accumulate) {
        result_fill(&ours, 3.0f);
        result_fill(&spec, 3.0f);
    }
    run_tiles(set, c, a.rows, b.rows, &ours);
    run_tiles(&kernels_scalar, c, a.rows, b.rows, &spec);
    for (int64_t i = 0; i < c.m; i++)
        for (int64_t j = 0; j < c.n; j++) {
            exact sum = exact_tile(c, a.rows, i, b.rows, j);
            assert_near("tile", set, ours.data.at[i * ours.stride + j], sum);
            sum.value = spec.data.at[i * spec.stride + j];
            assert_near("tile against scalar", set, ours.data.at[i * ours.stride + j], sum);
        }
    result_free(&spec);
    result_free(&ours);
    operand_free(&b);
    operand_free(&a);
}

static void tile_set(const kernels *set)
{
    for (int form = 0; form < 8; form++) {
        tile_case c = {.a_transposed = form & 1, .b_transposed = form & 2, .accumulate = form & 4};
        for (size_t i = 0; i < COUNT(lengths); i++) {
            c.m = set->tile_m;
            c.n = set->tile_n;
            c.k = lengths[i];
            check_tile(set, c);
            c.m = 2 * set->tile_m - 1;
            c.n = set->tile_n + 1;
            check_tile(set, c);
        }
        c.k = 19;
        for (c.m = 0; c.m <= set->tile_m + 1; c.m++)
            for (c.n = 0; c.n <= set->tile_n + 2; c.n++) check_tile(set, c);
    }
}

/* ---- probes of the machine ------------------------------------------------------------------ */

static void probe_set(const kernels *set)
{
    float sink = 0.0f;
    assert_true(set->probe_fma(10, &sink) >= 20 && isfinite(sink));
    assert_true(set->probe_fma(20, &sink) == 2 * set->probe_fma(10, &sink));
    floats x = floats_make(192, 0);
    for (int i = 0; i < 192; i++) x.at[i] = 1.0f;
    float ones = set->probe_read(192, x.at);
    for (int i = 0; i < 192; i++) {
        x.at[i] = 1000.0f;
        assert_true(set->probe_read(192, x.at) != ones); /* it reads all of it */
        x.at[i] = 1.0f;
    }
    floats_free(x);
}

/* ---- choosing ------------------------------------------------------------------------------- */

static void test_choice(void **state)
{
    (void)state;
    const kernels *const *list;
    int n = kernels_all(&list);
    const char *wanted = getenv("DSMOE_KERNELS");
    char *before = wanted ? strdup(wanted) : NULL;
    for (int i = 0; i < n; i++) {
        setenv("DSMOE_KERNELS", list[i]->name, 1);
        assert_ptr_equal(kernels_get(), list[i]);
        assert_string_equal(dsmoe_kernels_name(), list[i]->name);
    }
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_kernels_check(&error), DSMOE_OK);
    setenv("DSMOE_KERNELS", "abacus", 1); /* unknown: the best set is used, and the check fails */
    assert_ptr_equal(kernels_get(), list[n - 1]);
    assert_int_equal(dsmoe_kernels_check(&error), DSMOE_ERROR_ARGUMENT);
    assert_int_equal(dsmoe_kernels_check(NULL), DSMOE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "abacus"));
    for (int i = 0; i < n; i++) assert_non_null(strstr(error.message, list[i]->name));
    setenv("DSMOE_KERNELS", "", 1); /* as if it were unset */
    assert_ptr_equal(kernels_get(), list[n - 1]);
    assert_int_equal(dsmoe_kernels_check(&error), DSMOE_OK);
    unsetenv("DSMOE_KERNELS");
    assert_ptr_equal(kernels_get(), list[n - 1]);
    assert_int_equal(dsmoe_kernels_check(&error), DSMOE_OK);
    if (before) setenv("DSMOE_KERNELS", before, 1);
    free(before);
}

/* A set is used only if the processor has everything that its files are compiled for. */
static void test_features(void **state)
{
    (void)state;
    const kernels *const *list;
    int n = kernels_all(&list), n_known = kernels_with(~0u);
    assert_in_range(n, 1, n_known);
    assert_int_equal(kernels_with(0), 1);
#if defined(__x86_64__)
    const unsigned all = CPU_AVX2 | CPU_FMA | CPU_F16C;
    assert_int_equal(kernels_with(all), 2);
    static const unsigned each[] = {CPU_AVX2, CPU_FMA, CPU_F16C};
    for (size_t i = 0; i < COUNT(each); i++) assert_int_equal(kernels_with(all & ~each[i]), 1);
    assert_int_equal(kernels_with(all | CPU_AVX512), 3);
    assert_int_equal(kernels_with(CPU_AVX512), 1);
#endif
}

/* The choice agrees with the flags that Linux reports. */
static void test_features_here(void **state)
{
    (void)state;
    static char line[1 << 16];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !found && fgets(line, sizeof line, file)) found = !strncmp(line, "flags", 5);
    if (file) fclose(file);
    if (!found) skip();
    line[strcspn(line, "\n")] = ' ';
    static const char *const names[] = {" avx2 ",     " fma ",      " f16c ",     " avx512f ",
                                        " avx512bw ", " avx512dq ", " avx512vl ", " avx512_vnni "};
    size_t n = 0;
    while (n < COUNT(names) && strstr(line, names[n])) n++;
    const kernels *const *list;
    assert_int_equal(kernels_all(&list), n < 3 ? 1 : n < COUNT(names) ? 2 : 3);
}

static void test_pack(void **state) { (void)state, for_each_set(pack_set); }
static void test_tile(void **state) { (void)state, for_each_set(tile_set); }
static void test_probes(void **state) { (void)state, for_each_set(probe_set); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),        cmocka_unit_test(test_pack_layout),
        cmocka_unit_test(test_pack),          cmocka_unit_test(test_tile),
        cmocka_unit_test(test_probes),        cmocka_unit_test(test_features),
        cmocka_unit_test(test_features_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

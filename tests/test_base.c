/* test_base.c - src/base: memory layouts, random numbers that are the same everywhere, one-line messages,
 * 16-bit floats. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

/* ---- arena ---------------------------------------------------------------------------------- */

enum { N_PIECES = 5 };
static const struct {
    int64_t count;
    size_t size;
} pieces[N_PIECES] = {{3, sizeof(float)}, {0, 8}, {1, 1}, {100, 24}, {7, sizeof(double)}};

static void lay_out(arena *a, char *places[N_PIECES])
{
    for (int i = 0; i < N_PIECES; i++) places[i] = arena_take(a, pieces[i].count, pieces[i].size);
}

static void test_arena(void **state)
{
    (void)state;
    char *places[N_PIECES];
    arena measure = arena_over(NULL);
    lay_out(&measure, places);
    for (int i = 0; i < N_PIECES; i++) assert_null(places[i]);
    size_t size = arena_size(&measure);
    for (int shift = 0; shift < MEMORY_ALIGNMENT; shift++) {
        char *memory = malloc(size + (size_t)shift);
        assert_non_null(memory);
        arena place = arena_over(memory + shift);
        lay_out(&place, places);
        assert_int_equal(arena_size(&place), size);
        const char *end = memory + shift;
        for (int i = 0; i < N_PIECES; i++) {
            size_t bytes = (size_t)pieces[i].count * pieces[i].size;
            assert_int_equal((uintptr_t)places[i] % MEMORY_ALIGNMENT, 0);
            assert_true(places[i] >= end);
            memset(places[i], i, bytes);
            end = places[i] + bytes;
        }
        assert_true(end <= memory + shift + size);
        free(memory);
    }
}

static void test_arena_overflow(void **state)
{
    (void)state;
    static const struct {
        int64_t count;
        size_t size;
    } bad[] = {{-1, 4},       {INT64_MIN, 1}, {INT64_MAX, 4},
               {2, SIZE_MAX}, {1, SIZE_MAX},  {INT64_MAX, SIZE_MAX}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        char memory[256];
        arena measure = arena_over(NULL), place = arena_over(memory);
        assert_null(arena_take(&measure, bad[i].count, bad[i].size));
        assert_int_equal(arena_size(&measure), 0);
        arena_take(&measure, 1, 1); /* the failure is permanent */
        assert_int_equal(arena_size(&measure), 0);
        assert_null(arena_take(&place, bad[i].count, bad[i].size));
        assert_int_equal(arena_size(&place), 0);
    }
    arena many = arena_over(NULL); /* each one fits, but all together do not */
    for (int i = 0; i < 16; i++) arena_take(&many, 1, SIZE_MAX / 8);
    assert_int_equal(arena_size(&many), 0);
    arena empty = arena_over(NULL);
    assert_true(arena_size(&empty) > 0); /* 0 would mean failure */
}

/* ---- memory and checked arithmetic ---------------------------------------------------------- */

static void test_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, (size_t)5 << 20};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        unsigned char *memory = memory_alloc(sizes[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % MEMORY_ALIGNMENT, 0);
        for (size_t j = 0; j < sizes[i]; j++)
            if (memory[j]) fail_msg("byte %zu of %zu is not zero", j, sizes[i]);
        free(memory);
    }
    assert_null(memory_alloc(SIZE_MAX));
    assert_null(memory_alloc(SIZE_MAX - 100));
}

static void test_checked(void **state)
{
    (void)state;
    size_t size;
    int64_t number;
    assert_true(checked_add_size(SIZE_MAX - 1, 1, &size) && size == SIZE_MAX);
    assert_false(checked_add_size(SIZE_MAX, 1, &size));
    assert_true(checked_mul_size(SIZE_MAX, 1, &size) && size == SIZE_MAX);
    assert_false(checked_mul_size(SIZE_MAX / 2 + 1, 2, &size));
    assert_true(checked_add_i64(INT64_MAX, -1, &number) && number == INT64_MAX - 1);
    assert_false(checked_add_i64(INT64_MAX, 1, &number));
    assert_true(checked_mul_i64(INT64_MIN, 1, &number) && number == INT64_MIN);
    assert_false(checked_mul_i64(INT64_MIN, -1, &number));
}

/* ---- random numbers ------------------------------------------------------------------------- */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Every machine must compute these numbers. */
static void test_rng_golden(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, stream, index, bits;
        uint32_t uniform, normal; /* in ±1/4; deviation 0.006 */
    } golden[] = {
        {0x0, 0x0, 0x0, 0x5d10cccba5e278b, 0xbe745de6, 0xbb151145},
        {0x0, 0x0, 0x1, 0xfd4d033899aa29ee, 0x3e7a9a06, 0xba390ebc},
        {0x0, 0x1, 0x0, 0xc19bac5c59400429, 0x3e033759, 0xbb2ab50c},
        {0x1, 0x0, 0x0, 0x3606501aa0d214c0, 0xbe13f360, 0xbbf03d2c},
        {0x2a, 0x3, 0xffff, 0x42e217b9b8211ba3, 0xbdf477a1, 0xbaf75d3f},
        {0x2a, 0x3, 0x10000, 0x11a77eb55d1fe60b, 0xbe5cb103, 0xbc150543},
        {0xffffffffffffffff, 0xffffffffffffffff, 0xffffffffffffffff, 0x179f01f0d2fba97a, 0xbe50c1fc,
         0x3bc0d2ca},
        {0x123456789abcdef0, 0x7, 0x10000000000, 0x1114c5db9be4b441, 0xbe5dd674, 0xbc313309},
    };
    for (size_t i = 0; i < COUNT(golden); i++) {
        uint64_t seed = golden[i].seed, stream = golden[i].stream, index = golden[i].index;
        uint64_t bits = rng_bits(seed, stream, index);
        float uniform, normal;
        rng_uniform(&uniform, 1, seed, stream, index, -0.25f, 0.25f);
        rng_normal(&normal, 1, seed, stream, index, 0.006f);
        if (bits != golden[i].bits || bits_of(uniform) != golden[i].uniform ||
            bits_of(normal) != golden[i].normal)
            fail_msg("number %zu: {0x%llx, 0x%llx, 0x%llx, 0x%llx, 0x%x, 0x%x}", i,
                     (unsigned long long)seed, (unsigned long long)stream,
                     (unsigned long long)index, (unsigned long long)bits, bits_of(uniform),
                     bits_of(normal));
    }
}

/* A tensor made in pieces is the same as one made in a single call. */
static void test_rng_pieces(void **state)
{
    (void)state;
    enum { N = 1000 };
    float whole[N], part[N];
    const uint64_t first = (1ull << 40) + 5;
    rng_normal(whole, N, 3, 4, first, 2.0f);
    for (int i = 0; i < N; i += 137)
        rng_normal(part + i, N - i < 137 ? N - i : 137, 3, 4, first + (uint64_t)i, 2.0f);
    assert_memory_equal(whole, part, sizeof whole);
    rng_uniform(whole, N, 3, 4, first, 0.0f, 1.0f);
    for (int i = 0; i < N; i++) rng_uniform(part + i, 1, 3, 4, first + (uint64_t)i, 0.0f, 1.0f);
    assert_memory_equal(whole, part, sizeof whole);
    rng_normal(whole, 0, 1, 1, 0, 1.0f);
    assert_memory_equal(whole, part, sizeof whole);
}

typedef struct moments {
    double mean, variance, skewness, kurtosis, min, max, correlation;
} moments;

/* `correlation` is between neighbours. */
static moments measure(const float *values, int n)
{
    moments m = {.min = INFINITY, .max = -INFINITY};
    for (int i = 0; i < n; i++) {
        m.mean += values[i] / (double)n;
        m.min = fmin(m.min, values[i]);
        m.max = fmax(m.max, values[i]);
    }
    for (int i = 0; i < n; i++) {
        double d = values[i] - m.mean;
        m.variance += d * d / n;
        m.skewness += d * d * d / n;
        m.kurtosis += d * d * d * d / n;
        if (i) m.correlation += d * (values[i - 1] - m.mean) / n;
    }
    m.skewness /= pow(m.variance, 1.5);
    m.kurtosis /= m.variance * m.variance;
    m.correlation /= m.variance;
    return m;
}

static void assert_about(const char *what, double value, double expected, double error)
{
    if (!(fabs(value - expected) <= error))
        fail_msg("%s is %g, where %g ± %g is expected", what, value, expected, error);
}

/* Within four standard errors of theory. */
static void test_rng_distribution(void **state)
{
    (void)state;
    enum { N = 100000 };
    const double error = 4 / sqrt(N);
    float *values = malloc(N * sizeof *values);
    assert_non_null(values);
    for (uint64_t stream = 0; stream < 3; stream++) {
        rng_normal(values, N, 42, stream, 0, 1.0f);
        moments m = measure(values, N);
        assert_about("mean of normals", m.mean, 0, error);
        assert_about("variance of normals", m.variance, 1, error * sqrt(2));
        assert_about("skewness of normals", m.skewness, 0, error * sqrt(6));
        assert_about("kurtosis of normals", m.kurtosis, 3, error * sqrt(24));
        assert_about("correlation of normals", m.correlation, 0, error);
        assert_about("largest of normals", m.max, 4.6, 1.0);
        assert_about("smallest of normals", m.min, -4.6, 1.0);

        rng_uniform(values, N, 42, stream, 0, -2.0f, 3.0f);
        m = measure(values, N);
        assert_about("mean of uniforms", m.mean, 0.5, error * 5 / sqrt(12));
        assert_about("variance of uniforms", m.variance, 25.0 / 12, error * 25 / sqrt(180));
        assert_about("kurtosis of uniforms", m.kurtosis, 1.8, 0.03);
        assert_about("correlation of uniforms", m.correlation, 0, error);
        assert_true(m.min >= -2 && m.min < -1.999 && m.max <= 3 && m.max > 2.999);
    }
    free(values);
}

/* Our own logarithm and cosine agree with libm. */
static void test_rng_transform(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = rng_bits(9, 8, i);
        double u = (double)((bits >> 32) + 1) * 0x1p-32, v = (double)(uint32_t)bits * 0x1p-32;
        double expected = sqrt(-2 * log(u)) * cos(6.283185307179586477 * v);
        float normal;
        rng_normal(&normal, 1, 9, 8, i, 1.0f);
        assert_about("a normal", normal, expected, 6e-8 * fabs(expected) + 1e-14);
    }
}

/* Different seeds, streams and indices give different numbers. */
static void test_rng_streams(void **state)
{
    (void)state;
    uint64_t seen[1000];
    int n = 0;
    for (uint64_t seed = 0; seed < 10; seed++)
        for (uint64_t stream = 0; stream < 10; stream++)
            for (uint64_t index = 0; index < 10; index++) seen[n++] = rng_bits(seed, stream, index);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) assert_true(seen[i] != seen[j]);
}

/* ---- status --------------------------------------------------------------------------------- */

static void test_status(void **state)
{
    (void)state;
    dsmoe_error error = {0};
    assert_int_equal(status_fail(&error, DSMOE_ERROR_IO, "%s: no %d", "file", 7), DSMOE_ERROR_IO);
    assert_int_equal(error.status, DSMOE_ERROR_IO);
    assert_string_equal(error.message, "file: no 7");
    assert_int_equal(status_fail(NULL, DSMOE_ERROR_FORMAT, "%s", "x"), DSMOE_ERROR_FORMAT);

    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    status_fail(&error, DSMOE_ERROR_CONFIG, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);

    status_fail(&error, DSMOE_ERROR_CONFIG, "%s", "a\nb\tc\033[31md\177e\001\xc3\xa9");
    assert_string_equal(error.message, "a?b?c?[31md?e?\xc3\xa9");
}

static void test_status_names(void **state)
{
    (void)state;
    for (int i = DSMOE_OK; i <= DSMOE_ERROR_STOPPED; i++) {
        const char *name = dsmoe_status_name((dsmoe_status)i);
        assert_true(name && *name);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, dsmoe_status_name((dsmoe_status)j));
    }
    assert_string_equal(dsmoe_status_name(DSMOE_OK), "ok");
    assert_string_equal(dsmoe_status_name(DSMOE_ERROR_STOPPED), "stopped");
    assert_non_null(dsmoe_status_name((dsmoe_status)99));
    assert_string_equal(dsmoe_version(), DSMOE_VERSION);
}

/* ---- 16-bit floats --------------------------------------------------------------------------- */

/* The value of 16 bits, for any split into exponent and fraction. */
static double half_meaning(uint16_t bits, int fraction_bits, int bias)
{
    int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    double value = exponent
                       ? ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
                       : ldexp(fraction, 1 - bias - fraction_bits);
    return bits & 0x8000 ? -value : value;
}

typedef float from_half_fn(uint16_t half);
typedef uint16_t to_half_fn(float value);

/* Every finite number is converted there and back, and so are the midpoint to its neighbour and the floats
 * next to it. */
static void check_finite_halves(from_half_fn *from, to_half_fn *to, int fraction_bits, int bias)
{
    int infinity = 0x7fff >> fraction_bits << fraction_bits;
    for (int bits = 0; bits < infinity; bits++)
        for (int sign = 0; sign <= 0x8000; sign += 0x8000) {
            uint16_t here = (uint16_t)(bits | sign), next = (uint16_t)(here + 1);
            float value = from(here);
            assert_true(value == half_meaning(here, fraction_bits, bias));
            assert_int_equal(signbit(value) != 0, sign != 0);
            assert_int_equal(to(value), here);
            double end = half_meaning(next, fraction_bits, bias);
            float middle = (float)((value + end) / 2); /* exact, as float32 has more digits */
            if (isinf((float)end)) continue;           /* bfloat16 ends where float32 ends */
            assert_int_equal(to(middle), bits % 2 ? next : here);
            assert_int_equal(to(nextafterf(middle, value)), here);
            assert_int_equal(to(nextafterf(middle, (float)end)), next);
        }
}

/* Infinities, all NaNs, and a number that is too small. */
static void check_special_halves(from_half_fn *from, to_half_fn *to, int fraction_bits)
{
    int infinity = 0x7fff >> fraction_bits << fraction_bits;
    assert_true(from((uint16_t)infinity) == INFINITY);
    assert_true(from((uint16_t)(infinity | 0x8000)) == -INFINITY);
    assert_int_equal(to(INFINITY), infinity);
    assert_int_equal(to(-INFINITY), infinity | 0x8000);
    for (int bits = infinity + 1; bits <= 0x7fff; bits++) {
        float value = from((uint16_t)bits);
        assert_true(isnan(value));
        assert_true((to(value) & 0x7fff) > infinity);
    }
    /* A NaN whose upper 16 bits are those of an infinity. */
    assert_true((to(half_float(0x7f800001)) & 0x7fff) > infinity);
    assert_int_equal(to(half_float(1)), 0);
}

static void test_half(void **state)
{
    (void)state;
    check_finite_halves(half_from_f16, half_to_f16, 10, 15);
    check_finite_halves(half_from_bf16, half_to_bf16, 7, 127);
    check_special_halves(half_from_f16, half_to_f16, 10);
    check_special_halves(half_from_bf16, half_to_bf16, 7);
    assert_int_equal(half_to_f16(65519.996f), 0x7bff);
    assert_int_equal(half_to_f16(65520.0f), 0x7c00);
    assert_int_equal(half_to_f16(-3e38f), 0xfc00);
    assert_int_equal(half_to_bf16(3.4e38f), 0x7f80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_overflow),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_rng_distribution),
        cmocka_unit_test(test_rng_transform),
        cmocka_unit_test(test_rng_golden),
        cmocka_unit_test(test_rng_pieces),
        cmocka_unit_test(test_rng_streams),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

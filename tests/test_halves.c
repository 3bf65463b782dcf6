/* test_halves.c - what layers keep in 16 bits: taking it from a store gives the same as rounding in place,
 * and pieces that are not rounded are unchanged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "train/halves.h"

enum { N = 40000, ODD = 16 * 33 }; /* more than a task has, and fewer */

static float number_at(int i) { return (float)((i * 7919) % 20011 - 10000) * 0.37f; }

/* Fills memory and describes its pieces; the second and the fourth are rounded. */
static void fill(float *memory, kept_piece pieces[KEPT_PIECES])
{
    const int n[KEPT_PIECES] = {ODD, N, 0, ODD};
    float *at = memory;
    for (int i = 0; i < KEPT_PIECES; at += n[i++])
        pieces[i] = (kept_piece){at, (size_t)n[i] * sizeof *at, i == 1 || i == 3};
    for (int i = 0; i < N + 2 * ODD; i++) memory[i] = number_at(i);
    memory[ODD + 5] = 1e9f; /* too large for float16 */
    memory[ODD + 6] = -70000.0f;
    memory[ODD + 7] = NAN;
}

static void halves_of_set(const kernels *set)
{
    enum { ALL = N + 2 * ODD };
    kept_piece pieces[KEPT_PIECES], rounded_pieces[KEPT_PIECES];
    float *memory = calloc(ALL, sizeof *memory), *rounded = calloc(ALL, sizeof *rounded);
    fill(memory, pieces);
    fill(rounded, rounded_pieces);
    assert_int_equal(halves_size(pieces), ODD * 4 + N * 2 + ODD * 2);
    char *store = calloc(1, halves_size(pieces));
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        fill(memory, pieces);
        halves_keep(set, pieces, store, n_threads);
        memset(memory, 0, ALL * sizeof *memory);
        halves_take(set, pieces, store, n_threads);
        fill(rounded, rounded_pieces);
        halves_keep(set, rounded_pieces, NULL, n_threads);
        assert_memory_equal(memory, rounded, ALL * sizeof *memory);
    }
    for (int i = 0; i < ALL; i++) {
        if (i >= ODD + 5 && i <= ODD + 7) continue;
        assert_true(i < ODD
                        ? memory[i] == number_at(i)
                        : fabsf(memory[i] - number_at(i)) <= fabsf(number_at(i)) / 2048 + 1e-7f);
    }
    assert_true(memory[ODD + 5] == 65504.0f && memory[ODD + 6] == -65504.0f);
    assert_true(isnan(memory[ODD + 7]));
    free(store);
    free(memory);
    free(rounded);
}

static void test_store(void **state)
{
    (void)state;
    const kernels *const *sets;
    int n = kernels_all(&sets);
    for (int i = 0; i < n; i++) halves_of_set(sets[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_store)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

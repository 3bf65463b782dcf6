/* compare.c - how far our numbers are from the expected ones. */
#include "verify/compare.h"

#include <math.h>

void difference_add(difference *sum, double ours, double expected)
{
    double distance = fabs(ours - expected);
    if (isnan(distance)) sum->undefined = true;
    if (distance > sum->max_abs) sum->max_abs = distance;
    if (fabs(expected) > sum->max_expected) sum->max_expected = fabs(expected);
}

void difference_add_part(difference *sum, const float *ours, const safetensors_tensor *expected,
                         size_t first, size_t n)
{
    enum { PIECE = 1024 }; /* a file's elements may be unaligned and of another type */
    float piece[PIECE];
    for (size_t done = 0; done < n; done += PIECE) {
        size_t rest = n - done, count = rest < PIECE ? rest : PIECE;
        safetensors_tensor_read_f32(expected, first + done, count, piece);
        for (size_t i = 0; i < count; i++) difference_add(sum, ours[done + i], piece[i]);
    }
}

void difference_add_tensor(difference *sum, const float *ours, const safetensors_tensor *expected)
{
    difference_add_part(sum, ours, expected, 0, expected->n_elements);
}

void difference_merge(difference *sum, const difference *part)
{
    sum->max_abs = fmax(sum->max_abs, part->max_abs);
    sum->max_expected = fmax(sum->max_expected, part->max_expected);
    sum->undefined = sum->undefined || part->undefined;
}

dsmoe_check difference_check(const difference *sum, const char *name, double tolerance)
{
    dsmoe_check check = {.name = name, .max_abs = sum->max_abs};
    if (sum->undefined)
        check.max_abs = check.max_rel = NAN;
    else if (sum->max_abs > 0)
        check.max_rel = sum->max_abs / sum->max_expected; /* infinity if all should be zero */
    check.ok = check.max_rel <= tolerance;                /* false for a NaN */
    return check;
}

static bool contains(const int64_t *experts, int64_t k, int64_t expert)
{
    for (int64_t i = 0; i < k; i++)
        if (experts[i] == expert) return true;
    return false;
}

bool compare_experts(const int32_t *ours, const int64_t *expected, int64_t k)
{
    /* Ours are distinct, so k hits cover all expected experts. */
    for (int64_t i = 0; i < k; i++)
        if (!contains(expected, k, ours[i])) return false;
    return true;
}

void difference_add_gates(difference *sum, const int32_t *ours, const float *our_gates,
                          const int64_t *expected, const float *expected_gates, int64_t k)
{
    for (int64_t i = 0; i < k; i++) {
        double gate = 0;
        for (int64_t j = 0; j < k; j++)
            if (ours[j] == expected[i]) gate = our_gates[j];
        difference_add(sum, gate, expected_gates[i]);
        if (!contains(expected, k, ours[i])) difference_add(sum, our_gates[i], 0);
    }
}

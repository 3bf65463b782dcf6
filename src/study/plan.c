/* plan.c - what the paper's architectures cost before they exist: parameters, compute and combinations.
 *
 * The three architectures are one family. The conventional one has N experts of width F, K of them active.
 * The fine-grained one splits each expert into m: m·N experts of width F/m, m·K active. With shared experts,
 * Ks of these are always active and the others are routed. An expert is a SwiGLU, three matrices of
 * hidden_size by width. */
#include "dsmoe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/status.h"

/* Fills `near` with " (2 and 4 do)": the divisors of `size` next to `split`, if they are near enough to be
 * found by trying. */
static void divisors_near(int64_t size, int64_t split, char *near, size_t near_size)
{
    const int64_t reach = 1 << 20;
    int64_t below = split < size ? split : size, above = split;
    for (int64_t i = 0; i < reach && below > 1 && size % below; i++) below--;
    for (int64_t i = 0; i < reach && above < size && size % above; i++) above++;
    bool has_below = size % below == 0, has_above = above <= size && size % above == 0;
    if (has_below && has_above)
        snprintf(near, near_size, " (%" PRId64 " and %" PRId64 " do)", below, above);
    else if (has_below || has_above)
        snprintf(near, near_size, " (%" PRId64 " does)", has_below ? below : above);
    else
        near[0] = '\0';
}

/* Checks the conditions under which the three architectures have the same parameters and compute. */
static dsmoe_status plan_check(int64_t n_experts, int64_t k_active, int64_t m_split,
                               int64_t k_shared, int64_t hidden_size, int64_t ffn_size,
                               dsmoe_error *error)
{
    const struct {
        const char *name;
        int64_t value, min;
    } numbers[] = {{"experts N", n_experts, 1},     {"active experts K", k_active, 1},
                   {"split m", m_split, 1},         {"shared experts Ks", k_shared, 0},
                   {"hidden_size", hidden_size, 1}, {"FFN size", ffn_size, 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value < numbers[i].min)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "%s = %" PRId64 " must be at least %" PRId64, numbers[i].name,
                               numbers[i].value, numbers[i].min);
    if (k_active > n_experts)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "active experts K = %" PRId64
                           " cannot be more than experts N = %" PRId64,
                           k_active, n_experts);
    if (ffn_size % m_split) {
        char near[64];
        divisors_near(ffn_size, m_split, near, sizeof near);
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "split m = %" PRId64 " does not divide the FFN size %" PRId64
                           "%s: the parts could not keep the parameters and compute of the whole",
                           m_split, ffn_size, near);
    }
    int64_t n_split, k_split;
    if (!checked_mul_i64(n_experts, m_split, &n_split) ||
        !checked_mul_i64(k_active, m_split, &k_split))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "experts N = %" PRId64 " times split m = %" PRId64 " is too large",
                           n_experts, m_split);
    if (k_shared >= k_split)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "shared experts Ks = %" PRId64 " leave none of the %" PRId64
                           " active experts (m K) to be routed: at most %" PRId64,
                           k_shared, k_split, k_split - 1);
    return DSMOE_OK;
}

/* Fills a row whose four sizes are set. */
static dsmoe_status plan_row_fill(dsmoe_plan_row *row, int64_t hidden_size, dsmoe_error *error)
{
    int64_t per_expert;
    bool fits = checked_mul_i64(3, hidden_size, &per_expert) &&
                checked_mul_i64(per_expert, row->moe_intermediate_size, &per_expert) &&
                checked_mul_i64(per_expert, row->n_routed_experts + row->n_shared_experts,
                                &row->expert_parameters) &&
                checked_mul_i64(per_expert, row->num_experts_per_tok + row->n_shared_experts,
                                &row->active_parameters) &&
                checked_mul_i64(2, row->active_parameters, &row->flops_per_token) &&
                checked_mul_i64(hidden_size, row->n_routed_experts, &row->router_parameters);
    if (!fits)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%" PRId64 " experts of width %" PRId64 " over hidden_size %" PRId64
                           ": the parameters do not fit 63 bits",
                           row->n_routed_experts + row->n_shared_experts,
                           row->moe_intermediate_size, hidden_size);
    return dsmoe_combinations(row->n_routed_experts, row->num_experts_per_tok, &row->combinations,
                              error);
}

dsmoe_status dsmoe_plan_make(int64_t n_experts, int64_t k_active, int64_t m_split, int64_t k_shared,
                             int64_t hidden_size, int64_t ffn_size, dsmoe_plan *plan,
                             dsmoe_error *error)
{
    *plan = (dsmoe_plan){0};
    STATUS_TRY(plan_check(n_experts, k_active, m_split, k_shared, hidden_size, ffn_size, error));
    int64_t n_split = m_split * n_experts, k_split = m_split * k_active, width = ffn_size / m_split;
    plan->conventional = (dsmoe_plan_row){.n_routed_experts = n_experts,
                                          .num_experts_per_tok = k_active,
                                          .moe_intermediate_size = ffn_size};
    plan->fine_grained = (dsmoe_plan_row){.n_routed_experts = n_split,
                                          .num_experts_per_tok = k_split,
                                          .moe_intermediate_size = width};
    plan->shared_isolation = (dsmoe_plan_row){.n_routed_experts = n_split - k_shared,
                                              .num_experts_per_tok = k_split - k_shared,
                                              .n_shared_experts = k_shared,
                                              .moe_intermediate_size = width};
    dsmoe_plan_row *rows[] = {&plan->conventional, &plan->fine_grained, &plan->shared_isolation};
    for (int i = 0; i < 3; i++) {
        dsmoe_status status = plan_row_fill(rows[i], hidden_size, error);
        if (status != DSMOE_OK) {
            dsmoe_plan_free(plan);
            return status;
        }
    }
    return DSMOE_OK;
}

void dsmoe_plan_free(dsmoe_plan *plan)
{
    if (!plan) return;
    free(plan->conventional.combinations);
    free(plan->fine_grained.combinations);
    free(plan->shared_isolation.combinations);
    *plan = (dsmoe_plan){0};
}

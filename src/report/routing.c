/* routing.c - the numbers that follow from the counts of a routing report. */
#include "report/routing.h"

double routing_load(const routing_report *report, const routing_expert *expert)
{
    return (double)expert->count / ((double)report->n_tokens * (double)report->k);
}

double routing_relative_load(const routing_report *report, const routing_expert *expert)
{
    return routing_load(report, expert) * (double)report->n_experts;
}

double routing_mean_weight(const routing_expert *expert)
{
    return expert->count ? expert->weight / (double)expert->count : 0;
}

double routing_expected(const routing_report *report, const routing_layer *layer, int64_t a,
                        int64_t b)
{
    double n_experts = (double)report->n_experts, k = (double)report->k;
    /* k different experts meet less often than k independent draws would */
    double chance = (k - 1) / k * n_experts / (n_experts - 1);
    return chance * (double)layer->experts[a].count * (double)layer->experts[b].count /
           (double)report->n_tokens;
}

double routing_lift(const routing_report *report, const routing_layer *layer, int64_t a, int64_t b)
{
    double count = layer->together[(a < b ? a : b) * report->n_experts + (a < b ? b : a)];
    return count == 0 ? 0 : count / routing_expected(report, layer, a, b);
}

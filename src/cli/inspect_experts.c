/* inspect_experts.c - the experts that a text uses most, in the form that training reads
 * (expert_cfg.json). */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/inspect_routing.h"
#include "cli/output.h"

static void print_choice(const routing_report *r, const double *scores, const unsigned char *chosen,
                         double share)
{
    int64_t all = 0;
    printf("\nExperts of each layer whose scores sum up to %g:\n", share);
    for (int64_t i = 0; i < r->n_layers; i++) {
        int64_t first = r->layers[i].layer * r->n_experts;
        double sum = 0;
        printf("  layer %2" PRId64 "  ", r->layers[i].layer);
        for (int64_t e = 0; e < r->n_experts; e++) {
            if (!chosen[first + e]) continue;
            printf(" %" PRId64, e);
            sum += scores[first + e];
            all++;
        }
        printf("  (%.3f)\n", sum);
    }
    printf("%" PRId64 " of %" PRId64 " experts\n", all, r->n_layers * r->n_experts);
}

int routing_check_experts(const routing_choice *choice)
{
    dsmoe_expert_score kind;
    if (!dsmoe_expert_score_find(choice->score, &kind))
        return cli_usage("inspect", "--expert-score is gate or token, not '%s'", choice->score);
    return output_check_name("inspect", "--experts-out", choice->path);
}

int routing_put_experts(const routing_report *r, const routing_choice *choice, bool show)
{
    size_t n = (size_t)(r->config->num_hidden_layers * r->n_experts);
    double *scores = calloc(n, sizeof *scores), share = choice->share;
    unsigned char *chosen = calloc(n, 1);
    dsmoe_expert_score kind = DSMOE_EXPERT_SCORE_GATE;
    dsmoe_error error;
    int exit_code = CLI_OK;
    dsmoe_expert_score_find(choice->score, &kind);
    if (share < 0) share = dsmoe_expert_share_default(kind);
    if (!scores || !chosen) {
        exit_code = cli_failure("inspect", "not enough memory for a list of experts");
    } else {
        routing_scores(r, kind, scores);
        dsmoe_experts_choose(r->config, scores, share, chosen);
        if (dsmoe_experts_write(choice->path, r->config, chosen, &error) != DSMOE_OK)
            exit_code = cli_failure("inspect", "%s", error.message);
        else if (show)
            print_choice(r, scores, chosen, share);
    }
    free(scores);
    free(chosen);
    return exit_code;
}

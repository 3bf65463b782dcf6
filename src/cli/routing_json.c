/* routing_json.c - the use of the experts for programs. */
#include "cli/inspect_routing.h"

#include <inttypes.h>

#include "cli/cli.h"
#include "formats/json_write.h"

static void print_favourites(const routing_report *report, const routing_expert *expert)
{
    fputs("\"favourites\": [", stdout);
    for (int i = 0; i < expert->n_favourites; i++) {
        const routing_favourite *favourite = &expert->favourites[i];
        size_t length = 0;
        const char *piece = NULL;
        if (report->tokenizer)
            piece = dsmoe_tokenizer_piece(report->tokenizer, favourite->token, &length);
        printf("%s{\"token\": %" PRId32, i ? ", " : "", favourite->token);
        if (piece) {
            fputs(", \"text\": ", stdout);
            json_write_text(stdout, piece, length);
        }
        printf(", \"count\": %" PRIu32 ", \"occurrences\": %" PRIu32 ", \"lift\": %.4g}",
               favourite->count, favourite->total, favourite->lift);
    }
    putchar(']');
}

static void print_experts(const routing_report *report, const routing_layer *layer)
{
    fputs("   \"experts\": [", stdout);
    for (int64_t e = 0; e < report->n_experts; e++) {
        const routing_expert *expert = &layer->experts[e];
        printf("%s\n    {\"expert\": %" PRId64 ", \"count\": %" PRId64
               ", \"load\": %.6g, \"gate_weight\": %.6g, ",
               e ? "," : "", e, expert->count, routing_load(report, expert), expert->weight);
        if (layer->bias.values) printf("\"bias\": %.6g, ", (double)layer->bias.values[e]);
        print_favourites(report, expert);
        putchar('}');
    }
    fputs("],\n", stdout);
}

static void print_pairs(const routing_layer *layer)
{
    fputs("   \"pairs\": [", stdout);
    for (int i = 0; i < layer->n_pairs; i++) {
        const routing_pair *pair = &layer->pairs[i];
        printf("%s{\"experts\": [%" PRId32 ", %" PRId32 "], \"count\": %" PRIu32
               ", \"lift\": %.4g}",
               i ? ", " : "", pair->first, pair->second, pair->count, pair->lift);
    }
    fputs("],\n", stdout);
}

/* Row e holds how often e fires together with e + 1, e + 2, … */
static void print_together(const routing_report *report, const routing_layer *layer)
{
    int64_t n = report->n_experts;
    fputs("   \"together\": [", stdout);
    for (int64_t a = 0; a + 1 < n; a++) {
        printf("%s[", a ? ", " : "");
        for (int64_t b = a + 1; b < n; b++)
            printf("%s%" PRIu32, b > a + 1 ? "," : "", layer->together[a * n + b]);
        putchar(']');
    }
    putchar(']');
}

void routing_print_json(const routing_report *report)
{
    fputs("{\"file\": ", stdout);
    json_write_string(stdout, report->text_path);
    printf(", \"tokens\": %" PRId64 ", \"counted\": %" PRId64 ", \"interrupted\": %s,\n"
           "  \"n_ctx\": %" PRId64 ", \"seconds\": %.3f, \"n_routed_experts\": %" PRId64
           ", \"num_experts_per_tok\": %" PRId64 ",\n  \"layers\": [",
           report->n_text, report->n_tokens, report->interrupted ? "true" : "false", report->n_ctx,
           report->seconds, report->n_experts, report->k);
    for (int64_t i = 0; i < report->n_layers; i++) {
        const routing_layer *layer = &report->layers[i];
        printf("%s\n  {\"layer\": %" PRId64 ", \"imbalance\": %.6g, \"entropy\": %.6g"
               ", \"unused\": %" PRId64 ",\n",
               i ? "," : "", layer->layer, layer->imbalance, layer->entropy, layer->n_unused);
        if (layer->bias.values)
            printf("   \"bias\": {\"low\": %.6g, \"mean\": %.6g, \"high\": %.6g},\n",
                   layer->bias.low, layer->bias.mean, layer->bias.high);
        print_experts(report, layer);
        print_pairs(layer);
        print_together(report, layer);
        putchar('}');
    }
    fputs("]}", stdout);
}

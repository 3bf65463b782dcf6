/* routing_json.c - a routing report as JSON, for programs. */
#include <inttypes.h>

#include "formats/json_write.h"
#include "study/routing.h"

static void put_favourites(FILE *file, const routing_report *report, const routing_expert *expert)
{
    fputs("\"favourites\": [", file);
    for (int i = 0; i < expert->n_favourites; i++) {
        const routing_favourite *favourite = &expert->favourites[i];
        size_t length = 0;
        const char *piece = NULL;
        if (report->tokenizer)
            piece = dsmoe_tokenizer_piece(report->tokenizer, favourite->token, &length);
        fprintf(file, "%s{\"token\": %" PRId32, i ? ", " : "", favourite->token);
        if (piece) {
            fputs(", \"text\": ", file);
            json_write_text(file, piece, length);
        }
        fprintf(file, ", \"count\": %" PRIu32 ", \"occurrences\": %" PRIu32 ", \"lift\": %.4g}",
                favourite->count, favourite->total, favourite->lift);
    }
    fputc(']', file);
}

static void put_experts(FILE *file, const routing_report *report, const routing_layer *layer)
{
    fputs("   \"experts\": [", file);
    for (int64_t e = 0; e < report->n_experts; e++) {
        const routing_expert *expert = &layer->experts[e];
        fprintf(file,
                "%s\n    {\"expert\": %" PRId64 ", \"count\": %" PRId64
                ", \"load\": %.6g, \"gate_weight\": %.6g, ",
                e ? "," : "", e, expert->count, routing_load(report, expert), expert->weight);
        if (layer->bias.values) fprintf(file, "\"bias\": %.6g, ", (double)layer->bias.values[e]);
        put_favourites(file, report, expert);
        fputc('}', file);
    }
    fputs("],\n", file);
}

static void put_pairs(FILE *file, const routing_layer *layer)
{
    fputs("   \"pairs\": [", file);
    for (int i = 0; i < layer->n_pairs; i++) {
        const routing_pair *pair = &layer->pairs[i];
        fprintf(file,
                "%s{\"experts\": [%" PRId32 ", %" PRId32 "], \"count\": %" PRIu32
                ", \"lift\": %.4g}",
                i ? ", " : "", pair->first, pair->second, pair->count, pair->lift);
    }
    fputs("],\n", file);
}

/* Row e has the number of tokens that chose both e and e + 1, e + 2, … */
static void put_together(FILE *file, const routing_report *report, const routing_layer *layer)
{
    int64_t n = report->n_experts;
    fputs("   \"together\": [", file);
    for (int64_t a = 0; a + 1 < n; a++) {
        fprintf(file, "%s[", a ? ", " : "");
        for (int64_t b = a + 1; b < n; b++)
            fprintf(file, "%s%" PRIu32, b > a + 1 ? "," : "", layer->together[a * n + b]);
        fputc(']', file);
    }
    fputc(']', file);
}

void routing_put_json(const routing_report *report, FILE *file)
{
    fputs("{\"file\": ", file);
    json_write_string(file, report->text_path);
    fprintf(file,
            ", \"tokens\": %" PRId64 ", \"counted\": %" PRId64 ", \"interrupted\": %s,\n"
            "  \"n_ctx\": %" PRId64 ", \"seconds\": %.3f, \"n_routed_experts\": %" PRId64
            ", \"num_experts_per_tok\": %" PRId64 ",\n  \"layers\": [",
            report->n_text, report->n_tokens, report->interrupted ? "true" : "false", report->n_ctx,
            report->seconds, report->n_experts, report->k);
    for (int64_t i = 0; i < report->n_layers; i++) {
        const routing_layer *layer = &report->layers[i];
        fprintf(file,
                "%s\n  {\"layer\": %" PRId64 ", \"imbalance\": %.6g, \"entropy\": %.6g"
                ", \"unused\": %" PRId64 ",\n",
                i ? "," : "", layer->layer, layer->imbalance, layer->entropy, layer->n_unused);
        if (layer->bias.values)
            fprintf(file, "   \"bias\": {\"low\": %.6g, \"mean\": %.6g, \"high\": %.6g},\n",
                    layer->bias.low, layer->bias.mean, layer->bias.high);
        put_experts(file, report, layer);
        put_pairs(file, layer);
        put_together(file, report, layer);
        fputc('}', file);
    }
    fputs("]}", file);
}

/* remote_request.c - options of the command line as members of a request. */
#include "cli/remote_request.h"

#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "base/utf8.h"
#include "formats/json_write.h"

static const struct {
    const char *option, *member;
} numbers[] = {
    {"--temp", "temperature"},
    {"--top-k", "top_k"},
    {"--top-p", "top_p"},
    {"--min-p", "min_p"},
    {"--repeat-penalty", "repeat_penalty"},
    {"--repeat-last-n", "repeat_last_n"},
    {"--presence-penalty", "presence_penalty"},
    {"--frequency-penalty", "frequency_penalty"},
};

static const char *member_of(const char *option)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(numbers[i].option, option)) return numbers[i].member;
    return NULL;
}

static void print_numbers(const voice_order *order, FILE *out)
{
    for (int i = 0; i < order->n_rows; i++) {
        const option_row *row = &order->rows[i];
        const char *member = member_of(row->name);
        if (!member || !order->given[i]) continue;
        fprintf(out, "\"%s\": ", member);
        if (row->kind == OPTION_INTEGER)
            fprintf(out, "%" PRId64 ", ", *(const int64_t *)row->value);
        else
            fprintf(out, "%.17g, ", *(const double *)row->value);
    }
}

static void print_stops(const option_words *stop, FILE *out)
{
    if (stop->count == 0) return;
    fputs("\"stop\": [", out);
    for (int i = 0; i < stop->count; i++) {
        if (i) fputs(", ", out);
        json_write_string(out, stop->at[i]);
    }
    fputs("], ", out);
}

/* Sums what is added to a token's score; false unless entry `first` is the first one about that token, as an
 * object has each key once. JSON has no infinity, so a banned token gets DSMOE_LOGIT_BIAS_BAN. */
static bool sum_bias(const runner_options *o, int first, double *sum)
{
    bool is_banned = false;
    *sum = 0;
    for (int i = 0; i < o->logit_bias.count; i++) {
        if (o->biases[i].id != o->biases[first].id) continue;
        if (i < first) return false;
        *sum += o->biases[i].bias;
        is_banned |= o->biases[i].bias <= DSMOE_LOGIT_BIAS_BAN;
    }
    if (is_banned) *sum = DSMOE_LOGIT_BIAS_BAN;
    return true;
}

static void print_biases(const runner_options *o, FILE *out)
{
    double bias;
    if (o->logit_bias.count == 0) return;
    fputs("\"logit_bias\": {", out);
    for (int i = 0; i < o->logit_bias.count; i++)
        if (sum_bias(o, i, &bias))
            fprintf(out, "%s\"%" PRId32 "\": %.17g", i ? ", " : "", o->biases[i].id, bias);
    fputs("}, ", out);
}

void remote_request_settings(const voice_order *order, FILE *out)
{
    const runner_options *o = order->options;
    print_numbers(order, out);
    print_stops(&o->stop, out);
    print_biases(o, out);
    if (o->ignore_eos) fputs("\"ignore_eos\": true, ", out);
    if (o->n_predict >= 0) fprintf(out, "\"max_tokens\": %" PRId64 ", ", o->n_predict);
    fputs("\"stream\": true, \"stream_options\": {\"include_usage\": true}, ", out);
}

bool remote_request_can_hold(const char *text, size_t length)
{
    uint32_t code;
    for (size_t i = 0, size; i < length; i += size) {
        size = utf8_decode(text + i, length - i, &code);
        if (size == 0) return false;
    }
    return true;
}

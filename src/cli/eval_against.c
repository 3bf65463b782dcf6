/* eval_against.c - `dsmoe eval --against`: how far a model's predictions are from another one's. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/eval.h"
#include "formats/json_write.h"

enum { DEFAULT_CONTEXT = 512 };

typedef struct against {
    const eval_options *options;
    const corpus *text;
    const dsmoe_model *model, *other;
    int64_t n_ctx;
    int32_t *tokens; /* pieces of n_ctx, each with BOS first if the model expects it */
    int64_t n_tokens;
    progress bar;
    dsmoe_comparison result;
    double seconds;
} against;

/* ---- running --------------------------------------------------------------------------------- */

/* CLI_OK or an exit code. */
static int make_pieces(against *a)
{
    const corpus *text = a->text;
    const dsmoe_config *config = dsmoe_model_config(a->model);
    int64_t asked = a->options->n_ctx, n_bos = text->bos >= 0;
    if (asked == 0) asked = DEFAULT_CONTEXT;
    if (a->options->n_ctx == 0 && config->max_position_embeddings < asked)
        asked = config->max_position_embeddings;
    if (asked < 2 || text->n_tokens + n_bos < 2)
        return cli_failure("eval", "%s: only one token, with nothing before it to predict it from",
                           cli_input_name(a->options->file));
    a->n_ctx = corpus_context("eval", text, config, asked);
    int64_t step = a->n_ctx - n_bos, n_pieces = (text->n_tokens + step - 1) / step;
    a->tokens = malloc((size_t)(text->n_tokens + n_pieces * n_bos) * sizeof *a->tokens);
    if (!a->tokens) return cli_failure("eval", "not enough memory");
    for (int64_t start = 0; start < text->n_tokens; start += step)
        a->n_tokens += corpus_window(text, start, a->tokens + a->n_tokens, a->n_ctx);
    return CLI_OK;
}

static bool show_progress(void *context, double done, double total)
{
    against *a = context;
    progress_update(&a->bar, done, total);
    return !cli_interrupted();
}

/* CLI_OK or an exit code. */
static int compare(against *a)
{
    dsmoe_error error;
    double start = cli_seconds();
    cli_catch_interrupt();
    a->bar = progress_start("comparing", "tokens");
    dsmoe_status status =
        dsmoe_model_compare(a->model, a->other, a->tokens, a->n_tokens, a->n_ctx,
                            (int)a->options->n_threads, show_progress, a, &a->result, &error);
    progress_finish(&a->bar);
    a->seconds = cli_seconds() - start;
    if (status == DSMOE_ERROR_STOPPED) {
        fprintf(stderr, "dsmoe eval: interrupted\n");
        return CLI_INTERRUPTED;
    }
    if (status != DSMOE_OK)
        return cli_failure("eval", "%s against %s: %s", a->options->model, a->options->against,
                           error.message);
    return CLI_OK;
}

/* ---- the outcome ----------------------------------------------------------------------------- */

static double weight_bytes(const dsmoe_model *model)
{
    double bytes = 0;
    for (size_t i = 0; i < dsmoe_model_tensor_count(model); i++)
        bytes += (double)dsmoe_model_tensor(model, i).size;
    return bytes;
}

static void print_text(const against *a)
{
    const dsmoe_comparison *r = &a->result;
    double bytes = weight_bytes(a->model), bytes_against = weight_bytes(a->other);
    char size[CLI_BYTES], scored[TABLE_CELL], all[TABLE_CELL];
    text_table table = {.n_columns = 4, .n_headers = 1};
    table_text(&table, "%s", "");
    table_text(&table, "model");
    table_text(&table, "against");
    table_text(&table, "ratio");
    table_text(&table, "perplexity");
    table_text(&table, "%.4f", r->perplexity);
    table_text(&table, "%.4f", r->perplexity_against);
    table_text(&table, "%.4f", r->perplexity / r->perplexity_against);
    table_text(&table, "weights");
    table_text(&table, "%s", cli_format_bytes(bytes, size));
    table_text(&table, "%s", cli_format_bytes(bytes_against, size));
    table_text(&table, "%.4f", bytes / bytes_against);
    table_print(&table);
    printf("\nKL divergence   %.4g +/- %.2g nats per token\n", r->kl, r->kl_error);
    printf("99th percentile %.4g, largest %.4g\n", r->kl_99, r->kl_max);
    printf("same top token  %.2f %%\n", 100 * r->same_top);
    printf("tokens          %s of %s scored in pieces of %" PRId64 "%s, %.1f s\n",
           number_group(r->n_tokens, scored), number_group(a->text->n_tokens, all), a->n_ctx,
           a->text->bos >= 0 ? ", BOS first" : "", a->seconds);
}

/* Prints a further member of the JSON; null if the value is not finite. */
static void print_member(const char *between, const char *name, double value)
{
    printf(isfinite(value) ? "%s\"%s\": %.9g" : "%s\"%s\": null", between, name, value);
}

static void print_json(const against *a)
{
    const dsmoe_comparison *r = &a->result;
    double bytes = weight_bytes(a->model), bytes_against = weight_bytes(a->other);
    fputs("{\"model\": ", stdout);
    json_write_string(stdout, a->options->model);
    fputs(", \"against\": ", stdout);
    json_write_string(stdout, a->options->against);
    fputs(", \"file\": ", stdout);
    json_write_string(stdout, a->options->file);
    printf(",\n \"tokens\": %" PRId64 ", \"scored\": %" PRId64 ", \"n_ctx\": %" PRId64
           ", \"bos\": %s",
           a->text->n_tokens, r->n_tokens, a->n_ctx, a->text->bos >= 0 ? "true" : "false");
    print_member(",\n ", "perplexity", r->perplexity);
    print_member(", ", "perplexity_against", r->perplexity_against);
    print_member(", ", "perplexity_ratio", r->perplexity / r->perplexity_against);
    print_member(",\n ", "kl", r->kl);
    print_member(", ", "kl_error", r->kl_error);
    print_member(", ", "kl_99", r->kl_99);
    print_member(", ", "kl_max", r->kl_max);
    print_member(", ", "same_top", r->same_top);
    printf(
        ",\n \"bytes\": %.0f, \"bytes_against\": %.0f, \"bytes_ratio\": %.9g, \"seconds\": %.3f}\n",
        bytes, bytes_against, bytes / bytes_against, a->seconds);
}

int eval_against(const eval_options *options, const corpus *text, const dsmoe_model *model)
{
    dsmoe_error error;
    dsmoe_model *other;
    if (dsmoe_model_open(options->against, &other, &error) != DSMOE_OK)
        return cli_failure("eval", "%s", error.message);
    against a = {.options = options, .text = text, .model = model, .other = other};
    int exit_code = make_pieces(&a);
    if (exit_code == CLI_OK) exit_code = compare(&a);
    if (exit_code == CLI_OK) (options->json ? print_json : print_text)(&a);
    free(a.tokens);
    dsmoe_model_free(other);
    return exit_code;
}

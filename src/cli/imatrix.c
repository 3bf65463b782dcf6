/* imatrix.c - `dsmoe imatrix`: what quantising a model should take most care of. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>

#include "cli/conversion.h"
#include "cli/corpus.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/table.h"

static const char help[] =
    "usage: dsmoe imatrix -m MODEL -f TEXT -o FILE [options]\n"
    "\n"
    "Runs a text through a model and records how large the inputs of every matrix are, column by\n"
    "column: dsmoe quantize --imatrix FILE then keeps errors small where they would matter. A text\n"
    "like those that the model is for works best, with ten thousand tokens or more. The file is GGUF,\n"
    "in the form of llama.cpp, which reads it too.\n"
    "\n"
    "  -m, --model PATH     the model: a folder, a training run or a .gguf file, preferably not\n"
    "                       quantised\n"
    "  -f, --file FILE      the text (\"-\": stdin)\n"
    "  -o, --output FILE    the file to write\n"
    "      --force          " OUTPUT_FORCE_HELP "\n"
    "  -c, --ctx-size N     tokens per piece (512, or what the model was made for)\n"
    "      --chunks N       only the first N pieces\n"
    "      --ids            the text is token ids\n"
    "  -t, --threads N      threads to use (default: all processors)\n"
    "  -h, --help           this text\n"
    "\n"
    "For an expert that few tokens chose, the mean of its layer is mixed in.\n"
    "\n"
    "example:\n"
    "  dsmoe imatrix -m deepseek-moe-16b-base -f text.txt -o moe-16b.imatrix.gguf --chunks 100\n";

enum { DEFAULT_CTX = 512 };

typedef struct imatrix_command {
    const char *model, *file, *output;
    int64_t n_ctx; /* 0: none was given */
    int64_t n_chunks, n_threads;
    bool ids, force;
    progress bar;
} imatrix_command;

/* ---- options ------------------------------------------------------------------------------- */

static int parse(imatrix_command *c, int argc, char **argv)
{
    const option_row rows[] = {
        {"--model", "-m", OPTION_PATH, &c->model, 0, 0},
        {"--file", "-f", OPTION_PATH, &c->file, 0, 0},
        {"--output", "-o", OPTION_PATH, &c->output, 0, 0},
        {"--force", NULL, OPTION_FLAG, &c->force, 0, 0},
        {"--ctx-size", "-c", OPTION_INTEGER, &c->n_ctx, 2, INT32_MAX},
        {"--chunks", NULL, OPTION_INTEGER, &c->n_chunks, 1, INT32_MAX},
        {"--ids", NULL, OPTION_FLAG, &c->ids, 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &c->n_threads, 1, CLI_MAX_THREADS},
    };
    int exit_code =
        options_parse("imatrix", help, rows, sizeof rows / sizeof *rows, argc, argv, NULL);
    if (exit_code >= 0) return exit_code;
    if (!c->model) return cli_usage("imatrix", CLI_NO_MODEL);
    if (!c->file) return cli_usage("imatrix", "no text: name its file with -f FILE");
    if (!c->output)
        return cli_usage("imatrix",
                         "no output: name a new file with -o FILE, such as -o model.imatrix.gguf");
    if (output_check_name("imatrix", "--output", c->output) != CLI_OK) return CLI_USAGE;
    const char *inputs[] = {c->model, output_input(c->file)};
    const dsmoe_output output = {c->output, DSMOE_OUTPUT_IMATRIX, c->force, inputs, 2};
    exit_code = output_check("imatrix", &output);
    return exit_code == CLI_OK ? -1 : exit_code;
}

/* ---- the tokens ------------------------------------------------------------------------------ */

/* Puts the pieces one after the other, each with BOS if the model expects it. *tokens is to be freed. */
static int cut_pieces(const imatrix_command *c, const corpus *text, int32_t **tokens,
                      int64_t *n_tokens)
{
    int64_t n_text = c->n_ctx - (text->bos >= 0);
    int64_t n_pieces = (text->n_tokens + n_text - 1) / n_text;
    if (c->n_chunks && c->n_chunks < n_pieces) n_pieces = c->n_chunks;
    *tokens = malloc((size_t)(n_pieces * c->n_ctx) * sizeof **tokens);
    if (!*tokens) return cli_failure("imatrix", "not enough memory");
    for (int64_t i = 0; i < n_pieces; i++)
        *n_tokens += corpus_window(text, i * n_text, *tokens + *n_tokens, c->n_ctx);
    return CLI_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static bool show_progress(void *context, double done, double total)
{
    imatrix_command *c = context;
    progress_update(&c->bar, done, total);
    return !cli_interrupted();
}

static void print_result(const imatrix_command *c, int64_t n_tokens, int64_t n_unused,
                         double seconds)
{
    char tokens[TABLE_CELL];
    printf("%s: %s tokens in pieces of %" PRId64 ", %.1f s\n", c->output,
           number_group(n_tokens, tokens), n_tokens < c->n_ctx ? n_tokens : c->n_ctx, seconds);
    if (n_unused > 0)
        fprintf(stderr,
                "dsmoe imatrix: no token chose %" PRId64
                " expert%s of all layers: they get their layers' means; a longer text finds "
                "more\n",
                n_unused, n_unused == 1 ? "" : "s");
}

static int make(imatrix_command *c, const dsmoe_model *model, const corpus *text)
{
    int32_t *tokens;
    int64_t n_tokens = 0, n_unused = 0, most = dsmoe_model_config(model)->max_position_embeddings;
    if (c->n_ctx == 0) c->n_ctx = most >= 2 && most < DEFAULT_CTX ? most : DEFAULT_CTX;
    int exit_code = cut_pieces(c, text, &tokens, &n_tokens);
    if (exit_code != CLI_OK) return exit_code;
    cli_warn_of_context("imatrix", dsmoe_model_config(model), c->n_ctx);
    dsmoe_dtype type = conversion_main_type(model);
    if (dsmoe_dtype_bits(type) < 16)
        cli_note("imatrix",
                 "%s is quantised (%s): the model it was made from gives better importances",
                 c->model, dsmoe_dtype_name(type));
    cli_catch_interrupt();
    double start = cli_seconds();
    c->bar = progress_start("watching", "tokens");
    dsmoe_imatrix_options options = {.n_ctx = c->n_ctx,
                                     .n_threads = (int)c->n_threads,
                                     .dataset = cli_input_name(c->file),
                                     .progress = show_progress,
                                     .context = c,
                                     .n_unused_experts = &n_unused,
                                     .replace = c->force};
    dsmoe_error error;
    dsmoe_status status = dsmoe_imatrix_make(model, tokens, n_tokens, &options, c->output, &error);
    progress_finish(&c->bar);
    free(tokens);
    if (status == DSMOE_OK) {
        print_result(c, n_tokens, n_unused, cli_seconds() - start);
        return CLI_OK;
    }
    if (error.status == DSMOE_ERROR_NONFINITE)
        return cli_failure("imatrix", "%s: %s", c->model, error.message);
    if (status != DSMOE_ERROR_STOPPED) return cli_failure("imatrix", "%s", error.message);
    cli_failure("imatrix", "interrupted; nothing is written");
    return CLI_INTERRUPTED;
}

int command_imatrix(int argc, char **argv)
{
    imatrix_command c = {.n_threads = dsmoe_machine_threads()};
    int exit_code = parse(&c, argc, argv);
    if (exit_code >= 0) return exit_code;
    model_path found;
    exit_code = model_path_find("imatrix", &c.model, &found);
    if (exit_code != CLI_OK) return exit_code;
    dsmoe_model *model;
    dsmoe_error error;
    if (dsmoe_model_open(c.model, &model, &error) != DSMOE_OK)
        return cli_failure("imatrix", "%s", error.message);
    corpus text;
    corpus_source source = {"imatrix", c.model, c.file, c.ids};
    exit_code = corpus_read(&source, dsmoe_model_config(model), &text);
    if (exit_code == CLI_OK) {
        exit_code = make(&c, model, &text);
        corpus_free(&text);
    }
    dsmoe_model_free(model);
    return exit_code;
}

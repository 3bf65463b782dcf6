/* generate.c - `dsmoe generate`: continues a text, or a sequence of token ids. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/ids.h"
#include "cli/options.h"
#include "cli/runner.h"
#include "cli/stream.h"

static const char help[] =
    "usage: dsmoe generate -m PATH -p TEXT [options]\n"
    "\n"
    "Continues a text. The continuation goes to the output while it is being written; speed,\n"
    "memory and seed follow on stderr.\n"
    "\n"
    "  -m, --model PATH         the model: its folder, a .gguf file, or a training run, of which the\n"
    "                           latest checkpoint is used\n"
    "  -p, --prompt TEXT        the text to continue\n"
    "  -f, --file FILE          the same from a file, without a newline at its end (\"-\": stdin,\n"
    "                           which is also read if there is neither -p nor -f)\n"
    "  -n, --n-predict N        at most so many tokens (128; -1: to the end of text or context)\n"
    "      --ids                prompt and output are token ids; needs no tokenizer\n"
    "      --echo               the prompt comes first on the output\n"
    "      --special            special tokens: in the prompt their text stands for them, in the\n"
    "                           output they are shown\n"
    "      --quiet              no speed, no seed\n" RUNNER_HELP "\n"
    "example:\n"
    "  dsmoe generate -m deepseek-moe-16b-base -n 64 --temp 0 \\\n"
    "      -p \"An attention function can be described as\"\n";

typedef struct generate_options {
    runner_options run;
    const char *prompt, *file;
    bool ids, echo, quiet;
} generate_options;

/* What is shown of each token. */
typedef struct generate_output {
    const generate_options *options;
    const dsmoe_tokenizer *tokenizer;
    stream text;
    int64_t n_ids; /* printed */
} generate_output;

/* ---- the prompt ---------------------------------------------------------------------------- */

/* -p, -f or stdin; to be freed. CLI_OK or an exit code. */
static int read_prompt(const generate_options *o, char **text, size_t *length)
{
    if (o->prompt) {
        *length = strlen(o->prompt);
        *text = strdup(o->prompt);
        return *text ? CLI_OK : cli_failure("generate", "not enough memory");
    }
    if (!o->file && isatty(STDIN_FILENO))
        return cli_usage("generate", "which text? -p gives it, -f names its file");
    int code = cli_read_file("generate", o->file ? o->file : "-", text, length);
    if (code != CLI_OK) return code;
    /* An editor's last newline would begin a new paragraph. */
    if (*length > 0 && (*text)[*length - 1] == '\n') (*text)[--*length] = '\0';
    return CLI_OK;
}

static const char *source_name(const generate_options *o)
{
    return o->prompt ? "--prompt" : cli_input_name(o->file ? o->file : "-");
}

/* The ids of the prompt, to be freed. CLI_OK or an exit code. */
static int encode_prompt(const generate_options *o, const runner *r, const char *text,
                         size_t length, int32_t **ids, size_t *n_ids)
{
    if (o->ids)
        return ids_parse((ids_source){"generate", source_name(o)}, text, length, ids, n_ids);
    dsmoe_error error;
    int flags = DSMOE_ENCODE_BOS | (o->run.special ? DSMOE_ENCODE_SPECIAL : 0);
    if (dsmoe_tokenizer_encode(r->tokenizer, text, length, flags, ids, n_ids, &error))
        return cli_failure("generate", "%s", error.message);
    return CLI_OK;
}

static int check_prompt(const generate_options *o, const runner *r, const int32_t *ids,
                        size_t n_ids)
{
    if (n_ids == 0) return cli_failure("generate", "the prompt is empty: nothing to continue");
    dsmoe_error error;
    if (ids_check(ids, n_ids, dsmoe_model_config(r->model)->vocab_size, !o->ids, &error))
        return cli_failure("generate", "%s: %s", o->ids ? source_name(o) : r->path, error.message);
    if (n_ids > (size_t)r->capacity)
        return cli_failure("generate",
                           "the prompt has %zu tokens, but the context (-c) holds only %" PRId64,
                           n_ids, r->capacity);
    return CLI_OK;
}

/* ---- the output ---------------------------------------------------------------------------- */

static void print_id(generate_output *out, int32_t id)
{
    printf("%s%" PRId32, out->n_ids++ ? " " : "", id);
}

static void print_echo(generate_output *out, const char *text, size_t length, const int32_t *ids,
                       size_t n_ids)
{
    bool dim = cli_wants_colour(stdout);
    if (dim) fputs("\033[2m", stdout);
    if (out->options->ids)
        for (size_t i = 0; i < n_ids; i++) print_id(out, ids[i]);
    else
        cli_print_text(text, length);
    if (dim) fputs("\033[0m", stdout);
    cli_flush();
}

static bool emit(void *context, int32_t token, bool is_end)
{
    generate_output *out = context;
    if (out->options->ids) {
        print_id(out, token);
        return cli_flush();
    }
    bool special = is_end || dsmoe_tokenizer_is_special(out->tokenizer, token);
    if (special && !out->options->run.special) return true;
    size_t length = 0;
    const char *piece = dsmoe_tokenizer_piece(out->tokenizer, token, &length);
    return stream_put(&out->text, piece, piece ? length : 0);
}

/* A line that is complete: ids always, a text (which may be continued elsewhere) for the eye. */
static void end_output(generate_output *out, runner_end end)
{
    const stream *text = &out->text;
    bool nothing = end == RUNNER_FAILED && out->n_ids == 0 && text->length == 0;
    if (nothing) return;
    if (out->options->ids)
        putchar('\n');
    else if (isatty(STDOUT_FILENO) && (!text->length || text->text[text->length - 1] != '\n'))
        putchar('\n');
    cli_flush();
}

/* ---- the command --------------------------------------------------------------------------- */

static int generate(const generate_options *o, runner *r, const int32_t *ids, size_t n_ids,
                    generate_output *out)
{
    dsmoe_error error;
    runner_end end = runner_read(r, ids, (int64_t)n_ids, &error);
    if (end == RUNNER_STOPPED) end = runner_generate(r, o->run.n_predict, emit, out, &error);
    stream_end(&out->text);
    end_output(out, end);
    if (end == RUNNER_FAILED) return runner_failure("generate", r, &error);
    if (ferror(stdout)) return CLI_FAILURE; /* cli_finish says so */
    if (out->text.failed) return cli_failure("generate", "not enough memory");
    if (end == RUNNER_FULL)
        fprintf(stderr, "the context of %" PRId64 " tokens is full (-c)\n", r->capacity);
    if (!o->quiet) runner_report(r);
    return end == RUNNER_INTERRUPTED ? CLI_INTERRUPTED : CLI_OK;
}

static int run(generate_options *o)
{
    runner r = {0};
    char *text = NULL;
    int32_t *ids = NULL;
    size_t length = 0, n_ids = 0;
    generate_output out = {.options = o};
    static const char hint[] = "; token ids (--ids) need none";
    int code = runner_options_check("generate", &o->run);
    if (code == CLI_OK) code = read_prompt(o, &text, &length);
    if (code == CLI_OK) code = runner_open("generate", &o->run, o->ids ? NULL : hint, &r);
    if (code == CLI_OK) code = encode_prompt(o, &r, text, length, &ids, &n_ids);
    if (code == CLI_OK) code = check_prompt(o, &r, ids, n_ids);
    if (code == CLI_OK) {
        out.tokenizer = r.tokenizer;
        out.text = (stream){.stops = o->run.stop.at, .n_stops = o->run.stop.count};
        cli_catch_interrupt();
        if (o->echo) print_echo(&out, text, length, ids, n_ids);
        code = generate(o, &r, ids, n_ids, &out);
    }
    stream_free(&out.text);
    free(ids);
    free(text);
    runner_close(&r);
    return code;
}

int command_generate(int argc, char **argv)
{
    generate_options o = {.run.n_predict = 128};
    option_row rows[RUNNER_N_OPTIONS + 5];
    runner_options_rows(&o.run, rows);
    const option_row own[] = {
        {"--prompt", "-p", OPTION_TEXT, &o.prompt, 0, 0},
        {"--file", "-f", OPTION_PATH, &o.file, 0, 0},
        {"--ids", NULL, OPTION_FLAG, &o.ids, 0, 0},
        {"--echo", NULL, OPTION_FLAG, &o.echo, 0, 0},
        {"--quiet", NULL, OPTION_FLAG, &o.quiet, 0, 0},
    };
    memcpy(rows + RUNNER_N_OPTIONS, own, sizeof own);
    static const option_rule rules[] = {
        {"--prompt", OPTION_EXCLUDES, "--file"},
        {"--stop", OPTION_EXCLUDES, "--ids"},
        {"--special", OPTION_EXCLUDES, "--ids"},
    };
    enum { N_ROWS = sizeof rows / sizeof *rows };
    bool given[N_ROWS];
    int code = options_parse_given("generate", help, rows, N_ROWS, argc, argv, NULL, given);
    if (code < 0)
        code = options_check("generate", rows, N_ROWS, given, rules, sizeof rules / sizeof *rules);
    return code < 0 ? run(&o) : code;
}

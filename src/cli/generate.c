/* generate.c - `dsmoe generate`: continues a text, or a sequence of token ids. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/ranks.h"
#include "cli/runner.h"
#include "cli/stream.h"
#include "cli/voice.h"

static const char help[] =
    "usage: dsmoe generate -m PATH -p TEXT [options]\n"
    "       dsmoe generate --url URL -p TEXT [options]\n"
    "\n"
    "Continues a text. The continuation is printed while it is being written; speed, memory and seed\n"
    "follow on stderr.\n"
    "\n"
    "  -m, --model PATH         the model: its folder, a .gguf file, or a training run, of which the\n"
    "                           latest checkpoint is used\n"
    "  -p, --prompt TEXT        the text to continue\n"
    "  -f, --file FILE          the same from a file, without the newline at its end (\"-\": stdin,\n"
    "                           which is also read if there is neither -p nor -f)\n"
    "  -n, --n-predict N        at most N tokens (128; -1: to the end of the text or the context)\n"
    "      --ids                prompt and output are token ids; needs no tokenizer\n"
    "      --echo               print the prompt first\n"
    "      --special            read special tokens from the text of the prompt, and show them in the\n"
    "                           output\n"
    "      --quiet              print no speed and no seed\n"
    "      --peer-timeout TIME  give up if a rank that others wait for shows no sign of life for TIME\n"
    "                           (10m; 0: never)\n" RUNNER_HELP "\n"
    "Under mpirun the experts of each layer are divided over all ranks, for a model that one machine\n"
    "cannot hold; the text is the same. Only the first rank needs the model (docs/machines.md).\n"
    "\n"
    "example:\n"
    "  dsmoe generate -m deepseek-moe-16b-base -n 64 --temp 0 \\\n"
    "      -p \"An attention function can be described as\"\n"
    "  dsmoe generate --url http://192.168.1.20:8080 -p \"Once upon a time\"\n"
    "  mpirun --hostfile hosts --bind-to none -np 4 dsmoe generate -m moe-16b-q8_0.gguf \\\n"
    "      -p \"Once upon a time\"\n";

typedef struct generate_options {
    runner_options run;
    const char *prompt, *file;
    bool ids, echo, quiet;
    double peer_timeout; /* seconds; 0: none */
} generate_options;

/* ---- the prompt ---------------------------------------------------------------------------- */

/* Reads -p, -f or stdin; *text is to be freed. CLI_OK or an exit code. */
static int read_prompt(const generate_options *o, char **text, size_t *length)
{
    if (o->prompt) {
        *length = strlen(o->prompt);
        *text = strdup(o->prompt);
        return *text ? CLI_OK : cli_failure("generate", "not enough memory");
    }
    if (!o->file && isatty(STDIN_FILENO))
        return cli_usage("generate",
                         "no text: give it with -p TEXT, or name its file with -f FILE");
    int code = cli_read_file("generate", o->file ? o->file : "-", text, length);
    if (code != CLI_OK) return code;
    /* The newline that editors put at the end would begin a new paragraph. */
    if (*length > 0 && (*text)[*length - 1] == '\n') (*text)[--*length] = '\0';
    return CLI_OK;
}

static const char *source_name(const generate_options *o)
{
    return o->prompt ? "--prompt" : cli_input_name(o->file ? o->file : "-");
}

/* ---- the output ---------------------------------------------------------------------------- */

/* The ids of the prompt are put into the stream, so that a blank separates them from those that follow. */
static void print_echo(const generate_options *o, const voice *v, stream *out)
{
    bool dim = cli_wants_colour(stdout);
    if (dim) fputs("\033[2m", stdout);
    if (o->ids)
        stream_put(out, v->prompt, v->n_prompt);
    else
        cli_print_text(v->prompt, v->n_prompt);
    if (dim) fputs("\033[0m", stdout);
    cli_flush();
}

/* Ends the line: always after ids, but after a text, which may be continued elsewhere, only on a terminal. */
static void end_output(const generate_options *o, const stream *text, runner_end end)
{
    if (end == RUNNER_FAILED && text->length == 0) return;
    bool ended = text->length > 0 && text->text[text->length - 1] == '\n';
    if (o->ids || (isatty(STDOUT_FILENO) && !ended)) putchar('\n');
    cli_flush();
}

/* ---- the command --------------------------------------------------------------------------- */

static int generate(const generate_options *o, voice *v, stream *out)
{
    voice_result result = {0};
    v->kind->go_on(v, out, &result);
    stream_end(out);
    end_output(o, out, result.end);
    if (result.end == RUNNER_FAILED) return voice_failure(v, &result.error);
    if (ferror(stdout)) return CLI_FAILURE; /* cli_finish says so */
    if (out->failed) return cli_failure("generate", "not enough memory");
    if (result.end == RUNNER_INTERRUPTED && !cli_interrupted()) /* another rank was interrupted */
        cli_note("generate", "%s", result.error.message);
    if (result.end == RUNNER_FULL) fprintf(stderr, "%s is full%s\n", v->context, v->context_hint);
    if (!o->quiet) v->kind->report(v);
    return result.end == RUNNER_INTERRUPTED ? CLI_INTERRUPTED : CLI_OK;
}

/* Runs experts on a rank other than the first, which has the model and reports errors. */
static int follow(const generate_options *o)
{
    dsmoe_follow_options options = {.n_threads = (int)o->run.n_threads, .stop = cli_stop};
    dsmoe_error error;
    int code = ranks_open("generate", o->peer_timeout, &options.peers);
    if (code != CLI_OK) return code;
    if (options.n_threads == 0) options.n_threads = ranks_threads();
    cli_catch_interrupt();
    dsmoe_status status = dsmoe_model_follow(&options, &error);
    return status == DSMOE_ERROR_PEER ? cli_failure("generate", "%s", error.message) : CLI_OK;
}

/* Joins the ranks as the first one, after all that this rank can check alone. */
static int join_ranks(runner_options *o, double peer_timeout)
{
    int code = ranks_open("generate", peer_timeout, &o->peers);
    if (code != CLI_OK || !o->peers) return code;
    if (o->n_threads == 0) o->n_threads = ranks_threads();
    cli_catch_interrupt();
    return CLI_OK;
}

static int run(const generate_options *o, const voice_order *order)
{
    voice *v = NULL;
    char *text = NULL;
    size_t length = 0;
    stream out = {.stops = o->run.stop.at, .n_stops = o->run.stop.count};
    int code = voice_check(order);
    if (code == CLI_OK) code = read_prompt(o, &text, &length);
    if (code == CLI_OK) code = join_ranks(order->options, o->peer_timeout);
    if (code == CLI_OK) code = voice_open(order, &v);
    if (code == CLI_OK) code = v->kind->take_prompt(v, source_name(o), text, length);
    if (code == CLI_OK) {
        cli_catch_interrupt();
        if (o->echo) print_echo(o, v, &out);
        code = generate(o, v, &out);
    }
    stream_free(&out);
    voice_close(v);
    free(text);
    return code;
}

int command_generate(int argc, char **argv)
{
    generate_options o = {.run.n_predict = 128, .peer_timeout = RANKS_PATIENCE};
    option_row rows[RUNNER_N_OPTIONS + 6];
    runner_options_rows(&o.run, rows);
    const option_row own[] = {
        {"--prompt", "-p", OPTION_TEXT, &o.prompt, 0, 0},
        {"--file", "-f", OPTION_PATH, &o.file, 0, 0},
        {"--ids", NULL, OPTION_FLAG, &o.ids, 0, 0},
        {"--echo", NULL, OPTION_FLAG, &o.echo, 0, 0},
        {"--quiet", NULL, OPTION_FLAG, &o.quiet, 0, 0},
        {"--peer-timeout", NULL, OPTION_DURATION, &o.peer_timeout, -1, RANKS_MOST_PATIENCE},
    };
    memcpy(rows + RUNNER_N_OPTIONS, own, sizeof own);
    static const option_rule rules[] = {
        {"--prompt", OPTION_EXCLUDES, "--file"},
        {"--stop", OPTION_EXCLUDES, "--ids"},
        {"--special", OPTION_EXCLUDES, "--ids"},
    };
    static const char hint[] = "; token ids (--ids) need no tokenizer";
    enum { N_ROWS = sizeof rows / sizeof *rows };
    bool given[N_ROWS];
    int code = options_parse_given("generate", help, rows, N_ROWS, argc, argv, NULL, given);
    if (code < 0)
        code = options_check("generate", rows, N_ROWS, given, rules, sizeof rules / sizeof *rules);
    if (code < 0 && ranks_are_many() && (o.run.url || o.run.unix_path))
        code = cli_usage("generate", "a server has its own machines: start it without mpirun");
    const voice_order order = {.command = "generate",
                               .options = &o.run,
                               .rows = rows,
                               .n_rows = N_ROWS,
                               .given = given,
                               .ids = o.ids,
                               .tokenizer_hint = hint};
    if (code >= 0) return code;
    return ranks_follows() ? follow(&o) : run(&o, &order);
}

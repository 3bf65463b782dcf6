/* chat.c - `dsmoe chat`: a conversation with a model, here or on a server. */
#include "cli/chat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"

static const char help[] =
    "usage: dsmoe chat -m PATH [options]\n"
    "       dsmoe chat --url URL [options]\n"
    "\n"
    "A conversation in the form that the model was trained on. Ctrl-C stops an answer; Ctrl-D or\n"
    "/quit leaves. Questions can also come from a pipe, one on each line. Within a chat:\n"
    "\n"
    "  /regen      answer the last question again, with another seed\n"
    "  /undo       take back the last question and its answer\n"
    "  /reset      forget the conversation\n"
    "  /save FILE  write it as JSON messages; /save --force FILE replaces a conversation\n"
    "  /load FILE  continue a conversation that was saved\n"
    "  /help       list all commands\n"
    "\n"
    "options:\n"
    "  -m, --model PATH         the model: its folder, a .gguf file, or a training run, of which the\n"
    "                           latest checkpoint is used\n"
    "      --system TEXT        what the model is told before the conversation\n" CLI_CHAT_FORM_HELP
    "  -n, --n-predict N        at most N tokens for an answer (-1: no limit)\n"
    "      --special            show special tokens in answers\n"
    "      --quiet              print no speed and no seed when leaving\n"
    "      --no-history         do not keep what is typed on a terminal for the next time (in\n"
    "                           dsmoe/history under $XDG_STATE_HOME, or ~/.local/state)\n" RUNNER_HELP
    "\n"
    "example:\n"
    "  dsmoe chat -m deepseek-moe-16b-chat --system \"Answer in one sentence.\"\n"
    "  dsmoe chat --url http://192.168.1.20:8080     # where dsmoe serve runs\n";

/* ---- an answer ----------------------------------------------------------------------------- */

/* Ends the line of an answer and adds it to the conversation. It may be empty if the model ended it
 * immediately. */
static int keep_answer(chat *c, const voice_result *result)
{
    stream_end(&c->answer);
    c->answered = result->began || result->end == RUNNER_EOS;
    if (!c->answered) return CLI_OK;
    putchar('\n');
    cli_flush();
    if (ferror(stdout)) return CLI_FAILURE; /* cli_finish reports it */
    if (c->answer.failed ||
        !conversation_add(&c->talk, "assistant", c->answer.text, c->answer.length))
        return cli_failure("chat", "not enough memory");
    return CLI_OK;
}

/* Tells the user what there is to know about an answer. */
static void comment_on(const chat *c, const voice_result *result)
{
    const char *context = c->voice->context;
    if (result->n_dropped > 0)
        fprintf(stderr, "(%s is full: the oldest %d messages are forgotten)\n", context,
                result->n_dropped);
    if (result->end == RUNNER_FULL && !result->began)
        cli_note("chat", "too long: %s; the message is dropped", result->error.message);
    else if (result->end == RUNNER_FULL)
        fprintf(stderr, "(%s is full)\n", context);
    if (result->end == RUNNER_INTERRUPTED) fputs("(stopped)\n", stderr);
}

int chat_answer(chat *c)
{
    voice_result result = {0};
    c->answer = (stream){.stops = c->options->stop.at, .n_stops = c->options->stop.count};
    c->voice->kind->answer(c->voice, &c->talk, &c->answer, &result);
    int code = keep_answer(c, &result);
    stream_free(&c->answer);
    comment_on(c, &result);
    if (result.end == RUNNER_FAILED) {
        int failure = voice_failure(c->voice, &result.error);
        /* A person at a terminal can ask again, and has a conversation to lose. */
        if (!c->voice->may_recover || !isatty(STDIN_FILENO)) return failure;
    }
    if (cli_terminated()) return CLI_INTERRUPTED;
    cli_clear_interrupt();
    return code;
}

/* A question that was not answered is forgotten. */
static int ask(chat *c)
{
    if (!conversation_add(&c->talk, "user", c->input, c->n_input))
        return cli_failure("chat", "not enough memory");
    int code = chat_answer(c);
    if (!c->answered) conversation_drop_last(&c->talk);
    return code;
}

/* ---- input --------------------------------------------------------------------------------- */

/* Reads the next question into c->input. A line that ends with a backslash is joined with the next one. */
static line_result read_input(chat *c)
{
    c->n_input = 0;
    for (;;) {
        const char *line;
        size_t length;
        line_result result = line_edit_read(c->lines, &line, &length);
        if (result == LINE_END && c->n_input > 0) {
            c->input[--c->n_input] = '\0'; /* nothing follows the backslash */
            return LINE_READ;
        }
        if (result != LINE_READ) return result;
        char *larger = realloc(c->input, c->n_input + length + 1);
        if (!larger) return LINE_FAILED;
        c->input = larger;
        memcpy(c->input + c->n_input, line, length + 1);
        c->n_input += length;
        if (length == 0 || line[length - 1] != '\\') return LINE_READ;
        c->input[c->n_input - 1] = '\n';
    }
}

/* ---- the command --------------------------------------------------------------------------- */

static int converse(chat *c)
{
    for (int n_interrupts = 0;;) {
        line_result result = read_input(c);
        if (result == LINE_FAILED) return cli_failure("chat", "cannot read the input");
        if (result == LINE_END) {
            if (isatty(STDIN_FILENO)) putchar('\n');
            return CLI_OK;
        }
        if (result == LINE_INTERRUPTED) {
            fputc('\n', stderr);
            if (cli_terminated() || ++n_interrupts == 2) return CLI_INTERRUPTED;
            cli_clear_interrupt();
            fputs("(Ctrl-C again or Ctrl-D leaves)\n", stderr);
            continue;
        }
        n_interrupts = 0;
        if (strspn(c->input, " \t\r\n") == c->n_input) continue;
        int code = c->input[0] == '/' ? chat_obey(c) : ask(c);
        if (code != CLI_OK || c->leaving) return code;
    }
}

static int open_chat(chat *c, const voice_order *order, const char *system, bool keeps_history)
{
    int code = voice_check(order);
    if (code == CLI_OK) code = voice_open(order, &c->voice);
    if (code != CLI_OK) return code;
    c->lines = line_edit_open("> ", keeps_history);
    if (!c->lines || (system && !conversation_add(&c->talk, "system", system, strlen(system))))
        return cli_failure("chat", "not enough memory");
    return CLI_OK;
}

static void close_chat(chat *c)
{
    line_edit_close(c->lines);
    conversation_free(&c->talk);
    free(c->saved);
    free(c->input);
    voice_close(c->voice);
}

int command_chat(int argc, char **argv)
{
    enum { N_ROWS = RUNNER_N_OPTIONS + 4 };
    runner_options o = {.n_predict = -1};
    const char *system = NULL, *chat_form = NULL;
    bool quiet = false, no_history = false, given[N_ROWS];
    option_row rows[N_ROWS];
    runner_options_rows(&o, rows);
    rows[RUNNER_N_OPTIONS] = (option_row){"--system", NULL, OPTION_TEXT, &system, 0, 0};
    rows[RUNNER_N_OPTIONS + 1] = (option_row){"--quiet", NULL, OPTION_FLAG, &quiet, 0, 0};
    rows[RUNNER_N_OPTIONS + 2] = (option_row){"--no-history", NULL, OPTION_FLAG, &no_history, 0, 0};
    rows[RUNNER_N_OPTIONS + 3] = (option_row){"--chat-form", NULL, OPTION_NAME, &chat_form, 0, 0};
    int code = options_parse_given("chat", help, rows, N_ROWS, argc, argv, NULL, given);
    if (code >= 0) return code;

    chat c = {.options = &o};
    const voice_order order = {.command = "chat",
                               .options = &o,
                               .rows = rows,
                               .n_rows = N_ROWS,
                               .given = given,
                               .tokenizer_hint = "",
                               .talks = true,
                               .chat_form = chat_form};
    code = open_chat(&c, &order, system, !no_history);
    if (code == CLI_OK) {
        cli_catch_interrupt();
        if (isatty(STDIN_FILENO)) fputs("/help lists the commands, Ctrl-D leaves.\n", stderr);
        code = converse(&c);
        if (!quiet && (code == CLI_OK || code == CLI_INTERRUPTED)) c.voice->kind->report(c.voice);
    }
    close_chat(&c);
    return code;
}

/* chat.c - `dsmoe chat`: a conversation with a model. Every turn encodes the whole conversation again
 * and lets the sequence keep what it has in common with it, so only new tokens are processed. */
#include "cli/chat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/ids.h"
#include "cli/options.h"

static const char help[] =
    "usage: dsmoe chat -m PATH [options]\n"
    "\n"
    "A conversation in the form of the DeepSeek chat models. Ctrl-C stops an answer; Ctrl-D or\n"
    "/quit leaves. Lines are read from a pipe as well, one question each. Within a chat:\n"
    "\n"
    "  /regen      answer the last question again, with another seed\n"
    "  /undo       take back the last question and its answer\n"
    "  /reset      forget the conversation\n"
    "  /save FILE  write it as JSON messages; /save --force FILE replaces a conversation\n"
    "  /load FILE  go on with a conversation that was saved\n"
    "  /help       all of these\n"
    "\n"
    "options:\n"
    "  -m, --model PATH         the model: its folder, a .gguf file, or a training run, of which the\n"
    "                           latest checkpoint is used\n"
    "      --system TEXT        what the model is told before the conversation\n"
    "  -n, --n-predict N        at most so many tokens for an answer (-1: no limit)\n"
    "      --special            shows special tokens in answers\n"
    "      --quiet              no speed and seed when leaving\n"
    "      --no-history         do not keep what is typed on a terminal for the next time (in\n"
    "                           dsmoe/history under $XDG_STATE_HOME, else ~/.local/state)\n" RUNNER_HELP
    "\n"
    "example:\n"
    "  dsmoe chat -m deepseek-moe-16b-chat --system \"Answer in one sentence.\"\n";

enum { ROOM_FOR_ANSWER = 256 }; /* tokens; less in a small context */

/* ---- the context --------------------------------------------------------------------------- */

/* The ids of the conversation and of what there is of the answer; to be freed. */
static dsmoe_status encode(const chat *c, int32_t **ids, size_t *n_ids, dsmoe_error *error)
{
    dsmoe_status status = dsmoe_chat_encode(c->run.tokenizer, c->talk.messages, c->talk.count, true,
                                            ids, n_ids, error);
    if (status != DSMOE_OK) return status;
    size_t n = *n_ids + (size_t)c->n_answer;
    int32_t *larger = realloc(*ids, n * sizeof *larger);
    if (!larger) {
        *error = (dsmoe_error){DSMOE_ERROR_MEMORY, "not enough memory"};
        goto fail;
    }
    memcpy(larger + *n_ids, c->answer_ids, (size_t)c->n_answer * sizeof *larger);
    *ids = larger;
    *n_ids = n;
    if (ids_check(*ids, n, dsmoe_model_config(c->run.model)->vocab_size, true, error)) goto fail;
    return DSMOE_OK;
fail:
    free(*ids);
    *ids = NULL;
    return error->status;
}

/* Puts the conversation into the sequence, without its oldest turns as far as there would be no room
 * for an answer. RUNNER_STOPPED if that went well, RUNNER_FULL if even the newest question is too
 * long; *n_ids is its length then. */
static runner_end read_conversation(chat *c, size_t *n_ids, dsmoe_error *error)
{
    int64_t room = c->run.capacity / 4 < ROOM_FOR_ANSWER ? c->run.capacity / 4 : ROOM_FOR_ANSWER;
    for (;;) {
        int32_t *ids = NULL;
        if (encode(c, &ids, n_ids, error)) return RUNNER_FAILED;
        int64_t n = (int64_t)*n_ids;
        runner_end end = RUNNER_FULL;
        bool again = n + room > c->run.capacity && conversation_drop_turn(&c->talk);
        if (again)
            c->n_dropped += 2;
        else if (n < c->run.capacity)
            end = runner_read(&c->run, ids, n, error);
        free(ids);
        if (!again) return end;
    }
}

static void report_dropped(chat *c)
{
    if (c->n_dropped > 0)
        fprintf(stderr,
                "(the context of %" PRId64 " tokens is full: the oldest %d messages are "
                "forgotten)\n",
                c->run.capacity, c->n_dropped);
    c->n_dropped = 0;
}

/* ---- an answer ----------------------------------------------------------------------------- */

static bool emit(void *context, int32_t token, bool is_end)
{
    chat *c = context;
    const dsmoe_tokenizer *tokenizer = c->run.tokenizer;
    if (is_end) return true;
    c->answer_ids[c->n_answer++] = token;
    if (dsmoe_tokenizer_is_special(tokenizer, token) && !c->options->special) return true;
    size_t length = 0;
    const char *piece = dsmoe_tokenizer_piece(tokenizer, token, &length);
    if (!piece) return true;
    /* The blank between "Assistant:" and its answer belongs to the frame. */
    bool framed = c->answer.length == 0 && length > 0 && piece[0] == ' ';
    return stream_put(&c->answer, piece + framed, length - framed);
}

/* Reads the question and writes the answer. If the context fills up meanwhile, what is oldest in
 * the conversation makes room. */
static runner_end write_answer(chat *c, size_t *n_ids, dsmoe_error *error)
{
    int64_t limit = c->options->n_predict;
    for (;;) {
        runner_end end = read_conversation(c, n_ids, error);
        if (end != RUNNER_STOPPED) return end;
        end = runner_generate(&c->run, limit < 0 ? -1 : limit - c->n_answer, emit, c, error);
        if (end != RUNNER_FULL) return end;
    }
}

/* Ends the line of an answer and keeps it, which may be empty if the model wants it so. */
static int keep_answer(chat *c, runner_end end)
{
    stream_end(&c->answer);
    c->answered = c->n_answer > 0 || end == RUNNER_EOS;
    if (!c->answered) return CLI_OK;
    putchar('\n');
    cli_flush();
    if (ferror(stdout)) return CLI_FAILURE; /* cli_finish says so */
    if (c->answer.failed ||
        !conversation_add(&c->talk, "assistant", c->answer.text, c->answer.length))
        return cli_failure("chat", "not enough memory");
    return CLI_OK;
}

int chat_answer(chat *c)
{
    dsmoe_error error;
    size_t n_ids = 0;
    c->n_answer = 0;
    c->answer = (stream){.stops = c->options->stop.at, .n_stops = c->options->stop.count};
    runner_begin_text(&c->run);
    runner_end end = write_answer(c, &n_ids, &error);
    bool too_long = end == RUNNER_FULL && c->n_answer == 0;
    int code = keep_answer(c, end);
    stream_free(&c->answer);
    report_dropped(c);
    if (end == RUNNER_FAILED) return runner_failure("chat", &c->run, &error);
    if (too_long)
        fprintf(stderr,
                "(too long: %zu tokens, and the context (-c) holds %" PRId64 "; it is forgotten)\n",
                n_ids, c->run.capacity);
    else if (end == RUNNER_FULL)
        fprintf(stderr, "(the context of %" PRId64 " tokens is full)\n", c->run.capacity);
    if (end == RUNNER_INTERRUPTED) fputs("(stopped)\n", stderr);
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

/* ---- what is typed ------------------------------------------------------------------------- */

/* The next question into c->input, lines that end with a backslash joined. */
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

static int open_chat(chat *c, const char *system, bool keeps_history)
{
    int code = runner_options_check("chat", c->options);
    if (code == CLI_OK) code = runner_open("chat", c->options, "", &c->run);
    if (code != CLI_OK) return code;
    c->answer_ids = malloc((size_t)c->run.capacity * sizeof *c->answer_ids);
    c->lines = line_edit_open("> ", keeps_history);
    if (!c->answer_ids || !c->lines ||
        (system && !conversation_add(&c->talk, "system", system, strlen(system))))
        return cli_failure("chat", "not enough memory");
    return CLI_OK;
}

int command_chat(int argc, char **argv)
{
    runner_options o = {.n_predict = -1};
    const char *system = NULL;
    bool quiet = false, no_history = false;
    option_row rows[RUNNER_N_OPTIONS + 3];
    runner_options_rows(&o, rows);
    rows[RUNNER_N_OPTIONS] = (option_row){"--system", NULL, OPTION_TEXT, &system, 0, 0};
    rows[RUNNER_N_OPTIONS + 1] = (option_row){"--quiet", NULL, OPTION_FLAG, &quiet, 0, 0};
    rows[RUNNER_N_OPTIONS + 2] = (option_row){"--no-history", NULL, OPTION_FLAG, &no_history, 0, 0};
    int code = options_parse("chat", help, rows, RUNNER_N_OPTIONS + 3, argc, argv, NULL);
    if (code >= 0) return code;

    chat c = {.options = &o};
    code = open_chat(&c, system, !no_history);
    if (code == CLI_OK) {
        cli_catch_interrupt();
        if (isatty(STDIN_FILENO)) fputs("/help lists the commands, Ctrl-D leaves.\n", stderr);
        code = converse(&c);
        if (!quiet && (code == CLI_OK || code == CLI_INTERRUPTED)) runner_report(&c.run);
    }
    line_edit_close(c.lines);
    conversation_free(&c.talk);
    free(c.saved);
    free(c.input);
    free(c.answer_ids);
    runner_close(&c.run);
    return code;
}

/* chat_commands.c - the commands within a chat: lines that begin with a slash. */
#include <stdlib.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/conversation_file.h"
#include "cli/output.h"
#include "cli/replace_file.h"
#include "cli/suggest.h"

/* ---- the conversation -------------------------------------------------------------------------- */

static int regenerate(chat *c, const char *unused)
{
    (void)unused;
    char *old = conversation_take_answer(&c->talk);
    if (!old) {
        fputs("there is no answer yet that could be given again\n", stderr);
        return CLI_OK;
    }
    if (c->run.sampling.temperature == 0) fputs("(the same, at temperature 0)\n", stderr);
    int code = runner_reseed("chat", &c->run);
    if (code == CLI_OK) code = chat_answer(c);
    if (!c->answered && !conversation_add(&c->talk, "assistant", old, strlen(old)))
        code = cli_failure("chat", "not enough memory");
    free(old);
    return code;
}

static int undo(chat *c, const char *unused)
{
    (void)unused;
    if (!conversation_undo(&c->talk)) {
        fputs("there is nothing to take back\n", stderr);
        return CLI_OK;
    }
    fprintf(stderr, "the last question and its answer are taken back; messages left: %zu\n",
            c->talk.count);
    return runner_reseed("chat", &c->run);
}

static int reset(chat *c, const char *unused)
{
    (void)unused;
    conversation_reset(&c->talk);
    fputs("the conversation is forgotten\n", stderr);
    return runner_reseed("chat", &c->run);
}

/* ---- files ------------------------------------------------------------------------------------- */

static int needs_file(const char *name)
{
    fprintf(stderr, "%s needs the name of a file\n", name);
    return CLI_OK;
}

/* What this chat saved is its own and is refreshed. */
static int check_save(const chat *c, const char *path, bool force)
{
    const char *inputs[] = {c->options->model, output_input("-")};
    bool own = c->saved && !strcmp(c->saved, path);
    const dsmoe_output output = {path, DSMOE_OUTPUT_CONVERSATION, force || own, inputs, 2};
    return output_check("chat", &output);
}

/* Whatever goes wrong with a file is told and does not end the chat. */
static int save(chat *c, const char *path)
{
    static const char option[] = "--force";
    replace_file out;
    size_t n = strcspn(path, " \t");
    bool force = n == sizeof option - 1 && !memcmp(path, option, n);
    if (force) path += n + strspn(path + n, " \t");
    if (!*path) return needs_file("/save --force");
    if (check_save(c, path, force) != CLI_OK) return CLI_OK;
    if (replace_file_begin("chat", path, &out) != CLI_OK) return CLI_OK;
    conversation_print(&c->talk, out.file);
    if (replace_file_end("chat", &out) != CLI_OK) return CLI_OK;
    cli_note("chat", "%zu messages saved to %s", c->talk.count, path);
    free(c->saved);
    c->saved = strdup(path);
    return CLI_OK;
}

static int load(chat *c, const char *path)
{
    conversation loaded;
    char problem[CONVERSATION_PROBLEM];
    if (!conversation_open(path, &loaded, problem)) {
        cli_note("chat", "%s: %s", path, problem);
        return CLI_OK;
    }
    conversation_free(&c->talk);
    c->talk = loaded;
    cli_note("chat", "%zu messages loaded from %s", c->talk.count, path);
    return runner_reseed("chat", &c->run);
}

/* ---- finding a command --------------------------------------------------------------------------- */

static int quit(chat *c, const char *unused)
{
    (void)unused;
    c->leaving = true;
    return CLI_OK;
}

static int print_help(chat *c, const char *unused);

typedef struct chat_command {
    const char *name, *argument,
        *summary; /* without a summary it is another name of the one before */
    int (*run)(chat *c, const char *argument); /* CLI_OK, or the exit code that ends the chat */
} chat_command;

static const chat_command commands[] = {
    {"/regen", "", "answer the last question again, with another seed", regenerate},
    {"/undo", "", "take back the last question and its answer", undo},
    {"/reset", "", "forget the conversation", reset},
    {"/save", "FILE", "write it as JSON messages; /save --force FILE replaces one that is there",
     save},
    {"/load", "FILE", "go on with a conversation that was saved", load},
    {"/help", "", "this list", print_help},
    {"/quit", "", "leave (or Ctrl-D)", quit},
    {"/exit", "", NULL, quit},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int print_help(chat *c, const char *unused)
{
    (void)c, (void)unused;
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i].summary)
            fprintf(stderr, "%s %-*s  %s\n", commands[i].name, 11 - (int)strlen(commands[i].name),
                    commands[i].argument, commands[i].summary);
    fputs("A line that ends with \\ goes on with the next one.\n"
          "A blank before / makes it text.\n",
          stderr);
    return CLI_OK;
}

static int refuse(const char *name)
{
    const char *names[N_COMMANDS];
    char hint[SUGGESTION];
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    cli_note("chat", "there is no command %s%s; /help lists them", name,
             suggest_text(name, names, N_COMMANDS, hint));
    return CLI_OK;
}

int chat_obey(chat *c)
{
    char *name = c->input, *rest = name + strcspn(name, " \t\r");
    if (*rest) *rest++ = '\0';
    rest += strspn(rest, " \t\r");
    for (size_t n = strlen(rest); n > 0 && strchr(" \t\r", rest[n - 1]); n--) rest[n - 1] = '\0';
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name)) continue;
        bool lacks_file = *commands[i].argument && !*rest;
        return lacks_file ? needs_file(name) : commands[i].run(c, rest);
    }
    return refuse(name);
}

/* chat_commands.c - the commands within a chat: lines that begin with a slash. */
#include <stdlib.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/conversation_file.h"
#include "cli/output.h"
#include "formats/partial_file.h"
#include "cli/suggest.h"

/* ---- the conversation -------------------------------------------------------------------------- */

static int regenerate(chat *c, char *unused)
{
    (void)unused;
    char *old = conversation_take_answer(&c->talk);
    if (!old) {
        fputs("there is no answer to repeat yet\n", stderr);
        return CLI_OK;
    }
    if (c->voice->is_greedy) fputs("(at temperature 0 the answer is the same again)\n", stderr);
    int code = c->voice->kind->reseed(c->voice);
    if (code == CLI_OK) code = chat_answer(c);
    if (!c->answered && !conversation_add(&c->talk, "assistant", old, strlen(old)))
        code = cli_failure("chat", "not enough memory");
    free(old);
    return code;
}

static int undo(chat *c, char *unused)
{
    (void)unused;
    if (!conversation_undo(&c->talk)) {
        fputs("there is nothing to take back\n", stderr);
        return CLI_OK;
    }
    fprintf(stderr, "the last question and its answer are taken back; messages left: %zu\n",
            c->talk.count);
    return c->voice->kind->reseed(c->voice);
}

static int reset(chat *c, char *unused)
{
    (void)unused;
    conversation_reset(&c->talk);
    fputs("the conversation is forgotten\n", stderr);
    return c->voice->kind->reseed(c->voice);
}

/* ---- files ------------------------------------------------------------------------------------- */

static int needs_file(const char *name)
{
    fprintf(stderr, "%s needs the name of a file\n", name);
    return CLI_OK;
}

/* A file that this chat saved may be replaced without --force. */
static int check_save(const chat *c, const char *path, bool force)
{
    const char *inputs[] = {c->options->model, output_input("-")};
    bool own = c->saved && !strcmp(c->saved, path);
    const dsmoe_output output = {path, DSMOE_OUTPUT_CONVERSATION, force || own, inputs, 2};
    return output_check("chat", &output);
}

static const char blanks[] = " \t";

/* Removes --force from the beginning or the end of the words, and returns whether it was there. The rest is a
 * name, which may have blanks. */
static bool take_force(char **words)
{
    static const char option[] = "--force";
    const size_t n = sizeof option - 1;
    char *path = *words;
    bool force = !strncmp(path, option, n) && (!path[n] || strchr(blanks, path[n]));
    if (force) path += n + strspn(path + n, blanks);
    size_t length = strlen(path);
    if (length > n && !strcmp(path + length - n, option) && strchr(blanks, path[length - n - 1])) {
        force = true;
        for (length -= n; length > 0 && strchr(blanks, path[length - 1]);) length--;
        path[length] = '\0';
    }
    *words = path;
    return force;
}

/* The first of the words that looks like an option; NULL if none does. */
static char *find_option(char *words)
{
    for (char *at = words; *at; at += strspn(at, blanks)) {
        if (!strncmp(at, "--", 2)) return at;
        at += strcspn(at, blanks);
    }
    return NULL;
}

static void put_talk(FILE *file, const void *talk) { conversation_print(talk, file); }

/* A failure with a file prints a message and does not end the chat. */
static int save(chat *c, char *path)
{
    dsmoe_error error;
    bool force = take_force(&path);
    if (!*path || !strcmp(path, "-")) return needs_file(force ? "/save --force" : "/save");
    const char *option = find_option(path);
    if (option) {
        cli_note("chat",
                 "/save has no option %.*s, only --force; for a file of that name write ./%.*s",
                 (int)strcspn(option, blanks), option, (int)strcspn(option, blanks), option);
        return CLI_OK;
    }
    if (check_save(c, path, force) != CLI_OK) return CLI_OK;
    if (partial_file_put_text(path, put_talk, &c->talk, &error) != DSMOE_OK) {
        cli_note("chat", "%s", error.message);
        return CLI_OK;
    }
    cli_note("chat", "%zu messages saved to %s", c->talk.count, path);
    free(c->saved);
    c->saved = strdup(path);
    return CLI_OK;
}

static int load(chat *c, char *path)
{
    conversation loaded;
    dsmoe_error error;
    if (conversation_open(path, &loaded, &error) != DSMOE_OK) {
        cli_note("chat", "%s", error.message);
        return CLI_OK;
    }
    conversation_free(&c->talk);
    c->talk = loaded;
    cli_note("chat", "%zu messages loaded from %s", c->talk.count, path);
    return c->voice->kind->reseed(c->voice);
}

/* ---- finding a command --------------------------------------------------------------------------- */

static int quit(chat *c, char *unused)
{
    (void)unused;
    c->leaving = true;
    return CLI_OK;
}

static int print_help(chat *c, char *unused);

typedef struct chat_command {
    const char *name, *argument, *summary; /* summary NULL: another name for the row above */
    int (*run)(chat *c, char *argument);   /* CLI_OK, or the exit code that ends the chat */
} chat_command;

static const chat_command commands[] = {
    {"/regen", "", "answer the last question again, with another seed", regenerate},
    {"/undo", "", "take back the last question and its answer", undo},
    {"/reset", "", "forget the conversation", reset},
    {"/save", "FILE", "write it as JSON messages; /save --force FILE replaces a conversation",
     save},
    {"/load", "FILE", "continue a conversation that was saved", load},
    {"/help", "", "this list", print_help},
    {"/quit", "", "leave (or Ctrl-D)", quit},
    {"/exit", "", NULL, quit},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int print_help(chat *c, char *unused)
{
    (void)c, (void)unused;
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i].summary)
            fprintf(stderr, "%s %-*s  %s\n", commands[i].name, 11 - (int)strlen(commands[i].name),
                    commands[i].argument, commands[i].summary);
    fputs("A line that ends with \\ continues on the next one.\n"
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

static int refuse_argument(const char *name, const char *argument)
{
    cli_note("chat", "%s takes no argument, but has '%s'", name, argument);
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
        if (!*commands[i].argument && *rest) return refuse_argument(name, rest);
        return lacks_file ? needs_file(name) : commands[i].run(c, rest);
    }
    return refuse(name);
}

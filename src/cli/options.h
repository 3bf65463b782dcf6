/* options.h - the options of a command as a table: one row each, in the order of the help; and rules between
 * them. */
#ifndef DSMOE_CLI_OPTIONS_H
#define DSMOE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum option_kind {
    OPTION_FLAG,       /* bool *: set to true */
    OPTION_OFF,        /* bool *: set to false; "--no-" and the name of its flag */
    OPTION_TEXT,       /* const char ** */
    OPTION_PATH,       /* the same, not empty: that would be an unset variable of the shell */
    OPTION_NAME,       /* the same for a known name, such as a type; made lower case in argv */
    OPTION_INTEGER,    /* int64_t *, within [min, max] */
    OPTION_NUMBER,     /* double *, finite, within [min, max] */
    OPTION_DURATION,   /* double *: seconds above min, at most max; "90", "45m", "2h30m" */
    OPTION_FIELD,      /* char [max]: a copy, the rest filled with NULs */
    OPTION_NAME_FIELD, /* the same for a known name, in lower case */
    OPTION_PATH_FIELD, /* the same, not empty */
    OPTION_LIST,       /* option_words *: may be given several times, every text is kept */
    OPTION_PATH_LIST,  /* the same, none of them empty */
} option_kind;

typedef struct option_row {
    const char *name;       /* "--top-k", or "-p" if there is no long form */
    const char *short_name; /* "-m", or NULL */
    option_kind kind;
    void *value;
    double min, max; /* for numbers; `max` of a field is its size */
} option_row;

/* Texts in their order, at most `capacity`: the words that are not options, or an OPTION_LIST. */
typedef struct option_words {
    const char **at;
    int capacity, count;
} option_words;

/* Parses argv[1…]. "--name value", "--name=value", "-m value" and "-mvalue"; "--" ends the options; "-" alone
 * is a word, and no word may be empty. -h and --help print `help` to stdout. Returns -1 if the command should
 * continue, otherwise the exit code: 0 after the help, CLI_USAGE after a message that names the option at
 * fault. `words` NULL: the command takes no words. */
int options_parse(const char *command, const char *help, const option_row *rows, int n_rows,
                  int argc, char **argv, option_words *words);
/* The same; given[i] is set to whether row i was given. */
int options_parse_given(const char *command, const char *help, const option_row *rows, int n_rows,
                        int argc, char **argv, option_words *words, bool *given);

/* A rule between two options. It applies if the first one was given and is not 0. The other one counts by its
 * value, which may be a default or come from a file: a number that is not 0, a text that is not empty, a flag
 * that is set. */
typedef enum option_relation {
    OPTION_NEEDS,    /* the first has no effect without the other */
    OPTION_EXCLUDES, /* one of the two has no effect together with the other */
} option_relation;

typedef struct option_rule {
    const char *name;
    option_relation relation;
    const char *other;
} option_rule;

/* Called after parsing: -1 if the command should continue, CLI_USAGE after a message that names both options
 * of a broken rule. */
int options_check(const char *command, const option_row *rows, int n_rows, const bool *given,
                  const option_rule *rules, int n_rules);

/* Whether a command has an option of that name. argv has the command's words, without options. Only its table
 * is looked at; the command does not run. `name` may end with "=value". */
bool options_has(int (*command)(int argc, char **argv), int argc, char **argv, const char *name);

/* Given by the code that knows all commands: writes which of them have an option, such as "dsmoe train, dsmoe
 * ablate", or "". */
typedef void options_owners_fn(const char *option, char *out, size_t size);
void options_set_owners(options_owners_fn *find);

#endif

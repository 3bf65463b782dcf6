/* options.c - parses a command line by the table of its options, and checks options against each other. */
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/suggest.h"

/* A larger limit is only technical, and would confuse in a message. */
static const double limit_worth_naming = 1e15;

/* The limits of a row in words: "from 1 to 4096", "from 0 up" or nothing. */
static void describe_range(const option_row *row, char *out, size_t size)
{
    bool low = row->min >= -limit_worth_naming, high = row->max <= limit_worth_naming;
    if (low && high)
        snprintf(out, size, " from %.15g to %.15g", row->min, row->max);
    else if (low)
        snprintf(out, size, " from %.15g up", row->min);
    else if (high)
        snprintf(out, size, " up to %.15g", row->max);
    else
        *out = '\0';
}

/* A limit as a whole number; doubles reach further than int64_t. */
static int64_t whole_limit(double limit)
{
    if (limit >= 0x1p63) return INT64_MAX;
    if (limit <= -0x1p63) return INT64_MIN;
    return (int64_t)limit;
}

/* "90", "1.5h", "2h30m": larger units first, each once; a number alone is seconds. */
static bool parse_duration(const char *text, double min, double max, double *seconds)
{
    static const char units[] = "dhms";
    static const double unit_seconds[] = {86400, 3600, 60, 1};
    double sum = 0, part;
    const char *next = units, *start = text;
    while (*text) {
        char number[32];
        size_t length = strspn(text, "0123456789.");
        if (length == 0 || length >= sizeof number) return false;
        memcpy(number, text, length);
        number[length] = '\0';
        if (!cli_parse_number(number, 0, max, &part)) return false;
        text += length;
        const char *unit = *text ? strchr(next, *text) : NULL;
        if (!unit && (*text || next != units)) return false;
        sum += part * (unit ? unit_seconds[unit - units] : 1);
        if (!unit) break;
        next = unit + 1;
        text++;
    }
    if (text == start || !(sum > min && sum <= max)) return false;
    *seconds = sum;
    return true;
}

/* Changes only ASCII letters, whatever the locale. */
static const char *lower_case(char *text)
{
    for (char *at = text; *at; at++)
        if (*at >= 'A' && *at <= 'Z') *at = (char)(*at - 'A' + 'a');
    return text;
}

static int store_number(const char *command, const char *name, const option_row *row,
                        const char *text)
{
    char range[80];
    int64_t whole;
    double number;
    describe_range(row, range, sizeof range);
    if (row->kind == OPTION_INTEGER) {
        if (!cli_parse_int(text, whole_limit(row->min), whole_limit(row->max), &whole))
            return cli_usage(command, "%s must be a whole number%s, not '%s'", name, range, text);
        *(int64_t *)row->value = whole;
    } else {
        if (!cli_parse_number(text, row->min, row->max, &number))
            return cli_usage(command, "%s must be a number%s, not '%s'", name, range, text);
        *(double *)row->value = number;
    }
    return CLI_OK;
}

static bool is_path(option_kind kind)
{
    return kind == OPTION_PATH || kind == OPTION_PATH_FIELD || kind == OPTION_PATH_LIST;
}

/* CLI_OK, or the exit code of a usage error; `name` is as the user wrote it. */
static int store_value(const char *command, const char *name, const option_row *row,
                       const char *text)
{
    if (is_path(row->kind) && !*text)
        return cli_usage(command, "%s is empty; it takes the name of a file or a folder", name);
    switch (row->kind) {
    case OPTION_FLAG: *(bool *)row->value = true; return CLI_OK;
    case OPTION_OFF: *(bool *)row->value = false; return CLI_OK;
    case OPTION_TEXT:
    case OPTION_PATH: *(const char **)row->value = text; return CLI_OK;
    case OPTION_DURATION:
        if (!parse_duration(text, row->min, row->max, row->value))
            return cli_usage(command,
                             "%s must be a time such as 90 (seconds), 45m or 2h30m, not '%s'", name,
                             text);
        return CLI_OK;
    case OPTION_NAME: *(const char **)row->value = lower_case((char *)text); return CLI_OK;
    case OPTION_FIELD:
    case OPTION_NAME_FIELD:
    case OPTION_PATH_FIELD:
        if (strlen(text) >= (size_t)row->max)
            return cli_usage(command, "%s has more than %.0f bytes", name, row->max - 1);
        strncpy(row->value, text, (size_t)row->max);
        if (row->kind == OPTION_NAME_FIELD) lower_case(row->value);
        return CLI_OK;
    case OPTION_LIST:
    case OPTION_PATH_LIST: {
        option_words *list = row->value;
        if (list->count == list->capacity)
            return cli_usage(command, "%s can be given %d times, '%s' is one too many", name,
                             list->capacity, text);
        list->at[list->count++] = text;
        return CLI_OK;
    }
    case OPTION_INTEGER:
    case OPTION_NUMBER: return store_number(command, name, row, text);
    }
    return CLI_OK;
}

/* The row whose long or short name is the first `length` bytes of `name`; NULL if there is none. */
static const option_row *find_row(const option_row *rows, int n_rows, const char *name,
                                  size_t length)
{
    for (int i = 0; i < n_rows; i++) {
        const char *names[] = {rows[i].name, rows[i].short_name};
        for (int j = 0; j < 2; j++)
            if (names[j] && strlen(names[j]) == length && !memcmp(names[j], name, length))
                return &rows[i];
    }
    return NULL;
}

/* ---- options that do not exist --------------------------------------------------------------- */

static options_owners_fn *find_owners;

void options_set_owners(options_owners_fn *find) { find_owners = find; }

/* Says which option of this command may be meant, and which other commands have this one. */
static int refuse_option(const char *command, const option_row *rows, int n_rows, const char *word,
                         size_t length)
{
    enum { MAX_NAMES = 64 };
    const char *names[MAX_NAMES] = {"--help"};
    char name[64], hint[SUGGESTION], owners[512] = "";
    int n = 1;
    for (int i = 0; i < n_rows && n < MAX_NAMES; i++) names[n++] = rows[i].name;
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
             word);
    if (find_owners) find_owners(name, owners, sizeof owners);
    return cli_usage(command, "there is no option '%s'%s%s%s", name,
                     suggest_text(name, names, n, hint), *owners ? "; it is an option of " : "",
                     owners);
}

/* Parses one option at argv[*at]; advances *at if its value is the next word. CLI_OK or an exit code. */
static int parse_option(const char *command, const option_row *rows, int n_rows, int argc,
                        char **argv, int *at, bool *given)
{
    const char *word = argv[*at], *value = NULL;
    size_t length = strlen(word);
    const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    if (equals) {
        length = (size_t)(equals - word);
        value = equals + 1;
    } else if (word[1] != '-' && length > 2) {
        length = 2;
        value = word + length;
    }
    const option_row *row = find_row(rows, n_rows, word, length);
    if (!row) return refuse_option(command, rows, n_rows, word, length);
    if (given) given[row - rows] = true;
    if (row->kind == OPTION_FLAG || row->kind == OPTION_OFF) {
        if (value) return cli_usage(command, "%s takes no value", row->name);
        return store_value(command, row->name, row, NULL);
    }
    if (!value) {
        if (*at + 1 == argc) return cli_usage(command, "%s needs a value", row->name);
        value = argv[++*at];
    }
    return store_value(command, row->name, row, value);
}

static int store_word(const char *command, option_words *words, const char *word)
{
    if (!words || words->count == words->capacity)
        return cli_usage(command, "unexpected argument '%s'", word);
    if (!*word)
        return cli_usage(command, "argument %d is empty; it takes the name of a file or a folder",
                         words->count + 1);
    words->at[words->count++] = word;
    return CLI_OK;
}

/* DSMOE_KERNELS is like an option of every command: with kernels that do not exist, nothing runs except
 * --help. */
static int check_environment(void)
{
    dsmoe_error error;
    return dsmoe_kernels_check(&error) == DSMOE_OK ? -1 : cli_error(NULL, NULL, &error);
}

/* The option that options_has is looking for in the table of a command. */
static struct {
    const char *name;
    bool found;
} asked;

bool options_has(int (*command)(int argc, char **argv), int argc, char **argv, const char *name)
{
    asked.name = name;
    asked.found = false;
    command(argc, argv);
    asked.name = NULL;
    return asked.found;
}

int options_parse(const char *command, const char *help, const option_row *rows, int n_rows,
                  int argc, char **argv, option_words *words)
{
    return options_parse_given(command, help, rows, n_rows, argc, argv, words, NULL);
}

int options_parse_given(const char *command, const char *help, const option_row *rows, int n_rows,
                        int argc, char **argv, option_words *words, bool *given)
{
    if (given) memset(given, 0, (size_t)n_rows * sizeof *given);
    if (asked.name) {
        asked.found = find_row(rows, n_rows, asked.name, strcspn(asked.name, "=")) != NULL;
        return CLI_OK;
    }
    bool options_ended = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        int code;
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            code = store_word(command, words, word);
        } else if (!strcmp(word, "--")) {
            options_ended = true;
            continue;
        } else if (!strcmp(word, "-h") || !strcmp(word, "--help")) {
            fputs(help, stdout);
            return CLI_OK;
        } else {
            code = parse_option(command, rows, n_rows, argc, argv, &i, given);
        }
        if (code != CLI_OK) return code;
    }
    return check_environment();
}

/* ---- options against each other -------------------------------------------------------------- */

static bool is_set(const option_row *row)
{
    switch (row->kind) {
    case OPTION_FLAG: return *(const bool *)row->value;
    case OPTION_OFF: return !*(const bool *)row->value;
    case OPTION_TEXT:
    case OPTION_PATH:
    case OPTION_NAME: return *(const char *const *)row->value != NULL;
    case OPTION_INTEGER: return *(const int64_t *)row->value != 0;
    case OPTION_NUMBER:
    case OPTION_DURATION: return *(const double *)row->value != 0;
    case OPTION_FIELD:
    case OPTION_NAME_FIELD:
    case OPTION_PATH_FIELD: return *(const char *)row->value != '\0';
    case OPTION_LIST:
    case OPTION_PATH_LIST: return ((const option_words *)row->value)->count > 0;
    }
    return false;
}

static int check_rule(const char *command, const option_rule *rule, const option_row *other,
                      bool other_given)
{
    bool is_number = other->kind == OPTION_INTEGER || other->kind == OPTION_NUMBER;
    if (rule->relation == OPTION_EXCLUDES)
        return !is_set(other)
                   ? -1
                   : cli_usage(command, "%s and %s cannot be used together%s", rule->name,
                               rule->other,
                               other_given ? "" : ", and the settings already have the second");
    if (is_set(other)) return -1;
    if (is_number && other->min <= 0)
        return cli_usage(command, "%s has no effect: %s is 0", rule->name, rule->other);
    return cli_usage(command, "%s has no effect without %s", rule->name, rule->other);
}

int options_check(const char *command, const option_row *rows, int n_rows, const bool *given,
                  const option_rule *rules, int n_rules)
{
    for (int i = 0; i < n_rules; i++) {
        const option_row *row = find_row(rows, n_rows, rules[i].name, strlen(rules[i].name));
        const option_row *other = find_row(rows, n_rows, rules[i].other, strlen(rules[i].other));
        if (!given[row - rows] || !is_set(row)) continue;
        int exit_code = check_rule(command, &rules[i], other, given[other - rows]);
        if (exit_code >= 0) return exit_code;
    }
    return -1;
}

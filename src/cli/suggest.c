/* suggest.c - the name nearest to a word, by the number of letters to change. */
#include "cli/suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { LONGEST = 32, SHORTEST_BEGINNING = 3, FAR_AWAY = 2 * LONGEST };

static int least(int a, int b) { return a < b ? a : b; }

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* How many letters to change, leave out, put in or swap with their neighbour to turn `a` into `b`. Only three
 * rows of the usual table are kept, because a swap needs the last two. */
static int distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int rows[3][LONGEST + 1];
    if (n_a > LONGEST || n_b > LONGEST) return FAR_AWAY;
    for (size_t j = 0; j <= n_b; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int change = above[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            row[j] = least(change, 1 + least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[n_a % 3][n_b];
}

const char *suggest_name(const char *word, const char *const *names, int n_names)
{
    const char *nearest = NULL;
    int best = FAR_AWAY;
    word += strspn(word, "-");
    size_t length = strlen(word);
    for (int i = 0; i < n_names; i++) {
        const char *name = names[i] + strspn(names[i], "-");
        size_t name_length = strlen(name);
        bool is_beginning = length >= SHORTEST_BEGINNING && !strncmp(word, name, length);
        int d = is_beginning ? 1 : distance(word, length, name, name_length);
        /* A third of a word may be wrong: with more, everything resembles everything. */
        int most = is_beginning ? 1 : (int)(length > name_length ? length : name_length) / 3;
        if (d > most || d >= best) continue;
        best = d;
        nearest = names[i];
    }
    return nearest;
}

const char *suggest_text(const char *word, const char *const *names, int n_names,
                         char out[SUGGESTION])
{
    const char *name = suggest_name(word, names, n_names);
    *out = '\0';
    if (name) snprintf(out, SUGGESTION, "; did you mean %s?", name);
    return out;
}

const char *suggest_list(const char *const *names, int n_names, char *out, size_t size)
{
    size_t used = 0;
    *out = '\0';
    for (int i = 0; i < n_names && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 i == 0            ? ""
                                 : i + 1 < n_names ? ", "
                                                   : " or ",
                                 names[i]);
    return out;
}

int suggest_choice(const char *command, const char *option, const char *value,
                   const char *const *names, int n_names)
{
    char list[256], hint[SUGGESTION];
    for (int i = 0; i < n_names; i++)
        if (!strcmp(value, names[i])) return i;
    cli_usage(command, "%s must be %s, not '%s'%s", option,
              suggest_list(names, n_names, list, sizeof list), value,
              suggest_text(value, names, n_names, hint));
    return -1;
}

int suggest_part(const char *command, const char *word, const char *const *parts, int n_parts)
{
    char list[96], hint[SUGGESTION];
    suggest_list(parts, n_parts, list, sizeof list);
    if (!word) return cli_usage(command, "a subcommand is missing: dsmoe %s %s", command, list);
    return cli_usage(command, "there is no 'dsmoe %s %s', only %s%s", command, word, list,
                     suggest_text(word, parts, n_parts, hint));
}

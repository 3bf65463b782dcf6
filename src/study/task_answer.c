/* task_answer.c - whether what a model wrote is the answer. */
#include <stdlib.h>
#include <string.h>

#include "study/tasks.h"

/* A stretch of a text. */
typedef struct stretch {
    const char *at;
    size_t length;
} stretch;

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static stretch trimmed(stretch s)
{
    while (s.length > 0 && is_space(*s.at)) s.at++, s.length--;
    while (s.length > 0 && is_space(s.at[s.length - 1])) s.length--;
    return s;
}

/* The text after `after` on the same line; nothing if `after` is not in the text. */
static stretch part_that_counts(const task *t, const char *text)
{
    stretch s = {text, strlen(text)};
    if (t->after) {
        const char *found = strstr(text, t->after);
        if (!found) return (stretch){text, 0};
        s.at = found + strlen(t->after);
        s.length = strcspn(s.at, "\n");
    }
    return trimmed(s);
}

/* ---- numbers ---------------------------------------------------------------------------------- */

/* A number in its shortest form: "-1,234.50" and "$ -1234.5" are the same. */
typedef struct number_text {
    char at[64];
    size_t length;
} number_text;

static void number_put(number_text *n, char c)
{
    if (n->length + 1 < sizeof n->at) n->at[n->length++] = c;
}

/* Reads the number whose first digit is s[i]; returns its end. Commas between digits separate thousands. */
static size_t read_number(stretch s, size_t i, number_text *n)
{
    size_t before = i, point = 0;
    *n = (number_text){.length = 0};
    while (before > 0 && s.at[before - 1] == '$') before--;
    if (before > 0 && s.at[before - 1] == '-') number_put(n, '-');
    while (i + 1 < s.length && s.at[i] == '0' && is_digit(s.at[i + 1])) i++;
    for (; i < s.length; i++) {
        bool digit_follows = i + 1 < s.length && is_digit(s.at[i + 1]);
        if (s.at[i] == ',' && digit_follows && !point) continue;
        if (s.at[i] == '.' && digit_follows && !point)
            point = n->length + 1;
        else if (!is_digit(s.at[i]))
            break;
        number_put(n, s.at[i]);
    }
    if (point) {
        while (n->at[n->length - 1] == '0') n->length--;
        if (n->at[n->length - 1] == '.') n->length--;
    }
    if (n->length == 2 && n->at[0] == '-' && n->at[1] == '0') *n = (number_text){"0", 1};
    return i;
}

/* The last number of a text; false if there is none. */
static bool last_number(stretch s, number_text *n)
{
    bool found = false;
    for (size_t i = 0; i < s.length;) {
        if (is_digit(s.at[i])) {
            i = read_number(s, i, n);
            found = true;
        } else {
            i++;
        }
    }
    return found;
}

static bool same_number(stretch a, stretch b)
{
    number_text x, y;
    return last_number(a, &x) && last_number(b, &y) && x.length == y.length &&
           !memcmp(x.at, y.at, x.length);
}

/* ---- comparing -------------------------------------------------------------------------------- */

static bool same_text(stretch a, stretch b, bool ignore_case)
{
    if (a.length != b.length) return false;
    for (size_t i = 0; i < a.length; i++)
        if (a.at[i] != b.at[i] && (!ignore_case || lower(a.at[i]) != lower(b.at[i]))) return false;
    return true;
}

bool task_accepts(const task *t, const char *text)
{
    stretch written = part_that_counts(t, text);
    for (int i = 0; i < t->n_accepted; i++) {
        stretch accepted = trimmed((stretch){t->accepted[i], strlen(t->accepted[i])});
        if (t->match == TASK_NUMBER ? same_number(written, accepted)
                                    : same_text(written, accepted, t->match == TASK_IGNORE_CASE))
            return true;
    }
    return false;
}

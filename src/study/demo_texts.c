/* demo_texts.c - the kinds of text that have words: dates, records, stories. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "study/demo_corpus.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* One name for each first letter. Stories and records share them. */
static const char *const names[] = {"Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"};

static const char *pick(demo_example *example, const char *const *words, int n)
{
    return words[demo_below(example, n)];
}

/* ---- dates: "after Tuesday 27 February: Wednesday 28 February, Thursday 1 March" ------------- */

static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};
static const char *const weekdays[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                       "Friday", "Saturday", "Sunday"};
enum { N_MONTHS = 12, N_WEEKDAYS = 7, N_DAYS = 3 };

/* Months and weekdays count from 0. No year is named, and no year is a leap year. */
typedef struct date {
    int day, month, weekday;
} date;

static int month_length(int month)
{
    static const int lengths[N_MONTHS] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return lengths[month];
}

static date day_after(date d)
{
    d.weekday = (d.weekday + 1) % N_WEEKDAYS;
    if (++d.day <= month_length(d.month)) return d;
    d.day = 1;
    d.month = (d.month + 1) % N_MONTHS;
    return d;
}

void demo_make_date(demo_example *example)
{
    date d = {.month = demo_below(example, N_MONTHS), .weekday = demo_below(example, N_WEEKDAYS)};
    /* The ends of months are hard, and would be rare if left to chance. */
    bool late = demo_below(example, 4) == 0;
    d.day = late ? month_length(d.month) - demo_below(example, N_DAYS)
                 : 1 + demo_below(example, month_length(d.month));
    for (int i = 0; i < N_DAYS; i++, d = day_after(d)) {
        static const char *const before[N_DAYS] = {"after", "", ","};
        demo_put(example, "%s %s %d %s", before[i], weekdays[d.weekday], d.day, months[d.month]);
        if (i > 0) continue;
        demo_put(example, ":");
        demo_end_prompt(example);
    }
}

static int find_word(const char *word, const char *const *words, int n)
{
    int i = 0;
    while (i < n && strcmp(word, words[i])) i++;
    return i < n ? i : -1;
}

bool demo_grade_date(const char *prompt, const char *answer)
{
    char weekday[16], month[16], expected[128];
    date d;
    if (sscanf(prompt, "after %15s %d %15[A-Za-z]:", weekday, &d.day, month) != 3) return false;
    d.weekday = find_word(weekday, weekdays, N_WEEKDAYS);
    d.month = find_word(month, months, N_MONTHS);
    if (d.weekday < 0 || d.month < 0) return false;
    date next = day_after(d), last = day_after(next);
    snprintf(expected, sizeof expected, " %s %d %s, %s %d %s", weekdays[next.weekday], next.day,
             months[next.month], weekdays[last.weekday], last.day, months[last.month]);
    return !strcmp(answer, expected);
}

/* ---- records: "name Ada, pet cat, city Rome | pet cat, city Rome, name Ada" ------------------ */

static const char *const cities[] = {"Rome", "Oslo", "Lima", "Cairo", "Paris", "Kyoto"};
static const char *const pets[] = {"cat", "dog", "fox", "hen", "owl", "pig"};
static const char *const colours[] = {"red", "blue", "green", "white", "grey", "black"};
static const struct {
    const char *key;
    const char *const *values;
    int n_values;
} fields[] = {{"name", names, COUNT(names)},
              {"city", cities, COUNT(cities)},
              {"pet", pets, COUNT(pets)},
              {"colour", colours, COUNT(colours)}};
enum { N_FIELDS = COUNT(fields), N_RECORD = 3 };

static void shuffle(demo_example *example, int *order, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = demo_below(example, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

/* Gives three of the fields, then asks for each of them. The prompt ends with the first question. */
void demo_make_record(demo_example *example)
{
    int missing = demo_below(example, N_FIELDS), order[N_RECORD];
    const char *values[N_FIELDS];
    for (int f = 0, n = 0; f < N_FIELDS; f++) {
        if (f == missing) continue;
        values[f] = pick(example, fields[f].values, fields[f].n_values);
        demo_put(example, "%s%s %s", n ? ", " : "", fields[f].key, values[f]);
        order[n++] = f;
    }
    shuffle(example, order, N_RECORD);
    for (int i = 0; i < N_RECORD; i++) {
        demo_put(example, "%s %s", i ? "," : " |", fields[order[i]].key);
        if (i == 0) demo_end_prompt(example);
        demo_put(example, " %s", values[order[i]]);
    }
}

/* Whether the record, which ends at the bar, contains "KEY VALUE". */
static bool record_has(const char *record, const char *key, const char *value)
{
    char field[64];
    snprintf(field, sizeof field, "%.24s %.24s", key, value);
    const char *found = strstr(record, field);
    if (!found || (found != record && found[-1] != ' ')) return false;
    const char *after = found + strlen(field);
    return *after == ',' || !strncmp(after, " |", 2);
}

/* The answer must have every field once, each with its value. */
bool demo_grade_record(const char *prompt, const char *answer)
{
    char keys[N_RECORD][16], values[N_RECORD][16], expected[DEMO_TEXT];
    const char *query = strstr(prompt, " | ");
    if (!query || sscanf(query, " | %15[a-z]", keys[0]) != 1) return false;
    if (sscanf(answer, " %15[A-Za-z], %15[a-z] %15[A-Za-z], %15[a-z] %15[A-Za-z]", values[0],
               keys[1], values[1], keys[2], values[2]) != 2 * N_RECORD - 1)
        return false;
    snprintf(expected, sizeof expected, " %s, %s %s, %s %s", values[0], keys[1], values[1], keys[2],
             values[2]);
    if (strcmp(answer, expected)) return false;
    for (int i = 0; i < N_RECORD; i++) {
        if (!record_has(prompt, keys[i], values[i])) return false;
        for (int j = 0; j < i; j++)
            if (!strcmp(keys[i], keys[j])) return false;
    }
    return true;
}

/* ---- stories: who, where and what stay the same ---------------------------------------------- */

static const char *const places[] = {"park", "cave", "market", "school", "forest", "garden"};
static const char *const things[] = {"kite", "drum", "lamp", "map", "book", "coin"};

/* %N is a name, %O a thing, %P a place. The prompt ends at the bar. */
static const char *const templates[] = {
    "%N took a %O to the %P.| In the %P %N lost the %O. All day %N looked for the %O. Then %N left "
    "the %P without the %O.",
    "%N saw a %O in the %P.| The %O was old, but %N liked the %O. So %N took the %O home from the "
    "%P.",
    "%N hid a %O in the %P.| The %P was dark. Later %N came back to the %P, but the %O was gone. "
    "Poor %N!",
};

void demo_make_story(demo_example *example)
{
    const char *name = pick(example, names, COUNT(names));
    const char *thing = pick(example, things, COUNT(things));
    const char *place = pick(example, places, COUNT(places));
    for (const char *at = pick(example, templates, COUNT(templates)); *at; at++) {
        if (*at == '|')
            demo_end_prompt(example);
        else if (*at != '%')
            demo_put(example, "%c", *at);
        else
            demo_put(example, "%s", *++at == 'N' ? name : *at == 'O' ? thing : place);
    }
}

/* Whether the text is this story. Every slot is one word, the same one wherever the slot occurs. */
static bool story_fits(const char *story, const char *text)
{
    char words[128][16] = {{0}}; /* the word of each slot, by the slot's letter */
    for (; *story; story++) {
        if (*story == '|') continue;
        if (*story != '%') {
            if (*text++ != *story) return false;
            continue;
        }
        char *word = words[(int)*++story], found[16];
        size_t length = 0;
        for (; isalpha((unsigned char)*text) && length < sizeof found - 1; text++)
            found[length++] = *text;
        found[length] = '\0';
        if (!*word) memcpy(word, found, length + 1);
        if (length == 0 || strcmp(word, found)) return false;
    }
    return *text == '\0';
}

bool demo_grade_story(const char *prompt, const char *answer)
{
    char text[2 * DEMO_TEXT];
    snprintf(text, sizeof text, "%s%s", prompt, answer);
    for (int i = 0; i < COUNT(templates); i++)
        if (story_fits(templates[i], text)) return true;
    return false;
}

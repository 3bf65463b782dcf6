/* demo_tasks.c - the kinds of text that consist of signs: sums, counting, brackets, sorting. */
#include <stdio.h>
#include <string.h>

#include "study/demo_corpus.h"

/* ---- sums: "add 37 + 8 = 45" ----------------------------------------------------------------- */

enum { MAX_FIRST = 90, MAX_SECOND = 9 };

void demo_make_sum(demo_example *example)
{
    int a = 1 + demo_below(example, MAX_FIRST), b = 1 + demo_below(example, MAX_SECOND);
    demo_put(example, "add %d + %d =", a, b);
    demo_end_prompt(example);
    demo_put(example, " %d", a + b);
}

bool demo_grade_sum(const char *prompt, const char *answer)
{
    int a, b;
    char expected[32];
    if (sscanf(prompt, "add %d + %d =", &a, &b) != 2) return false;
    snprintf(expected, sizeof expected, " %d", a + b);
    return !strcmp(answer, expected);
}

/* ---- counting: "count 14, 17, 20, 23, 26, 29" ------------------------------------------------ */

static const int strides[] = {1, 2, 3, 5, 10};
enum { N_STRIDES = sizeof strides / sizeof *strides, N_GIVEN = 2, N_TERMS = 6, MAX_TERM = 99 };

void demo_make_counting(demo_example *example)
{
    int stride = strides[demo_below(example, N_STRIDES)];
    int start = 1 + demo_below(example, MAX_TERM - (N_TERMS - 1) * stride);
    for (int i = 0; i < N_TERMS; i++) {
        demo_put(example, "%s %d", i ? "," : "count", start + i * stride);
        if (i == N_GIVEN - 1) demo_end_prompt(example);
    }
}

bool demo_grade_counting(const char *prompt, const char *answer)
{
    int a, b;
    char expected[64];
    if (sscanf(prompt, "count %d, %d", &a, &b) != N_GIVEN) return false;
    int stride = b - a;
    snprintf(expected, sizeof expected, ", %d, %d, %d, %d", b + stride, b + 2 * stride,
             b + 3 * stride, b + 4 * stride);
    return !strcmp(answer, expected);
}

/* ---- brackets: "close ( [ ] { with } )" ------------------------------------------------------ */

static const char opening[] = "([{", closing[] = ")]}";
enum { N_BRACKETS = 3, MAX_DEPTH = 3, MIN_SIGNS = 2, MORE_SIGNS = 5 };

void demo_make_brackets(demo_example *example)
{
    int n = MIN_SIGNS + demo_below(example, MORE_SIGNS), depth = 0, stack[MAX_DEPTH];
    demo_put(example, "close");
    for (int i = 0; i < n; i++) {
        /* Opens about two brackets for each that it closes, and leaves at least one open. */
        bool last = i == n - 1 && depth == 1;
        bool opens = depth == 0 || last || (depth < MAX_DEPTH && demo_below(example, 3) < 2);
        if (opens) stack[depth++] = demo_below(example, N_BRACKETS);
        demo_put(example, " %c", opens ? opening[stack[depth - 1]] : closing[stack[depth - 1]]);
        if (!opens) depth--;
    }
    demo_put(example, " with");
    demo_end_prompt(example);
    while (depth > 0) demo_put(example, " %c", closing[stack[--depth]]);
}

/* A closing bracket must match the last one that is open. */
static bool follow_brackets(const char *signs, int *stack, int *depth)
{
    for (const char *sign = signs; *sign; sign++) {
        const char *opens = strchr(opening, *sign), *closes = strchr(closing, *sign);
        if (*sign == ' ') continue;
        if (opens && *depth < DEMO_TEXT)
            stack[(*depth)++] = (int)(opens - opening);
        else if (!closes || *depth == 0 || stack[--*depth] != closes - closing)
            return false;
    }
    return true;
}

/* The answer must not open brackets, and must have a single blank before each sign. */
bool demo_grade_brackets(const char *prompt, const char *answer)
{
    char signs[DEMO_TEXT];
    int stack[DEMO_TEXT], depth = 0;
    if (strlen(prompt) >= sizeof signs || sscanf(prompt, "close%[^w]with", signs) != 1)
        return false;
    if (!follow_brackets(signs, stack, &depth)) return false;
    if (strlen(answer) != 2 * (size_t)depth || strpbrk(answer, opening)) return false;
    for (size_t i = 0; answer[i]; i++)
        if ((answer[i] == ' ') != (i % 2 == 0)) return false;
    return follow_brackets(answer, stack, &depth) && depth == 0;
}

/* ---- sorting: "sort d b a c: a b c d" -------------------------------------------------------- */

enum { N_LETTERS = 8, MIN_SORTED = 3, MORE_SORTED = 2 };

void demo_make_sorting(demo_example *example)
{
    int n = MIN_SORTED + demo_below(example, MORE_SORTED);
    bool used[N_LETTERS] = {false};
    demo_put(example, "sort");
    for (int i = 0; i < n; i++) {
        int letter;
        do letter = demo_below(example, N_LETTERS);
        while (used[letter]);
        used[letter] = true;
        demo_put(example, " %c", 'a' + letter);
    }
    demo_put(example, ":");
    demo_end_prompt(example);
    for (int i = 0; i < N_LETTERS; i++)
        if (used[i]) demo_put(example, " %c", 'a' + i);
}

/* The answer must have as many letters, all from the prompt, each greater than the one before. */
bool demo_grade_sorting(const char *prompt, const char *answer)
{
    static const char word[] = "sort", colon[] = ":";
    size_t length = strlen(prompt), frame = strlen(word) + strlen(colon);
    if (length < frame || strncmp(prompt, word, strlen(word))) return false;
    const char *letters = prompt + strlen(word);
    if (strlen(answer) != length - frame) return false;
    for (size_t i = 0; answer[i]; i += 2) {
        if (answer[i] != ' ' || answer[i + 1] == ' ') return false;
        if (!memchr(letters, answer[i + 1], length - frame)) return false;
        if (i >= 2 && answer[i + 1] <= answer[i - 1]) return false;
    }
    return true;
}

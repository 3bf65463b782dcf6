/* demo_corpus.c - examples by number, those held out for the examination, and the files. */
#include "study/demo_corpus.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"

const demo_kind demo_kinds[DEMO_N_KINDS] = {
    {"brackets", "close what is open", 10000, demo_make_brackets, demo_grade_brackets},
    {"counting", "go on counting", 8500, demo_make_counting, demo_grade_counting},
    {"dates", "the day after", 6500, demo_make_date, demo_grade_date},
    {"records", "look a value up", 8500, demo_make_record, demo_grade_record},
    {"sorting", "letters in order", 7000, demo_make_sorting, demo_grade_sorting},
    {"stories", "who, where and what", 5000, demo_make_story, demo_grade_story},
    {"sums", "add two numbers", 20000, demo_make_sum, demo_grade_sum},
};

/* One prompt in HELD_OUT_SHARE is held out for the examination. */
enum { HELD_OUT_SHARE = 8 };

/* ---- helpers of the makers ------------------------------------------------------------------- */

/* SplitMix64: a counter whose bits are mixed well. */
static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return bits ^ bits >> 31;
}

int demo_below(demo_example *example, int n)
{
    example->random += 0x9e3779b97f4a7c15u;
    return (int)((mix(example->random) >> 32) * (uint64_t)n >> 32);
}

void demo_put(demo_example *example, const char *format, ...)
{
    size_t room = sizeof example->text - example->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(example->text + example->length, room, format, arguments);
    va_end(arguments);
    if (length > 0) example->length += (size_t)length < room ? (size_t)length : room - 1;
}

void demo_end_prompt(demo_example *example) { example->prompt_length = example->length; }

/* ---- examples -------------------------------------------------------------------------------- */

static bool is_held_out(const demo_example *example)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < example->prompt_length; i++)
        hash = mix(hash + (unsigned char)example->text[i] + 1);
    return hash % HELD_OUT_SHARE == 0;
}

void demo_make(int kind, uint64_t seed, bool held_out, int64_t index, demo_example *example)
{
    memset(example, 0, sizeof *example);
    example->random = mix(seed * 64 + (uint64_t)kind * 2 + held_out) ^ mix((uint64_t)index);
    do {
        example->length = 0;
        demo_kinds[kind].make(example);
    } while (is_held_out(example) != held_out);
}

void demo_prompt(const demo_example *example, char prompt[DEMO_TEXT])
{
    memcpy(prompt, example->text, example->prompt_length);
    prompt[example->prompt_length] = '\0';
}

static bool same_prompt(const demo_example *a, const demo_example *b)
{
    return a->prompt_length == b->prompt_length && !memcmp(a->text, b->text, a->prompt_length);
}

bool demo_exam(int kind, uint64_t seed, demo_example *examples, int n)
{
    int64_t most_tries = 100 * (int64_t)n;
    int found = 0;
    for (int64_t index = 0; index < most_tries && found < n; index++) {
        demo_make(kind, seed, true, index, &examples[found]);
        int i = 0;
        while (i < found && !same_prompt(&examples[i], &examples[found])) i++;
        found += i == found;
    }
    return found == n;
}

/* ---- files ----------------------------------------------------------------------------------- */

static dsmoe_status make_folder(const char *path, dsmoe_error *error)
{
    if (mkdir(path, 0777) == 0) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: cannot create the folder: %s", path,
                       strerror(errno));
}

/* The examples are plain ASCII without quotes, so JSON needs no escapes. */
static dsmoe_status write_kind(const char *path, int kind, uint64_t seed, demo_size *size,
                               dsmoe_error *error)
{
    FILE *file = fopen(path, "wx");
    if (!file)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot create the file: %s", path,
                           strerror(errno));
    demo_example example;
    for (int64_t i = 0; i < demo_kinds[kind].n_examples; i++) {
        demo_make(kind, seed, false, i, &example);
        fprintf(file, "{\"text\": \"%s\"}\n", example.text);
        size->n_bytes += (int64_t)example.length;
    }
    size->n_examples += demo_kinds[kind].n_examples;
    bool written = fflush(file) == 0 && !ferror(file);
    int reason = errno;
    fclose(file);
    if (written) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: cannot write the file: %s", path,
                       strerror(reason));
}

dsmoe_status demo_corpus_write(const char *folder, uint64_t seed, demo_size *size,
                               dsmoe_error *error)
{
    *size = (demo_size){0, 0};
    STATUS_TRY(make_folder(folder, error));
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        char path[DSMOE_PATH + 64];
        snprintf(path, sizeof path, "%s/%s", folder, demo_kinds[kind].name);
        STATUS_TRY(make_folder(path, error));
        snprintf(path, sizeof path, "%s/%s/examples.jsonl", folder, demo_kinds[kind].name);
        STATUS_TRY(write_kind(path, kind, seed, size, error));
    }
    return DSMOE_OK;
}

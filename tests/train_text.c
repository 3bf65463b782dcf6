/* train_text.c - a tokenizer that a test trains on a made-up text. */
#include "train_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static uint64_t n_random;

size_t random_below(size_t n) { return (size_t)(rng_bits(7, 1, n_random++) % n); }

char *make_prose(size_t n)
{
    static const char *const parts[] = {"the", "ing", "er",  "un", "ca", "to", "é", "语言", "x",
                                        "lo",  "st",  "ord", "a",  "ma", "qu", "ß", "ый",   "ne"};
    static const char *const ends[] = {" ", " ", " ", " ", ", ", ".\n", "\n\n", " 42 ", "\t"};
    char *text = malloc(n + 32);
    assert_non_null(text);
    size_t at = 0;
    while (at < n) {
        size_t n_parts = 1 + random_below(4), spread = 1 + random_below(18);
        for (size_t i = 0; i < n_parts && at < n; i++)
            at += (size_t)sprintf(text + at, "%s", parts[random_below(spread)]);
        at += (size_t)sprintf(text + at, "%s", ends[random_below(9)]);
    }
    at = n;
    while (((unsigned char)text[at] & 0xc0) == 0x80) at--; /* not within a character */
    memset(text + at, ' ', n - at);
    text[n] = '\0';
    return text;
}

dsmoe_tokenizer_train_options options_of(const char *name, int64_t vocab_size, int n_threads)
{
    static char given[1024];
    static const char *paths[] = {given};
    snprintf(given, sizeof given, "%s", in_directory(name));
    return (dsmoe_tokenizer_train_options){.paths = paths,
                                           .n_paths = 1,
                                           .vocab_size = vocab_size,
                                           .n_threads = n_threads,
                                           .replace = true};
}

void train(const char *name, int64_t vocab_size, int n_threads, const char *folder)
{
    dsmoe_tokenizer_train_options options = options_of(name, vocab_size, n_threads);
    dsmoe_error error = {0};
    if (dsmoe_tokenizer_train(&options, in_directory(folder), NULL, NULL, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
}

dsmoe_tokenizer *open_trained(const char *folder)
{
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error = {0};
    if (dsmoe_tokenizer_open(in_directory(folder), &tokenizer, &error) != DSMOE_OK)
        fail_msg("%s", error.message);
    return tokenizer;
}

void assert_same_files(const char *one, const char *other)
{
    size_t sizes[2];
    unsigned char *bytes[2] = {read_data(one, &sizes[0]), read_data(other, &sizes[1])};
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    free(bytes[0]);
    free(bytes[1]);
}

size_t count_ids(const dsmoe_tokenizer *tokenizer, const char *text, size_t length)
{
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(dsmoe_tokenizer_encode(tokenizer, text, length, 0, &ids, &n_ids, NULL), 0);
    free(ids);
    return n_ids;
}

void read_pre_tokenizer(const char *text, size_t length, pre_tokenizer *pre)
{
    json_node *root;
    assert_int_equal(json_node_parse(text, length, "", &root, NULL), DSMOE_OK);
    const json_node *inner = json_node_member(root, "pre_tokenizer");
    assert_int_equal(pre_tokenizer_read(pre, inner ? inner : root, NULL), DSMOE_OK);
    json_node_free(root);
}

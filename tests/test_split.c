/* test_split.c - held-out text: whole documents, the same ones for a tokenizer and for a model, whatever
 * the other options; and the end of documents that are too large. */
#include "train_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/document_split.h"
#include "formats/token_shard.h"
#include "scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- helpers -------------------------------------------------------------------------------- */

typedef struct gathered {
    char *text;
    size_t length, n_bytes, n;
} gathered;

static dsmoe_status gather(void *context, const document *d, dsmoe_error *error)
{
    (void)error;
    gathered *g = context;
    size_t size = d->text ? d->length : d->n_tokens * (size_t)d->token_size;
    g->text = realloc(g->text, g->length + size + 2);
    assert_non_null(g->text);
    memcpy(g->text + g->length, d->text ? d->text : (const char *)d->tokens, size);
    g->length += size;
    g->n_bytes += size;
    g->n++;
    g->text[g->length++] = '|';
    g->text[g->length] = '\0';
    return DSMOE_OK;
}

/* All documents of a part, each followed by '|'; to be freed. */
static gathered part_of(const char *name, double share, document_part part)
{
    const char *given = in_directory(name);
    document_list list;
    document_split split;
    const document_watch watch = {0};
    gathered g = {.text = calloc(1, 1)};
    assert_int_equal(document_list_open(&given, 1, DSMOE_BAD_BYTES_REPLACE, &list, NULL), DSMOE_OK);
    assert_int_equal(document_split_make(&split, &list, share, &watch, NULL), DSMOE_OK);
    for (size_t i = 0; i < list.n_sources; i++)
        assert_int_equal(document_split_each(&split, &list, i, part, 9, gather, &g, NULL),
                         DSMOE_OK);
    document_split_free(&split);
    document_split_free(&split); /* does nothing the second time */
    document_list_close(&list);
    return g;
}

static void write_lines(const char *name, int n)
{
    FILE *file = fopen(in_directory(name), "w");
    assert_non_null(file);
    for (int i = 0; i < n; i++)
        fprintf(file, "{\"text\":\"<%d> %.*s\"}\n", i, i % 40,
                "a text of some length, of no import");
    assert_int_equal(fclose(file), 0);
}

/* ---- which documents ------------------------------------------------------------------------ */

/* Every document is complete and in one part only. The held-out ones are spread over the whole text. */
static void test_whole_documents(void **state)
{
    (void)state;
    enum { N = 1000 };
    write_lines("a.jsonl", N);
    gathered train_part = part_of("a.jsonl", 0.1, DOCUMENT_TRAIN),
             held = part_of("a.jsonl", 0.1, DOCUMENT_HELD_OUT);
    int n_held = 0, n_early = 0;
    for (int i = 0; i < N; i++) {
        char text[80];
        snprintf(text, sizeof text, "<%d> %.*s|", i, i % 40, "a text of some length, of no import");
        bool in_train = strstr(train_part.text, text), in_held = strstr(held.text, text);
        assert_true(in_train != in_held);
        n_held += in_held;
        n_early += in_held && i < N / 2;
    }
    assert_true(n_held > 80 && n_held < 120 && n_early > 30 && n_early < 70);
    double share = (double)held.n_bytes / (double)(held.n_bytes + train_part.n_bytes);
    assert_true(share > 0.098 && share < 0.102);
    free(train_part.text);
    free(held.text);
}

/* The held-out tokens of a data set, as text. */
static char *held_text(const dsmoe_dataset *data, const dsmoe_tokenizer *tokenizer)
{
    (void)data;
    size_t size, length;
    unsigned char *bytes = read_data("data.cache", &size);
    token_shard shard;
    assert_int_equal(token_shard_parse_head(bytes, size, "", &shard, NULL), DSMOE_OK);
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    int32_t *ids = malloc((size_t)info.n_tokens_held_out * sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < info.n_tokens_held_out; i++)
        ids[i] = (int32_t)token_shard_token(&shard,
                                            (size_t)(info.n_tokens - info.n_tokens_held_out + i));
    char *text;
    assert_int_equal(dsmoe_tokenizer_decode(tokenizer, ids, (size_t)info.n_tokens_held_out, &text,
                                            &length, NULL),
                     DSMOE_OK);
    free(ids);
    free(bytes);
    return text;
}

/* What is held out does not depend on seq, seed, threads or tokenizer. */
static void test_a_function_of_the_text(void **state)
{
    (void)state;
    write_lines("a.jsonl", 300);
    train("a.jsonl", 280, 1, "other");
    dsmoe_tokenizer *other = open_trained("other");
    gathered held = part_of("a.jsonl", 0.1, DOCUMENT_HELD_OUT);
    for (int i = 0; i < 4; i++) {
        dsmoe_dataset_options o = options_for("a.jsonl");
        o.held_out = 0.1;
        o.sequence_length = i == 1 ? 17 : 4;
        o.seed = i == 2 ? 99 : 0;
        o.n_threads = 1 + i;
        if (i == 3) o.tokenizer = other;
        if (i == 3) o.vocab_size = 280;
        dsmoe_dataset *data = open_data(&o);
        char *text = held_text(data, o.tokenizer), *at = text;
        for (char *one = strtok(held.text, "|"); i == 0 && one; one = strtok(NULL, "|")) {
            at = strstr(at, one); /* in the same order */
            assert_non_null(at);
        }
        if (i > 0 && i < 3) assert_non_null(strstr(text, "<"));
        int n = 0;
        for (at = text; (at = strchr(at, '<')); at++) n += at[1] >= '0' && at[1] <= '9';
        assert_int_equal(n, held.n);
        free(text);
        dsmoe_dataset_free(data);
    }
    dsmoe_tokenizer_free(other);
    free(held.text);
}

/* ---- documents that are too large ----------------------------------------------------------- */

/* For a single book its end is held out, starting at the beginning of a line. */
static void test_one_book(void **state)
{
    (void)state;
    enum { N = 1000 };
    char *text = malloc(N * 24), *at = text;
    assert_non_null(text);
    for (int i = 0; i < N; i++) at += sprintf(at, "line %04d of the book\n", i);
    write_text("book.txt", text);
    gathered train_part = part_of("book.txt", 0.05, DOCUMENT_TRAIN),
             held = part_of("book.txt", 0.05, DOCUMENT_HELD_OUT);
    assert_int_equal(train_part.n, 1);
    assert_int_equal(held.n, 1);
    assert_int_equal(train_part.n_bytes + held.n_bytes, strlen(text));
    assert_memory_equal(train_part.text, text, train_part.n_bytes);
    assert_memory_equal(held.text, text + train_part.n_bytes, held.n_bytes);
    assert_memory_equal(held.text, "line 0950", 9);
    free(train_part.text);
    free(held.text);
    free(text);
}

static void test_where_a_text_is_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t held;
        const char *rest;
    } cases[] = {
        {"one\ntwo three\nfour", 4, "four"},
        {"one\ntwo three\nfour", 9, "hree\nfour"}, /* there is no better place in the first half */
        {"one\ntwo three\nfour", 6, "four"},
        {"one two three four", 6, "four"},
        {"onetwothreefour", 6, "eefour"},
        {"one\xe4\xb8\xad\xe6\x96\x87", 5, "\xe6\x96\x87"},
        {"one", 3, "one"},
        {"one", 300, "one"},
        {"\x80\x80\x80\x80\x80\x80\x80\x80", 6, "\x80\x80\x80\x80\x80\x80"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t at = document_cut(cases[i].text, strlen(cases[i].text), cases[i].held);
        assert_string_equal(cases[i].text + at, cases[i].rest);
    }
}

/* Small and large kinds are held out in proportion. Nothing is lost and nothing occurs twice. */
static void test_kinds(void **state)
{
    (void)state;
    make_folder("d");
    make_folder("d/many");
    static char text[20001];
    for (int i = 0; i < 20000; i++) text[i] = i % 50 == 49 ? '\n' : 'b';
    write_text("d/book.txt", text);
    memset(text, 'm', 300);
    text[300] = '\0';
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "d/many/%02d.txt", i);
        write_text(name, text);
    }
    write_text("d/tiny.txt", "t");
    gathered train_part = part_of("d", 0.1, DOCUMENT_TRAIN),
             held = part_of("d", 0.1, DOCUMENT_HELD_OUT);
    size_t n_book = 0, n_many = 0;
    for (size_t i = 0; i < held.length; i++) {
        n_book += held.text[i] == 'b' || held.text[i] == '\n';
        n_many += held.text[i] == 'm';
    }
    assert_int_equal(n_book, 2000);
    assert_int_equal(n_many, 4 * 300);
    assert_int_equal(held.n, 5);
    assert_int_equal(train_part.n, 1 + 36 + 1);
    assert_int_equal(train_part.n_bytes + held.n_bytes, 20000 + 40 * 300 + 1);
    free(train_part.text);
    free(held.text);
}

/* Files in one folder, where each file is a kind of its own: few of many are held out as a whole. */
static void test_flat_folder(void **state)
{
    (void)state;
    static const struct {
        int n;
        size_t length; /* of each file */
        double share;
        size_t n_held, n_whole;
    } cases[] = {
        {20, 1900, 0.1, 2, 2},    /* more files than kinds */
        {12, 1900, 0.1, 2, 1},    /* one, and the end of another one */
        {12, 1900, 0.05, 1, 0},   /* less than one file */
        {100, 60000, 0.02, 2, 2}, /* long files */
        {3, 60000, 0.05, 3, 0},   /* few long files: the end of each */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char folder[8], *text = malloc(cases[i].length + 1);
        assert_non_null(text);
        snprintf(folder, sizeof folder, "f%zu", i);
        make_folder(folder);
        for (int file = 0; file < cases[i].n; file++) {
            char name[32];
            snprintf(name, sizeof name, "%s/%03d.txt", folder, file);
            for (size_t at = 0; at < cases[i].length; at++) text[at] = at % 20 == 19 ? '\n' : 'x';
            text[cases[i].length] = '\0';
            write_text(name, text);
        }
        gathered held = part_of(folder, cases[i].share, DOCUMENT_HELD_OUT);
        size_t n_whole = 0;
        for (const char *at = held.text, *end; (end = strchr(at, '|')); at = end + 1)
            n_whole += (size_t)(end - at) == cases[i].length;
        assert_int_equal(held.n, cases[i].n_held);
        assert_int_equal(n_whole, cases[i].n_whole);
        double wanted = cases[i].share * cases[i].n * (double)cases[i].length;
        assert_true((double)held.n_bytes > 0.97 * wanted && (double)held.n_bytes < 1.03 * wanted);
        free(held.text);
        free(text);
    }
}

/* Of a book among small files the end is held out, so that no small file must be. */
static void test_book_beside_files(void **state)
{
    (void)state;
    make_folder("d");
    char *text = malloc(100001);
    assert_non_null(text);
    memset(text, 'b', 100000);
    text[100000] = '\0';
    write_text("d/book.txt", text);
    memset(text, 's', 500);
    text[500] = '\0';
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "d/%02d.txt", i);
        write_text(name, text);
    }
    gathered held = part_of("d", 0.1, DOCUMENT_HELD_OUT);
    size_t n_book = 0, n_small = 0;
    for (size_t i = 0; i < held.length; i++) {
        n_book += held.text[i] == 'b';
        n_small += held.text[i] == 's';
    }
    assert_true(n_book > 9900 && n_book < 10100);
    assert_true(n_small == 2 * 500 || n_small == 500);
    free(held.text);
    free(text);
}

/* Of a shard the end is held out, starting at the beginning of a document if the EOS is known (here 9). */
static void test_shards(void **state)
{
    (void)state;
    enum { N = 2000 };
    uint32_t tokens[N];
    for (uint32_t i = 0; i < N; i++) tokens[i] = i % 70 == 69 ? 9 : 1;
    write_shard("s.bin", 20240520, 1, N, tokens, N, 2);
    gathered held = part_of("s.bin", 0.1, DOCUMENT_HELD_OUT);
    assert_int_equal(held.n_bytes, 2 * (N - 1820)); /* 1820 is a multiple of 70, 1800 is not */
    free(held.text);
    gathered none = part_of("s.bin", 0, DOCUMENT_HELD_OUT),
             all = part_of("s.bin", 0, DOCUMENT_TRAIN);
    assert_int_equal(none.n, 0);
    assert_int_equal(all.n_bytes, 2 * N);
    free(none.text);
    free(all.text);
}

/* ---- tokenizers ----------------------------------------------------------------------------- */

/* A word that occurs only in the held-out end of a book does not become a token. */
static void test_tokenizer_never_sees_it(void **state)
{
    (void)state;
    enum { N = 4000 };
    char *text = malloc(2 * N + 1);
    assert_non_null(text);
    for (int i = 0; i < N / 8; i++) memcpy(text + 8 * i, "abcdefg\n", 8);
    for (int i = 0; i < N / 8; i++) memcpy(text + N + 8 * i, "hijklmn\n", 8);
    text[2 * N] = '\0';
    write_text("book.txt", text);
    for (int all = 0; all < 2; all++) {
        dsmoe_tokenizer_train_options o = options_of("book.txt", 264, 1);
        o.held_out = all ? 0 : 0.5;
        assert_int_equal(dsmoe_tokenizer_train(&o, in_directory(all ? "a" : "b"), NULL, NULL, NULL),
                         DSMOE_OK);
        dsmoe_tokenizer *tokenizer = open_trained(all ? "a" : "b");
        assert_int_equal(count_ids(tokenizer, "abcdefg", 7), all ? 4 : 1);
        if (!all) assert_int_equal(count_ids(tokenizer, "hijklmn", 7), 7);
        dsmoe_tokenizer_free(tokenizer);
    }
    dsmoe_tokenizer_train_options o = options_of("book.txt", 264, 1);
    o.held_out = 1;
    assert_int_equal(dsmoe_tokenizer_train(&o, in_directory("c"), NULL, NULL, NULL),
                     DSMOE_ERROR_ARGUMENT);
    free(text);
}

/* ---- files that change ---------------------------------------------------------------------- */

static void test_changing_lines(void **state)
{
    (void)state;
    write_text("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
    const char *given = in_directory("a.jsonl");
    document_list list;
    document_split split;
    const document_watch watch = {0};
    dsmoe_error error = {0};
    assert_int_equal(document_list_open(&given, 1, DSMOE_BAD_BYTES_REPLACE, &list, NULL), DSMOE_OK);
    assert_int_equal(document_split_make(&split, &list, 0.5, &watch, NULL), DSMOE_OK);
    write_text("a.jsonl", "{\"text\":\"a\"}\n            \n"); /* the same number of bytes */
    gathered g = {0};
    assert_int_equal(document_split_each(&split, &list, 0, DOCUMENT_TRAIN, -1, gather, &g, &error),
                     DSMOE_ERROR_IO);
    assert_non_null(strstr(error.message, "a.jsonl: the file changed"));
    free(g.text);
    document_split_free(&split);
    document_list_close(&list);
}

static bool never(void *context, double done, double total)
{
    (void)context;
    assert_true(done == 0 && total == 7);
    return false;
}

static void test_stopping(void **state)
{
    (void)state;
    write_lines("a.jsonl", 10);
    const char *given = in_directory("a.jsonl");
    document_list list;
    document_split split;
    const document_watch watch = {never, NULL, 7};
    dsmoe_error error = {0};
    assert_int_equal(document_list_open(&given, 1, DSMOE_BAD_BYTES_REPLACE, &list, NULL), DSMOE_OK);
    assert_int_equal(document_split_make(&split, &list, 0.5, &watch, &error), DSMOE_ERROR_STOPPED);
    assert_string_equal(error.message, "stopped");
    document_list_close(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_whole_documents),
        IN_FOLDER(test_a_function_of_the_text),
        IN_FOLDER(test_one_book),
        cmocka_unit_test(test_where_a_text_is_cut),
        IN_FOLDER(test_kinds),
        IN_FOLDER(test_flat_folder),
        IN_FOLDER(test_book_beside_files),
        IN_FOLDER(test_shards),
        IN_FOLDER(test_tokenizer_never_sees_it),
        IN_FOLDER(test_changing_lines),
        IN_FOLDER(test_stopping),
    };
    return cmocka_run_group_tests(tests, NULL, small_tokenizer_teardown);
}

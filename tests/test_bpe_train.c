/* test_bpe_train.c - training a tokenizer: the same merges as a plain reference, the same files for any
 * number of threads, files that open and encode every text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/bpe_train.h"
#include "text/tokenizer.h"
#include "text/train_count.h"
#include "train_text.h"

/* ---- the reference: counts everything again for every merge ----------------------------------- */

enum { MAX_TOKENS = 600, MAX_IDS = 1 << 14 };

/* Every occurrence of every word of a text, as ids ended by -1. */
typedef struct reference {
    int32_t ids[2 * MAX_IDS];
    size_t n_ids;
    int32_t left[MAX_TOKENS], right[MAX_TOKENS];
    char text[MAX_TOKENS][TRAIN_WORD_MAX + 1];
    size_t length[MAX_TOKENS];
    int n_tokens;
} reference;

static int count_of[MAX_TOKENS][MAX_TOKENS];

static int32_t reference_byte(const reference *r, char byte)
{
    int32_t id = 0;
    while (r->text[id][0] != byte) id++;
    return id;
}

static void reference_add_word(reference *r, const char *word, size_t length)
{
    assert_true(r->n_ids + length < 2 * MAX_IDS);
    for (size_t i = 0; i < length; i++) r->ids[r->n_ids++] = reference_byte(r, word[i]);
    r->ids[r->n_ids++] = -1;
}

/* Printable bytes come first, as in the alphabet of byte-level vocabularies. */
static void reference_begin(reference *r)
{
    memset(r, 0, sizeof *r);
    for (int pass = 0; pass < 2; pass++)
        for (int byte = 0; byte < 256; byte++) {
            bool prints = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
            if (prints != (pass == 0)) continue;
            r->text[r->n_tokens][0] = (char)byte;
            r->length[r->n_tokens++] = 1;
        }
}

static bool reference_spells(const reference *r, const char *text, size_t length)
{
    for (int i = 0; i < r->n_tokens; i++)
        if (r->length[i] == length && !memcmp(r->text[i], text, length)) return true;
    return false;
}

/* Makes the next merge; false if no pair occurs twice. */
static bool reference_step(reference *r)
{
    int best = 1, left = -1, right = -1;
    memset(count_of, 0, sizeof count_of);
    for (size_t i = 0; i + 1 < r->n_ids; i++)
        if (r->ids[i] >= 0 && r->ids[i + 1] >= 0) count_of[r->ids[i]][r->ids[i + 1]]++;
    for (int a = 0; a < r->n_tokens; a++)
        for (int b = 0; b < r->n_tokens; b++)
            if (count_of[a][b] > best) {
                best = count_of[a][b];
                left = a;
                right = b;
            }
    if (left < 0) return false;
    int made = r->n_tokens;
    size_t length = r->length[left] + r->length[right], n = 0;
    memcpy(r->text[made], r->text[left], r->length[left]);
    memcpy(r->text[made] + r->length[left], r->text[right], r->length[right]);
    assert_false(
        reference_spells(r, r->text[made], length)); /* two merges never make the same token */
    r->n_tokens++;
    r->length[made] = length;
    r->left[made] = left;
    r->right[made] = right;
    for (size_t i = 0; i < r->n_ids; i++) {
        bool pair = i + 1 < r->n_ids && r->ids[i] == left && r->ids[i + 1] == right;
        r->ids[n++] = pair ? made : r->ids[i];
        i += pair;
    }
    r->n_ids = n;
    return true;
}

static void assert_learned(const reference *r, const train_vocabulary *v)
{
    assert_int_equal(v->count, r->n_tokens);
    for (int i = 0; i < r->n_tokens; i++) {
        const train_token *token = &v->tokens[i];
        assert_int_equal(token->length, r->length[i]);
        assert_memory_equal(v->text.bytes + token->offset, r->text[i], r->length[i]);
        assert_int_equal(token->left, i < TRAIN_BYTES ? -1 : r->left[i]);
        assert_int_equal(token->right, i < TRAIN_BYTES ? -1 : r->right[i]);
    }
    int64_t n_text_tokens = 0;
    for (size_t i = 0; i < r->n_ids; i++) n_text_tokens += r->ids[i] >= 0;
    assert_int_equal(v->n_text_tokens, n_text_tokens);
}

/* Words of few letters: repeated letters, overlaps and ties. */
static void test_merges_of_reference(void **state)
{
    (void)state;
    reference *r = malloc(sizeof *r);
    assert_non_null(r);
    for (size_t round = 0; round < 24; round++) {
        size_t n_letters = 1 + round % 4, n_words = 1 + 40 * (round % 5), longest = 2 + round % 13;
        train_words words = {0};
        train_vocabulary v = {0};
        reference_begin(r);
        for (size_t i = 0; i < n_words; i++) {
            char word[TRAIN_WORD_MAX];
            size_t length = round == 3 ? TRAIN_WORD_MAX : 1 + random_below(longest);
            for (size_t k = 0; k < length; k++)
                word[k] = (char)("a\xff\0b"[random_below(n_letters)]);
            reference_add_word(r, word, length);
            assert_int_equal(train_words_add(&words, word, length, 1, NULL), DSMOE_OK);
        }
        size_t wanted = round % 3 ? MAX_TOKENS - 1 : TRAIN_BYTES + round;
        while (r->n_tokens < (int)wanted && reference_step(r)) {
        }
        assert_int_equal(train_merges(&words, wanted, NULL, NULL, &v, NULL), DSMOE_OK);
        assert_learned(r, &v);
        train_words_free(&words);
        train_vocabulary_free(&v);
    }
    free(r);
}

/* ---- from a text to files -------------------------------------------------------------------- */

static dsmoe_status add_piece(void *context, const char *piece, size_t length, dsmoe_error *error)
{
    (void)error;
    assert_true(length <= TRAIN_WORD_MAX);
    reference_add_word(context, piece, length);
    return DSMOE_OK;
}

static void test_files_of_reference(void **state)
{
    (void)state;
    char *text = make_prose(9000);
    reference *r = malloc(sizeof *r);
    pre_tokenizer pre = {0};
    regex_scratch *scratch;
    assert_non_null(r);
    reference_begin(r);
    read_pre_tokenizer(train_pre_tokenizer, strlen(train_pre_tokenizer), &pre);
    assert_int_equal(regex_scratch_create(&scratch, NULL), DSMOE_OK);
    assert_int_equal(pre_tokenizer_run(&pre, scratch, text, 9000, add_piece, r, NULL), DSMOE_OK);
    while (r->n_tokens < 498 && reference_step(r)) {
    }
    assert_int_equal(r->n_tokens, 498);

    write_text("text", text);
    train("text", 500, 2, "out");
    dsmoe_tokenizer *tokenizer = open_trained("out");
    assert_int_equal(dsmoe_tokenizer_size(tokenizer), 500);
    for (int32_t id = 0; id < 498; id++) {
        size_t length;
        const char *piece = dsmoe_tokenizer_piece(tokenizer, id, &length);
        assert_int_equal(length, r->length[id]);
        assert_memory_equal(piece, r->text[id], length);
        if (id >= TRAIN_BYTES)
            assert_int_equal(merges_rank(&tokenizer->bpe.merges, r->left[id], r->right[id]),
                             id - TRAIN_BYTES);
    }
    size_t n_tokens = 0; /* encoding makes the same merges as training */
    for (size_t i = 0; i < r->n_ids; i++) n_tokens += r->ids[i] >= 0;
    assert_int_equal(count_ids(tokenizer, text, 9000), n_tokens);
    assert_true(n_tokens < 9000 / 2);
    dsmoe_tokenizer_free(tokenizer);
    regex_scratch_free(scratch);
    pre_tokenizer_free(&pre);
    free(r);
    free(text);
}

static void assert_round_trip(const dsmoe_tokenizer *tokenizer, const char *text, size_t length)
{
    int32_t *ids;
    char *back;
    size_t n_ids, n;
    assert_int_equal(dsmoe_tokenizer_encode(tokenizer, text, length, 0, &ids, &n_ids, NULL), 0);
    for (size_t i = 0; i < n_ids; i++) assert_false(dsmoe_tokenizer_is_special(tokenizer, ids[i]));
    assert_int_equal(dsmoe_tokenizer_decode(tokenizer, ids, n_ids, &back, &n, NULL), 0);
    assert_int_equal(n, length);
    assert_memory_equal(back, text, n);
    free(ids);
    free(back);
}

static void test_special_tokens(void **state)
{
    (void)state;
    char text[4096] = "";
    while (strlen(text) < 2000) strcat(text, "<｜begin▁of▁sentence｜>x <｜end▁of▁sentence｜>");
    write_text("text", text);
    train("text", 270, 1, "out");
    dsmoe_tokenizer *tokenizer = open_trained("out");
    assert_int_equal(dsmoe_tokenizer_size(tokenizer), 270);
    assert_int_equal(dsmoe_tokenizer_bos(tokenizer), 268);
    assert_int_equal(dsmoe_tokenizer_eos(tokenizer), 269);
    assert_true(dsmoe_tokenizer_adds_bos(tokenizer));
    for (int32_t id = 0; id < 270; id++)
        assert_int_equal(dsmoe_tokenizer_is_special(tokenizer, id), id >= 268);
    assert_round_trip(tokenizer, text, strlen(text)); /* the text has no special token in it */
    dsmoe_tokenizer_free(tokenizer);

    char file[1100]; /* the file alone gives the same */
    snprintf(file, sizeof file, "%s", in_directory("out/tokenizer.json"));
    assert_int_equal(dsmoe_tokenizer_open(file, &tokenizer, NULL), DSMOE_OK);
    int32_t *ids;
    size_t n_ids;
    assert_int_equal(
        dsmoe_tokenizer_encode(tokenizer, train_special_tokens[1], strlen(train_special_tokens[1]),
                               DSMOE_ENCODE_BOS | DSMOE_ENCODE_SPECIAL, &ids, &n_ids, NULL),
        DSMOE_OK);
    assert_int_equal(n_ids, 2);
    assert_int_equal(ids[0], 268);
    assert_int_equal(ids[1], 269);
    free(ids);
    dsmoe_tokenizer_free(tokenizer);
}

static void test_round_trips(void **state)
{
    (void)state;
    char *text = make_prose(40000), bytes[3000];
    write_text("text", text);
    train("text", 600, 2, "out");
    dsmoe_tokenizer *tokenizer = open_trained("out");
    assert_round_trip(tokenizer, text, 40000);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)random_below(256);
        assert_round_trip(tokenizer, bytes, sizeof bytes);
    }
    for (int i = 0; i < 256; i++) bytes[i] = (char)(unsigned char)i;
    assert_round_trip(tokenizer, bytes, 256);
    static const char scripts[] =
        "Việt héllo «ça» “yes”… مرحبا، ١٢٣ שלום־טוב नमस्ते १ ไทย 한국어 "
        "こんにちは、世界。用Python写 👩‍👩‍👧 ❤️ ½ Ⅷ \u2028\u00a0\u3000\r\n\t";
    assert_round_trip(tokenizer, scripts, sizeof scripts - 1);
    dsmoe_tokenizer_free(tokenizer);
    free(text);
}

/* More than one batch, and slices without line ends. */
static void test_threads_do_not_matter(void **state)
{
    (void)state;
    const size_t n = 3500000;
    char *text = make_prose(n);
    make_folder("data");
    write_data("data/b", text, n);
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n' || text[i] == ' ') text[i] = 'x';
    write_data("data/a", text, n / 2);
    static const int n_threads[] = {1, 2, 5};
    for (int i = 0; i < 3; i++) {
        char folder[16], file[64];
        snprintf(folder, sizeof folder, "out%d", i);
        snprintf(file, sizeof file, "out%d/tokenizer.json", i);
        train("data", 1500, n_threads[i], folder);
        if (i > 0) assert_same_files("out0/tokenizer.json", file);
    }
    free(text);
}

/* ASCII text is split as the DeepSeek models split it. */
typedef struct cuts {
    size_t ends[8192];
    size_t n;
} cuts;

static dsmoe_status add_cut(void *context, const char *piece, size_t length, dsmoe_error *error)
{
    cuts *c = context;
    (void)piece;
    (void)error;
    c->ends[c->n] = length + (c->n ? c->ends[c->n - 1] : 0);
    c->n++;
    return DSMOE_OK;
}

static void test_cuts_of_deepseek(void **state)
{
    (void)state;
    FILE *file = fopen(TEST_DATA "/tokenizer/tokenizer.json", "rb");
    static char json[4 << 20];
    static cuts ours, theirs;
    pre_tokenizer pre[2] = {{0}, {0}};
    regex_scratch *scratch;
    assert_non_null(file);
    read_pre_tokenizer(json, fread(json, 1, sizeof json, file), &pre[1]);
    fclose(file);
    read_pre_tokenizer(train_pre_tokenizer, strlen(train_pre_tokenizer), &pre[0]);
    assert_int_equal(regex_scratch_create(&scratch, NULL), DSMOE_OK);
    char text[2000];
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = random_below(3) ? (char)(' ' + random_below(95))
                                      : "  \t\n\r\f\vab1"[random_below(10)];
        ours.n = theirs.n = 0;
        assert_int_equal(
            pre_tokenizer_run(&pre[0], scratch, text, sizeof text, add_cut, &ours, NULL), DSMOE_OK);
        assert_int_equal(
            pre_tokenizer_run(&pre[1], scratch, text, sizeof text, add_cut, &theirs, NULL),
            DSMOE_OK);
        assert_int_equal(ours.n, theirs.n);
        assert_memory_equal(ours.ends, theirs.ends, ours.n * sizeof *ours.ends);
    }
    regex_scratch_free(scratch);
    pre_tokenizer_free(&pre[0]);
    pre_tokenizer_free(&pre[1]);
}

/* Signs beyond ASCII are joined with the space before them, as ASCII punctuation is. */
static void test_cuts_of_signs(void **state)
{
    (void)state;
    static const char text[] = "a … b “c” – d €";
    static const char *const pieces[] = {"a", " …", " b", " “", "c", "”", " –", " d", " €"};
    static cuts ours;
    pre_tokenizer pre = {0};
    regex_scratch *scratch;
    read_pre_tokenizer(train_pre_tokenizer, strlen(train_pre_tokenizer), &pre);
    assert_int_equal(regex_scratch_create(&scratch, NULL), DSMOE_OK);
    assert_int_equal(pre_tokenizer_run(&pre, scratch, text, strlen(text), add_cut, &ours, NULL),
                     DSMOE_OK);
    assert_int_equal(ours.n, sizeof pieces / sizeof *pieces);
    for (size_t i = 0, end = 0; i < ours.n; i++)
        assert_int_equal(ours.ends[i], end += strlen(pieces[i]));
    regex_scratch_free(scratch);
    pre_tokenizer_free(&pre);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_of_reference),
        cmocka_unit_test(test_cuts_of_deepseek),
        cmocka_unit_test(test_cuts_of_signs),
        IN_FOLDER(test_files_of_reference),
        IN_FOLDER(test_special_tokens),
        IN_FOLDER(test_round_trips),
        IN_FOLDER(test_threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_packed_data.c - conversations as data to train on: exactly which tokens are learned; how
 * conversations are packed; what is too long, has no answer or is held out; and their cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data_files.h"
#include "scratch.h"
#include "train/data_cache.h"
#include "train/pack.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- packing -------------------------------------------------------------------------------- */

/* Every item must occur once, no sequence may be too full, and no two sequences may fit into one: at most
 * one is half full or less. */
static void check_packing(const uint32_t *lengths, size_t n, uint32_t room)
{
    packing p, again;
    assert_int_equal(pack_items(lengths, n, room, false, &p, NULL), DSMOE_OK);
    assert_int_equal(pack_items(lengths, n, room, false, &again, NULL), DSMOE_OK);
    char *seen = calloc(n + 1, 1);
    assert_non_null(seen);
    int n_half = 0;
    assert_true(p.first[0] == 0 && p.first[p.n_sequences] == n);
    for (size_t s = 0; s < p.n_sequences; s++) {
        uint64_t sum = 0;
        assert_true(p.first[s] < p.first[s + 1]);
        for (uint32_t i = p.first[s]; i < p.first[s + 1]; i++) {
            assert_true(p.items[i] < n && !seen[p.items[i]]);
            seen[p.items[i]] = 1;
            sum += lengths[p.items[i]];
        }
        assert_true(sum <= room);
        n_half += 2 * sum <= room;
    }
    assert_true(n_half <= 1);
    assert_int_equal(p.n_sequences, again.n_sequences);
    if (n > 0) assert_memory_equal(p.items, again.items, n * sizeof *p.items);
    free(seen);
    packing_free(&p);
    packing_free(&again);
}

static void test_packing(void **state)
{
    (void)state;
    static const uint32_t rooms[] = {1, 2, 7, 63, 64, 65, 500, 4096};
    uint32_t lengths[1000];
    for (uint64_t turn = 0; turn < 40; turn++) {
        uint32_t room = rooms[turn % COUNT(rooms)];
        size_t n = rng_bits(1, turn, 0) % COUNT(lengths);
        uint64_t most = turn % 3 ? room : (room + 3) / 4;
        for (size_t i = 0; i < n; i++) lengths[i] = (uint32_t)(1 + rng_bits(2, turn, i) % most);
        check_packing(lengths, n, room);
    }
    check_packing(lengths, 0, 5);
    packing p;
    const uint32_t fits[] = {5, 6, 4, 5}; /* the best place for a 4 is with the 6 */
    assert_int_equal(pack_items(fits, 4, 10, false, &p, NULL), DSMOE_OK);
    assert_int_equal(p.n_sequences, 2);
    packing_free(&p);
    assert_int_equal(pack_items(fits, 4, 10, true, &p, NULL), DSMOE_OK);
    assert_int_equal(p.n_sequences, 4);
    packing_free(&p);
}

/* ---- which tokens are learned --------------------------------------------------------------- */

/* The expected tokens, and which of them are learned. */
typedef struct expected {
    int32_t ids[512];
    bool learnt[512];
    int n;
} expected;

static void expect_id(expected *e, int32_t id, bool learnt)
{
    e->ids[e->n] = id;
    e->learnt[e->n++] = learnt;
}

static void expect(expected *e, const char *text, bool learnt)
{
    int32_t *ids;
    size_t n;
    assert_int_equal(
        dsmoe_tokenizer_encode(small_tokenizer(), text, strlen(text), 0, &ids, &n, NULL), DSMOE_OK);
    for (size_t i = 0; i < n; i++) expect_id(e, ids[i], learnt);
    free(ids);
}

/* Checks the only conversation of a file, in sequences of 256 tokens. */
static void check_tokens(const char *line, dsmoe_dataset_options *o, const expected *e)
{
    int32_t tokens[256], targets[256], positions[256];
    write_text("one.jsonl", line);
    o->sequence_length = 256;
    dsmoe_dataset *data = open_data(o);
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    assert_true(info.is_packed && info.n_train == 1 && info.n_conversations == 1);
    assert_int_equal(info.n_tokens, e->n);
    assert_int_equal(dsmoe_dataset_train(data, 0, 1, tokens, targets, positions), 1);
    int64_t n_targets = 0;
    for (int i = 0; i < 256; i++) {
        bool is_there = i < e->n - 1;
        int32_t target = is_there && e->learnt[i + 1] ? e->ids[i + 1] : -1;
        assert_int_equal(tokens[i], is_there ? e->ids[i] : 0);
        assert_int_equal(positions[i], is_there ? i : -1);
        if (targets[i] != target)
            fail_msg("%s: target %d is %d, not %d", line, i, targets[i], target);
        n_targets += target >= 0;
    }
    assert_int_equal(info.n_targets, n_targets);
    int64_t counted, n_tokens;
    dsmoe_dataset_count(data, 0, 3, &counted, &n_tokens);
    assert_true(counted == 3 * n_targets && n_tokens == 3 * (e->n - 1));
    dsmoe_dataset_free(data);
}

static const char two_turns[] = "{\"messages\":[{\"role\":\"system\",\"content\":\"Be kind.\"},"
                                "{\"role\":\"user\",\"content\":\"Hello\"},"
                                "{\"role\":\"assistant\",\"content\":\"Hi there\"},"
                                "{\"role\":\"user\",\"content\":\"Bye\"},"
                                "{\"role\":\"assistant\",\"content\":\"See you\"}]}";

/* The frame of the DeepSeek chat models. The space before an answer is part of the answer. */
static void test_masks(void **state)
{
    (void)state;
    dsmoe_dataset_options o = options_for("one.jsonl");
    expected e = {0};
    expect_id(&e, SMALL_BOS, false);
    expect(&e, "Be kind.\n\nUser: Hello\n\nAssistant:", false);
    expect(&e, " Hi there", true);
    expect_id(&e, SMALL_EOS, true);
    expect(&e, "User: Bye\n\nAssistant:", false);
    expect(&e, " See you", true);
    expect_id(&e, SMALL_EOS, true);
    check_tokens(two_turns, &o, &e);
    o.chat_form = "deepseek"; /* the default, as the tokenizer has none */
    check_tokens(two_turns, &o, &e);
    for (int i = 1; i < e.n; i++) e.learnt[i] = true;
    o.learns_all = true;
    check_tokens(two_turns, &o, &e);
}

/* A masked answer is read like the frame; the other answers are learned. */
static void test_masked_message(void **state)
{
    (void)state;
    dsmoe_dataset_options o = options_for("one.jsonl");
    expected e = {0};
    expect_id(&e, SMALL_BOS, false);
    expect(&e, "User: a\n\nAssistant: b", false);
    expect_id(&e, SMALL_EOS, false);
    expect(&e, "User: c\n\nAssistant:", false);
    expect(&e, " d", true);
    expect_id(&e, SMALL_EOS, true);
    check_tokens("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                 "{\"role\":\"assistant\",\"content\":\"b\",\"mask\":1},"
                 "{\"role\":\"user\",\"content\":\"c\"},"
                 "{\"role\":\"assistant\",\"content\":\"d\"}]}",
                 &o, &e);
}

/* The other formats give the same conversation. A prompt and its completion have no frame. */
static void test_forms(void **state)
{
    (void)state;
    dsmoe_dataset_options o = options_for("one.jsonl");
    expected e = {0};
    expect_id(&e, SMALL_BOS, false);
    expect(&e, "User: Add.\n2 3\n\nAssistant:", false);
    expect(&e, " 5", true);
    expect_id(&e, SMALL_EOS, true);
    check_tokens("{\"instruction\":\"Add.\",\"input\":\"2 3\",\"output\":\"5\"}", &o, &e);
    check_tokens("{\"conversations\":[{\"from\":\"human\",\"value\":\"Add.\\n2 3\"},"
                 "{\"from\":\"gpt\",\"value\":\"5\"}]}",
                 &o, &e);
    check_tokens("{\"prompt\":[{\"role\":\"user\",\"content\":\"Add.\\n2 3\"}],"
                 "\"completion\":[{\"role\":\"assistant\",\"content\":\"5\"}]}",
                 &o, &e);
    expected p = {0};
    if (dsmoe_tokenizer_adds_bos(small_tokenizer())) expect_id(&p, SMALL_BOS, false);
    expect(&p, "2+2=", false);
    expect(&p, "4", true);
    expect_id(&p, SMALL_EOS, true);
    check_tokens("{\"prompt\":\"2+2=\",\"completion\":\"4\"}", &o, &p);
}

static void test_unknown_form(void **state)
{
    (void)state;
    dsmoe_dataset_options o = options_for("one.jsonl");
    write_text("one.jsonl", "{\"text\":\"a text\"}\n\n{\"prompt\":\"a\",\"completion\":\"b\"}\n");
    o.sequence_length = 16;
    o.chat_form = "martian"; /* unused, so there is no error */
    dsmoe_dataset_free(open_data(&o));
    write_text("one.jsonl", two_turns);
    assert_data_refused(&o, DSMOE_ERROR_ARGUMENT, "one.jsonl: line 1 is a conversation", "martian");
}

/* ---- many conversations --------------------------------------------------------------------- */

enum { MANY = 300 };

/* Conversation i names the number i; the length of its answer varies. With `with_texts` every tenth one is
 * a text. */
static void write_many(const char *name, bool with_texts)
{
    static char text[MANY * 160];
    size_t at = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        int n = (int)(rng_bits(5, 0, i) % 60);
        if (with_texts && i % 10 == 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "{\"text\":\"#%03d%*s.\"}\n",
                                   (int)i, n, "");
        else
            at +=
                (size_t)snprintf(text + at, sizeof text - at,
                                 "{\"prompt\":\"#%03d\",\"completion\":\"%*s!\"}\n", (int)i, n, "");
    }
    write_text(name, text);
}

/* Reads all sequences and counts how often each conversation occurs. */
static void count_numbers(const dsmoe_dataset *data, bool held_out, int counts[MANY])
{
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    int64_t n = held_out ? info.n_held_out : info.n_train, length = info.sequence_length;
    int32_t *rows = malloc(3 * (size_t)length * sizeof *rows);
    assert_non_null(rows);
    int32_t *tokens = rows, *targets = rows + length, *positions = rows + 2 * length;
    for (int64_t s = 0; s < n; s++) {
        if (held_out)
            assert_int_equal(dsmoe_dataset_held_out(data, s, 1, tokens, targets, positions, NULL),
                             1);
        else
            dsmoe_dataset_train(data, s, 1, tokens, targets, positions);
        for (int64_t i = 0; i < length; i++) {
            if (positions[i] >= 0 && targets[i] >= 0 && i + 1 < length && positions[i + 1] > 0)
                assert_int_equal(targets[i], tokens[i + 1]); /* conversations do not mix */
            if (positions[i] != 0) continue;
            int64_t first = i + (tokens[i] == SMALL_BOS);
            assert_int_equal(tokens[first], '#');
            int number = 0;
            for (int k = 1; k <= 3; k++) number = 10 * number + tokens[first + k] - '0';
            assert_true(number >= 0 && number < MANY);
            counts[number]++;
        }
    }
    free(rows);
}

static void test_once(void **state)
{
    (void)state;
    static const int64_t lengths[] = {70, 100, 1000};
    for (int texts = 0; texts < 2; texts++)
        for (size_t l = 0; l < COUNT(lengths); l++)
            for (int alone = 0; alone < 2; alone++) {
                write_many("many.jsonl", texts);
                dsmoe_dataset_options o = options_for("many.jsonl");
                o.sequence_length = lengths[l];
                o.held_out = 0.2;
                o.n_threads = 1 + alone;
                o.packs_nothing = alone;
                dsmoe_dataset *data = open_data(&o);
                dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
                int counts[MANY] = {0}, n_held = 0;
                count_numbers(data, true, counts);
                for (int i = 0; i < MANY; i++) n_held += counts[i];
                assert_int_equal(n_held, info.n_held_out);
                assert_true(n_held > MANY / 10 && n_held < MANY / 3);
                count_numbers(data, false, counts);
                for (int i = 0; i < MANY; i++) assert_int_equal(counts[i], 1);
                assert_int_equal(info.n_conversations, MANY - n_held);
                if (alone) assert_int_equal(info.n_train, MANY - n_held);
                if (!alone && lengths[l] == 1000)
                    assert_true((double)info.n_packed_tokens > 0.9 * 1000 * (double)info.n_train);
                dsmoe_dataset_free(data);
            }
}

/* ---- conversations that are learned in part -------------------------------------------------- */

static void test_too_long(void **state)
{
    (void)state;
    write_text("long.jsonl", "{\"prompt\":\"ab\",\"completion\":\"0123456789\"}\n"
                             "{\"prompt\":\"0123456789xy\",\"completion\":\"c\"}\n"
                             "{\"prompt\":\"a\",\"completion\":\"b\"}\n"
                             "{\"prompt\":\"unanswered\",\"completion\":\"\"}\n");
    dsmoe_dataset_options o = options_for("long.jsonl");
    o.sequence_length = 8;
    o.learns_all = false;
    dsmoe_dataset *data = open_data(&o);
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    assert_true(info.n_conversations == 2 && info.n_cut == 1 && info.n_dropped == 1);
    assert_int_equal(info.n_unanswered, 1);
    dsmoe_dataset_free(data);
    o.drops_long = true;
    data = open_data(&o);
    dsmoe_dataset_info dropped = dsmoe_dataset_get_info(data);
    assert_true(dropped.n_conversations == 1 && dropped.n_cut == 0 && dropped.n_dropped == 2);
    assert_true(dropped.hash != info.hash && !dropped.cache_built);
    dsmoe_dataset_free(data);
    o.sequence_length = 1;
    assert_data_refused(&o, DSMOE_ERROR_ARGUMENT, "no conversation is left to train on",
                        "use longer sequences");
    write_text("long.jsonl", "{\"prompt\":\"unanswered\",\"completion\":\"\"}\n");
    assert_data_refused(&o, DSMOE_ERROR_FORMAT, "long.jsonl", "has an answer to learn");
}

/* A text among conversations is learned in parts. */
static void test_text_in_parts(void **state)
{
    (void)state;
    make_folder("mixed");
    write_text("mixed/a.txt", "0123456789");
    write_text("mixed/b.jsonl", "{\"prompt\":\"p\",\"completion\":\"q\"}\n");
    dsmoe_dataset_options o = options_for("mixed");
    o.sequence_length = 4;
    dsmoe_dataset *data = open_data(&o);
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    int64_t bos = dsmoe_tokenizer_adds_bos(small_tokenizer());
    assert_int_equal(info.n_conversations, 1 + (10 + bos + 3) / 4);
    assert_int_equal(info.n_targets, 10 + bos + 2); /* all but the first, and EOS; q and EOS */
    dsmoe_dataset_free(data);
}

static void test_eval_data(void **state)
{
    (void)state;
    write_many("many.jsonl", false);
    write_text("eval.jsonl", "{\"prompt\":\"#007\",\"completion\":\"eval\"}\n"
                             "{\"prompt\":\"#008\",\"completion\":\"eval\"}\n");
    const char *eval[] = {in_directory("eval.jsonl")};
    dsmoe_dataset_options o = options_for("many.jsonl");
    o.sequence_length = 100;
    o.eval_paths = eval;
    o.n_eval_paths = 1;
    for (int again = 0; again < 2; again++) {
        dsmoe_dataset *data = open_data(&o);
        dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
        int counts[MANY] = {0};
        count_numbers(data, true, counts);
        assert_true(info.n_held_out == 2 && counts[7] == 1 && counts[8] == 1);
        assert_int_equal(info.cache_built, !again);
        count_numbers(data, false, counts);
        for (int i = 0; i < MANY; i++) assert_int_equal(counts[i], i == 7 || i == 8 ? 2 : 1);
        dsmoe_dataset_free(data);
    }
    o.n_paths = 0; /* only the cache */
    dsmoe_dataset_free(open_data(&o));
    o.n_paths = 1;
    o.held_out = 0.1;
    assert_data_refused(&o, DSMOE_ERROR_ARGUMENT, "held_out", "must be 0, not 0.1");
    o.held_out = 0;
    eval[0] = o.paths[0];
    assert_data_refused(&o, DSMOE_ERROR_ARGUMENT, "many.jsonl", "must be measured on other text");
    eval[0] = in_directory("nowhere");
    assert_data_refused(&o, DSMOE_ERROR_IO, "nowhere", "");
}

/* Plain text with text to hold out is still cut into windows. */
static void test_plain_eval(void **state)
{
    (void)state;
    write_text("a.txt", "0123456789012345678901234567890123456789");
    write_text("b.txt", "abcdefghijklmnop");
    const char *eval[] = {in_directory("b.txt")};
    dsmoe_dataset_options o = options_for("a.txt");
    int32_t tokens[4], targets[4];
    o.eval_paths = eval;
    o.n_eval_paths = 1;
    dsmoe_dataset *data = open_data(&o);
    dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
    assert_true(!info.is_packed && info.n_held_out >= 3 && info.n_train >= 9);
    for (int64_t i = 0; i < info.n_held_out; i++) {
        dsmoe_dataset_held_out(data, i, 1, tokens, targets, NULL, NULL);
        for (int k = 1; k < 4; k++) assert_true(tokens[k] < '0' || tokens[k] > '9');
    }
    dsmoe_dataset_free(data);
    o.sequence_length = 20;
    assert_data_refused(&o, DSMOE_ERROR_ARGUMENT, "the held-out text is too short", "20 needs 21");
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Every changed byte of the file is noticed. */
static void test_damage(void **state)
{
    (void)state;
    write_text("one.jsonl", two_turns);
    dsmoe_dataset_options o = options_for("one.jsonl");
    o.sequence_length = 256;
    dsmoe_dataset_free(open_data(&o));
    size_t size;
    unsigned char *bytes = read_data("data.cache", &size);
    data_cache cache;
    assert_int_equal(data_cache_parse(bytes, size, "c", &cache, NULL), DSMOE_OK);
    assert_true(cache.n_cuts == 1 && cache.documents[0].what == DATA_CONVERSATION);
    data_cache_close(&cache);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x11;
        assert_int_equal(data_cache_parse(bytes, size, "c", &cache, NULL), DSMOE_ERROR_FORMAT);
        data_cache_close(&cache);
        bytes[i] ^= 0x11;
    }
    for (size_t n = 0; n < size; n++) {
        assert_int_equal(data_cache_parse(bytes, n, "c", &cache, NULL), DSMOE_ERROR_FORMAT);
        data_cache_close(&cache);
    }
    free(bytes);
}

/* Another form, or another choice of what is learned, makes other data. The same settings find the
 * cache. */
static void test_key(void **state)
{
    (void)state;
    write_text("one.jsonl", two_turns);
    dsmoe_dataset_options o = options_for("one.jsonl");
    o.sequence_length = 256;
    uint64_t hashes[3];
    for (int i = 0; i < 6; i++) {
        o.learns_all = i / 2 == 1;
        o.chat_form = i / 2 == 2 ? "alpaca" : NULL;
        dsmoe_dataset *data = open_data(&o);
        dsmoe_dataset_info info = dsmoe_dataset_get_info(data);
        assert_int_equal(info.cache_built, i % 2 == 0);
        hashes[i / 2] = info.hash;
        dsmoe_dataset_free(data);
    }
    assert_true(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_packing),    TEST(test_masks),         TEST(test_masked_message),
        TEST(test_forms),      TEST(test_unknown_form),  TEST(test_once),
        TEST(test_too_long),   TEST(test_text_in_parts), TEST(test_eval_data),
        TEST(test_plain_eval), TEST(test_damage),        TEST(test_key),
    };
    return cmocka_run_group_tests(tests, NULL, small_tokenizer_teardown);
}

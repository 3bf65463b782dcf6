/* train_merges.c - learns byte pair encoding from counted words.
 *
 * A word starts as one id per byte and becomes shorter with every merge. A merge visits only the words
 * that are listed for its pair, and changes only the counts of pairs that it breaks or makes.
 *
 * No two merges make tokens with the same bytes. Where such bytes are between two borders of tokens, no
 * merge has ever crossed these borders, so the bytes are split in the same way everywhere and one merge
 * takes them all. So every merge has its own token, and encoding a word of the text later takes exactly
 * the same steps. */
#include "text/train_merges.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "text/byte_map.h"
#include "text/train_count.h"
#include "text/train_pairs.h"

typedef struct learner {
    train_words *words; /* lengths are numbers of ids */
    int32_t *ids;       /* of all words, at the offsets of their bytes */
    train_pairs pairs;
    train_vocabulary *vocabulary;
    int32_t byte_ids[TRAIN_BYTES];
} learner;

void train_vocabulary_free(train_vocabulary *v)
{
    free(v->tokens);
    byte_buffer_free(&v->text);
    memset(v, 0, sizeof *v);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static dsmoe_status add_token(learner *l, train_token token, const char *bytes, dsmoe_error *error)
{
    train_vocabulary *v = l->vocabulary;
    void *memory = v->tokens;
    STATUS_TRY(buffer_grow(&memory, &v->capacity, v->count + 1, sizeof *v->tokens, error));
    v->tokens = memory;
    token.offset = v->text.length;
    STATUS_TRY(byte_buffer_append(&v->text, bytes, token.length, error));
    v->tokens[v->count++] = token;
    return DSMOE_OK;
}

static dsmoe_status add_bytes(learner *l, dsmoe_error *error)
{
    for (uint32_t code = 0; l->vocabulary->count < TRAIN_BYTES; code++) {
        int number = byte_map_byte(code);
        if (number < 0) continue;
        char byte = (char)(unsigned char)number;
        l->byte_ids[number] = (int32_t)l->vocabulary->count;
        STATUS_TRY(add_token(l, (train_token){.left = -1, .right = -1, .length = 1}, &byte, error));
    }
    return DSMOE_OK;
}

/* The token that joins two tokens; its bytes go to `bytes`. */
static train_token join(const train_vocabulary *v, int32_t left, int32_t right,
                        char bytes[TRAIN_WORD_MAX])
{
    const train_token *a = &v->tokens[left], *b = &v->tokens[right];
    assert(a->length + b->length <= TRAIN_WORD_MAX); /* they are neighbours within a word */
    memcpy(bytes, v->text.bytes + a->offset, a->length);
    memcpy(bytes + a->length, v->text.bytes + b->offset, b->length);
    return (train_token){.left = left, .right = right, .length = a->length + b->length};
}

/* ---- words ----------------------------------------------------------------------------------- */

static dsmoe_status spell_words(learner *l, dsmoe_error *error)
{
    const byte_buffer *text = &l->words->text;
    if (text->length > UINT32_MAX) /* a pair's fields hold no more */
        return status_fail(error, DSMOE_ERROR_MEMORY,
                           "the different words of the text have more than %u bytes: use less of"
                           " it",
                           UINT32_MAX);
    l->ids = malloc((text->length + 1) * sizeof *l->ids);
    if (!l->ids)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu bytes of words",
                           text->length);
    for (size_t i = 0; i < text->length; i++)
        l->ids[i] = l->byte_ids[(unsigned char)text->bytes[i]];
    byte_buffer_free(&l->words->text);
    train_slots_free(&l->words->slots);
    return DSMOE_OK;
}

static const int32_t any_token = -1;

/* Whether a pair of neighbours contains the token; always true for any_token. */
static bool concerns(const int32_t *ids, int32_t token)
{
    return token == any_token || ids[0] == token || ids[1] == token;
}

static dsmoe_status count_pairs(learner *l, uint32_t number, int32_t token, dsmoe_error *error)
{
    const train_word *word = &l->words->words[number];
    const int32_t *ids = l->ids + word->offset;
    for (uint32_t i = 0; i + 1 < word->length; i++)
        if (concerns(ids + i, token))
            STATUS_TRY(train_pairs_add(&l->pairs, ids[i], ids[i + 1], word->count, error));
    return DSMOE_OK;
}

static void list_pairs(learner *l, uint32_t number, int32_t token)
{
    const train_word *word = &l->words->words[number];
    const int32_t *ids = l->ids + word->offset;
    for (uint32_t i = 0; i + 1 < word->length; i++)
        if (concerns(ids + i, token)) train_pairs_list(&l->pairs, ids[i], ids[i + 1], number);
}

static dsmoe_status begin(learner *l, dsmoe_error *error)
{
    STATUS_TRY(add_bytes(l, error));
    STATUS_TRY(spell_words(l, error));
    uint32_t n = (uint32_t)l->words->count;
    for (uint32_t i = 0; i < n; i++) STATUS_TRY(count_pairs(l, i, any_token, error));
    STATUS_TRY(train_pairs_settle(&l->pairs, error));
    for (uint32_t i = 0; i < n; i++) list_pairs(l, i, any_token);
    return DSMOE_OK;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Replaces the pair by the token within a word, and subtracts the pairs that this breaks. */
static void merge_word(learner *l, uint32_t number, const train_pair *pair, int32_t token)
{
    train_word *word = &l->words->words[number];
    int32_t *ids = l->ids + word->offset;
    bool merged[TRAIN_WORD_MAX] = {false};
    uint32_t n = 0;
    for (uint32_t i = 0; i + 1 < word->length; i++)
        if (ids[i] == pair->left && ids[i + 1] == pair->right) {
            merged[i] = merged[i + 1] = true;
            i++;
        }
    for (uint32_t i = 0; i + 1 < word->length; i++)
        if (merged[i] || merged[i + 1])
            train_pairs_subtract(&l->pairs, ids[i], ids[i + 1], word->count);
    for (uint32_t i = 0; i < word->length; i++) {
        ids[n++] = merged[i] ? token : ids[i];
        if (merged[i]) i++;
    }
    word->length = n;
}

static dsmoe_status merge(learner *l, const train_pair *pair, int32_t token, dsmoe_error *error)
{
    for (uint32_t i = 0; i < pair->words; i++) {
        uint32_t word = l->pairs.lists[pair->first + i];
        merge_word(l, word, pair, token);
        STATUS_TRY(count_pairs(l, word, token, error));
    }
    STATUS_TRY(train_pairs_settle(&l->pairs, error));
    for (uint32_t i = 0; i < pair->words; i++)
        list_pairs(l, l->pairs.lists[pair->first + i], token);
    return DSMOE_OK;
}

static dsmoe_status learn(learner *l, size_t n_tokens, dsmoe_progress_fn *progress, void *context,
                          dsmoe_error *error)
{
    train_vocabulary *v = l->vocabulary;
    train_pair pair;
    STATUS_TRY(begin(l, error));
    for (;;) {
        double done = (double)v->count - TRAIN_BYTES, total = (double)n_tokens - TRAIN_BYTES;
        if (progress && !progress(context, done, total))
            return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
        if (v->count >= n_tokens || !train_pairs_take(&l->pairs, &pair)) return DSMOE_OK;
        char bytes[TRAIN_WORD_MAX];
        train_token token = join(v, pair.left, pair.right, bytes);
        STATUS_TRY(add_token(l, token, bytes, error));
        STATUS_TRY(merge(l, &pair, (int32_t)v->count - 1, error));
    }
}

dsmoe_status train_merges(train_words *words, size_t n_tokens, dsmoe_progress_fn *progress,
                          void *context, train_vocabulary *v, dsmoe_error *error)
{
    learner l = {.words = words, .vocabulary = v};
    dsmoe_status status = learn(&l, n_tokens, progress, context, error);
    v->n_text_tokens = 0;
    for (size_t i = 0; i < words->count; i++)
        v->n_text_tokens += words->words[i].count * words->words[i].length;
    free(l.ids);
    train_pairs_free(&l.pairs);
    return status;
}

/* tokenizer_hash.c - a hash that distinguishes tokenizers by what they do.
 *
 * The tables are hashed completely: tokens, merges with their ranks, added tokens. How a tokenizer
 * normalises and cuts text is code, not a table, so the hash includes the tokens of a text in which such
 * rules make a difference. */
#include "train/tokenizer_hash.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

/* All kinds of spaces, numbers, sequences of signs, contractions, case, composed and decomposed accents,
 * wide and ligated letters, scripts without spaces, marks, emoji, all kinds of line ends, a broken byte. */
static const char probe_text[] =
    "Hi  Hello, hello WORLD!  It's we'll THEY'RE I'd\n\n\tint main(void) { return 0x1F + 12345.678e-9; }"
    "\r\n   \n x=y;; -> ... !!! ???\xc2\xa0non\xe3\x80\x80wide \xc3\xa9 e\xcc\x81 \xc3\x85 A\xcc\x8a "
    "\xef\xac\x81 \xef\xbc\xa1\xef\xbc\x91 \xc2\xbd \xe2\x85\xa7 \xc2\xb2 \xe4\xb8\xad\xe6\x96\x87"
    "\xe6\xb8\xac\xe8\xa9\xa6\xe3\x80\x82\xe3\x81\x8b\xe3\x82\x99\xe3\x81\xaa \xed\x95\x9c\xea\xb5\xad"
    "\xec\x96\xb4 \xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 \xd9\x85\xd8\xb1\xd8\xad\xd8\xa8"
    "\xd8\xa7 \xe0\xb8\xaa\xe0\xb8\xa7\xe0\xb8\xb1\xe0\xb8\xaa \xce\xa3\xce\xaf\xcf\x83\xcf\x85\xcf"
    "\x86\xce\xbf\xcf\x82 \xc4\xb0stanbul stra\xc3\x9f"
    "e \xf0\x9f\x98\x80\xf0\x9f\x91\xa9\xe2\x80"
    "\x8d\xf0\x9f\x92\xbb a_b-c/d@e.f http://x.y?z=1&w=2 \xff end  ";

static void add_string(hash_state *h, const char *bytes, size_t length)
{
    hash_add_number(h, length);
    hash_add(h, bytes, length);
}

static void add_vocabulary(hash_state *h, const vocabulary *v)
{
    hash_add_number(h, v->n_ids);
    for (size_t id = 0; id < v->n_ids; id++) {
        const vocabulary_token *token = &v->tokens[id];
        hash_add_number(h, (uint64_t)token->present | (uint64_t)token->special << 1);
        if (token->present) add_string(h, v->text.bytes + token->offset, token->length);
    }
    hash_add(h, v->byte_ids, sizeof v->byte_ids);
}

/* The order of the slots follows from the merges and their order, so equal tables have equal slots. */
static void add_merges(hash_state *h, const merges *m)
{
    hash_add_number(h, m->count);
    if (m->count > 0) hash_add(h, m->merged, m->count * sizeof *m->merged);
    for (size_t i = 0; i < m->n_slots; i++) {
        hash_add_number(h, m->slots[i].pair);
        hash_add_number(h, (uint64_t)(int64_t)m->slots[i].rank);
    }
}

static void add_tree(hash_state *h, const added_tree *tree)
{
    hash_add_number(h, tree->count);
    for (size_t i = 1; i < tree->count; i++) { /* the first node is unused */
        const added_node *node = &tree->nodes[i];
        uint32_t fields[4] = {node->child, node->sibling, node->token, node->byte};
        hash_add(h, fields, sizeof fields);
    }
    hash_add(h, tree->roots, sizeof tree->roots);
}

static void add_added_tokens(hash_state *h, const added_tokens *a)
{
    hash_add_number(h, a->n_tokens);
    for (size_t i = 0; i < a->n_tokens; i++) {
        const added_token *token = &a->tokens[i];
        int32_t fields[5] = {token->id, token->special, token->single_word, token->lstrip,
                             token->rstrip};
        hash_add(h, fields, sizeof fields);
    }
    add_tree(h, &a->raw);
    add_tree(h, &a->normalized);
}

dsmoe_status tokenizer_hash(const dsmoe_tokenizer *tokenizer, hash_kind kind, uint64_t *hash,
                            dsmoe_error *error)
{
    const bpe *b = &tokenizer->bpe;
    hash_state h;
    hash_begin_as(&h, kind, 0);
    add_vocabulary(&h, &b->vocabulary);
    add_merges(&h, &b->merges);
    add_added_tokens(&h, &tokenizer->added);
    int32_t rules[6] = {b->unk_id,         b->fuse_unk,       b->ignore_merges,
                        b->replacement[0], b->replacement[1], b->replacement[2]};
    hash_add(&h, rules, sizeof rules);
    hash_add_number(&h, (uint64_t)(int64_t)tokenizer->eos);
    hash_add_number(&h, (uint64_t)(int64_t)tokenizer->bos);
    hash_add_number(&h, dsmoe_tokenizer_adds_bos(tokenizer));
    int32_t *ids;
    size_t n_ids;
    STATUS_TRY(dsmoe_tokenizer_encode(tokenizer, probe_text, sizeof probe_text - 1, 0, &ids, &n_ids,
                                      error));
    hash_add_number(&h, n_ids);
    hash_add(&h, ids, n_ids * sizeof *ids);
    free(ids);
    *hash = hash_end(&h);
    return DSMOE_OK;
}

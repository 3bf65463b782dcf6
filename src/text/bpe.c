/* bpe.c - byte pair encoding of one piece.
 *
 * Symbols are a linked list within an array. A heap holds every pair that can merge, ordered by (rank,
 * place). A merge changes two pairs at most, which are put on the heap again. Heap entries of the old
 * pairs no longer agree with the list and are skipped. */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

struct bpe_symbol {
    int32_t id;
    int32_t rank; /* of the merge with the next symbol; MERGES_NO_RANK too if this one is gone */
    uint32_t previous, next;
};

static const uint32_t NONE = UINT32_MAX; /* before the first, after the last */

void bpe_workspace_free(bpe_workspace *work)
{
    free(work->symbols);
    free(work->heap);
    memset(work, 0, sizeof *work);
}

/* ---- the heap: the least (rank, place) first ------------------------------------------------ */

static dsmoe_status heap_push(bpe_workspace *work, int32_t rank, uint32_t place, dsmoe_error *error)
{
    if (rank == MERGES_NO_RANK) return DSMOE_OK;
    if (work->heap_count == work->heap_capacity) {
        void *memory = work->heap;
        STATUS_TRY(buffer_grow(&memory, &work->heap_capacity, work->heap_count + 1,
                               sizeof *work->heap, error));
        work->heap = memory;
    }
    uint64_t entry = (uint64_t)(uint32_t)rank << 32 | place;
    size_t at = work->heap_count++;
    while (at > 0 && work->heap[(at - 1) / 2] > entry) {
        work->heap[at] = work->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    work->heap[at] = entry;
    return DSMOE_OK;
}

static uint64_t heap_pop(bpe_workspace *work)
{
    uint64_t *heap = work->heap, least = heap[0];
    size_t count = --work->heap_count, at = 0;
    uint64_t last = heap[count];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return least;
}

/* ---- the list ------------------------------------------------------------------------------- */

/* Looks up the pair that begins at `place` and puts it on the heap. */
static dsmoe_status update_pair(const bpe *b, bpe_workspace *work, uint32_t place,
                                dsmoe_error *error)
{
    bpe_symbol *symbol = &work->symbols[place];
    symbol->rank = symbol->next == NONE
                       ? MERGES_NO_RANK
                       : merges_rank(&b->merges, symbol->id, work->symbols[symbol->next].id);
    return heap_push(work, symbol->rank, place, error);
}

static dsmoe_status merge(const bpe *b, bpe_workspace *work, uint32_t place, dsmoe_error *error)
{
    bpe_symbol *left = &work->symbols[place], *right = &work->symbols[left->next];
    left->id = b->merges.merged[left->rank];
    left->next = right->next;
    right->rank = MERGES_NO_RANK;
    if (left->next != NONE) work->symbols[left->next].previous = place;
    STATUS_TRY(update_pair(b, work, place, error));
    return left->previous == NONE ? DSMOE_OK : update_pair(b, work, left->previous, error);
}

/* The tokens of a byte: one, or the three of U+FFFD. */
static dsmoe_status byte_tokens(const bpe *b, unsigned char byte, int32_t tokens[3], int *count,
                                dsmoe_error *error)
{
    *count = 1;
    tokens[0] = b->vocabulary.byte_ids[byte];
    if (tokens[0] >= 0) return DSMOE_OK;
    tokens[0] = b->unk_id;
    if (tokens[0] >= 0) return DSMOE_OK;
    *count = 3;
    for (int i = 0; i < 3; i++) {
        tokens[i] = b->replacement[i];
        if (tokens[i] < 0)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "the vocabulary has no token for byte 0x%02x", byte);
    }
    return DSMOE_OK;
}

static dsmoe_status fill_symbols(const bpe *b, bpe_workspace *work, const char *piece,
                                 size_t length, uint32_t *count, dsmoe_error *error)
{
    size_t most = length; /* symbols */
    for (size_t i = 0; i < length && b->unk_id < 0; i++)
        if (b->vocabulary.byte_ids[(unsigned char)piece[i]] < 0) most += 2;
    if (length >= NONE / 3)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "a piece of %zu bytes without a boundary is too long", length);
    void *memory = work->symbols;
    STATUS_TRY(buffer_grow(&memory, &work->capacity, most, sizeof *work->symbols, error));
    work->symbols = memory;
    uint32_t n = 0;
    for (size_t i = 0; i < length; i++) {
        int32_t tokens[3];
        int n_tokens;
        STATUS_TRY(byte_tokens(b, (unsigned char)piece[i], tokens, &n_tokens, error));
        bool fused =
            b->fuse_unk && tokens[0] == b->unk_id && n > 0 && work->symbols[n - 1].id == b->unk_id;
        for (int k = 0; k < n_tokens && !fused; k++, n++)
            work->symbols[n] =
                (bpe_symbol){.id = tokens[k], .previous = n == 0 ? NONE : n - 1, .next = n + 1};
    }
    work->symbols[n - 1].next = NONE;
    *count = n;
    return DSMOE_OK;
}

dsmoe_status bpe_encode(const bpe *b, bpe_workspace *work, const char *piece, size_t length,
                        id_buffer *ids, dsmoe_error *error)
{
    if (length == 0) return DSMOE_OK;
    int32_t whole = length == 1        ? b->vocabulary.byte_ids[(unsigned char)piece[0]]
                    : b->ignore_merges ? vocabulary_find(&b->vocabulary, piece, length)
                                       : -1;
    if (whole >= 0) return id_buffer_append(ids, whole, error);

    uint32_t count = 0;
    STATUS_TRY(fill_symbols(b, work, piece, length, &count, error));
    work->heap_count = 0;
    for (uint32_t i = 0; i < count; i++) STATUS_TRY(update_pair(b, work, i, error));
    while (work->heap_count > 0) {
        uint64_t entry = heap_pop(work);
        uint32_t place = (uint32_t)entry;
        if (work->symbols[place].rank == (int32_t)(entry >> 32))
            STATUS_TRY(merge(b, work, place, error));
    }
    for (uint32_t i = 0; i != NONE; i = work->symbols[i].next)
        STATUS_TRY(id_buffer_append(ids, work->symbols[i].id, error));
    return DSMOE_OK;
}

/* document_split.c - which part of the documents is held out. */
#include "formats/document_split.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/data_order.h"
#include "formats/token_shard.h"

enum {
    STRETCH_MIN = 64,         /* bytes; a stratum that owes less passes the debt to the next */
    STRETCH_LONG = 1024,      /* bytes that are enough to measure a kind of text by themselves */
    BETWEEN_LOOKS = 64 << 20, /* bytes between two checks whether to stop */
};
static const uint64_t order_seed = 0x68656c642d6f7574u; /* the same for every run */
static const int64_t most_documents = (int64_t)1 << 31;

/* ---- the lengths of the documents ---------------------------------------------------------- */

typedef struct measure {
    const document_watch *watch;
    uint64_t *lengths; /* of all documents */
    size_t count, capacity;
    size_t since_look;
} measure;

static dsmoe_status look(measure *m, dsmoe_error *error)
{
    const document_watch *w = m->watch;
    m->since_look = 0;
    if (!w->progress || w->progress(w->context, 0, w->total)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
}

static dsmoe_status add_length(measure *m, uint64_t length, dsmoe_error *error)
{
    if (m->count == (size_t)most_documents)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "more than %lld documents; give less text",
                           (long long)most_documents);
    if (m->count == m->capacity) {
        size_t capacity = m->capacity ? 2 * m->capacity : 256, size;
        uint64_t *lengths =
            checked_mul_size(capacity, sizeof *lengths, &size) ? realloc(m->lengths, size) : NULL;
        if (!lengths)
            return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu documents",
                               m->count);
        m->lengths = lengths;
        m->capacity = capacity;
    }
    m->lengths[m->count++] = length;
    return DSMOE_OK;
}

static dsmoe_status measure_line(void *context, const document *d, dsmoe_error *error)
{
    measure *m = context;
    STATUS_TRY(add_length(m, d->length, error));
    m->since_look += d->length;
    return m->since_look < BETWEEN_LOOKS ? DSMOE_OK : look(m, error);
}

static dsmoe_status measure_all(measure *m, document_split *split, const document_list *list,
                                dsmoe_error *error)
{
    for (size_t i = 0; i < list->n_sources; i++) {
        const document_source *source = &list->sources[i];
        split->first[i] = m->count;
        if (source->form == DOCUMENT_JSONL) {
            STATUS_TRY(look(m, error));
            STATUS_TRY(document_each(source, measure_line, m, error));
        } else {
            size_t head = source->form == DOCUMENT_SHARD ? TOKEN_SHARD_HEADER_SIZE : 0;
            STATUS_TRY(add_length(m, source->size > head ? source->size - head : 0, error));
        }
    }
    split->first[list->n_sources] = m->count;
    return DSMOE_OK;
}

/* ---- the choice ---------------------------------------------------------------------------- */

/* Documents are chosen stratum by stratum. A kind with enough documents is a stratum; the other kinds share
 * one, the pool. Their long documents are taken out of it (take_long_ones). */
enum { POOL = DOCUMENT_MAX_KINDS, N_STRATA };
typedef struct strata {
    unsigned char *of_document; /* the stratum of each document */
    uint32_t *documents;        /* sorted by stratum */
    size_t begin[N_STRATA + 1];
} strata;

/* Whether a kind has enough documents for its share to be at least one. "other", the rest beyond
 * DOCUMENT_MAX_KINDS, is a mixture and goes into the pool. */
static bool is_stratum(const document_list *list, int kind, uint64_t n_documents, double share)
{
    bool is_rest = kind == DOCUMENT_MAX_KINDS - 1 && !strcmp(list->kinds[kind], "other");
    return share * (double)n_documents >= 1 && !is_rest;
}

/* Puts each document into the stratum of its kind, or into the pool. */
static void enter_kinds(const strata *s, const document_split *split, const document_list *list,
                        double share)
{
    uint64_t n[DOCUMENT_MAX_KINDS] = {0};
    for (size_t i = 0; i < list->n_sources; i++)
        n[list->sources[i].kind] += split->first[i + 1] - split->first[i];
    for (size_t i = 0; i < list->n_sources; i++) {
        int kind = list->sources[i].kind;
        int stratum = is_stratum(list, kind, n[kind], share) ? kind : POOL;
        memset(s->of_document + split->first[i], stratum, split->first[i + 1] - split->first[i]);
    }
}

/* Moves documents from the pool to the strata of their kinds if they are more than twice as long as all
 * that the pool holds out and their own share is at least STRETCH_LONG. Returns whether any were moved. */
static bool take_long_ones(const strata *s, const document_split *split, const document_list *list,
                           const uint64_t *lengths, double share)
{
    double total = 0;
    bool any = false;
    for (uint64_t d = 0; d < split->first[list->n_sources]; d++)
        if (s->of_document[d] == POOL) total += (double)lengths[d];
    for (size_t i = 0; i < list->n_sources; i++)
        for (uint64_t d = split->first[i]; d < split->first[i + 1]; d++) {
            double length = (double)lengths[d];
            if (s->of_document[d] != POOL || share * length < STRETCH_LONG ||
                length <= 2 * share * total)
                continue;
            s->of_document[d] = (unsigned char)list->sources[i].kind;
            any = true;
        }
    return any;
}

/* Sorts the documents by stratum. False if out of memory. */
static bool make_strata(strata *s, const document_split *split, const document_list *list,
                        const uint64_t *lengths, double share)
{
    size_t n = split->first[list->n_sources], next[N_STRATA], size;
    if (!checked_mul_size(n + 1, sizeof *s->documents, &size)) return false;
    s->of_document = malloc(n + 1);
    s->documents = malloc(size);
    if (!s->of_document || !s->documents) return false;
    enter_kinds(s, split, list, share);
    while (take_long_ones(s, split, list, lengths, share)) continue;
    for (size_t d = 0; d < n; d++) s->begin[s->of_document[d] + 1]++;
    for (int stratum = 0; stratum < N_STRATA; stratum++) {
        s->begin[stratum + 1] += s->begin[stratum];
        next[stratum] = s->begin[stratum];
    }
    for (size_t d = 0; d < n; d++) s->documents[next[s->of_document[d]]++] = (uint32_t)d;
    return true;
}

static void hold(document_split *split, uint64_t number, uint64_t length)
{
    split->held[split->n_held++] = (document_held){number, length};
}

/* Holds out the share of one stratum. *owed is how many bytes the strata before it held out too few, or
 * too many if negative; it is updated for this stratum. */
static void choose_of_stratum(document_split *split, const uint64_t *lengths, const strata *s,
                              int stratum, double share, double *owed)
{
    const uint32_t *documents = s->documents + s->begin[stratum];
    size_t n = s->begin[stratum + 1] - s->begin[stratum];
    double total = 0, most = share > 0.5 ? share : 0.5;
    for (size_t i = 0; i < n; i++) total += (double)lengths[documents[i]];
    double wanted = share * total + *owed;
    double left = wanted < most * total ? wanted : most * total; /* later strata give the rest */
    double slack = 0.1 * (left < total - left ? left : total - left);
    *owed = wanted - left;
    for (size_t i = 0; i < n && left >= 1; i++) {
        int64_t at = data_order_at((int64_t)n, order_seed, (uint64_t)stratum, (int64_t)i);
        uint64_t length = lengths[documents[at]];
        bool fits = (double)length <= left + slack;
        if (!fits && left < STRETCH_MIN) break;
        hold(split, documents[at], fits ? length : (uint64_t)left);
        left -= fits ? (double)length : left;
    }
    *owed += left;
}

/* If no stratum is large enough for a stretch, holds out the end of the longest document. */
static void choose_any(document_split *split, const uint64_t *lengths, size_t n, double owed)
{
    size_t longest = 0;
    for (size_t i = 1; i < n; i++)
        if (lengths[i] > lengths[longest]) longest = i;
    if (n > 0) hold(split, longest, owed >= 1 ? (uint64_t)owed : 1);
}

static int compare_held(const void *a, const void *b)
{
    const document_held *x = a, *y = b;
    return (x->document > y->document) - (x->document < y->document);
}

static dsmoe_status choose(document_split *split, const document_list *list,
                           const uint64_t *lengths, double share, dsmoe_error *error)
{
    size_t n = split->first[list->n_sources], size;
    strata s = {0};
    if (checked_mul_size(n + 1, sizeof *split->held, &size)) split->held = malloc(size);
    bool complete = split->held && make_strata(&s, split, list, lengths, share);
    double owed = 0;
    for (int stratum = 0; complete && stratum < N_STRATA; stratum++)
        choose_of_stratum(split, lengths, &s, stratum, share, &owed);
    free(s.of_document);
    free(s.documents);
    if (!complete)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for %zu documents", n);
    if (split->n_held == 0) choose_any(split, lengths, n, owed);
    if (split->n_held > 0) {
        qsort(split->held, split->n_held, sizeof *split->held, compare_held);
        document_held *fitted = realloc(split->held, split->n_held * sizeof *fitted);
        if (fitted) split->held = fitted;
    }
    return DSMOE_OK;
}

dsmoe_status document_split_make(document_split *split, const document_list *list, double share,
                                 const document_watch *watch, dsmoe_error *error)
{
    *split = (document_split){0};
    if (!(share > 0) || list->has_eval) return DSMOE_OK;
    measure m = {.watch = watch};
    split->first = calloc(list->n_sources + 1, sizeof *split->first);
    dsmoe_status status = split->first
                              ? measure_all(&m, split, list, error)
                              : status_fail(error, DSMOE_ERROR_MEMORY,
                                            "out of memory for %zu files", list->n_sources);
    if (status == DSMOE_OK) status = choose(split, list, m.lengths, share, error);
    free(m.lengths);
    if (status != DSMOE_OK) document_split_free(split);
    return status;
}

void document_split_free(document_split *split)
{
    free(split->first);
    free(split->held);
    *split = (document_split){0};
}

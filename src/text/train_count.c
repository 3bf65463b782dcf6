/* train_count.c - from documents to counted words.
 *
 * Documents are cut into slices, mostly at line ends, where the pre-tokenizer cuts as well. Slices are
 * collected in a batch until there is work for all threads. Each thread counts into its own table, and
 * the tables are added up at the end. Sums of integers do not depend on which thread counted what. */
#include "text/train_count.h"

#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "base/utf8.h"

enum {
    SLICE_MAX = 64 << 10, /* bytes; a longer line is cut within */
    SLICE_MIN = 512,
    SLICES_OF_A_SAMPLE = 64, /* the least number of slices if only a sample of the text is used */
    BATCH = 4 << 20,         /* bytes collected before the threads start */
};

typedef struct worker {
    train_words words;
    regex_scratch *scratch;
    dsmoe_status status;
    dsmoe_error error;
} worker;

typedef struct counter {
    const train_count_options *options;
    worker *workers; /* [n_threads] */
    byte_buffer batch;
    size_t *ends; /* of the slices in the batch */
    size_t n_slices, slice_capacity;
    size_t slice_size;
    double share;       /* of the text that is used */
    double seen, taken; /* bytes of text read so far, and of those the bytes that are used */
    double total;       /* bytes of all files with text */
    double before;      /* bytes of the files before this one */
    double seen_before; /* bytes of text in those files */
    double size;        /* bytes of this file */
} counter;

/* ---- counting -------------------------------------------------------------------------------- */

/* The most bytes, up to `limit`, that do not end within a character. */
static size_t whole_characters(const char *text, size_t length, size_t limit)
{
    if (length <= limit) return length;
    size_t n = limit;
    while (n > limit - 4 && utf8_is_inside(text[n])) n--;
    return n > limit - 4 ? n : limit; /* no character has more than four bytes */
}

static dsmoe_status count_piece(void *context, const char *piece, size_t length, dsmoe_error *error)
{
    worker *w = context;
    while (length > 0) {
        size_t n = whole_characters(piece, length, TRAIN_WORD_MAX);
        STATUS_TRY(train_words_add(&w->words, piece, n, 1, error));
        piece += n;
        length -= n;
    }
    return DSMOE_OK;
}

static void count_slice(void *context, int64_t task, int thread)
{
    const counter *c = context;
    worker *w = &c->workers[thread];
    if (w->status != DSMOE_OK) return;
    size_t start = task > 0 ? c->ends[task - 1] : 0;
    w->status = pre_tokenizer_run(c->options->pre, w->scratch, c->batch.bytes + start,
                                  c->ends[task] - start, count_piece, w, &w->error);
}

static dsmoe_status report(const counter *c, dsmoe_error *error)
{
    const train_count_options *o = c->options;
    if (!o->progress) return DSMOE_OK;
    /* The text in a .jsonl file is shorter than the file. */
    double in_file = c->seen - c->seen_before;
    double done = c->before + (in_file < c->size ? in_file : c->size);
    if (o->progress(o->context, done, c->total)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_STOPPED, "stopped");
}

static dsmoe_status count_batch(counter *c, dsmoe_error *error)
{
    threads_for(c->options->n_threads, (int64_t)c->n_slices, count_slice, c);
    for (int i = 0; i < c->options->n_threads; i++) {
        const worker *w = &c->workers[i];
        if (w->status != DSMOE_OK) return status_fail(error, w->status, "%s", w->error.message);
    }
    c->batch.length = 0;
    c->n_slices = 0;
    return report(c, error);
}

/* ---- slices ---------------------------------------------------------------------------------- */

static dsmoe_status add_slice(counter *c, const char *text, size_t length, dsmoe_error *error)
{
    c->seen += (double)length;
    if (c->taken + (double)length > c->share * c->seen) return DSMOE_OK;
    c->taken += (double)length;
    STATUS_TRY(byte_buffer_append(&c->batch, text, length, error));
    void *memory = c->ends;
    STATUS_TRY(buffer_grow(&memory, &c->slice_capacity, c->n_slices + 1, sizeof *c->ends, error));
    c->ends = memory;
    c->ends[c->n_slices++] = c->batch.length;
    return c->batch.length < BATCH ? DSMOE_OK : count_batch(c, error);
}

/* The length of the slice at the start of a text: it ends after the last line end that fits. */
static size_t slice_length(const counter *c, const char *text, size_t length)
{
    if (length <= c->slice_size) return length;
    const char *line_end = memrchr(text, '\n', c->slice_size);
    if (line_end) return (size_t)(line_end - text) + 1;
    return whole_characters(text, length, c->slice_size);
}

static dsmoe_status add_text(counter *c, const char *text, size_t length, dsmoe_error *error)
{
    for (size_t at = 0, n; at < length; at += n) {
        n = slice_length(c, text + at, length - at);
        STATUS_TRY(add_slice(c, text + at, n, error));
    }
    return DSMOE_OK;
}

/* A preference has its prompt twice, before the chosen and before the rejected answer. */
static bool is_repeated(const dialogue *c, size_t i)
{
    return c->n_chosen > 0 && i >= c->n_chosen && i - c->n_chosen < c->n_chosen &&
           !strcmp(c->messages[i].text, c->messages[i - c->n_chosen].text);
}

static dsmoe_status add_document(void *context, const document *d, dsmoe_error *error)
{
    if (d->text) return add_text(context, d->text, d->length, error);
    if (!d->conversation) return DSMOE_OK; /* tokens of another tokenizer */
    for (size_t i = 0; i < d->conversation->n_messages; i++) {
        const dialogue_message *m = &d->conversation->messages[i];
        if (is_repeated(d->conversation, i)) continue;
        STATUS_TRY(add_text(context, m->text, m->length, error));
    }
    return DSMOE_OK;
}

/* ---- all documents --------------------------------------------------------------------------- */

static dsmoe_status count_documents(counter *c, const document_list *list,
                                    const document_split *split, dsmoe_error *error)
{
    STATUS_TRY(report(c, error));
    for (size_t i = 0; i < list->n_sources; i++) {
        const document_source *source = &list->sources[i];
        if (source->form == DOCUMENT_SHARD) continue;
        c->size = (double)source->size;
        STATUS_TRY(document_split_each(split, list, i, DOCUMENT_TRAIN, -1, add_document, c, error));
        c->before += c->size;
        c->seen_before = c->seen;
        c->size = 0;
    }
    return count_batch(c, error);
}

static void plan_share(counter *c, const document_list *list)
{
    for (size_t i = 0; i < list->n_sources; i++)
        if (list->sources[i].form != DOCUMENT_SHARD) c->total += (double)list->sources[i].size;
    double max_bytes = c->options->max_bytes;
    c->share = 1;
    c->slice_size = SLICE_MAX;
    if (c->total <= max_bytes) return;
    c->share = max_bytes / c->total;
    if (max_bytes < (double)SLICE_MAX * SLICES_OF_A_SAMPLE)
        c->slice_size = (size_t)(max_bytes / SLICES_OF_A_SAMPLE);
    if (c->slice_size < SLICE_MIN) c->slice_size = SLICE_MIN;
}

static dsmoe_status count_split(counter *c, const document_list *list, dsmoe_error *error)
{
    const train_count_options *o = c->options;
    const document_watch watch = {o->progress, o->context, c->total};
    document_split split;
    STATUS_TRY(document_split_make(&split, list, o->held_out, &watch, error));
    dsmoe_status status = count_documents(c, list, &split, error);
    document_split_free(&split);
    return status;
}

static dsmoe_status add_up(counter *c, train_words *words, dsmoe_error *error)
{
    for (int i = 0; i < c->options->n_threads; i++) {
        STATUS_TRY(train_words_add_all(words, &c->workers[i].words, error));
        train_words_free(&c->workers[i].words);
    }
    return DSMOE_OK;
}

dsmoe_status train_count(const document_list *list, const train_count_options *options,
                         train_words *words, int64_t *n_bytes, dsmoe_error *error)
{
    counter c = {.options = options};
    c.workers = calloc((size_t)options->n_threads, sizeof *c.workers);
    dsmoe_status status =
        c.workers ? DSMOE_OK : status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for threads");
    for (int i = 0; i < options->n_threads && status == DSMOE_OK; i++)
        status = regex_scratch_create(&c.workers[i].scratch, error);
    if (status == DSMOE_OK) {
        plan_share(&c, list);
        status = count_split(&c, list, error);
    }
    if (status == DSMOE_OK) status = add_up(&c, words, error);
    *n_bytes = (int64_t)c.taken;
    for (int i = 0; i < options->n_threads && c.workers; i++) {
        train_words_free(&c.workers[i].words);
        regex_scratch_free(c.workers[i].scratch);
    }
    free(c.workers);
    free(c.ends);
    byte_buffer_free(&c.batch);
    return status;
}

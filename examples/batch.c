/* batch.c - many texts at once: batch MODEL N_TOKENS < PROMPTS
 *
 * Each line of the input is a prompt. Up to eight of them are continued together; when one ends, the next
 * takes its place in the very next pass. */
#include <dsmoe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 8, LINE = 4096 };

typedef struct text {
    dsmoe_sequence *sequence; /* NULL: the place is free */
    int32_t ids[LINE];        /* next input of the model: the prompt, then token by token */
    int64_t n_ids;
    char out[LINE];
    size_t length;
    int number, n_left;
} text;

static dsmoe_model *model;
static dsmoe_tokenizer *tokenizer;
static dsmoe_engine *engine;
static dsmoe_error error;

static void must(dsmoe_status status)
{
    if (status == DSMOE_OK) return;
    fprintf(stderr, "%s\n", error.message);
    exit(1);
}

/* Begins the next line of the input in this place; at the end of the input the place stays free. */
static void begin(text *t, int n_tokens)
{
    static int n_texts;
    int32_t *ids;
    size_t n_ids;
    if (!fgets(t->out, LINE, stdin)) return;
    t->length = strcspn(t->out, "\n");
    must(dsmoe_tokenizer_encode(tokenizer, t->out, t->length, DSMOE_ENCODE_BOS, &ids, &n_ids,
                                &error));
    must(dsmoe_sequence_begin(engine, ids, (int64_t)n_ids, &t->sequence, &error));
    t->n_ids = (int64_t)n_ids - dsmoe_sequence_length(t->sequence); /* only what is new */
    memcpy(t->ids, ids + n_ids - t->n_ids, (size_t)t->n_ids * sizeof *ids);
    free(ids);
    t->number = ++n_texts;
    t->n_left = n_tokens;
}

static void choose(void *context, int64_t row, const float *logits)
{
    text *t = context;
    (void)row;
    t->n_ids = 1;
    t->ids[0] = 0;
    for (int32_t i = 1; i < dsmoe_model_config(model)->vocab_size; i++)
        if (logits[i] > logits[t->ids[0]]) t->ids[0] = i;
}

static void go_on(text *t, const dsmoe_error *end)
{
    size_t size;
    const char *piece = dsmoe_tokenizer_piece(tokenizer, t->ids[0], &size);
    bool is_end = !piece || t->ids[0] == dsmoe_tokenizer_eos(tokenizer) || t->length + size > LINE;
    if (end->status == DSMOE_OK && t->n_left-- > 0 && !is_end) {
        memcpy(t->out + t->length, piece, size);
        t->length += size;
    } else {
        printf("%d: %.*s %s\n", t->number, (int)t->length, t->out, end->message);
        dsmoe_sequence_free(t->sequence);
        t->sequence = NULL;
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) return fprintf(stderr, "usage: %s MODEL N_TOKENS < PROMPTS\n", argv[0]), 2;
    must(dsmoe_model_open(argv[1], &model, &error));
    must(dsmoe_tokenizer_open(argv[1], &tokenizer, &error));
    dsmoe_engine_options options = {.n_sequences = PLACES, .kv_type = DSMOE_F16};
    must(dsmoe_engine_create(model, &options, &engine, &error));
    static text texts[PLACES];
    for (int n = 1; n > 0;) {
        dsmoe_turn turns[PLACES];
        n = 0;
        for (text *t = texts; t < texts + PLACES; t++) {
            if (!t->sequence) begin(t, atoi(argv[2]));
            if (!t->sequence) continue;
            turns[n++] = (dsmoe_turn){t->sequence,   t->ids,          t->n_ids,
                                      .n_logits = 1, .visit = choose, .context = t};
        }
        dsmoe_engine_forward(engine, turns, n, NULL); /* each turn has its own error */
        for (int i = 0; i < n; i++) go_on(turns[i].context, &turns[i].error);
    }
    dsmoe_engine_free(engine);
    dsmoe_tokenizer_free(tokenizer);
    dsmoe_model_free(model);
}

/* pre_tokenizer.c - cuts a text into the pieces within which BPE may merge.
 *
 * All types come down to two kinds of stages: one cuts by a pattern, the other puts a space in front. A
 * piece passes through all stages before the next piece begins, so that only the result is stored. Each
 * stage sees a piece as a separate text: $ is the piece's end. */
#include "text/pre_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/utf8.h"
#include "text/fields.h"
#include "text/unicode.h"

enum { MAX_STAGES = 64 }; /* a stage is a level of recursion; the largest public file has eight */

/* How the matches of a pattern are separated from the text between them. */
typedef enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
} split_behavior;

static const char *const behavior_names[] = {
    [SPLIT_ISOLATED] = "Isolated",
    [SPLIT_REMOVED] = "Removed",
    [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
    [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
    [SPLIT_CONTIGUOUS] = "Contiguous",
};
enum { N_BEHAVIORS = sizeof behavior_names / sizeof *behavior_names };

struct pre_tokenizer_stage {
    bool prefix_space; /* the stage only puts a space in front of a piece that has none */
    pattern pattern;
    split_behavior behavior;
    bool invert;
};

/* ---- reading ------------------------------------------------------------------------------- */

static dsmoe_status add_stage(pre_tokenizer *p, pre_tokenizer_stage **stage, dsmoe_error *error)
{
    if (p->n_stages == MAX_STAGES)
        return status_fail(error, DSMOE_ERROR_FORMAT, "pre_tokenizer has more than %d stages",
                           MAX_STAGES);
    *stage = &p->stages[p->n_stages++];
    return DSMOE_OK;
}

static dsmoe_status read_behavior(const json_node *node, split_behavior *behavior,
                                  dsmoe_error *error)
{
    const json_node *name;
    STATUS_TRY(field_need(node, "pre_tokenizer Split", "behavior", JSON_KIND_STRING, &name, error));
    for (int i = 0; i < N_BEHAVIORS; i++)
        if (!strcmp(json_node_string(name, NULL), behavior_names[i])) {
            *behavior = (split_behavior)i;
            return DSMOE_OK;
        }
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "pre_tokenizer Split: behavior \"%.64s\" is not supported",
                       json_node_string(name, NULL));
}

static dsmoe_status read_split(pre_tokenizer *p, const json_node *node, dsmoe_error *error)
{
    pre_tokenizer_stage *stage = NULL;
    STATUS_TRY(add_stage(p, &stage, error));
    STATUS_TRY(field_flag(node, "pre_tokenizer Split", "invert", false, &stage->invert, error));
    STATUS_TRY(read_behavior(node, &stage->behavior, error));
    return pattern_read(&stage->pattern, node, "pre_tokenizer Split", error);
}

static dsmoe_status read_digits(pre_tokenizer *p, const json_node *node, dsmoe_error *error)
{
    pre_tokenizer_stage *stage = NULL;
    bool individual;
    STATUS_TRY(add_stage(p, &stage, error));
    STATUS_TRY(
        field_flag(node, "pre_tokenizer Digits", "individual_digits", false, &individual, error));
    stage->pattern.kind = PATTERN_NUMERIC;
    stage->behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return DSMOE_OK;
}

static dsmoe_status read_byte_level(pre_tokenizer *p, const json_node *node, dsmoe_error *error)
{
    /* ByteLevel's own expression, which is GPT-2's. */
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                               "\\s+(?!\\S)|\\s+";
    bool prefix_space, use_regex;
    pre_tokenizer_stage *stage = NULL;
    const char *where = "pre_tokenizer ByteLevel";
    STATUS_TRY(field_flag(node, where, "add_prefix_space", true, &prefix_space, error));
    STATUS_TRY(field_flag(node, where, "use_regex", true, &use_regex, error));
    if (prefix_space) {
        STATUS_TRY(add_stage(p, &stage, error));
        stage->prefix_space = true;
    }
    if (!use_regex) return DSMOE_OK;
    STATUS_TRY(add_stage(p, &stage, error));
    stage->behavior = SPLIT_ISOLATED;
    stage->pattern.kind = PATTERN_REGEX;
    return regex_compile(gpt2, sizeof gpt2 - 1, &stage->pattern.expression, error);
}

/* Flattens nested Sequences. *ended is set by ByteLevel: a stage after it would see another alphabet. The
 * depth limit of JSON bounds the recursion. */
static dsmoe_status read_node(pre_tokenizer *p, const json_node *node, bool *ended,
                              dsmoe_error *error)
{
    const char *type;
    STATUS_TRY(field_type(node, "pre_tokenizer", &type, error));
    if (!strcmp(type, "Sequence")) {
        const json_node *list;
        STATUS_TRY(field_need(node, "pre_tokenizer Sequence", "pretokenizers", JSON_KIND_ARRAY,
                              &list, error));
        for (size_t i = 0; i < json_node_count(list); i++)
            STATUS_TRY(read_node(p, json_node_item(list, i), ended, error));
        return DSMOE_OK;
    }
    if (*ended)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "pre_tokenizer: %.64s after ByteLevel is not supported", type);
    if (!strcmp(type, "Split")) return read_split(p, node, error);
    if (!strcmp(type, "Digits")) return read_digits(p, node, error);
    if (!strcmp(type, "ByteLevel")) {
        *ended = true;
        return read_byte_level(p, node, error);
    }
    return status_fail(error, DSMOE_ERROR_FORMAT, "pre_tokenizer: type \"%.64s\" is not supported",
                       type);
}

dsmoe_status pre_tokenizer_read(pre_tokenizer *p, const json_node *node, dsmoe_error *error)
{
    p->stages = calloc(MAX_STAGES, sizeof *p->stages);
    if (!p->stages)
        return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory for the pre_tokenizer");
    bool ended = false;
    STATUS_TRY(read_node(p, node, &ended, error));
    if (!ended)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "pre_tokenizer: only byte-level tokenizers are supported, and there is"
                           " no ByteLevel");
    return DSMOE_OK;
}

void pre_tokenizer_free(pre_tokenizer *p)
{
    for (size_t i = 0; i < p->n_stages; i++) pattern_free(&p->stages[i].pattern);
    free(p->stages);
    memset(p, 0, sizeof *p);
}

/* ---- running ------------------------------------------------------------------------------- */

typedef struct run {
    const pre_tokenizer *pre;
    regex_scratch *scratch;
    pre_tokenizer_piece_fn *piece;
    void *context;
    dsmoe_error *error;
} run;

typedef struct span {
    size_t start, end;
    bool matched;
} span;

/* Joins the spans of a piece according to a stage's behaviour. */
typedef struct joiner {
    const run *run;
    size_t stage;
    const char *text;
    span held; /* what the next span may still join */
    bool holds;
} joiner;

static dsmoe_status run_stage(const run *r, size_t number, const char *text, size_t length);

static dsmoe_status pass_on(const joiner *j, size_t start, size_t end)
{
    if (start == end) return DSMOE_OK;
    return run_stage(j->run, j->stage + 1, j->text + start, end - start);
}

/* Whether a span is joined to the span before it. */
static bool joins(split_behavior behavior, span before, span next)
{
    switch (behavior) {
    case SPLIT_MERGED_WITH_PREVIOUS: return next.matched && !before.matched;
    case SPLIT_MERGED_WITH_NEXT: return before.matched && !next.matched;
    case SPLIT_CONTIGUOUS: return next.matched == before.matched;
    case SPLIT_ISOLATED:
    case SPLIT_REMOVED: break;
    }
    return false;
}

static dsmoe_status join(joiner *j, span next)
{
    const pre_tokenizer_stage *stage = &j->run->pre->stages[j->stage];
    if (stage->invert) next.matched = !next.matched;
    if (stage->behavior == SPLIT_REMOVED && next.matched) return DSMOE_OK;
    if (j->holds && joins(stage->behavior, j->held, next)) {
        j->held.end = next.end;
        j->held.matched = next.matched;
        return DSMOE_OK;
    }
    span ready = j->held;
    bool held = j->holds;
    j->held = next;
    j->holds = true;
    return held ? pass_on(j, ready.start, ready.end) : DSMOE_OK;
}

static dsmoe_status run_split(const run *r, size_t number, const char *text, size_t length)
{
    pattern_scan scan = {.pattern = &r->pre->stages[number].pattern,
                         .scratch = r->scratch,
                         .text = text,
                         .length = length};
    joiner j = {.run = r, .stage = number, .text = text};
    size_t at = 0, start, end;
    for (;;) {
        bool found;
        STATUS_TRY(pattern_next(&scan, &found, &start, &end, r->error));
        if (!found) break;
        if (at != start) STATUS_TRY(join(&j, (span){at, start, false}));
        STATUS_TRY(join(&j, (span){start, end, true}));
        at = end;
    }
    if (at != length) STATUS_TRY(join(&j, (span){at, length, false}));
    return j.holds ? pass_on(&j, j.held.start, j.held.end) : DSMOE_OK;
}

static dsmoe_status run_prefix_space(const run *r, size_t number, const char *text, size_t length)
{
    size_t longer;
    if (!checked_add_size(length, 1, &longer))
        return status_fail(r->error, DSMOE_ERROR_MEMORY, "a text does not fit into memory");
    char *copy = malloc(longer);
    if (!copy)
        return status_fail(r->error, DSMOE_ERROR_MEMORY, "out of memory for %zu bytes", longer);
    copy[0] = ' ';
    memcpy(copy + 1, text, length);
    dsmoe_status status = run_stage(r, number + 1, copy, longer);
    free(copy);
    return status;
}

/* Whether a stage does not change a piece. A cut changes a single character only by removing it. */
static bool leaves_alone(const pre_tokenizer_stage *stage, const char *text, size_t length)
{
    if (stage->prefix_space) return text[0] == ' ';
    uint32_t code;
    return stage->behavior != SPLIT_REMOVED && length <= 4 &&
           utf8_decode(text, length, &code) == length;
}

static dsmoe_status run_stage(const run *r, size_t number, const char *text, size_t length)
{
    while (number < r->pre->n_stages && leaves_alone(&r->pre->stages[number], text, length))
        number++;
    if (number == r->pre->n_stages) return r->piece(r->context, text, length, r->error);
    if (r->pre->stages[number].prefix_space) return run_prefix_space(r, number, text, length);
    return run_split(r, number, text, length);
}

dsmoe_status pre_tokenizer_run(const pre_tokenizer *p, regex_scratch *scratch, const char *text,
                               size_t length, pre_tokenizer_piece_fn *piece, void *context,
                               dsmoe_error *error)
{
    run r = {p, scratch, piece, context, error};
    while (length > 0) {
        size_t valid = unicode_valid_length(text, length);
        if (valid > 0) {
            STATUS_TRY(run_stage(&r, 0, text, valid));
        } else {
            STATUS_TRY(piece(context, text, 1, error));
            valid = 1;
        }
        text += valid;
        length -= valid;
    }
    return DSMOE_OK;
}

/* request_refused.c - fields that clients know and this server does not support. Each has a neutral value,
 * which is accepted. Any other value would change the answer, so the request is refused. */
#include <string.h>

#include "serve/request_parts.h"

typedef enum verdict {
    HONOURED,    /* the neutral value */
    UNSUPPORTED, /* valid, but not neutral */
    WRONG,       /* not a valid value */
} verdict;

typedef struct refused_field refused_field;
struct refused_field {
    const char *name;
    verdict (*judge)(const refused_field *field, const request *r, const json_node *value);
    const char *must;    /* the valid values, for the message about a WRONG one */
    const char *missing; /* why an UNSUPPORTED value is refused */
    double neutral;      /* the neutral value of a number */
};

/* ---- kinds of values ------------------------------------------------------------------------- */

static verdict whatever(const refused_field *field, const request *r, const json_node *value)
{
    (void)field, (void)r, (void)value;
    return UNSUPPORTED;
}

static verdict empty_list(const refused_field *field, const request *r, const json_node *value)
{
    (void)field, (void)r;
    if (json_node_kind(value) != JSON_KIND_ARRAY) return WRONG;
    return json_node_count(value) == 0 ? HONOURED : UNSUPPORTED;
}

static verdict empty_text(const refused_field *field, const request *r, const json_node *value)
{
    (void)field, (void)r;
    if (json_node_kind(value) != JSON_KIND_STRING) return WRONG;
    return request_is_string(value, "") ? HONOURED : UNSUPPORTED;
}

static verdict only_false(const refused_field *field, const request *r, const json_node *value)
{
    (void)field, (void)r;
    if (json_node_kind(value) != JSON_KIND_BOOL) return WRONG;
    return json_node_bool(value) ? UNSUPPORTED : HONOURED;
}

static verdict only_number(const refused_field *field, const request *r, const json_node *value)
{
    (void)r;
    double number;
    if (!request_is_number(value, &number)) return WRONG;
    return number == field->neutral ? HONOURED : UNSUPPORTED;
}

static verdict up_to_number(const refused_field *field, const request *r, const json_node *value)
{
    (void)r;
    double number;
    if (!request_is_number(value, &number)) return WRONG;
    return number <= field->neutral ? HONOURED : UNSUPPORTED;
}

/* An integer that is at least the neutral one. */
static verdict from_integer(const refused_field *field, const request *r, const json_node *value)
{
    (void)r;
    int64_t number;
    if (!request_is_integer(value, &number) || number < field->neutral) return WRONG;
    return number == field->neutral ? HONOURED : UNSUPPORTED;
}

/* ---- single fields --------------------------------------------------------------------------- */

/* There are no tools, so "none" and "auto" change nothing. */
static verdict tool_choice(const refused_field *field, const request *r, const json_node *value)
{
    (void)field, (void)r;
    json_kind kind = json_node_kind(value);
    if (kind == JSON_KIND_OBJECT) return json_node_count(value) == 0 ? HONOURED : UNSUPPORTED;
    if (kind != JSON_KIND_STRING) return WRONG;
    bool none = request_is_string(value, "") || request_is_string(value, "none") ||
                request_is_string(value, "auto");
    return none ? HONOURED : UNSUPPORTED;
}

static verdict response_format(const refused_field *field, const request *r, const json_node *value)
{
    (void)field, (void)r;
    if (json_node_kind(value) != JSON_KIND_OBJECT) return WRONG;
    const json_node *type = request_member(value, "type");
    if (!type || json_node_kind(type) != JSON_KIND_STRING) return WRONG;
    return request_is_string(type, "text") ? HONOURED : UNSUPPORTED;
}

static verdict modalities(const refused_field *field, const request *r, const json_node *value)
{
    (void)field, (void)r;
    if (json_node_kind(value) != JSON_KIND_ARRAY) return WRONG;
    verdict all = HONOURED;
    for (size_t i = 0; i < json_node_count(value); i++) {
        const json_node *item = json_node_item(value, i);
        if (json_node_kind(item) != JSON_KIND_STRING) return WRONG;
        if (!request_is_string(item, "text")) all = UNSUPPORTED;
    }
    return all;
}

static verdict best_of(const refused_field *field, const request *r, const json_node *value)
{
    (void)field;
    int64_t number;
    if (!request_is_integer(value, &number) || number < r->n) return WRONG;
    return number == r->n ? HONOURED : UNSUPPORTED;
}

static verdict samplers(const refused_field *field, const request *r, const json_node *value)
{
    (void)field, (void)r;
    json_kind kind = json_node_kind(value);
    return kind == JSON_KIND_ARRAY || kind == JSON_KIND_STRING ? UNSUPPORTED : WRONG;
}

/* ---- the list -------------------------------------------------------------------------------- */

static const char tools_missing[] = "the model calls no tools";
static const char grammar_missing[] = "answers cannot be constrained by a grammar";
static const char text_missing[] = "the model reads and writes text only";
static const char sampler_missing[] = "there is no such sampler";
static const char list[] = "an array", number[] = "a number", flag[] = "true or false";

static const refused_field of_answers[] = {
    {"tools", empty_list, list, tools_missing, 0},
    {"tool_choice", tool_choice, "a string or an object", tools_missing, 0},
    {"functions", empty_list, list, tools_missing, 0},
    {"function_call", tool_choice, "a string or an object", tools_missing, 0},
    {"web_search_options", whatever, NULL, tools_missing, 0},
    {"response_format", response_format, "an object with a \"type\"", grammar_missing, 0},
    {"grammar", empty_text, "a string", grammar_missing, 0},
    {"grammar_lazy", only_false, flag, grammar_missing, 0},
    {"json_schema", whatever, NULL, grammar_missing, 0},
    {"modalities", modalities, "an array of strings", text_missing, 0},
    {"audio", whatever, NULL, text_missing, 0},
    {"image_data", empty_list, list, text_missing, 0},
    {"echo", only_false, flag, "prompts are not sent back", 0},
    {"suffix", empty_text, "a string", "the model does not fill gaps", 0},
    {"input_extra", empty_list, list, "the model does not fill gaps", 0},
    {"best_of", best_of, "an integer that is not below n", "every answer is sent", 0},
    {"samplers", samplers, "an array or a string", "the order of samplers is fixed", 0},
    {"mirostat", only_number, number, sampler_missing, 0},
    {"typical_p", only_number, number, sampler_missing, 1},
    {"typ_p", only_number, number, sampler_missing, 1},
    {"dry_multiplier", only_number, number, sampler_missing, 0},
    {"xtc_probability", only_number, number, sampler_missing, 0},
    {"dynatemp_range", only_number, number, sampler_missing, 0},
    {"top_n_sigma", up_to_number, number, sampler_missing, 0},
    {"post_sampling_probs", only_false, flag, "probabilities are the model's own", 0},
    {"n_indent", up_to_number, number, "indentation is not checked", 0},
    {"t_max_predict_ms", up_to_number, number, "answers are limited by tokens only", 0},
    {"n_keep", from_integer, "0 or more", "contexts are not shifted", 0},
    {"n_discard", from_integer, "0 or more", "contexts are not shifted", 0},
    {"response_fields", empty_list, list, "answers are sent whole", 0},
    {"id_slot", from_integer, "an integer, at least -1", "a request takes any slot that is free",
     -1},
    {0},
};

static const refused_field of_embeddings[] = {
    {"dimensions", whatever, NULL, "an embedding has the width of the model", 0},
    {0},
};

bool request_check_refused(const request_reader *q)
{
    const refused_field *f = q->r->kind == REQUEST_EMBEDDING ? of_embeddings : of_answers;
    for (; f->name; f++) {
        const json_node *value = request_member(q->root, f->name);
        char text[REQUEST_VALUE_TEXT];
        switch (value ? f->judge(f, q->r, value) : HONOURED) {
        case HONOURED: break;
        case WRONG: return request_refuse_value(q, f->name, value, f->must);
        case UNSUPPORTED:
            return request_refuse(q->error, 501, f->name, "%s is %s, which is not supported: %s",
                                  f->name, request_describe(value, text), f->missing);
        }
    }
    return true;
}

/* targets.c - finds the matrices that words mean. */
#include "train/targets.h"

#include <string.h>

static const struct {
    const char *word, *path; /* what follows "model.layers.N." in the module's name */
} kinds[] = {{"attention", "self_attn."},
             {"shared", "mlp.shared_experts."},
             {"routed", "mlp.experts."},
             {"dense", "mlp."}}; /* except shared and routed, which are tried first */
enum { N_KINDS = sizeof kinds / sizeof *kinds };

typedef struct word {
    const char *at;
    size_t length;
} word;

/* The next word; false after the last. */
static bool next_word(const char **list, word *w)
{
    *list += strspn(*list, ", ");
    *w = (word){*list, strcspn(*list, ", ")};
    *list += w->length;
    return w->length > 0;
}

/* "self_attn.q_proj" for "model.layers.3.self_attn.q_proj.weight"; empty if it cannot have an addition. */
static word module_of(const weight_spec *spec)
{
    static const char before[] = "model.layers.";
    const char *at = spec->name + strlen(before);
    word none = {NULL, 0};
    if (spec->role != WEIGHT_LINEAR || strncmp(spec->name, before, strlen(before))) return none;
    if (strstr(spec->name, ".kv_b_proj.")) return none;
    at += strspn(at, "0123456789") + 1;
    return (word){at, strlen(at) - strlen(".weight")};
}

static bool is_kind(word w, const char *name)
{
    return w.length == strlen(name) && !memcmp(w.at, name, w.length);
}

static bool begins_with(word module, const char *path)
{
    return module.length > strlen(path) && !memcmp(module.at, path, strlen(path));
}

static int kind_of(word module)
{
    int kind = 0;
    while (kind < N_KINDS && !begins_with(module, kinds[kind].path)) kind++;
    return kind;
}

/* Whether a word is the whole name, with "model.layers.", or its end after a dot. */
static bool is_name(word w, const weight_spec *spec)
{
    size_t length = strlen(spec->name) - strlen(".weight");
    if (w.length > length) return false;
    const char *end = spec->name + length - w.length;
    return !memcmp(end, w.at, w.length) && (end == spec->name || end[-1] == '.');
}

/* Which kind a word is; N_KINDS: it is a name. */
static int kind_of_word(word w)
{
    int kind = 0;
    while (kind < N_KINDS && !is_kind(w, kinds[kind].word)) kind++;
    return kind;
}

static bool word_matches(word w, const weight_spec *spec)
{
    word module = module_of(spec);
    int kind = kind_of_word(w);
    if (module.length == 0) return false;
    return kind < N_KINDS ? kind_of(module) == kind : is_name(w, spec);
}

bool targets_match(const char *targets, const weight_spec *spec)
{
    word w;
    while (next_word(&targets, &w))
        if (word_matches(w, spec)) return true;
    return false;
}

typedef struct search {
    word word;
    bool found;
} search;

static dsmoe_status search_visit(void *context, const weight_spec *spec, dsmoe_error *error)
{
    (void)error;
    search *s = context;
    s->found = s->found || word_matches(s->word, spec);
    return DSMOE_OK;
}

/* A model may have no matrix of a kind, such as dense layers, but a name without a matrix is a mistake. */
dsmoe_status targets_check(const dsmoe_config *c, const char *targets, dsmoe_error *error)
{
    search s = {.found = false};
    bool any = false;
    while (targets && next_word(&targets, &s.word)) {
        s.found = false;
        weights_each(c, NULL, search_visit, &s, NULL);
        any = any || s.found;
        if (!s.found && kind_of_word(s.word) == N_KINDS)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "no matrix of the model's layers is called \"%.*s\": targets are "
                               "attention, shared, dense, routed, or names such as q_proj",
                               (int)s.word.length, s.word.at);
    }
    if (any) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_ARGUMENT,
                       "the targets of low-rank additions name no matrix of this model");
}

/* peft_config.c - adapter_config.json: which modules are adapted, and how. A setting that changes an
 * adapter's meaning and is not supported is refused by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/peft.h"
#include "formats/json.h"
#include "text/regex.h"

enum { MOST_RANK = 65536, MOST_PATTERNS = 65536 };

/* A name, which may be a regular expression, and its number. */
typedef struct pattern {
    char *text;
    double value;
} pattern;

typedef struct patterns {
    pattern *at;
    size_t n;
} patterns;

struct peft_config {
    char *source;
    int64_t r;
    double lora_alpha;
    bool use_rslora;
    patterns targets; /* names, or a single expression */
    bool targets_are_one, has_targets;
    patterns ranks, alphas;
};

/* ---- values ------------------------------------------------------------------------------------ */

static dsmoe_status refuse(const peft_config *c, const char *key, const char *why,
                           dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: \"%s\" %s", c->source, key, why);
}

/* NULL if the member is absent or null. */
static const json_node *member(const json_node *root, const char *key)
{
    const json_node *node = json_node_member(root, key);
    return node && json_node_kind(node) != JSON_KIND_NULL ? node : NULL;
}

/* Whether a value has no effect: absent, null, false, or empty. */
static bool says_nothing(const json_node *node)
{
    if (!node) return true;
    switch (json_node_kind(node)) {
    case JSON_KIND_NULL: return true;
    case JSON_KIND_BOOL: return !json_node_bool(node);
    case JSON_KIND_ARRAY:
    case JSON_KIND_OBJECT: return json_node_count(node) == 0;
    default: return false;
    }
}

static dsmoe_status read_number(const peft_config *c, const json_node *root, const char *key,
                                double *value, dsmoe_error *error)
{
    const json_node *node = member(root, key);
    if (!node) return DSMOE_OK;
    json_kind kind = json_node_kind(node);
    if (kind != JSON_KIND_INTEGER && kind != JSON_KIND_REAL)
        return refuse(c, key, "must be a number", error);
    *value = json_node_number(node);
    return DSMOE_OK;
}

static dsmoe_status check_rank(const peft_config *c, const char *key, double value,
                               dsmoe_error *error)
{
    if (value >= 1 && value <= MOST_RANK && value == floor(value)) return DSMOE_OK;
    return refuse(c, key, "must be a rank: a whole number from 1 to 65536", error);
}

/* ---- unsupported settings ---------------------------------------------------------------------- */

static dsmoe_status check_start(const peft_config *c, const json_node *root, dsmoe_error *error)
{
    static const char *const others[] = {"pissa", "olora", "corda", "loftq"};
    const json_node *node = member(root, "init_lora_weights");
    size_t length;
    if (!node || json_node_kind(node) != JSON_KIND_STRING) return DSMOE_OK;
    const char *text = json_node_string(node, &length);
    for (int i = 0; i < 4; i++)
        if (!strncmp(text, others[i], strlen(others[i])))
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "%s: \"init_lora_weights\" is \"%.32s\": such an adapter belongs to "
                               "a changed base, not to the model",
                               c->source, text);
    return DSMOE_OK;
}

static dsmoe_status check_supported(const peft_config *c, const json_node *root, dsmoe_error *error)
{
    static const char *const off[] = {"use_dora",
                                      "fan_in_fan_out",
                                      "modules_to_save",
                                      "lora_bias",
                                      "use_qalora",
                                      "layer_replication",
                                      "target_parameters",
                                      "trainable_token_indices",
                                      "alora_invocation_tokens"};
    const json_node *type = member(root, "peft_type"), *bias = member(root, "bias");
    size_t length;
    if (!type || json_node_kind(type) != JSON_KIND_STRING ||
        strcmp(json_node_string(type, &length), "LORA"))
        return refuse(c, "peft_type", "is not \"LORA\": only LoRA adapters are supported", error);
    if (bias && (json_node_kind(bias) != JSON_KIND_STRING ||
                 strcmp(json_node_string(bias, &length), "none")))
        return refuse(c, "bias", "is not \"none\": adapters with biases are not supported", error);
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (!says_nothing(json_node_member(root, off[i])))
            return refuse(c, off[i], "is set: such adapters are not supported", error);
    return check_start(c, root, error);
}

/* ---- patterns ---------------------------------------------------------------------------------- */

static dsmoe_status add_pattern(const peft_config *c, patterns *list, const char *text,
                                double value, dsmoe_error *error)
{
    if (list->n == MOST_PATTERNS)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: more than %d patterns", c->source,
                           MOST_PATTERNS);
    pattern *grown = realloc(list->at, (list->n + 1) * sizeof *grown);
    if (grown) list->at = grown;
    char *copy = grown ? strdup(text) : NULL;
    if (!copy) return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", c->source);
    list->at[list->n++] = (pattern){copy, value};
    return DSMOE_OK;
}

static dsmoe_status add_text(const peft_config *c, const json_node *node, const char *key,
                             patterns *list, dsmoe_error *error)
{
    size_t length;
    if (json_node_kind(node) != JSON_KIND_STRING)
        return refuse(c, key, "must be a string or an array of strings", error);
    const char *text = json_node_string(node, &length);
    if (length == 0 || strlen(text) != length)
        return refuse(c, key, "has an empty name or a NUL in it", error);
    return add_pattern(c, list, text, 0, error);
}

static dsmoe_status read_targets(peft_config *c, const json_node *root, dsmoe_error *error)
{
    const json_node *node = member(root, "target_modules");
    size_t length;
    if (!node) return DSMOE_OK;
    if (json_node_kind(node) == JSON_KIND_STRING) {
        if (!strcmp(json_node_string(node, &length), "all-linear")) return DSMOE_OK;
        c->has_targets = c->targets_are_one = true;
        return add_text(c, node, "target_modules", &c->targets, error);
    }
    if (json_node_kind(node) != JSON_KIND_ARRAY)
        return refuse(c, "target_modules", "must be a string or an array of strings", error);
    c->has_targets = true;
    for (size_t i = 0; i < json_node_count(node); i++)
        STATUS_TRY(add_text(c, json_node_item(node, i), "target_modules", &c->targets, error));
    return DSMOE_OK;
}

typedef struct pattern_reader {
    const peft_config *config;
    const char *key;
    patterns *list;
    bool are_ranks;
} pattern_reader;

static dsmoe_status read_pattern(void *context, const char *key, const json_node *value,
                                 dsmoe_error *error)
{
    const pattern_reader *r = context;
    json_kind kind = json_node_kind(value);
    if (kind != JSON_KIND_INTEGER && kind != JSON_KIND_REAL)
        return refuse(r->config, r->key, "must hold numbers", error);
    double number = json_node_number(value);
    if (r->are_ranks) STATUS_TRY(check_rank(r->config, r->key, number, error));
    return add_pattern(r->config, r->list, key, number, error);
}

static dsmoe_status read_patterns(const peft_config *c, const json_node *root, const char *key,
                                  patterns *list, bool are_ranks, dsmoe_error *error)
{
    const json_node *node = member(root, key);
    if (!node) return DSMOE_OK;
    if (json_node_kind(node) != JSON_KIND_OBJECT) return refuse(c, key, "must be an object", error);
    pattern_reader r = {c, key, list, are_ranks};
    return json_node_each(node, read_pattern, &r, error);
}

/* ---- the whole file ---------------------------------------------------------------------------- */

static dsmoe_status read_config(peft_config *c, const json_node *root, dsmoe_error *error)
{
    double r = 8; /* PEFT's own defaults */
    c->lora_alpha = 8;
    if (json_node_kind(root) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: not an object", c->source);
    STATUS_TRY(check_supported(c, root, error));
    STATUS_TRY(read_number(c, root, "r", &r, error));
    STATUS_TRY(check_rank(c, "r", r, error));
    STATUS_TRY(read_number(c, root, "lora_alpha", &c->lora_alpha, error));
    c->r = (int64_t)r;
    const json_node *rslora = member(root, "use_rslora");
    if (rslora && json_node_kind(rslora) != JSON_KIND_BOOL)
        return refuse(c, "use_rslora", "must be true or false", error);
    c->use_rslora = rslora && json_node_bool(rslora);
    STATUS_TRY(read_targets(c, root, error));
    STATUS_TRY(read_patterns(c, root, "rank_pattern", &c->ranks, true, error));
    return read_patterns(c, root, "alpha_pattern", &c->alphas, false, error);
}

dsmoe_status peft_config_parse(const char *text, size_t length, const char *source,
                               peft_config **config, dsmoe_error *error)
{
    *config = NULL;
    json_node *root;
    STATUS_TRY(json_node_parse(text, length, source, &root, error));
    peft_config *made = calloc(1, sizeof *made);
    if (made) made->source = strdup(source);
    dsmoe_status status = made && made->source
                              ? read_config(made, root, error)
                              : status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", source);
    json_node_free(root);
    if (status == DSMOE_OK)
        *config = made;
    else
        peft_config_free(made);
    return status;
}

static void patterns_free(patterns *list)
{
    for (size_t i = 0; i < list->n; i++) free(list->at[i].text);
    free(list->at);
}

void peft_config_free(peft_config *c)
{
    if (!c) return;
    patterns_free(&c->targets);
    patterns_free(&c->ranks);
    patterns_free(&c->alphas);
    free(c->source);
    free(c);
}

/* ---- modules ----------------------------------------------------------------------------------- */

/* Whether an expression matches the whole name or, with `or_end`, everything after a point in it. */
static dsmoe_status fits(const char *text, const char *module, bool or_end, bool *fit,
                         dsmoe_error *error)
{
    char *whole;
    size_t start, end;
    regex *compiled = NULL;
    regex_scratch *scratch = NULL;
    int length = asprintf(&whole, "\\A%s(?:%s)\\z", or_end ? "(?:.*\\.)?" : "", text);
    if (length < 0) return status_fail(error, DSMOE_ERROR_MEMORY, "out of memory");
    dsmoe_status status = regex_compile(whole, (size_t)length, &compiled, error);
    if (status == DSMOE_OK) status = regex_scratch_create(&scratch, error);
    if (status == DSMOE_OK)
        status =
            regex_search(compiled, scratch, module, strlen(module), 0, fit, &start, &end, error);
    regex_scratch_free(scratch);
    regex_free(compiled);
    free(whole);
    return status;
}

/* Whether a module is `text`, or ends with a point and `text`. */
static bool is_name(const char *text, const char *module)
{
    size_t n = strlen(text), m = strlen(module);
    if (m < n || strcmp(module + m - n, text)) return false;
    return m == n || module[m - n - 1] == '.';
}

static dsmoe_status is_target(const peft_config *c, const char *module, bool *found,
                              dsmoe_error *error)
{
    *found = !c->has_targets;
    if (c->targets_are_one) return fits(c->targets.at[0].text, module, false, found, error);
    for (size_t i = 0; i < c->targets.n && !*found; i++)
        *found = is_name(c->targets.at[i].text, module);
    return DSMOE_OK;
}

/* Sets *value from the first pattern that fits. A plain name is compared without an expression. */
static dsmoe_status apply(const patterns *list, const char *module, double *value,
                          dsmoe_error *error)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->at[i].text;
        bool fit = is_name(text, module);
        if (!fit && text[strcspn(text, "\\^$*+?()[]{}|")])
            STATUS_TRY(fits(text, module, true, &fit, error));
        if (!fit) continue;
        *value = list->at[i].value;
        return DSMOE_OK;
    }
    return DSMOE_OK;
}

dsmoe_status peft_config_of(const peft_config *c, const char *module, int64_t *rank, float *scale,
                            dsmoe_error *error)
{
    double r = (double)c->r, alpha = c->lora_alpha;
    bool found = false;
    dsmoe_error reason;
    dsmoe_status status = is_target(c, module, &found, &reason);
    if (status == DSMOE_OK) status = apply(&c->ranks, module, &r, &reason);
    if (status == DSMOE_OK) status = apply(&c->alphas, module, &alpha, &reason);
    if (status != DSMOE_OK)
        return status_fail(error, status, "%s: a pattern: %s", c->source, reason.message);
    if (!found)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: \"target_modules\" does not name %s, which is adapted", c->source,
                           module);
    *rank = (int64_t)r;
    *scale = (float)(alpha / (c->use_rslora ? sqrt(r) : r));
    return DSMOE_OK;
}

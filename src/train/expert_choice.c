/* expert_choice.c - scores of experts, the choice, and its file. */
#include "train/expert_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "formats/partial_file.h"

enum { MAX_SIZE = 16 << 20 }; /* bytes of a file */

/* ---- scores ------------------------------------------------------------------------------------ */

void expert_scores_add(void *context, int64_t layer, int64_t first, int64_t n_tokens,
                       const dsmoe_routing *routing)
{
    const expert_scores *s = context;
    int64_t k = s->config->num_experts_per_tok;
    double *sums = s->sums + layer * s->config->n_routed_experts;
    (void)first;
    for (int64_t i = 0; i < n_tokens * k; i++)
        sums[routing->topk_idx[i]] +=
            s->kind == DSMOE_EXPERT_SCORE_TOKEN ? 1.0 / (double)k : (double)routing->topk_weight[i];
}

bool dsmoe_expert_score_find(const char *name, dsmoe_expert_score *score)
{
    static const char *const names[] = {"gate", "token"};
    for (int i = 0; i < 2; i++)
        if (!strcmp(name, names[i])) {
            *score = (dsmoe_expert_score)i;
            return true;
        }
    return false;
}

double dsmoe_expert_share_default(dsmoe_expert_score score)
{
    return score == DSMOE_EXPERT_SCORE_TOKEN ? 0.2 : 0.1;
}

/* The best expert of a layer that is not taken yet. */
static int64_t best_left(const double *scores, const unsigned char *chosen, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (!chosen[i] && (best < 0 || scores[i] > scores[best])) best = i;
    return best;
}

void dsmoe_experts_choose(const dsmoe_config *c, const double *scores, double share,
                          unsigned char *chosen)
{
    int64_t n = c->n_routed_experts;
    memset(chosen, 0, (size_t)(c->num_hidden_layers * n));
    for (int64_t layer = 0; layer < c->num_hidden_layers; layer++) {
        if (!dsmoe_config_layer_is_moe(c, layer)) continue;
        const double *of_layer = scores + layer * n;
        unsigned char *taken = chosen + layer * n;
        double sum = 0.0;
        for (int64_t best; sum < share && (best = best_left(of_layer, taken, n)) >= 0;) {
            if (of_layer[best] <= 0.0) break; /* the other experts are unused */
            taken[best] = 1;
            sum += of_layer[best];
        }
    }
}

/* ---- the file ---------------------------------------------------------------------------------- */

typedef struct choice_file {
    const char *source;
    const dsmoe_config *config;
    unsigned char *chosen;
} choice_file;

static dsmoe_status bad_file(const choice_file *f, const char *what, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_FORMAT, "%s: %s", f->source, what);
}

static dsmoe_status read_layer(void *context, const char *key, const json_node *value,
                               dsmoe_error *error)
{
    const choice_file *f = context;
    const dsmoe_config *c = f->config;
    char *end;
    long long layer = strtoll(key, &end, 10);
    if (!*key || *end || layer < 0 || layer >= c->num_hidden_layers ||
        !dsmoe_config_layer_is_moe(c, layer))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: \"%.32s\" is not a layer of the model that has experts", f->source,
                           key);
    if (json_node_kind(value) != JSON_KIND_ARRAY)
        return bad_file(f, "the experts of a layer must be an array of numbers", error);
    for (size_t i = 0; i < json_node_count(value); i++) {
        const json_node *item = json_node_item(value, i);
        int64_t expert = json_node_kind(item) == JSON_KIND_INTEGER ? json_node_integer(item) : -1;
        if (expert < 0 || expert >= c->n_routed_experts)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: layer %lld: experts must be numbers from 0 to %lld", f->source,
                               layer, (long long)(c->n_routed_experts - 1));
        f->chosen[layer * c->n_routed_experts + expert] = 1;
    }
    return DSMOE_OK;
}

static dsmoe_status read_member(void *context, const char *key, const json_node *value,
                                dsmoe_error *error)
{
    const choice_file *f = context;
    if (!strcmp(key, "experts")) {
        if (json_node_kind(value) != JSON_KIND_OBJECT)
            return bad_file(f, "\"experts\" must be an object of layers", error);
        return json_node_each(value, read_layer, context, error);
    }
    bool is_other = !strcmp(key, "shared_experts") || !strcmp(key, "non_expert_modules");
    if (!is_other || json_node_kind(value) != JSON_KIND_BOOL || !json_node_bool(value))
        return DSMOE_OK; /* other members do not concern experts */
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: \"%s\" is true, but only routed experts can be trained in this way",
                       f->source, key);
}

static dsmoe_status read_root(const json_node *root, const choice_file *f, dsmoe_error *error)
{
    const dsmoe_config *c = f->config;
    memset(f->chosen, 0, (size_t)(c->num_hidden_layers * c->n_routed_experts));
    if (json_node_kind(root) != JSON_KIND_OBJECT)
        return bad_file(f, "the top level must be an object", error);
    return json_node_each(root, read_member, (void *)f, error);
}

dsmoe_status expert_choice_parse(const char *text, size_t length, const char *source,
                                 const dsmoe_config *config, unsigned char *chosen,
                                 dsmoe_error *error)
{
    json_node *root;
    STATUS_TRY(json_node_parse(text, length, source, &root, error));
    choice_file f = {source, config, chosen};
    dsmoe_status status = read_root(root, &f, error);
    json_node_free(root);
    return status;
}

dsmoe_status dsmoe_experts_read(const char *path, const dsmoe_config *config, unsigned char *chosen,
                                dsmoe_error *error)
{
    json_node *root;
    STATUS_TRY(json_node_read(path, MAX_SIZE, &root, error));
    choice_file f = {path, config, chosen};
    dsmoe_status status = read_root(root, &f, error);
    json_node_free(root);
    return status;
}

static void put_layer(FILE *text, const choice_file *f, int64_t layer, bool first)
{
    int64_t n = f->config->n_routed_experts;
    const char *between = "";
    fprintf(text, "%s\n    \"%lld\": [", first ? "" : ",", (long long)layer);
    for (int64_t i = 0; i < n; i++) {
        if (!f->chosen[layer * n + i]) continue;
        fprintf(text, "%s%lld", between, (long long)i);
        between = ", ";
    }
    fputc(']', text);
}

static void put_file(FILE *text, const void *context)
{
    const choice_file *f = context;
    bool first = true;
    fputs("{\n  \"experts\": {", text);
    for (int64_t layer = 0; layer < f->config->num_hidden_layers; layer++) {
        if (!dsmoe_config_layer_is_moe(f->config, layer)) continue;
        put_layer(text, f, layer, first);
        first = false;
    }
    fputs("\n  },\n  \"shared_experts\": false,\n  \"non_expert_modules\": false\n}\n", text);
}

dsmoe_status expert_choice_put(const char *folder, const dsmoe_config *config,
                               const unsigned char *chosen, dsmoe_error *error)
{
    const choice_file f = {NULL, config, (unsigned char *)chosen};
    return partial_file_write_text(folder, "expert_cfg.json", put_file, &f, error);
}

dsmoe_status dsmoe_experts_write(const char *path, const dsmoe_config *config,
                                 const unsigned char *chosen, dsmoe_error *error)
{
    const choice_file f = {NULL, config, (unsigned char *)chosen};
    const char *slash = strrchr(path, '/');
    char folder[DSMOE_PATH] = ".";
    if (slash && (size_t)(slash - path) < sizeof folder)
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return partial_file_write_text(folder, slash ? slash + 1 : path, put_file, &f, error);
}

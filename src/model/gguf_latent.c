/* gguf_latent.c - metadata of the architecture deepseek2 that deepseek does not have.
 *
 * Such a file describes the computation, not the type of the model. A sigmoid means the gate of V3,
 * which corrects the choice of experts by a bias; a softmax means the gate of V2, which may choose
 * among groups. */
#include "model/gguf_latent.h"

#include <inttypes.h>
#include <stdio.h>

enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2 };

#define RANK_KEY ".attention.kv_lora_rank"
#define KEY_LENGTH ".attention.key_length"
#define VALUE_LENGTH ".attention.value_length"
#define SPLIT_SUFFIX "_mla"
#define ROPE_KEY ".rope.dimension_count"
#define GATING_KEY ".expert_gating_func"
#define NEXTN_KEY ".nextn_predict_layers"
#define FACTOR_KEY ".rope.scaling.factor"
#define YARN_KEY ".rope.scaling.yarn_"

static const gguf_field integers[] = {
    GGUF_FIELD(RANK_KEY, kv_lora_rank, true),
    GGUF_FIELD(".attention.q_lora_rank", q_lora_rank, false),
    GGUF_FIELD(ROPE_KEY, qk_rope_head_dim, true),
    GGUF_FIELD(".expert_group_count", n_group, false),
    GGUF_FIELD(".expert_group_used_count", topk_group, false),
    GGUF_FIELD(".rope.scaling.original_context_length", original_max_position_embeddings, false),
};
/* Widths of a head. The key's includes its rotated part until read_heads() subtracts that. */
static const gguf_field split_widths[] = {
    GGUF_FIELD(KEY_LENGTH SPLIT_SUFFIX, qk_nope_head_dim, true),
    GGUF_FIELD(VALUE_LENGTH SPLIT_SUFFIX, v_head_dim, true),
};
static const gguf_field whole_widths[] = {
    GGUF_FIELD(KEY_LENGTH, qk_nope_head_dim, true),
    GGUF_FIELD(VALUE_LENGTH, v_head_dim, true),
};
static const gguf_field numbers[] = {
    GGUF_FIELD(".expert_weights_scale", routed_scaling_factor, false),
    /* V2 does not scale renormalised weights, but GGUF readers would, so files of such models
     * have 1 under the key above. */
    GGUF_FIELD("dsmoe.routed_scaling_factor", routed_scaling_factor, false),
    GGUF_FIELD(YARN_KEY "beta_fast", beta_fast, false),
    GGUF_FIELD(YARN_KEY "beta_slow", beta_slow, false),
};
#define TABLE(array, are_numbers)                                                                  \
    {                                                                                              \
        array, sizeof(array) / sizeof *(array), are_numbers                                        \
    }

void gguf_latent_tables(bool split, gguf_fields tables[GGUF_LATENT_TABLES])
{
    tables[0] = (gguf_fields)TABLE(integers, false);
    tables[1] =
        split ? (gguf_fields)TABLE(split_widths, false) : (gguf_fields)TABLE(whole_widths, false);
    tables[2] = (gguf_fields)TABLE(numbers, true);
}

bool gguf_latent_is_split(const gguf *file)
{
    const gguf_reader r = {.file = file, .architecture = GGUF_LATENT_ARCHITECTURE};
    return gguf_reader_has_int(&r, KEY_LENGTH SPLIT_SUFFIX) ||
           gguf_reader_has_int(&r, VALUE_LENGTH SPLIT_SUFFIX);
}

/* ---- attention ----------------------------------------------------------------------------- */

static dsmoe_status read_heads(const gguf_reader *r, bool split, dsmoe_config *c,
                               dsmoe_error *error)
{
    int64_t width = c->qk_nope_head_dim;
    if (c->kv_lora_rank < 1) /* would mean another kind of attention */
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is %" PRId64 ", not at least 1",
                           gguf_path(r->file), gguf_reader_key(r, RANK_KEY).name, c->kv_lora_rank);
    if (c->qk_rope_head_dim >= width)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: %s %" PRId64 " is not more than %s %" PRId64, gguf_path(r->file),
                           gguf_reader_key(r, split ? KEY_LENGTH SPLIT_SUFFIX : KEY_LENGTH).name,
                           width, gguf_reader_key(r, ROPE_KEY).name, c->qk_rope_head_dim);
    c->qk_nope_head_dim = width - c->qk_rope_head_dim;
    c->num_key_value_heads = c->num_attention_heads;
    return DSMOE_OK;
}

/* Checks the keys that describe attention as the file stores it. */
static dsmoe_status check_heads(const gguf_reader *r, bool split, const dsmoe_config *c,
                                dsmoe_error *error)
{
    static const char kv_heads[] = ".attention.head_count_kv";
    if (!split) return gguf_reader_expect_int(r, kv_heads, c->num_attention_heads, error);
    STATUS_TRY(gguf_reader_expect_int(r, kv_heads, 1, error));
    STATUS_TRY(gguf_reader_expect_int(r, KEY_LENGTH, c->kv_lora_rank + c->qk_rope_head_dim, error));
    return gguf_reader_expect_int(r, VALUE_LENGTH, c->kv_lora_rank, error);
}

/* ---- the gate ------------------------------------------------------------------------------ */

static dsmoe_status read_gate(const gguf_reader *r, dsmoe_config *c, dsmoe_error *error)
{
    int64_t gating = GATING_SOFTMAX; /* for files that are older than the key */
    STATUS_TRY(gguf_reader_int(r, GATING_KEY, &gating, error));
    STATUS_TRY(gguf_reader_flag(r, ".expert_weights_norm", &c->norm_topk_prob, error));
    if (gating != GATING_SOFTMAX && gating != GATING_SIGMOID)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: %s is %" PRId64
                           "; only %d (softmax) and %d (sigmoid) are supported",
                           gguf_path(r->file), gguf_reader_key(r, GATING_KEY).name, gating,
                           GATING_SOFTMAX, GATING_SIGMOID);
    if (c->routed_scaling_factor == 0) c->routed_scaling_factor = 1; /* 0 means no scaling */
    if (c->n_group <= 1) c->n_group = c->topk_group = 0;
    bool sigmoid = gating == GATING_SIGMOID;
    c->model_type = sigmoid ? DSMOE_DEEPSEEK_V3 : DSMOE_DEEPSEEK_V2;
    c->scoring_func = sigmoid ? DSMOE_SCORING_SIGMOID : DSMOE_SCORING_SOFTMAX;
    c->topk_method = sigmoid          ? DSMOE_TOPK_NOAUX_TC
                     : c->n_group > 1 ? DSMOE_TOPK_GROUP_LIMITED_GREEDY
                                      : DSMOE_TOPK_GREEDY;
    return DSMOE_OK;
}

/* With a softmax there must be no bias: it would choose different experts from V2. */
static dsmoe_status check_no_bias(const gguf_reader *r, const dsmoe_config *c, dsmoe_error *error)
{
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%" PRId64 ".exp_probs_b.bias", i);
        if (gguf_find(r->file, name))
            return status_fail(error, DSMOE_ERROR_CONFIG,
                               "%s: %s corrects a sigmoid's scores, but the gate is a softmax",
                               gguf_path(r->file), name);
    }
    return DSMOE_OK;
}

/* ---- YaRN ---------------------------------------------------------------------------------- */

/* yarn_log_multiplier is mscale_all_dim / 10. mscale has no key: readers assume that it is the same. */
static dsmoe_status read_yarn(const gguf_reader *r, dsmoe_config *c, dsmoe_error *error)
{
    double tenth = 0;
    STATUS_TRY(gguf_reader_number(r, YARN_KEY "log_multiplier", &tenth, error));
    c->mscale_all_dim = gguf_shortest((double)(float)(tenth / 0.1));
    c->mscale = tenth != 0 ? c->mscale_all_dim : 1;
    c->rope_scaling = DSMOE_ROPE_YARN;
    if (c->beta_fast == 0) c->beta_fast = 32;
    if (c->beta_slow == 0) c->beta_slow = 1;
    if (c->original_max_position_embeddings == 0)
        c->original_max_position_embeddings = c->max_position_embeddings;
    STATUS_TRY(gguf_reader_expect_number(r, YARN_KEY "ext_factor", 1, error));
    STATUS_TRY(gguf_reader_expect_number(r, YARN_KEY "attn_factor", 1, error));
    return gguf_reader_expect_number(r, ".rope.scaling.attn_factor", 1, error);
}

static dsmoe_status read_rope_scaling(const gguf_reader *r, dsmoe_config *c, dsmoe_error *error)
{
    static const char type_key[] = ".rope.scaling.type";
    gguf_string type = {"none", 4};
    double factor = 1;
    STATUS_TRY(gguf_reader_string(r, type_key, &type, error));
    STATUS_TRY(gguf_reader_number(r, FACTOR_KEY, &factor, error));
    if (!(factor >= 1 && factor <= 1e6))
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is %g, outside 1 to 1e6",
                           gguf_path(r->file), gguf_reader_key(r, FACTOR_KEY).name, factor);
    bool yarn = gguf_string_is(type, "yarn");
    if (!yarn && !gguf_string_is(type, "none") && factor != 1)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: %s \"%.*s\" is not supported, only \"none\" and \"yarn\"",
                           gguf_path(r->file), gguf_reader_key(r, type_key).name, gguf_shown(type),
                           type.bytes);
    if (yarn) {
        c->rope_scaling_factor = factor;
        return read_yarn(r, c, error);
    }
    c->original_max_position_embeddings = 0;
    c->beta_fast = c->beta_slow = 0;
    return DSMOE_OK;
}

/* ---- all of them --------------------------------------------------------------------------- */

/* The layers that predict tokens further ahead come last. They are not run, so not counted. */
static dsmoe_status leave_out_nextn(const gguf_reader *r, dsmoe_config *c, dsmoe_error *error)
{
    int64_t n = 0;
    STATUS_TRY(gguf_reader_int(r, NEXTN_KEY, &n, error));
    if (n < 0 || (n > 0 && n >= c->num_hidden_layers))
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is %" PRId64 " of %" PRId64 " layers",
                           gguf_path(r->file), gguf_reader_key(r, NEXTN_KEY).name, n,
                           c->num_hidden_layers);
    c->num_hidden_layers -= n;
    return DSMOE_OK;
}

dsmoe_status gguf_latent_read(const gguf_reader *r, bool split, dsmoe_config *c, dsmoe_error *error)
{
    STATUS_TRY(leave_out_nextn(r, c, error));
    STATUS_TRY(read_heads(r, split, c, error));
    STATUS_TRY(read_gate(r, c, error));
    return read_rope_scaling(r, c, error);
}

dsmoe_status gguf_latent_check(const gguf_reader *r, bool split, const dsmoe_config *c,
                               dsmoe_error *error)
{
    STATUS_TRY(check_heads(r, split, c, error));
    STATUS_TRY(gguf_reader_expect_number(r, ".attention.temperature_scale", 0, error));
    return c->topk_method == DSMOE_TOPK_NOAUX_TC ? DSMOE_OK : check_no_bias(r, c, error);
}

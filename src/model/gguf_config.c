/* gguf_config.c - the configuration of a model from the metadata of its GGUF file. */
#include "model/gguf_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/generation_config.h"
#include "model/gguf_names.h"

#define ARCHITECTURE "deepseek"
#define VOCAB_KEY ARCHITECTURE ".vocab_size"
#define KV_HEADS_KEY ARCHITECTURE ".attention.head_count_kv"
#define TIED_KEY "dsmoe.tie_word_embeddings"
#define BOS_KEY "tokenizer.ggml.bos_token_id"
#define EOS_KEY "tokenizer.ggml.eos_token_id"

/* Which key of a file is which key of config.json. */
typedef struct key_pair {
    const char *key, *name;
    size_t offset; /* of the field in dsmoe_config */
    bool required;
} key_pair;

#define FIELD(name) #name, offsetof(dsmoe_config, name)
static const key_pair integers[] = {
    {VOCAB_KEY, FIELD(vocab_size), false},
    {ARCHITECTURE ".embedding_length", FIELD(hidden_size), true},
    {ARCHITECTURE ".feed_forward_length", FIELD(intermediate_size), false},
    {ARCHITECTURE ".expert_feed_forward_length", FIELD(moe_intermediate_size), false},
    {ARCHITECTURE ".block_count", FIELD(num_hidden_layers), true},
    {ARCHITECTURE ".attention.head_count", FIELD(num_attention_heads), true},
    {KV_HEADS_KEY, FIELD(num_key_value_heads), false},
    {ARCHITECTURE ".expert_shared_count", FIELD(n_shared_experts), false},
    {ARCHITECTURE ".expert_count", FIELD(n_routed_experts), false},
    {ARCHITECTURE ".expert_used_count", FIELD(num_experts_per_tok), false},
    {ARCHITECTURE ".leading_dense_block_count", FIELD(first_k_dense_replace), false},
    {ARCHITECTURE ".context_length", FIELD(max_position_embeddings), false},
    {BOS_KEY, FIELD(bos_token_id), false},
    {EOS_KEY, FIELD(eos_token_id), false},
    /* Where the model's differ from its tokenizer's. */
    {"dsmoe.bos_token_id", FIELD(bos_token_id), false},
    {"dsmoe.eos_token_id", FIELD(eos_token_id), false},
};
static const key_pair numbers[] = {
    {ARCHITECTURE ".attention.layer_norm_rms_epsilon", FIELD(rms_norm_eps), false},
    {ARCHITECTURE ".rope.freq_base", FIELD(rope_theta), false},
    {"dsmoe.aux_loss_alpha", FIELD(aux_loss_alpha), false},
    {"dsmoe.initializer_range", FIELD(initializer_range), false},
};
#undef FIELD
enum {
    N_INTEGERS = sizeof integers / sizeof *integers,
    N_NUMBERS = sizeof numbers / sizeof *numbers,
};

/* ---- messages ------------------------------------------------------------------------------ */

/* The key whose name in config.json the text begins with, or NULL. */
static const key_pair *pair_at(const char *text)
{
    for (int i = 0; i < N_INTEGERS + N_NUMBERS; i++) {
        const key_pair *pair = i < N_INTEGERS ? &integers[i] : &numbers[i - N_INTEGERS];
        size_t length = strlen(pair->name);
        char next = strncmp(text, pair->name, length) ? '_' : text[length];
        if (next != '_' && (next < 'a' || next > 'z')) return pair;
    }
    return NULL;
}

/* What config_check says is about names of config.json: in a GGUF file they are called
 * otherwise. */
static dsmoe_status fail_with_keys(const gguf *file, dsmoe_status status, const char *message,
                                   dsmoe_error *error)
{
    char told[sizeof error->message] = "";
    size_t length = 0;
    bool begins = true; /* a word, here */
    while (*message && length < sizeof told - 1) {
        const key_pair *pair = begins ? pair_at(message) : NULL;
        if (!pair) {
            begins = *message == ' ';
            told[length++] = *message++;
            continue;
        }
        int n = snprintf(told + length, sizeof told - length, "%s", pair->key);
        length += (size_t)n < sizeof told - length ? (size_t)n : sizeof told - length - 1;
        message += strlen(pair->name);
    }
    told[length] = '\0';
    return status_fail(error, status, "%s: %s", gguf_path(file), told);
}

/* ---- values -------------------------------------------------------------------------------- */

/* A float32 of the file as the decimal number that it was made from: 1e-6, not 9.99999997e-07. Both
 * are the same float32, and that is what is computed with. */
static double shortest(double value)
{
    if ((double)(float)value != value) return value; /* not so for a NaN */
    char digits[32];
    for (int precision = 1; precision <= 9; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if ((float)strtod(digits, NULL) == (float)value) break;
    }
    return strtod(digits, NULL);
}

static dsmoe_status read_keys(const gguf *file, dsmoe_config *config, dsmoe_error *error)
{
    char *fields = (char *)config;
    bool found;
    for (int i = 0; i < N_INTEGERS; i++)
        STATUS_TRY(gguf_get_int(file, integers[i].key, (int64_t *)(fields + integers[i].offset),
                                integers[i].required ? NULL : &found, error));
    for (int i = 0; i < N_NUMBERS; i++) {
        double *field = (double *)(fields + numbers[i].offset);
        STATUS_TRY(gguf_get_float(file, numbers[i].key, field, &found, error));
        if (found) *field = shortest(*field);
    }
    STATUS_TRY(gguf_get_bool(file, TIED_KEY, &config->tie_word_embeddings, &found, error));
    return gguf_get_bool(file, "dsmoe.seq_aux", &config->seq_aux, &found, error);
}

/* Whether there is an integer of that name. */
static bool has_integer(const gguf *file, const char *key)
{
    int64_t value;
    bool found = false;
    return gguf_get_int(file, key, &value, &found, NULL) == DSMOE_OK && found;
}

/* A token may be absent, but not by a number: -1 is for us alone. */
static dsmoe_status check_ids(const gguf *file, const dsmoe_config *config, dsmoe_error *error)
{
    const char *key = NULL;
    if (config->bos_token_id < 0 && has_integer(file, BOS_KEY)) key = BOS_KEY;
    if (config->eos_token_id < 0 && has_integer(file, EOS_KEY)) key = EOS_KEY;
    if (!key) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is -1, which is not a token",
                       gguf_path(file), key);
}

/* Other files that have this form: importances, adapters, tokenizers alone. */
static dsmoe_status check_is_model(const gguf *file, dsmoe_error *error)
{
    gguf_string type = {"model", 5};
    bool found;
    STATUS_TRY(gguf_get_string(file, "general.type", &type, &found, error));
    if (gguf_string_is(type, "model")) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: not a model: general.type is \"%.*s\"",
                       gguf_path(file), gguf_shown(type), type.bytes);
}

static dsmoe_status check_architecture(const gguf *file, dsmoe_error *error)
{
    gguf_string name;
    STATUS_TRY(gguf_get_string(file, "general.architecture", &name, NULL, error));
    if (gguf_string_is(name, ARCHITECTURE)) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG,
                       "%s: general.architecture \"%.*s\" is not supported, only \"" ARCHITECTURE
                       "\"",
                       gguf_path(file), gguf_shown(name), name.bytes);
}

/* "none", or "linear" with a factor; without a type a factor means "linear". */
static dsmoe_status read_rope_scaling(const gguf *file, dsmoe_config *config, dsmoe_error *error)
{
    static const char type_key[] = ARCHITECTURE ".rope.scaling.type";
    static const char factor_key[] = ARCHITECTURE ".rope.scaling.factor";
    gguf_string type = {"linear", 6};
    double factor = 1;
    bool found;
    STATUS_TRY(gguf_get_string(file, type_key, &type, &found, error));
    STATUS_TRY(gguf_get_float(file, factor_key, &factor, &found, error));
    if (gguf_string_is(type, "none")) return DSMOE_OK;
    if (!gguf_string_is(type, "linear"))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: %s \"%.*s\" is not supported, only \"none\" and \"linear\"",
                           gguf_path(file), type_key, gguf_shown(type), type.bytes);
    if (!(factor >= 1 && factor <= 1e6))
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is %g, outside 1 to 1e6",
                           gguf_path(file), factor_key, factor);
    if (factor == 1) return DSMOE_OK;
    config->rope_scaling = DSMOE_ROPE_LINEAR;
    config->rope_scaling_factor = shortest(factor);
    return DSMOE_OK;
}

/* ---- what must be as it is ----------------------------------------------------------------- */

static dsmoe_status expect_int(const gguf *file, const char *key, int64_t wanted,
                               dsmoe_error *error)
{
    int64_t value = wanted;
    bool found;
    STATUS_TRY(gguf_get_int(file, key, &value, &found, error));
    if (value == wanted) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is %" PRId64 "; only %" PRId64 " works",
                       gguf_path(file), key, value, wanted);
}

/* Keys that may be there, but have one value that such a model computes with. */
static dsmoe_status check_fixed(const gguf *file, const dsmoe_config *config, dsmoe_error *error)
{
    static const char scale_key[] = ARCHITECTURE ".expert_weights_scale";
    static const char norm_key[] = ARCHITECTURE ".expert_weights_norm";
    int64_t head_dim = config_head_dim(config);
    STATUS_TRY(expect_int(file, ARCHITECTURE ".rope.dimension_count", head_dim, error));
    STATUS_TRY(expect_int(file, ARCHITECTURE ".attention.key_length", head_dim, error));
    STATUS_TRY(expect_int(file, ARCHITECTURE ".attention.value_length", head_dim, error));
    STATUS_TRY(expect_int(file, ARCHITECTURE ".expert_gating_func", 1, error)); /* softmax */
    double scale = 1;
    bool norm = false, found;
    STATUS_TRY(gguf_get_float(file, scale_key, &scale, &found, error));
    if (scale != 1)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is %g; only 1 works", gguf_path(file),
                           scale_key, scale);
    STATUS_TRY(gguf_get_bool(file, norm_key, &norm, &found, error));
    if (norm)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is true; only false works",
                           gguf_path(file), norm_key);
    return DSMOE_OK;
}

/* What the tensors tell. */
static void look_at_tensors(const gguf *file, dsmoe_config *config)
{
    gguf_place place;
    if (gguf_place_of("model.embed_tokens.weight", &place)) {
        const gguf_tensor *embedding = gguf_find(file, place.name);
        if (embedding && !has_integer(file, VOCAB_KEY)) config->vocab_size = embedding->shape[0];
    }
    if (gguf_place_of("lm_head.weight", &place) && !gguf_find(file, place.name))
        config->tie_word_embeddings = true;
    if (gguf_place_of("model.layers.0.self_attn.q_proj.bias", &place))
        config->attention_bias = gguf_find(file, place.name) != NULL;
}

dsmoe_status gguf_config_open(const char *path, dsmoe_config *config, dsmoe_error *error)
{
    gguf *file;
    STATUS_TRY(gguf_open(path, &file, error));
    dsmoe_status status = gguf_config_read(file, config, error);
    gguf_close(file);
    return status;
}

dsmoe_status gguf_generation_config_read(const gguf *file, const dsmoe_config *config,
                                         dsmoe_generation_config *out, dsmoe_error *error)
{
    gguf_string text = {"{}", 2};
    bool found;
    STATUS_TRY(gguf_get_string(file, "dsmoe.generation_config", &text, &found, error));
    dsmoe_error reason;
    dsmoe_status status = generation_config_parse(text.bytes, text.length,
                                                  "dsmoe.generation_config", config, out, &reason);
    if (status == DSMOE_OK) return status;
    return status_fail(error, status, "%s: %s", gguf_path(file), reason.message);
}

dsmoe_status gguf_config_read(const gguf *file, dsmoe_config *config, dsmoe_error *error)
{
    dsmoe_config read = config_default();
    STATUS_TRY(check_is_model(file, error));
    STATUS_TRY(check_architecture(file, error));
    STATUS_TRY(read_keys(file, &read, error));
    look_at_tensors(file, &read);
    if (!has_integer(file, KV_HEADS_KEY)) read.num_key_value_heads = read.num_attention_heads;
    if (!read.n_routed_experts) read.n_shared_experts = read.num_experts_per_tok = 0;
    STATUS_TRY(read_rope_scaling(file, &read, error));
    dsmoe_error reason;
    dsmoe_status status = config_check(&read, &reason);
    if (status != DSMOE_OK) return fail_with_keys(file, status, reason.message, error);
    STATUS_TRY(check_ids(file, &read, error));
    STATUS_TRY(check_fixed(file, &read, error));
    *config = read;
    return DSMOE_OK;
}

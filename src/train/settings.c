/* settings.c - the settings of a run: defaults, reading a file, and the allowed values. */
#include "train/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "formats/json.h"
#include "formats/json_write.h"
#include "formats/partial_file.h"
#include "text/unicode.h"
#include "train/settings_table.h"

enum { MAX_SIZE = 1 << 20 }; /* bytes of a settings file; a usual one has about two thousand */

enum { FIXED = false, CHANGES = true }; /* whether a run that has begun accepts another value */

#define AT(name) #name, offsetof(dsmoe_run_settings, name)
#define SIZE(name) sizeof((dsmoe_run_settings *)NULL)->name
#define INTEGER(name, low, high, change)                                                           \
    {                                                                                              \
        AT(name), SETTING_INTEGER, low, high, 0, 0, false, change                                  \
    }
#define NUMBER(name, low, high, change)                                                            \
    {                                                                                              \
        AT(name), SETTING_NUMBER, low, high, 0, 0, false, change                                   \
    }
/* A size of the model, named as in config.json; -1: as the configuration has it. */
#define MODEL(name, low, high)                                                                     \
    {                                                                                              \
#name, offsetof(dsmoe_run_settings, model.name), SETTING_INTEGER, low, high, 0, 0, true,   \
            FIXED                                                                                  \
    }
#define FLAG(name, change)                                                                         \
    {                                                                                              \
        AT(name), SETTING_FLAG, 0, 0, 0, 0, false, change                                          \
    }
#define TEXT(name, change)                                                                         \
    {                                                                                              \
        AT(name), SETTING_TEXT, 0, 0, SIZE(name), 1, false, change                                 \
    }
/* Settings that decide the shape of the model and the order of the data are fixed. The data can move but
 * must not change: the hash in the checkpoint would show it. */
const setting settings_table[] = {
    {AT(data), SETTING_TEXTS, 0, 0, DSMOE_PATH, DSMOE_MAX_DATA, false, CHANGES},
    {AT(eval_data), SETTING_TEXTS, 0, 0, DSMOE_PATH, DSMOE_MAX_DATA, false, CHANGES},
    TEXT(bad_bytes, FIXED),
    TEXT(chat_form, FIXED),
    TEXT(train_on, FIXED),
    TEXT(too_long, FIXED),
    FLAG(unpacked, FIXED),
    NUMBER(dpo_beta, 1e-6, 1000, CHANGES),
    TEXT(out, FIXED),
    TEXT(tokenizer, FIXED),
    TEXT(config, FIXED),
    TEXT(preset, FIXED),
    TEXT(init, FIXED),
    MODEL(num_hidden_layers, 1, 1 << 16),
    MODEL(hidden_size, 1, 1 << 24),
    MODEL(num_attention_heads, 1, 1 << 24),
    MODEL(num_key_value_heads, 1, 1 << 24),
    MODEL(moe_intermediate_size, 1, 1 << 24),
    MODEL(intermediate_size, 1, 1 << 24),
    MODEL(n_routed_experts, 0, 1 << 24),
    MODEL(n_shared_experts, 0, 1 << 24),
    MODEL(num_experts_per_tok, 1, 1 << 24),
    MODEL(first_k_dense_replace, 0, 1 << 24),
    MODEL(kv_lora_rank, 1, 1 << 24),
    MODEL(q_lora_rank, 0, 1 << 24),
    MODEL(qk_nope_head_dim, 1, 1 << 24),
    MODEL(qk_rope_head_dim, 2, 1 << 24),
    MODEL(v_head_dim, 1, 1 << 24),
    INTEGER(vocab_size, 0, 1 << 24, FIXED),
    INTEGER(steps, 1, 1000000000, CHANGES),
    INTEGER(batch, 1, 65536, CHANGES),
    INTEGER(seq, 1, 1 << 20, FIXED),
    INTEGER(accumulate, 1, 65536, CHANGES),
    NUMBER(lr, 0, 10, CHANGES),
    TEXT(schedule, CHANGES),
    {AT(warmup), SETTING_INTEGER, 0, 1000000000, 0, 0, true, CHANGES},
    NUMBER(weight_decay, 0, 0.999999, CHANGES),
    NUMBER(clip, 0, 1e6, CHANGES),
    NUMBER(beta1, 0, 0.999999, CHANGES),
    NUMBER(beta2, 0, 0.999999, CHANGES),
    NUMBER(eps, 1e-30, 1, CHANGES),
    {AT(aux_loss_alpha), SETTING_NUMBER, 0, 1000, 0, 0, true, CHANGES},
    INTEGER(device_groups, 0, 65536, CHANGES),
    NUMBER(device_loss_alpha, 0, 1000, CHANGES),
    NUMBER(bias_speed, 0, 10, CHANGES),
    {AT(init_std), SETTING_NUMBER, 0, 10, 0, 0, true, FIXED},
    FLAG(recompute, CHANGES),
    TEXT(train, FIXED),
    INTEGER(rank, 1, 256, FIXED),
    NUMBER(alpha, 1e-6, 1e6, FIXED),
    FLAG(rslora, FIXED),
    TEXT(targets, FIXED),
    TEXT(expert_score, FIXED),
    {AT(expert_share), SETTING_NUMBER, 0, 1, 0, 0, true, FIXED},
    TEXT(experts, FIXED),
    NUMBER(memory, 0, 1e6, CHANGES),
    INTEGER(seed, 0, 0x1p53, FIXED),
    NUMBER(held_out, 0, 0.9, FIXED),
    INTEGER(eval_every, 0, 1000000000, CHANGES),
    INTEGER(eval_sequences, 0, 1000000000, CHANGES),
    INTEGER(patience, 0, 1000000000, CHANGES),
    INTEGER(sample_every, 0, 1000000000, CHANGES),
    INTEGER(sample_tokens, 0, 1 << 20, CHANGES),
    TEXT(sample_prompt, CHANGES),
    INTEGER(save_every, 0, 1000000000, CHANGES),
    INTEGER(keep, 1, 1000000, CHANGES),
    TEXT(dtype, CHANGES),
    INTEGER(log_every, 1, 1000000000, CHANGES),
    INTEGER(report_every, 1, 1000000000, CHANGES),
};
enum { N_SETTINGS = sizeof settings_table / sizeof *settings_table };
const int settings_count = N_SETTINGS;

static const char *const schedules[] = {
    [DSMOE_SCHEDULE_STEP] = "step",
    [DSMOE_SCHEDULE_COSINE] = "cosine",
    [DSMOE_SCHEDULE_CONSTANT] = "constant",
};
enum { N_SCHEDULES = sizeof schedules / sizeof *schedules };

static const char *const trains[] = {
    [DSMOE_TRAIN_ALL] = "all",
    [DSMOE_TRAIN_EXPERTS] = "experts",
    [DSMOE_TRAIN_LORA] = "lora",
};
enum { N_TRAINS = sizeof trains / sizeof *trains };

dsmoe_run_settings dsmoe_run_settings_default(void)
{
    dsmoe_trainer_options trainer = dsmoe_trainer_options_default();
    return (dsmoe_run_settings){
        .model = dsmoe_model_sizes_default(),
        .bad_bytes = "replace",
        .train_on = "answers",
        .too_long = "cut",
        .dpo_beta = 0.1,
        .steps = 1000,
        .batch = trainer.n_sequences,
        .seq = trainer.sequence_length,
        .accumulate = 1,
        .lr = 1e-3,
        .schedule = "step",
        .warmup = -1,
        .weight_decay = trainer.weight_decay,
        .clip = trainer.clip_norm,
        .beta1 = trainer.beta1,
        .beta2 = trainer.beta2,
        .eps = trainer.eps,
        .aux_loss_alpha = -1,
        .device_loss_alpha = 0.05,
        .bias_speed = trainer.bias_speed,
        .init_std = -1,
        .train = "all",
        .rank = 16,
        .alpha = 32,
        .targets = "attention,shared,dense",
        .expert_score = "gate",
        .expert_share = -1,
        .held_out = 0.05,
        .eval_every = 100,
        .eval_sequences = 64,
        .sample_every = 250,
        .sample_tokens = 64,
        .save_every = 250,
        .keep = 2,
        .dtype = "f32",
        .log_every = 10,
        .report_every = 10,
    };
}

/* ---- checking -------------------------------------------------------------------------------- */

static double load_number(const setting *s, const dsmoe_run_settings *settings)
{
    const char *field = (const char *)settings + s->offset;
    return s->kind == SETTING_INTEGER ? (double)*(const int64_t *)field : *(const double *)field;
}

static dsmoe_status check_number(const setting *s, double value, const char *source,
                                 dsmoe_error *error)
{
    if (value >= s->min && value <= s->max) return DSMOE_OK; /* false for NaN */
    if (s->or_minus_one && value == -1) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is %.16g, outside %.16g to %.16g%s",
                       source, s->key, value, s->min, s->max, s->or_minus_one ? " and not -1" : "");
}

/* A text must end within its field, and must be UTF-8, as JSON is. */
static dsmoe_status check_text(const setting *s, const char *text, const char *source,
                               dsmoe_error *error)
{
    const char *end = memchr(text, '\0', s->size);
    if (!end)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s has more than %zu bytes", source,
                           s->key, s->size - 1);
    size_t length = (size_t)(end - text);
    if (unicode_valid_length(text, length) == length) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s is not UTF-8", source, s->key);
}

static dsmoe_status check_setting(const setting *s, const dsmoe_run_settings *settings,
                                  const char *source, dsmoe_error *error)
{
    const char *text = (const char *)settings + s->offset;
    switch (s->kind) {
    case SETTING_INTEGER:
    case SETTING_NUMBER: return check_number(s, load_number(s, settings), source, error);
    case SETTING_FLAG: return DSMOE_OK;
    case SETTING_TEXT:
    case SETTING_TEXTS:
        for (int i = 0; i < s->count; i++)
            STATUS_TRY(check_text(s, text + (size_t)i * s->size, source, error));
        return DSMOE_OK;
    }
    return DSMOE_OK;
}

/* Checks settings against each other. */
static dsmoe_status check_together(const dsmoe_run_settings *s, const char *source,
                                   dsmoe_error *error)
{
    if (!!*s->config + !!*s->preset + !!*s->init > 1)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: only one of config, preset and init can say what the model is",
                           source);
    int kind = 0;
    while (kind < N_SCHEDULES && strcmp(s->schedule, schedules[kind])) kind++;
    if (kind == N_SCHEDULES)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: schedule is '%s', not step, cosine or constant", source,
                           s->schedule);
    int train = 0;
    while (train < N_TRAINS && strcmp(s->train, trains[train])) train++;
    if (train == N_TRAINS)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: train is '%s', not all, experts or lora",
                           source, s->train);
    if (train != DSMOE_TRAIN_ALL && !*s->init)
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: train is %s, which needs a model to train: init", source, s->train);
    dsmoe_expert_score score;
    if (!dsmoe_expert_score_find(s->expert_score, &score))
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: expert_score is '%s', not gate or token",
                           source, s->expert_score);
    dsmoe_dtype dtype;
    if (!dtype_from_name(s->dtype, &dtype) || dtype_is_block(dtype))
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: dtype is '%s', not f32, f16 or bf16",
                           source, s->dtype);
    if (s->patience > 0 && (s->eval_every == 0 || !settings_holds_out(s)))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: patience counts evaluations, but eval_every or held_out is 0",
                           source);
    dsmoe_bad_bytes bad_bytes;
    if (!dsmoe_bad_bytes_find(s->bad_bytes, &bad_bytes))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: bad_bytes is '%s', not replace, keep or skip", source,
                           s->bad_bytes);
    if (strcmp(s->train_on, "answers") && strcmp(s->train_on, "all"))
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: train_on is '%s', not answers or all",
                           source, s->train_on);
    if (strcmp(s->too_long, "cut") && strcmp(s->too_long, "drop"))
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: too_long is '%s', not cut or drop",
                           source, s->too_long);
    int64_t n;
    if (!checked_mul_i64(s->steps * s->batch, s->accumulate, &n) || !checked_mul_i64(n, s->seq, &n))
        return status_fail(error, DSMOE_ERROR_CONFIG,
                           "%s: steps, batch, accumulate and seq make too many tokens", source);
    return DSMOE_OK;
}

dsmoe_status settings_check(const dsmoe_run_settings *settings, const char *source,
                            dsmoe_error *error)
{
    for (int i = 0; i < N_SETTINGS; i++)
        STATUS_TRY(check_setting(&settings_table[i], settings, source, error));
    return check_together(settings, source, error);
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct settings_reader {
    const char *path;
    dsmoe_run_settings *settings;
} settings_reader;

static dsmoe_status wrong_kind(const settings_reader *r, const setting *s, const char *wanted,
                               const json_node *value, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s must be %s, not %s", r->path, s->key,
                       wanted, json_kind_name(json_node_kind(value)));
}

static dsmoe_status read_text(const settings_reader *r, const setting *s, const json_node *value,
                              char *field, dsmoe_error *error)
{
    if (json_node_kind(value) != JSON_KIND_STRING)
        return wrong_kind(r, s, "a string", value, error);
    size_t length;
    const char *text = json_node_string(value, &length);
    if (length >= s->size)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s has %zu bytes, more than %zu",
                           r->path, s->key, length, s->size - 1);
    memset(field, 0, s->size);
    memcpy(field, text, length);
    return DSMOE_OK;
}

static dsmoe_status read_texts(const settings_reader *r, const setting *s, const json_node *value,
                               char *field, dsmoe_error *error)
{
    if (json_node_kind(value) != JSON_KIND_ARRAY)
        return wrong_kind(r, s, "an array of strings", value, error);
    size_t n = json_node_count(value);
    if (n > (size_t)s->count)
        return status_fail(error, DSMOE_ERROR_CONFIG, "%s: %s has %zu entries, more than %d",
                           r->path, s->key, n, s->count);
    memset(field, 0, (size_t)s->count * s->size);
    for (size_t i = 0; i < n; i++)
        STATUS_TRY(read_text(r, s, json_node_item(value, i), field + i * s->size, error));
    return DSMOE_OK;
}

static dsmoe_status read_setting(const settings_reader *r, const setting *s, const json_node *value,
                                 dsmoe_error *error)
{
    char *field = (char *)r->settings + s->offset;
    json_kind kind = json_node_kind(value);
    switch (s->kind) {
    case SETTING_INTEGER:
        if (kind != JSON_KIND_INTEGER) return wrong_kind(r, s, "an integer", value, error);
        *(int64_t *)field = json_node_integer(value);
        return DSMOE_OK;
    case SETTING_NUMBER:
        if (kind != JSON_KIND_INTEGER && kind != JSON_KIND_REAL)
            return wrong_kind(r, s, "a number", value, error);
        *(double *)field = json_node_number(value);
        return DSMOE_OK;
    case SETTING_FLAG:
        if (kind != JSON_KIND_BOOL) return wrong_kind(r, s, "true or false", value, error);
        *(bool *)field = json_node_bool(value);
        return DSMOE_OK;
    case SETTING_TEXT: return read_text(r, s, value, field, error);
    case SETTING_TEXTS: return read_texts(r, s, value, field, error);
    }
    return DSMOE_OK;
}

static dsmoe_status read_member(void *context, const char *key, const json_node *value,
                                dsmoe_error *error)
{
    const settings_reader *r = context;
    for (int i = 0; i < N_SETTINGS; i++)
        if (!strcmp(key, settings_table[i].key))
            return read_setting(r, &settings_table[i], value, error);
    return status_fail(error, DSMOE_ERROR_CONFIG, "%s: there is no setting '%.64s'", r->path, key);
}

/* Settings that the text does not name keep their values. On failure all do. */
static dsmoe_status read_root(const json_node *root, const char *source,
                              dsmoe_run_settings *settings, dsmoe_error *error)
{
    dsmoe_run_settings read = *settings;
    settings_reader reader = {source, &read};
    if (json_node_kind(root) != JSON_KIND_OBJECT)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: the top level must be an object, not %s",
                           source, json_kind_name(json_node_kind(root)));
    STATUS_TRY(json_node_each(root, read_member, &reader, error));
    STATUS_TRY(settings_check(&read, source, error));
    *settings = read;
    return DSMOE_OK;
}

dsmoe_status settings_parse(const char *text, size_t length, const char *source,
                            dsmoe_run_settings *settings, dsmoe_error *error)
{
    json_node *root;
    STATUS_TRY(json_node_parse(text, length, source, &root, error));
    dsmoe_status status = read_root(root, source, settings, error);
    json_node_free(root);
    return status;
}

dsmoe_status dsmoe_run_settings_read(const char *path, dsmoe_run_settings *settings,
                                     dsmoe_error *error)
{
    if (!path || !settings)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no path or no place for settings given");
    json_node *root;
    STATUS_TRY(json_node_read(path, MAX_SIZE, &root, error));
    dsmoe_status status = read_root(root, path, settings, error);
    json_node_free(root);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

void settings_put_value(FILE *text, const setting *s, const dsmoe_run_settings *settings)
{
    const char *field = (const char *)settings + s->offset;
    switch (s->kind) {
    case SETTING_INTEGER: fprintf(text, "%" PRId64, *(const int64_t *)field); break;
    case SETTING_NUMBER: json_write_number(text, *(const double *)field); break;
    case SETTING_FLAG: fputs(*(const bool *)field ? "true" : "false", text); break;
    case SETTING_TEXT: json_write_string(text, field); break;
    case SETTING_TEXTS:
        fputc('[', text);
        for (int i = 0; i < s->count && field[(size_t)i * s->size]; i++) {
            if (i) fputs(", ", text);
            json_write_string(text, field + (size_t)i * s->size);
        }
        fputc(']', text);
        break;
    }
}

static void put_all(FILE *text, const dsmoe_run_settings *settings, const char *between,
                    const char *end)
{
    fputc('{', text);
    for (int i = 0; i < N_SETTINGS; i++) {
        fprintf(text, "%s%s\"%s\": ", i ? "," : "", between, settings_table[i].key);
        settings_put_value(text, &settings_table[i], settings);
    }
    fprintf(text, "%s}", end);
}

void settings_put(FILE *text, const dsmoe_run_settings *settings)
{
    put_all(text, settings, "", "");
}

static void put_file(FILE *text, const void *context)
{
    put_all(text, context, "\n  ", "\n");
    fputc('\n', text);
}

dsmoe_status settings_write(const char *folder, const dsmoe_run_settings *settings,
                            dsmoe_error *error)
{
    return partial_file_write_text(folder, "settings.json", put_file, settings, error);
}

bool settings_holds_out(const dsmoe_run_settings *s) { return *s->eval_data[0] || s->held_out > 0; }

double settings_share(const dsmoe_run_settings *s) { return *s->eval_data[0] ? 0 : s->held_out; }

dsmoe_bad_bytes settings_bad_bytes(const dsmoe_run_settings *s)
{
    dsmoe_bad_bytes bad_bytes = DSMOE_BAD_BYTES_REPLACE;
    dsmoe_bad_bytes_find(s->bad_bytes, &bad_bytes);
    return bad_bytes;
}

dsmoe_schedule settings_schedule(const dsmoe_run_settings *s)
{
    dsmoe_schedule schedule = {.lr = s->lr, .n_steps = s->steps, .n_warmup = s->warmup};
    for (int i = 0; i < N_SCHEDULES; i++)
        if (!strcmp(s->schedule, schedules[i])) schedule.kind = (dsmoe_schedule_kind)i;
    int64_t twentieth = s->steps / 20;
    if (s->warmup < 0) schedule.n_warmup = twentieth < 2000 ? twentieth : 2000;
    return schedule;
}

dsmoe_dtype settings_dtype(const dsmoe_run_settings *s)
{
    dsmoe_dtype dtype = DSMOE_F32;
    dtype_from_name(s->dtype, &dtype);
    return dtype;
}

dsmoe_train_what settings_train(const dsmoe_run_settings *s)
{
    for (int i = 0; i < N_TRAINS; i++)
        if (!strcmp(s->train, trains[i])) return (dsmoe_train_what)i;
    return DSMOE_TRAIN_ALL;
}

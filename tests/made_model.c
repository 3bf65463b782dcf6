/* made_model.c - small models with random weights, in memory and as a folder. */
#include "made_model.h"

#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"
#include "formats/shards.h"
#include "support.h"

/* ---- numbers ------------------------------------------------------------------------------- */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Rounds to the nearest, ties to even. */
static uint16_t to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_f16(float value)
{
    uint16_t sign = (uint16_t)(bits_of(value) >> 16 & 0x8000);
    double size = fabs((double)value);
    if (isnan(value)) return (uint16_t)(sign | 0x7e00);
    if (size >= 65520) return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14) return (uint16_t)(sign | (uint16_t)lrint(size * 0x1p24)); /* subnormal */
    int exponent;
    double fraction = frexp(size, &exponent); /* in [0.5, 1) */
    long mantissa =
        lrint(fraction * 2048) - 1024; /* 1024 carries into the exponent, which is right */
    return (uint16_t)(sign | (uint16_t)(((exponent + 14) << 10) + mantissa));
}

static float from_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? mantissa * 0x1p-24
                                  : ldexp(1024 + mantissa, exponent - 25);
    return (float)(bits & 0x8000 ? -size : size);
}

static float round_to(float value, const char *dtype)
{
    if (!strcmp(dtype, "F16")) return from_f16(to_f16(value));
    if (strcmp(dtype, "BF16") != 0) return value;
    uint32_t bits = (uint32_t)to_bf16(value) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- the tensors --------------------------------------------------------------------------- */

dsmoe_config made_config(void)
{
    return (dsmoe_config){
        .vocab_size = 61,
        .hidden_size = 42,
        .intermediate_size = 51,
        .moe_intermediate_size = 13,
        .num_hidden_layers = 3,
        .num_attention_heads = 3,
        .num_key_value_heads = 3,
        .n_shared_experts = 2,
        .n_routed_experts = 7,
        .num_experts_per_tok = 3,
        .moe_layer_freq = 1,
        .first_k_dense_replace = 1,
        .max_position_embeddings = 512,
        .seq_aux = true,
        .aux_loss_alpha = 0.001,
        .initializer_range = 0.02,
        .rms_norm_eps = 1e-6,
        .rope_theta = 10000,
        .rope_scaling_factor = 1,
        .bos_token_id = 0,
        .eos_token_id = 1,
    };
}

dsmoe_config made_latent_config(void)
{
    dsmoe_config c = made_config();
    c.model_type = DSMOE_DEEPSEEK_V2;
    c.kv_lora_rank = 21;
    c.q_lora_rank = 18;
    c.qk_nope_head_dim = 9;
    c.qk_rope_head_dim = 6;
    c.v_head_dim = 11;
    c.routed_scaling_factor = 1;
    c.rope_scaling = DSMOE_ROPE_YARN;
    c.rope_scaling_factor = 8;
    c.original_max_position_embeddings = 64;
    c.beta_fast = 32;
    c.beta_slow = 1;
    c.mscale = 1;
    c.mscale_all_dim = 0.5;
    return c;
}

dsmoe_config made_v3_config(void)
{
    dsmoe_config c = made_latent_config();
    c.model_type = DSMOE_DEEPSEEK_V3;
    c.n_routed_experts = 12;
    c.scoring_func = DSMOE_SCORING_SIGMOID;
    c.topk_method = DSMOE_TOPK_NOAUX_TC;
    c.n_group = 4;
    c.topk_group = 2;
    c.norm_topk_prob = true;
    c.routed_scaling_factor = 2.5;
    return c;
}

static made_tensor *add(made_model *m, int n_dims, int64_t rows, int64_t columns, const char *name,
                        ...) __attribute__((format(printf, 5, 6)));

static made_tensor *add(made_model *m, int n_dims, int64_t rows, int64_t columns, const char *name,
                        ...)
{
    m->tensors = realloc(m->tensors, (size_t)(m->n_tensors + 1) * sizeof *m->tensors);
    assert_non_null(m->tensors);
    made_tensor *t = &m->tensors[m->n_tensors++];
    *t = (made_tensor){.n_dims = n_dims, .shape = {rows, columns}, .n = rows * columns};
    va_list arguments;
    va_start(arguments, name);
    vsnprintf(t->name, sizeof t->name, name, arguments);
    va_end(arguments);
    t->data = malloc((size_t)t->n * sizeof *t->data);
    assert_non_null(t->data);
    return t;
}

static void add_mlp(made_model *m, int layer, const char *which, int64_t width)
{
    int64_t hidden = m->config.hidden_size;
    add(m, 2, width, hidden, "model.layers.%d.mlp.%sgate_proj.weight", layer, which);
    add(m, 2, width, hidden, "model.layers.%d.mlp.%sup_proj.weight", layer, which);
    add(m, 2, hidden, width, "model.layers.%d.mlp.%sdown_proj.weight", layer, which);
}

static void add_latent_attention(made_model *m, int layer)
{
    const dsmoe_config *c = &m->config;
    int64_t hidden = c->hidden_size, heads = c->num_attention_heads, latent = c->kv_lora_rank;
    int64_t rope = c->qk_rope_head_dim, q = heads * (c->qk_nope_head_dim + rope);
    if (c->q_lora_rank > 0) {
        add(m, 2, c->q_lora_rank, hidden, "model.layers.%d.self_attn.q_a_proj.weight", layer);
        add(m, 1, c->q_lora_rank, 1, "model.layers.%d.self_attn.q_a_layernorm.weight", layer);
        add(m, 2, q, c->q_lora_rank, "model.layers.%d.self_attn.q_b_proj.weight", layer);
    } else {
        add(m, 2, q, hidden, "model.layers.%d.self_attn.q_proj.weight", layer);
    }
    add(m, 2, latent + rope, hidden, "model.layers.%d.self_attn.kv_a_proj_with_mqa.weight", layer);
    add(m, 1, latent, 1, "model.layers.%d.self_attn.kv_a_layernorm.weight", layer);
    add(m, 2, heads * (c->qk_nope_head_dim + c->v_head_dim), latent,
        "model.layers.%d.self_attn.kv_b_proj.weight", layer);
    add(m, 2, hidden, heads * c->v_head_dim, "model.layers.%d.self_attn.o_proj.weight", layer);
}

static void add_attention(made_model *m, int layer)
{
    const dsmoe_config *c = &m->config;
    int64_t hidden = c->hidden_size, kv = hidden / c->num_attention_heads * c->num_key_value_heads;
    for (const char *p = "qkvo"; *p; p++) {
        int64_t rows = *p == 'k' || *p == 'v' ? kv : hidden;
        add(m, 2, rows, hidden, "model.layers.%d.self_attn.%c_proj.weight", layer, *p);
        if (c->attention_bias)
            add(m, 1, rows, 1, "model.layers.%d.self_attn.%c_proj.bias", layer, *p);
    }
}

static void add_layer(made_model *m, int layer)
{
    const dsmoe_config *c = &m->config;
    int64_t hidden = c->hidden_size;
    add(m, 1, hidden, 1, "model.layers.%d.input_layernorm.weight", layer);
    add(m, 1, hidden, 1, "model.layers.%d.post_attention_layernorm.weight", layer);
    if (c->kv_lora_rank > 0)
        add_latent_attention(m, layer);
    else
        add_attention(m, layer);
    if (c->n_routed_experts == 0 || layer < c->first_k_dense_replace ||
        layer % c->moe_layer_freq != 0) {
        add_mlp(m, layer, "", c->intermediate_size);
        return;
    }
    add(m, 2, c->n_routed_experts, hidden, "model.layers.%d.mlp.gate.weight", layer);
    if (c->topk_method == DSMOE_TOPK_NOAUX_TC)
        add(m, 1, c->n_routed_experts, 1, "model.layers.%d.mlp.gate.e_score_correction_bias",
            layer);
    for (int e = 0; e < c->n_routed_experts; e++) {
        char which[32];
        snprintf(which, sizeof which, "experts.%d.", e);
        add_mlp(m, layer, which, c->moe_intermediate_size);
    }
    if (c->n_shared_experts > 0)
        add_mlp(m, layer, "shared_experts.", c->n_shared_experts * c->moe_intermediate_size);
}

static made_model make_tensors(const dsmoe_config *config)
{
    made_model m = {.config = *config};
    add(&m, 2, config->vocab_size, config->hidden_size, "model.embed_tokens.weight");
    for (int i = 0; i < config->num_hidden_layers; i++) add_layer(&m, i);
    add(&m, 1, config->hidden_size, 1, "model.norm.weight");
    if (!config->tie_word_embeddings)
        add(&m, 2, config->vocab_size, config->hidden_size, "lm_head.weight");
    return m;
}

made_model made_model_create(const dsmoe_config *config, const char *dtype, uint64_t seed)
{
    made_model m = make_tensors(config);
    for (int i = 0; i < m.n_tensors; i++) {
        made_tensor *t = &m.tensors[i];
        bool norm = strstr(t->name, "norm") != NULL;
        double deviation = t->n_dims == 2 ? 1.3 / sqrt((double)t->shape[1]) : 0.3;
        fill_random(t->data, t->n, seed * 1000 + (uint64_t)i, deviation);
        for (int64_t j = 0; j < t->n; j++) t->data[j] = round_to(t->data[j] + norm, dtype);
        t->dtype = dtype;
    }
    return m;
}

made_model made_model_read(const char *folder)
{
    char name[512];
    dsmoe_config config;
    dsmoe_error error = {0};
    shards *set;
    snprintf(name, sizeof name, "%s/config.json", folder);
    if (dsmoe_config_read(name, &config, &error) != DSMOE_OK) fail_msg("%s", error.message);
    if (shards_open(folder, &set, &error) != DSMOE_OK) fail_msg("%s", error.message);
    made_model m = make_tensors(&config);
    for (int i = 0; i < m.n_tensors; i++) {
        made_tensor *t = &m.tensors[i];
        const safetensors_tensor *stored = shards_find(set, t->name, NULL);
        if (!stored) fail_msg("no %s in %s", t->name, folder);
        assert_int_equal(stored->n_elements, t->n);
        assert_true(safetensors_tensor_read_f32(stored, 0, stored->n_elements, t->data));
        t->dtype = safetensors_dtype_name(stored->dtype);
    }
    shards_close(set);
    return m;
}

void made_model_free(made_model *m)
{
    for (int i = 0; i < m->n_tensors; i++) free(m->tensors[i].data);
    free(m->tensors);
    *m = (made_model){0};
}

made_tensor *made_model_find(const made_model *m, const char *name)
{
    for (int i = 0; i < m->n_tensors; i++)
        if (!strcmp(m->tensors[i].name, name)) return &m->tensors[i];
    fail_msg("the model has no %s", name);
    return NULL;
}

/* ---- the folder ---------------------------------------------------------------------------- */

static FILE *create_file(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    return file;
}

/* Keys that the paper's model does not have. */
static void write_latent_keys(const dsmoe_config *c, FILE *file)
{
    static const char *const methods[] = {"greedy", "group_limited_greedy", "noaux_tc"};
    fprintf(
        file,
        ",\"kv_lora_rank\":%d,\"qk_nope_head_dim\":%d,\"qk_rope_head_dim\":%d,\"v_head_dim\":%d,"
        "\"scoring_func\":\"%s\",\"topk_method\":\"%s\",\"routed_scaling_factor\":%.17g",
        (int)c->kv_lora_rank, (int)c->qk_nope_head_dim, (int)c->qk_rope_head_dim,
        (int)c->v_head_dim, c->scoring_func == DSMOE_SCORING_SIGMOID ? "sigmoid" : "softmax",
        methods[c->topk_method], c->routed_scaling_factor);
    if (c->q_lora_rank > 0)
        fprintf(file, ",\"q_lora_rank\":%d", (int)c->q_lora_rank);
    else
        fprintf(file, ",\"q_lora_rank\":null");
    if (c->n_group > 0)
        fprintf(file, ",\"n_group\":%d,\"topk_group\":%d", (int)c->n_group, (int)c->topk_group);
    else if (c->model_type == DSMOE_DEEPSEEK_V3) /* the default is 8 groups */
        fprintf(file, ",\"n_group\":1,\"topk_group\":1");
}

static void write_rope_scaling(const dsmoe_config *c, FILE *file)
{
    static const char *const types[] = {[DSMOE_ROPE_LINEAR] = "linear",
                                        [DSMOE_ROPE_DYNAMIC] = "dynamic",
                                        [DSMOE_ROPE_YARN] = "yarn"};
    fprintf(file, ",\"rope_scaling\":{\"type\":\"%s\",\"factor\":%.17g", types[c->rope_scaling],
            c->rope_scaling_factor);
    if (c->rope_scaling == DSMOE_ROPE_YARN)
        fprintf(file,
                ",\"original_max_position_embeddings\":%d,\"beta_fast\":%.17g,\"beta_slow\":%.17g,"
                "\"mscale\":%.17g,\"mscale_all_dim\":%.17g",
                (int)c->original_max_position_embeddings, c->beta_fast, c->beta_slow, c->mscale,
                c->mscale_all_dim);
    fprintf(file, "}");
}

static void write_config(const dsmoe_config *c, const char *folder)
{
    static const char *const families[][2] = {
        [DSMOE_DEEPSEEK] = {"DeepseekForCausalLM", "deepseek"},
        [DSMOE_DEEPSEEK_V2] = {"DeepseekV2ForCausalLM", "deepseek_v2"},
        [DSMOE_DEEPSEEK_V3] = {"DeepseekV3ForCausalLM", "deepseek_v3"},
    };
    FILE *file = create_file(folder, "config.json");
    fprintf(
        file,
        "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":%d,"
        "\"moe_intermediate_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
        "\"num_key_value_heads\":%d,\"moe_layer_freq\":%d,\"first_k_dense_replace\":%d,"
        "\"max_position_embeddings\":%d",
        families[c->model_type][0], families[c->model_type][1], (int)c->vocab_size,
        (int)c->hidden_size, (int)c->intermediate_size, (int)c->moe_intermediate_size,
        (int)c->num_hidden_layers, (int)c->num_attention_heads, (int)c->num_key_value_heads,
        (int)c->moe_layer_freq, (int)c->first_k_dense_replace, (int)c->max_position_embeddings);
    if (c->n_routed_experts > 0)
        fprintf(file, ",\"n_routed_experts\":%d,\"num_experts_per_tok\":%d,\"n_shared_experts\":%d",
                (int)c->n_routed_experts, (int)c->num_experts_per_tok, (int)c->n_shared_experts);
    if (c->rope_scaling != DSMOE_ROPE_NONE) write_rope_scaling(c, file);
    if (c->kv_lora_rank > 0) write_latent_keys(c, file);
    fprintf(file,
            ",\"norm_topk_prob\":%s,\"attention_bias\":%s,\"tie_word_embeddings\":%s,"
            "\"seq_aux\":%s,\"aux_loss_alpha\":%.17g,\"rms_norm_eps\":%.17g,"
            "\"rope_theta\":%.17g}\n",
            c->norm_topk_prob ? "true" : "false", c->attention_bias ? "true" : "false",
            c->tie_word_embeddings ? "true" : "false", c->seq_aux ? "true" : "false",
            c->aux_loss_alpha, c->rms_norm_eps, c->rope_theta);
    assert_int_equal(fclose(file), 0);
}

static size_t element_size(const char *dtype)
{
    if (!strcmp(dtype, "F64")) return 8;
    return !strcmp(dtype, "F16") || !strcmp(dtype, "BF16") ? 2 : 4;
}

static void write_element(FILE *file, float value, const char *dtype)
{
    union {
        float f32;
        double f64;
        uint16_t half;
        int32_t i32;
    } out;
    if (!strcmp(dtype, "F64"))
        out.f64 = value;
    else if (!strcmp(dtype, "F16"))
        out.half = to_f16(value);
    else if (!strcmp(dtype, "BF16"))
        out.half = to_bf16(value);
    else if (!strcmp(dtype, "I32"))
        out.i32 = (int32_t)value;
    else
        out.f32 = value;
    fwrite(&out, element_size(dtype), 1, file);
}

static void write_header(const made_model *m, FILE *header)
{
    size_t begin = 0;
    const char *separator = "{";
    for (int i = 0; i < m->n_tensors; i++) {
        const made_tensor *t = &m->tensors[i];
        if (t->left_out) continue;
        size_t end = begin + (size_t)t->n * element_size(t->dtype);
        fprintf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld", separator, t->name, t->dtype,
                (long long)t->shape[0]);
        if (t->n_dims == 2) fprintf(header, ",%lld", (long long)t->shape[1]);
        fprintf(header, "],\"data_offsets\":[%zu,%zu]}", begin, end);
        begin = end;
        separator = ",";
    }
    fputc('}', header);
}

void made_model_write(const made_model *m, const char *folder, bool odd)
{
    char *header;
    size_t size;
    FILE *stream = open_memstream(&header, &size);
    assert_non_null(stream);
    write_header(m, stream);
    while (ftell(stream) % 8 != (odd ? 3 : 0)) fputc(' ', stream);
    assert_int_equal(fclose(stream), 0);

    write_config(&m->config, folder);
    FILE *file = create_file(folder, "model.safetensors");
    for (int i = 0; i < 8; i++) fputc((int)(size >> (8 * i) & 255), file);
    fwrite(header, 1, size, file);
    for (int i = 0; i < m->n_tensors; i++) {
        const made_tensor *t = &m->tensors[i];
        for (int64_t j = 0; j < t->n && !t->left_out; j++)
            write_element(file, t->data[j], t->dtype);
    }
    assert_int_equal(ferror(file), 0);
    assert_int_equal(fclose(file), 0);
    free(header);
}

void made_model_remove(const char *folder)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
}

/* ---- using the model ----------------------------------------------------------------------- */

void must(dsmoe_status status, const dsmoe_error *error, const char *what)
{
    if (status != DSMOE_OK) fail_msg("%s: %s", what, error->message);
}

dsmoe_model *open_model(const char *folder)
{
    dsmoe_error error = {0};
    dsmoe_model *model;
    must(dsmoe_model_open(folder, &model, &error), &error, "opening");
    return model;
}

dsmoe_sequence *make_sequence(const dsmoe_model *model, int64_t n_ctx, int64_t n_batch,
                              int n_threads)
{
    dsmoe_error error = {0};
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    dsmoe_engine_options options = {.n_ctx = n_ctx, .n_batch = n_batch, .n_threads = n_threads};
    must(dsmoe_engine_create(model, &options, &engine, &error), &error, "an engine");
    must(dsmoe_sequence_create(engine, &sequence, &error), &error, "a sequence");
    return sequence;
}

void free_sequence(dsmoe_sequence *sequence) { dsmoe_engine_free(dsmoe_sequence_engine(sequence)); }

void prefill(dsmoe_sequence *sequence, const int32_t *tokens, int64_t n, float *logits)
{
    dsmoe_error error = {0};
    must(dsmoe_sequence_append(sequence, tokens, n, logits, &error), &error, "prefill");
}

void decode(dsmoe_sequence *sequence, int32_t token, float *logits)
{
    dsmoe_error error = {0};
    must(dsmoe_sequence_append(sequence, &token, 1, logits, &error), &error, "decode");
}

void rewind_to(dsmoe_sequence *sequence, int64_t length)
{
    dsmoe_error error = {0};
    must(dsmoe_sequence_rewind(sequence, length, &error), &error, "rewind");
    assert_int_equal(dsmoe_sequence_length(sequence), length);
}

void assert_same_bits(const float *a, const float *b, size_t n, const char *what)
{
    if (memcmp(a, b, n * sizeof *a) != 0) fail_msg("%s: other bits", what);
}

void made_tokens(const made_model *m, int32_t *tokens, int64_t n, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 12345;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((state >> 33) % (uint64_t)m->config.vocab_size);
    }
}

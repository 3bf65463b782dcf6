/* made_adapter.c - LoRA adapters with random numbers. */
#include "made_adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static bool has_word(const char *name, const char *const *words, int n_words)
{
    for (int i = 0; i < n_words; i++)
        if (strstr(name, words[i])) return true;
    return false;
}

static made_pair pair_of(const made_tensor *t, int64_t rank, double scale, bool zeros,
                         uint64_t seed)
{
    made_pair p = {.rank = rank, .n_out = t->shape[0], .n_in = t->shape[1], .scale = scale};
    snprintf(p.module, sizeof p.module, "%.*s", (int)strlen(t->name) - 7, t->name);
    p.a = calloc((size_t)(rank * p.n_in), sizeof *p.a);
    p.b = calloc((size_t)(p.n_out * rank), sizeof *p.b);
    assert_true(p.a && p.b);
    fill_random(p.a, rank * p.n_in, seed, 0.3);
    if (!zeros) fill_random(p.b, p.n_out * rank, seed + 1, 0.3);
    return p;
}

made_adapter made_adapter_create(const made_model *model, const char *const *words, int n_words,
                                 int64_t rank, double scale, bool zeros, uint64_t seed)
{
    made_adapter made = {.pairs = calloc((size_t)model->n_tensors, sizeof *made.pairs)};
    assert_non_null(made.pairs);
    for (int i = 0; i < model->n_tensors; i++) {
        const made_tensor *t = &model->tensors[i];
        if (t->n_dims == 2 && has_word(t->name, words, n_words))
            made.pairs[made.n_pairs++] =
                pair_of(t, rank, scale, zeros, seed * 1000 + 2 * (uint64_t)i);
    }
    assert_true(made.n_pairs > 0);
    return made;
}

void made_adapter_free(made_adapter *adapter)
{
    for (int i = 0; i < adapter->n_pairs; i++) {
        free(adapter->pairs[i].a);
        free(adapter->pairs[i].b);
    }
    free(adapter->pairs);
    *adapter = (made_adapter){0};
}

static FILE *create_file(const char *folder, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    return file;
}

static size_t put_entry(FILE *header, const made_pair *p, bool is_a, size_t at)
{
    size_t size = (size_t)(p->rank * (is_a ? p->n_in : p->n_out)) * sizeof(float);
    fprintf(header,
            "%s\"base_model.model.%s.lora_%c.weight\":{\"dtype\":\"F32\",\"shape\":[%lld,%lld],"
            "\"data_offsets\":[%zu,%zu]}",
            at ? "," : "", p->module, is_a ? 'A' : 'B', (long long)(is_a ? p->rank : p->n_out),
            (long long)(is_a ? p->n_in : p->rank), at, at + size);
    return at + size;
}

static void write_weights(const made_adapter *adapter, const char *folder)
{
    char *text = NULL;
    size_t length = 0, at = 0;
    FILE *header = open_memstream(&text, &length);
    fputc('{', header);
    for (int i = 0; i < adapter->n_pairs; i++) {
        if (adapter->pairs[i].a) at = put_entry(header, &adapter->pairs[i], true, at);
        if (adapter->pairs[i].b) at = put_entry(header, &adapter->pairs[i], false, at);
    }
    fputc('}', header);
    fclose(header);
    FILE *file = create_file(folder, "adapter_model.safetensors");
    uint64_t n = length;
    fwrite(&n, sizeof n, 1, file);
    fwrite(text, 1, length, file);
    for (int i = 0; i < adapter->n_pairs; i++) {
        const made_pair *p = &adapter->pairs[i];
        if (p->a) fwrite(p->a, sizeof *p->a, (size_t)(p->rank * p->n_in), file);
        if (p->b) fwrite(p->b, sizeof *p->b, (size_t)(p->n_out * p->rank), file);
    }
    assert_int_equal(fclose(file), 0);
    free(text);
}

void made_adapter_write(const made_adapter *adapter, const char *folder, const char *config)
{
    const made_pair *first = &adapter->pairs[0];
    FILE *file = create_file(folder, "adapter_config.json");
    if (config)
        fputs(config, file);
    else
        fprintf(
            file,
            "{\"peft_type\": \"LORA\", \"task_type\": \"CAUSAL_LM\", \"bias\": \"none\", \"r\": "
            "%lld, \"lora_alpha\": %.17g, \"target_modules\": null, \"use_dora\": false}",
            (long long)first->rank, first->scale * (double)first->rank);
    assert_int_equal(fclose(file), 0);
    write_weights(adapter, folder);
}

void made_adapter_merge(const made_adapter *adapter, made_model *model, double factor)
{
    for (int i = 0; i < adapter->n_pairs; i++) {
        const made_pair *p = &adapter->pairs[i];
        char name[128];
        snprintf(name, sizeof name, "%s.weight", p->module);
        float *w = made_model_find(model, name)->data;
        for (int64_t row = 0; row < p->n_out; row++)
            for (int64_t column = 0; column < p->n_in; column++) {
                double sum = 0;
                for (int64_t r = 0; r < p->rank; r++)
                    sum += (double)p->b[row * p->rank + r] * p->a[r * p->n_in + column];
                float *at = &w[row * p->n_in + column];
                *at = (float)(*at + factor * p->scale * sum);
            }
    }
}

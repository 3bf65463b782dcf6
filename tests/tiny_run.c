/* tiny_run.c - the smallest model, a text for it, and runs of it. */
#include "tiny_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/config_write.h"

dsmoe_config tiny_config(void)
{
    return (dsmoe_config){
        .vocab_size = 320,
        .hidden_size = 16,
        .intermediate_size = 24,
        .moe_intermediate_size = 8,
        .num_hidden_layers = 2,
        .num_attention_heads = 2,
        .num_key_value_heads = 2,
        .n_shared_experts = 1,
        .n_routed_experts = 4,
        .num_experts_per_tok = 2,
        .moe_layer_freq = 1,
        .first_k_dense_replace = 1,
        .max_position_embeddings = 64,
        .seq_aux = true,
        .aux_loss_alpha = 0.01,
        .initializer_range = 0.02,
        .rms_norm_eps = 1e-6,
        .rope_theta = 10000,
        .rope_scaling_factor = 1,
        .bos_token_id = -1,
        .eos_token_id = -1,
    };
}

/* ---- files ----------------------------------------------------------------------------------- */

const char *tiny_path(const char *folder, const char *name)
{
    static char paths[8][TINY_PATH];
    static int turn;
    char *path = paths[turn++ % 8];
    int length = snprintf(path, TINY_PATH, "%s/%s", folder, name);
    assert_true(length > 0 && length < TINY_PATH);
    return path;
}

bool tiny_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

void tiny_remove(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

char *tiny_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s: cannot be opened", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = '\0';
    fclose(file);
    return bytes;
}

void tiny_assert_same(const char *a, const char *b)
{
    size_t n, m;
    char *x = tiny_read(a, &n), *y = tiny_read(b, &m);
    if (n != m || memcmp(x, y, n)) fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

static FILE *create(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) fail_msg("%s: cannot be created", path);
    return file;
}

void tiny_write_text(const char *folder)
{
    char text[TINY_PATH];
    snprintf(text, sizeof text, "%s", tiny_path(folder, "text"));
    assert_int_equal(mkdir(text, 0777), 0);
    FILE *sums = create(tiny_path(text, "sums.txt")), *names = create(tiny_path(text, "names.txt"));
    static const char *const who[] = {"Anna", "Boris", "Clara", "Dmitri", "Emma"};
    static const char *const what[] = {"reads", "sleeps", "writes a letter", "goes home"};
    for (unsigned i = 0; i < 120; i++) {
        unsigned a = i * 7 % 50, b = i * 13 % 41;
        fprintf(sums, "%u + %u = %u\n", a, b, a + b);
        fprintf(names, "%s %s.\n", who[i * 3 % 5], what[i * 5 % 4]);
    }
    assert_int_equal(fclose(sums), 0);
    assert_int_equal(fclose(names), 0);
}

void tiny_write_config(const char *folder)
{
    dsmoe_config config = tiny_config();
    dsmoe_error error;
    if (config_write(folder, &config, DSMOE_F32, &error)) fail_msg("%s", error.message);
}

dsmoe_run_settings tiny_settings(const char *folder, const char *name)
{
    dsmoe_run_settings s = dsmoe_run_settings_default();
    snprintf(s.data[0], sizeof s.data[0], "%s/text", folder);
    snprintf(s.config, sizeof s.config, "%s/config.json", folder);
    snprintf(s.out, sizeof s.out, "%s/%s", folder, name);
    s.vocab_size = 300;
    s.steps = 6;
    s.batch = 2;
    s.seq = 16;
    s.lr = 0.01;
    s.eval_every = 2;
    s.eval_sequences = 3;
    s.sample_every = 3;
    s.sample_tokens = 5;
    s.save_every = 2;
    s.log_every = 1;
    s.report_every = 4;
    return s;
}

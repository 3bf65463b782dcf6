/* conversions.c - what the tests of conversions share. */
#include "conversions.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "made_model.h"
#include "scratch.h"
#include "support.h"
#include "tiny_run.h"

const char *in(const char *name) { return tiny_path(directory, name); }

dsmoe_config small(void)
{
    dsmoe_config config;
    assert_int_equal(dsmoe_config_preset("tiny", &config, NULL), DSMOE_OK);
    config.vocab_size = 301;
    config.hidden_size = 64;
    config.intermediate_size = 96;
    config.moe_intermediate_size = 32;
    config.num_hidden_layers = 3;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.n_routed_experts = 5;
    config.n_shared_experts = 2;
    config.num_experts_per_tok = 3;
    config.first_k_dense_replace = 1;
    config.max_position_embeddings = 123;
    config.aux_loss_alpha = 0.003;
    config.seq_aux = false;
    config.initializer_range = 0.07;
    config.rms_norm_eps = 1e-5;
    config.rope_theta = 12345;
    config.rope_scaling = DSMOE_ROPE_LINEAR;
    config.rope_scaling_factor = 2.5;
    config.bos_token_id = 7;
    config.eos_token_id = 9;
    return config;
}

dsmoe_config blocky(void)
{
    dsmoe_config config = small();
    config.hidden_size = 256;
    config.intermediate_size = 40;
    config.moe_intermediate_size = 96;
    config.n_shared_experts = 3;
    return config;
}

void init(const char *folder, const dsmoe_config *config, dsmoe_dtype dtype)
{
    dsmoe_error error = {0};
    must(dsmoe_model_init(folder, config, dtype, 5, 2, NULL, NULL, &error), &error, folder);
}

void convert(const char *from, const char *to, const char *type)
{
    dsmoe_error error = {0};
    dsmoe_convert_options options = {.type = type, .n_threads = 2};
    must(dsmoe_convert(from, to, &options, &error), &error, to);
}

int count_files(void)
{
    DIR *list = opendir(directory);
    assert_non_null(list);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(list));) n += entry->d_name[0] != '.';
    closedir(list);
    return n;
}

void remove_all(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) tiny_remove(in(names[i]));
    assert_int_equal(count_files(), 0);
}
void copy_file(const char *from, const char *to)
{
    size_t size;
    char *bytes = tiny_read(from, &size);
    write_to(to, bytes, size);
    free(bytes);
}

int clean_up(void **state)
{
    (void)state;
    tiny_remove(directory);
    return 0;
}

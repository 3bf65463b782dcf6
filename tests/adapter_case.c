/* adapter_case.c - base models and adapters in the scratch folder. */
#include "adapter_case.h"

made_model base_folder(const char *name)
{
    dsmoe_config config = made_config();
    made_model made = made_model_create(&config, "F32", 5);
    make_folder(name);
    made_model_write(&made, in_directory(name), false);
    return made;
}

dsmoe_adapter *open_adapter(const char *name, const dsmoe_model *model)
{
    dsmoe_adapter *lora;
    dsmoe_error error = {0};
    must(dsmoe_adapter_open(in_directory(name), model, &lora, &error), &error, name);
    return lora;
}

dsmoe_engine *open_engine(const dsmoe_model *model, dsmoe_adapter *const *adapters, int n,
                          const double *scales)
{
    dsmoe_engine *engine;
    dsmoe_error error = {0};
    dsmoe_engine_options options = {.n_ctx = 256,
                                    .n_sequences = 4,
                                    .n_batch = 33,
                                    .n_threads = 2,
                                    .adapters = (const dsmoe_adapter *const *)adapters,
                                    .adapter_scales = scales,
                                    .n_adapters = n};
    must(dsmoe_engine_create(model, &options, &engine, &error), &error, "an engine");
    return engine;
}

/* Logits after some tokens: a prompt in pieces, then a single token. */
static floats logits_of(const dsmoe_model *model, dsmoe_adapter *lora, double factor)
{
    floats out = floats_make(dsmoe_model_config(model)->vocab_size, 0);
    int32_t tokens[N_TOKENS];
    dsmoe_error error = {0};
    dsmoe_sequence *sequence;
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = (i * 17 + 3) % 61;
    dsmoe_engine *engine = open_engine(model, &lora, lora ? 1 : 0, &factor);
    must(dsmoe_sequence_create(engine, &sequence, &error), &error, "a sequence");
    prefill(sequence, tokens, N_TOKENS - 1, NULL);
    decode(sequence, tokens[N_TOKENS - 1], out.at);
    dsmoe_engine_free(engine);
    return out;
}

double distance(floats a, floats b) { return worst_distance(a.at, b.at, a.n); }

floats run(const char *model_name, const char *adapter_name, double factor)
{
    dsmoe_model *model = open_model(in_directory(model_name));
    dsmoe_adapter *lora = adapter_name ? open_adapter(adapter_name, model) : NULL;
    floats out = logits_of(model, lora, factor);
    dsmoe_adapter_free(lora);
    dsmoe_model_free(model);
    return out;
}

void convert_to(const char *from, const char *to, const char *type)
{
    dsmoe_error error = {0};
    dsmoe_convert_options options = {.type = type, .n_threads = 2};
    must(dsmoe_convert(in_directory(from), in_directory(to), &options, &error), &error, "convert");
}

void merge_to(const char *base, const char *change, double factor, const char *to, const char *type)
{
    dsmoe_error error = {0};
    dsmoe_convert_options options = {.type = type, .n_threads = 2};
    must(dsmoe_merge(in_directory(base), in_directory(change), factor, in_directory(to), &options,
                     &error),
         &error, "merge");
}

void convert_adapter(const char *base, const char *from, const char *to)
{
    dsmoe_error error = {0};
    dsmoe_model *model = open_model(in_directory(base));
    dsmoe_adapter *lora = open_adapter(from, model);
    must(dsmoe_adapter_write(lora, in_directory(to), false, &error), &error, "an adapter");
    dsmoe_adapter_free(lora);
    dsmoe_model_free(model);
}

made_adapter adapter_folder(const char *name, const made_model *base, const char *word, bool zeros,
                            uint64_t seed)
{
    made_adapter made = made_adapter_create(base, &word, 1, RANK, scale, zeros, seed);
    make_folder(name);
    made_adapter_write(&made, in_directory(name), NULL);
    return made;
}

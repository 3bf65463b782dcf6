/* generate.c - the smallest program that continues a text: generate DIR TEXT [N_TOKENS] */
#include <dsmoe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(dsmoe_status status, const dsmoe_error *error)
{
    if (status == DSMOE_OK) return;
    fprintf(stderr, "%s\n", error->message);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s DIR TEXT [N_TOKENS]\n", argv[0]);
        return 2;
    }
    int n_tokens = argc > 3 ? atoi(argv[3]) : 64;
    dsmoe_error error;
    dsmoe_model *model;
    dsmoe_tokenizer *tokenizer;
    dsmoe_engine *engine;
    dsmoe_sequence *sequence;
    dsmoe_sampler *sampler;
    must(dsmoe_model_open(argv[1], &model, &error), &error);
    must(dsmoe_tokenizer_open(argv[1], &tokenizer, &error), &error);
    must(dsmoe_engine_create(model, NULL, &engine, &error), &error);
    must(dsmoe_sequence_create(engine, &sequence, &error), &error);
    dsmoe_sampler_options options = dsmoe_sampler_options_default();
    options.seed = 1;
    must(dsmoe_sampler_create(&options, dsmoe_tokenizer_size(tokenizer), &sampler, &error), &error);

    int32_t *ids, token;
    size_t n_ids, length;
    float *logits = malloc((size_t)dsmoe_model_config(model)->vocab_size * sizeof *logits);
    if (!logits) return 1;
    must(dsmoe_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), DSMOE_ENCODE_BOS, &ids, &n_ids,
                                &error),
         &error);
    must(dsmoe_sequence_append(sequence, ids, (int64_t)n_ids, logits, &error), &error);
    for (int i = 0; i < n_tokens; i++) {
        must(dsmoe_sampler_pick(sampler, logits, &token, &error), &error);
        if (token == dsmoe_tokenizer_eos(tokenizer)) break;
        const char *piece = dsmoe_tokenizer_piece(tokenizer, token, &length);
        if (piece) fwrite(piece, 1, length, stdout);
        fflush(stdout);
        must(dsmoe_sequence_append(sequence, &token, 1, logits, &error), &error);
    }
    putchar('\n');
    free(ids);
    free(logits);
    dsmoe_sampler_free(sampler);
    dsmoe_engine_free(engine);
    dsmoe_tokenizer_free(tokenizer);
    dsmoe_model_free(model);
    return 0;
}

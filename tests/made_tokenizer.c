/* made_tokenizer.c - small tokenizers in a GGUF file, right or wrong. */
#include "made_tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "scratch.h"

void must_work(dsmoe_status status, const dsmoe_error *error)
{
    if (status != DSMOE_OK) fail_msg("%s", error->message);
}

gguf_writer *begin_file(void)
{
    dsmoe_error error;
    gguf_writer *writer;
    remove(path);
    must_work(gguf_writer_create(path, &writer, &error), &error);
    return writer;
}

void end_file(gguf_writer *writer)
{
    dsmoe_error error;
    must_work(gguf_writer_finish(writer, &error), &error);
}

dsmoe_tokenizer *open_tokenizer(const char *from)
{
    dsmoe_error error;
    dsmoe_tokenizer *tokenizer;
    must_work(dsmoe_tokenizer_open(from, &tokenizer, &error), &error);
    return tokenizer;
}

const char *const made_tokens_list[MADE_TOKENS + 1] = {"a",   "b",    "c", "ab",     "Ġ",
                                                       "<s>", "</s>", "ø", "[PAD8]", NULL};
static const int32_t types[MADE_TOKENS] = {1, 1, 1, 1, 1, 3, 3, 4, 5};
static const char *const some_merges[] = {"a b", NULL};

made_tokenizer plain_tokenizer(void)
{
    return (made_tokenizer){.tokens = made_tokens_list,
                            .types = types,
                            .n_types = MADE_TOKENS,
                            .merges = some_merges,
                            .model = "gpt2",
                            .pre = "deepseek-llm",
                            .bos = 5,
                            .eos = 6,
                            .padding = -1,
                            .has_add_bos = true,
                            .add_bos = true};
}

void put_strings(gguf_writer *w, const char *key, const char *const *list, gguf_string odd)
{
    gguf_string strings[64];
    size_t n = 0;
    for (; list[n]; n++) strings[n] = (gguf_string){list[n], strlen(list[n])};
    if (odd.bytes) strings[1] = odd;
    gguf_writer_strings(w, key, strings, n);
}

void put_text(gguf_writer *w, const char *key, const char *text)
{
    if (text) gguf_writer_string(w, key, text, strlen(text));
}

static void put_id(gguf_writer *w, const char *key, int64_t id)
{
    if (id >= 0) gguf_writer_u32(w, key, (uint32_t)id);
}

void write_made(const made_tokenizer *m)
{
    static const char *const words[] = {"1", "2", NULL};
    static const int32_t numbers[] = {1, 2, 3};
    gguf_writer *w = begin_file();
    put_text(w, "tokenizer.ggml.model", m->model);
    put_text(w, "tokenizer.ggml.pre", m->pre);
    if (m->tokens_are_numbers)
        gguf_writer_i32_array(w, "tokenizer.ggml.tokens", numbers, COUNT(numbers));
    else if (m->tokens)
        put_strings(w, "tokenizer.ggml.tokens", m->tokens, m->odd);
    if (m->types_are_strings)
        put_strings(w, "tokenizer.ggml.token_type", words, (gguf_string){0});
    else if (m->types)
        gguf_writer_i32_array(w, "tokenizer.ggml.token_type", m->types, m->n_types);
    if (m->merges_are_numbers)
        gguf_writer_i32_array(w, "tokenizer.ggml.merges", numbers, COUNT(numbers));
    else if (m->merges)
        put_strings(w, "tokenizer.ggml.merges", m->merges, (gguf_string){0});
    put_id(w, "tokenizer.ggml.bos_token_id", m->bos);
    put_id(w, "tokenizer.ggml.eos_token_id", m->eos);
    put_id(w, "tokenizer.ggml.padding_token_id", m->padding);
    if (m->has_add_bos) gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", m->add_bos);
    if (m->add_eos) gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", true);
    put_text(w, "tokenizer.chat_template", m->chat_template);
    put_text(w, "tokenizer.huggingface.json", m->json);
    end_file(w);
}

dsmoe_tokenizer *open_made(const made_tokenizer *m)
{
    write_made(m);
    return open_tokenizer(path);
}

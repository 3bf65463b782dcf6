/* fuzz_gguf.c - any bytes as a GGUF file: refused, or everything in it can be used. The model and the
 * tokenizer that its metadata describes are refused or read as well. */
#include "fuzz.h"

#include <string.h>

#include "formats/gguf.h"
#include "model/gguf_config.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"

/* Values that were read end up here, so that the compiler does not remove the reads. */
static volatile unsigned sink;

static const uint8_t *begin, *end; /* of the input */

static void use_bytes(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    require(size == 0 || (at >= begin && at < end && size <= (size_t)(end - at)));
    for (size_t i = 0; i < size; i++) sink += at[i];
}

static void use_tensor(const gguf *file, const gguf_tensor *tensor)
{
    require(gguf_find(file, tensor->name) == tensor);
    require(strcmp(gguf_tensor_path(file, tensor), "fuzz") == 0);
    size_t length = strlen(tensor->name);
    require(length >= 1 && length < 64);
    require(tensor->n_dims >= 1 && tensor->n_dims <= GGUF_MAX_DIMS);
    int64_t numbers = 1;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) {
        require(tensor->shape[i] >= 1 && (i < tensor->n_dims || tensor->shape[i] == 1));
        require(!__builtin_mul_overflow(numbers, tensor->shape[i], &numbers));
    }
    require(tensor->shape[tensor->n_dims - 1] % dtype_table[tensor->type].block == 0);
    require((size_t)dtype_bytes(tensor->type, numbers) == tensor->size && tensor->size > 0);
    use_bytes(tensor->data, tensor->size);
}

/* At most one of the typed getters finds a value. */
static void use_key(const gguf *file, const char *key)
{
    bool found = false;
    int64_t integer;
    double real;
    bool truth;
    gguf_string string;
    gguf_array array;
    int answers = 0;
    answers += gguf_get_int(file, key, &integer, &found, NULL) == DSMOE_OK;
    if (!found) return;
    answers += gguf_get_float(file, key, &real, &found, NULL) == DSMOE_OK;
    answers += gguf_get_bool(file, key, &truth, &found, NULL) == DSMOE_OK;
    if (gguf_get_string(file, key, &string, &found, NULL) == DSMOE_OK) {
        use_bytes(string.bytes, string.length);
        answers++;
    }
    for (int type = GGUF_U8; type <= GGUF_F64; type++) {
        if (gguf_get_array(file, key, (gguf_type)type, &array, &found, NULL) != DSMOE_OK) continue;
        require(type != GGUF_ARRAY);
        answers++;
        const unsigned char *at = array.at;
        for (size_t i = 0; i < array.count; i++) {
            if (type == GGUF_I32) sink += (unsigned)gguf_array_i32(&array, i);
            if (type != GGUF_STRING) continue;
            string = gguf_next_string(&at);
            use_bytes(string.bytes, string.length);
        }
    }
    require(answers <= 1);
}

static void use_model(const gguf *file)
{
    dsmoe_config config;
    dsmoe_generation_config generation;
    dsmoe_error error = {0};
    dsmoe_status status = gguf_config_read(file, &config, &error);
    if (status != DSMOE_OK) {
        require_error(status, &error);
        return;
    }
    status = gguf_generation_config_read(file, &config, &generation, &error);
    if (status != DSMOE_OK) require_error(status, &error);
}

static void use_tokenizer(const gguf *file)
{
    gguf_tokenizer_text made = {0};
    dsmoe_tokenizer *tokenizer = NULL;
    dsmoe_error error = {0};
    dsmoe_status status = gguf_tokenizer_text_make(file, &made, &error);
    if (status == DSMOE_OK) {
        tokenizer_text text = {made.json, made.json_length, "json"},
                       config = {made.config, made.config_length, "config"};
        status = tokenizer_parse(&text, made.config ? &config : NULL, &tokenizer, &error);
    }
    if (status != DSMOE_OK) require_error(status, &error);
    dsmoe_tokenizer_free(tokenizer);
    gguf_tokenizer_text_free(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const keys[] = {
        "general.architecture", "general.alignment", "strings", "i32s", "bools", "k"};
    begin = bytes;
    end = bytes + size;
    gguf *file;
    dsmoe_error error = {0};
    dsmoe_status status = gguf_parse(bytes, size, "fuzz", &file, &error);
    if (status != DSMOE_OK) {
        require(file == NULL);
        require_error(status, &error);
        return 0;
    }
    for (size_t i = 0; i < gguf_count(file); i++) {
        const gguf_tensor *tensor = gguf_at(file, i);
        require(i == 0 || strcmp(gguf_at(file, i - 1)->name, tensor->name) < 0);
        use_tensor(file, tensor);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) use_key(file, keys[i]);
    use_model(file);
    use_tokenizer(file);
    require(gguf_check_intact(file, NULL) == DSMOE_OK);
    gguf_close(file);
    return 0;
}

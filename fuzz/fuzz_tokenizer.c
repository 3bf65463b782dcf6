/* fuzz_tokenizer.c - any bytes as a tokenizer.json: refused with a reason, or it encodes and decodes a
 * short text. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A little of everything: words, digits, line ends, other scripts, invalid bytes, NUL. */
static const char text[] = "ab Hello  <s>12½\n\n\tö你好</s> e\xcc\x81\x80\xff\0aaaaaaaaaaaaaaab ";

static void encode_and_decode(const dsmoe_tokenizer *tokenizer, int flags)
{
    int32_t *ids;
    size_t n_ids, length;
    dsmoe_error error;
    char *back;
    if (dsmoe_tokenizer_encode(tokenizer, text, sizeof text, flags, &ids, &n_ids, &error) !=
        DSMOE_OK)
        return;
    /* Whatever encoding returned, decoding accepts. */
    if (dsmoe_tokenizer_decode(tokenizer, ids, n_ids, &back, &length, &error) != DSMOE_OK) abort();
    if (strlen(back) > length) abort();
    free(back);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tokenizer_text file = {(const char *)data, size, "input"};
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error = {0};
    if (tokenizer_parse(&file, NULL, &tokenizer, &error) != DSMOE_OK) {
        if (!error.message[0]) abort();
        return 0;
    }
    encode_and_decode(tokenizer, 0);
    encode_and_decode(tokenizer, DSMOE_ENCODE_BOS | DSMOE_ENCODE_SPECIAL);
    dsmoe_tokenizer_free(tokenizer);
    return 0;
}

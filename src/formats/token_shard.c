/* token_shard.c - files of tokens in the public form. */
#include "formats/token_shard.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tokens are little-endian and used in place");

enum { FIELD_MAGIC, FIELD_VERSION, FIELD_COUNT, N_FIELDS };
_Static_assert(N_FIELDS * sizeof(int32_t) == TOKEN_SHARD_OWN_FIELDS, "the public fields");

static const struct {
    int32_t magic, version;
    int token_size;
} forms[] = {{20240520, 1, 2}, {20240801, 7, 4}};
enum { N_FORMS = sizeof forms / sizeof *forms };

static int find_form(int32_t magic)
{
    for (int i = 0; i < N_FORMS; i++)
        if (forms[i].magic == magic) return i;
    return -1;
}

bool token_shard_has_magic(const void *bytes, size_t size)
{
    int32_t magic;
    if (size < sizeof magic) return false;
    memcpy(&magic, bytes, sizeof magic);
    return find_form(magic) >= 0;
}

dsmoe_status token_shard_parse_head(const void *bytes, size_t size, const char *source,
                                    token_shard *shard, dsmoe_error *error)
{
    *shard = (token_shard){0};
    if (!token_shard_has_magic(bytes, size))
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: not a shard of tokens: it begins with neither %d nor %d", source,
                           (int)forms[0].magic, (int)forms[1].magic);
    if (size < TOKEN_SHARD_HEADER_SIZE)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: a shard of tokens that ends after %zu bytes, inside its header",
                           source, size);
    int32_t fields[N_FIELDS];
    memcpy(fields, bytes, sizeof fields);
    int form = find_form(fields[FIELD_MAGIC]);
    if (fields[FIELD_VERSION] != forms[form].version)
        return status_fail(error, DSMOE_ERROR_FORMAT,
                           "%s: a shard of tokens of version %d; only version %d is known", source,
                           (int)fields[FIELD_VERSION], (int)forms[form].version);
    if (fields[FIELD_COUNT] < 0)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: the header says %d tokens", source,
                           (int)fields[FIELD_COUNT]);
    *shard = (token_shard){.tokens = (const unsigned char *)bytes + TOKEN_SHARD_HEADER_SIZE,
                           .n_tokens = (size_t)fields[FIELD_COUNT],
                           .token_size = forms[form].token_size};
    return DSMOE_OK;
}

dsmoe_status token_shard_parse(const void *bytes, size_t size, const char *source,
                               token_shard *shard, dsmoe_error *error)
{
    STATUS_TRY(token_shard_parse_head(bytes, size, source, shard, error));
    size_t room = size - TOKEN_SHARD_HEADER_SIZE, token_size = (size_t)shard->token_size;
    if (room % token_size == 0 && room / token_size == shard->n_tokens) return DSMOE_OK;
    size_t n_tokens = shard->n_tokens;
    *shard = (token_shard){0};
    return status_fail(error, DSMOE_ERROR_FORMAT,
                       "%s: the header says %zu tokens of %zu bytes, but %zu bytes follow it: the "
                       "file is cut short or was written wrongly",
                       source, n_tokens, token_size, room);
}

/* Searches piece by piece (BLOCK tokens), each without branches: such a loop uses vector instructions,
 * and there is nearly always nothing to find. */
size_t token_shard_find_above(const token_shard *shard, int64_t vocab_size)
{
    enum { BLOCK = 4096 };
    const size_t n = shard->n_tokens;
    if (vocab_size > (shard->token_size == 2 ? UINT16_MAX : (int64_t)UINT32_MAX)) return n;
    const uint32_t limit = vocab_size < 0 ? 0 : (uint32_t)vocab_size;
    for (size_t begin = 0; begin < n; begin += BLOCK) {
        size_t end = n - begin < BLOCK ? n : begin + BLOCK;
        uint32_t above = 0;
        if (shard->token_size == 2)
            for (size_t i = begin; i < end; i++) {
                uint16_t token;
                memcpy(&token, shard->tokens + i * sizeof token, sizeof token);
                above |= token >= limit;
            }
        else
            for (size_t i = begin; i < end; i++) {
                uint32_t token;
                memcpy(&token, shard->tokens + i * sizeof token, sizeof token);
                above |= token >= limit;
            }
        for (size_t i = begin; above && i < end; i++)
            if (token_shard_token(shard, i) >= limit) return i;
    }
    return n;
}

void token_shard_fill_header(unsigned char header[TOKEN_SHARD_HEADER_SIZE], int token_size,
                             int32_t n_tokens)
{
    int form = 0;
    while (form < N_FORMS - 1 && forms[form].token_size != token_size) form++;
    int32_t fields[N_FIELDS] = {forms[form].magic, forms[form].version, n_tokens};
    memset(header, 0, TOKEN_SHARD_HEADER_SIZE);
    memcpy(header, fields, sizeof fields);
}

void token_shard_pack(const int32_t *tokens, size_t n, int token_size, unsigned char *out)
{
    if (token_size == 4) {
        if (n > 0) memcpy(out, tokens, n * sizeof *tokens);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t token = (uint16_t)tokens[i];
        memcpy(out + i * sizeof token, &token, sizeof token);
    }
}

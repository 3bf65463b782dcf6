/* token_label.c - a token as people can read it. */
#include "report/token_label.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

enum { MAX_COLUMNS = 20 };

typedef struct code_range {
    uint32_t first, last;
} code_range;

/* Control characters, and invisible characters that change how the text around them looks. */
static const code_range unseen[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},
                                    {0x061c, 0x061c}, {0x180e, 0x180e}, {0x200b, 0x200f},
                                    {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfe00, 0xfe0f},
                                    {0xfeff, 0xfeff}, {0xfff0, 0xfffb}, {0xe0000, 0xe0fff}};

/* Characters that take two columns, roughly. */
static const code_range wide[] = {{0x1100, 0x115f}, {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
                                  {0xf900, 0xfaff}, {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                  {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}};

static bool in_ranges(uint32_t code, const code_range *ranges, size_t n_ranges)
{
    for (size_t i = 0; i < n_ranges; i++)
        if (code >= ranges[i].first && code <= ranges[i].last) return true;
    return false;
}

/* Writes a character, or a byte of no character, as it is shown. Returns its columns; *size is its bytes. */
static int show_character(const char *bytes, size_t length, char out[16], size_t *size)
{
    uint32_t code = 0;
    *size = utf8_decode(bytes, length, &code);
    if (*size == 0) {
        *size = 1;
        return snprintf(out, 16, "\\x%02X", (unsigned char)bytes[0]);
    }
    const char *sign = code == ' ' ? "␣" : code == '\n' ? "↵" : code == '\t' ? "⇥" : NULL;
    if (sign) {
        snprintf(out, 16, "%s", sign);
        return 1;
    }
    if (in_ranges(code, unseen, sizeof unseen / sizeof *unseen))
        return snprintf(out, 16, "\\u{%X}", (unsigned)code);
    snprintf(out, 16, "%.*s", (int)*size, bytes);
    if (code >= 0x300 && code <= 0x36f) return 0; /* combines with the character before it */
    return in_ranges(code, wide, sizeof wide / sizeof *wide) ? 2 : 1;
}

int token_label(const dsmoe_tokenizer *tokenizer, int32_t token, char out[TOKEN_LABEL])
{
    size_t length = 0, used = 0, size;
    const char *piece = tokenizer ? dsmoe_tokenizer_piece(tokenizer, token, &length) : NULL;
    if (!piece) return snprintf(out, TOKEN_LABEL, "#%d", (int)token);
    int columns = 0;
    out[0] = '\0';
    for (size_t i = 0; i < length; i += size) {
        char shown[16];
        int width = show_character(piece + i, length - i, shown, &size);
        if (columns + width > MAX_COLUMNS || used + sizeof shown + 4 > TOKEN_LABEL) {
            snprintf(out + used, TOKEN_LABEL - used, "…");
            return columns + 1;
        }
        used += (size_t)snprintf(out + used, TOKEN_LABEL - used, "%s", shown);
        columns += width;
    }
    return columns;
}

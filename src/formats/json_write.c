/* json_write.c - strings and numbers of JSON text. */
#include "formats/json_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static void write_byte(FILE *text, unsigned char c)
{
    switch (c) {
    case '"': fputs("\\\"", text); break;
    case '\\': fputs("\\\\", text); break;
    case '\n': fputs("\\n", text); break;
    case '\r': fputs("\\r", text); break;
    case '\t': fputs("\\t", text); break;
    default:
        if (c < 0x20 || c == 0x7f) /* 0x7f would delete on a terminal */
            fprintf(text, "\\u%04x", c);
        else
            fputc(c, text);
    }
}

void json_write_string(FILE *text, const char *string)
{
    json_write_text(text, string, strlen(string));
}

void json_write_text(FILE *text, const char *bytes, size_t length)
{
    fputc('"', text);
    for (size_t i = 0, size; i < length; i += size) {
        size = utf8_character(bytes + i, length - i);
        if (size == 1)
            write_byte(text, (unsigned char)bytes[i]);
        else if (size > 1)
            fwrite(bytes + i, 1, size, text);
        else {
            fputs("\xef\xbf\xbd", text);
            size = 1;
        }
    }
    fputc('"', text);
}

void json_write_number(FILE *text, double number)
{
    if (number == rint(number) && fabs(number) < 1e15) {
        fprintf(text, "%.0f", number);
        if (number == 0 && signbit(number))
            fputs(".0", text); /* "-0" reads back as an integer: 0 */
        return;
    }
    char digits[64];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number) break;
    }
    /* Anything but a digit, sign or exponent is the locale's point, which may have several bytes. */
    for (const char *c = digits; *c;) {
        size_t length = strspn(c, "0123456789+-e");
        fwrite(c, 1, length, text);
        c += length;
        if (*c) fputc('.', text);
        c += strcspn(c, "0123456789+-e");
    }
}

/* json_write.c - strings and numbers of JSON text. */
#include "formats/json_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_write_string(FILE *text, const char *string)
{
    fputc('"', text);
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(text, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(text, "\\u%04x", *c);
        else
            fputc(*c, text);
    }
    fputc('"', text);
}

void json_write_number(FILE *text, double number)
{
    if (number == rint(number) && fabs(number) < 1e15) {
        fprintf(text, "%.0f", number);
        return;
    }
    char digits[64];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number) break;
    }
    /* What is no digit, sign or exponent is the point of the locale, maybe of several bytes. */
    for (const char *c = digits; *c;) {
        size_t length = strspn(c, "0123456789+-e");
        fwrite(c, 1, length, text);
        c += length;
        if (*c) fputc('.', text);
        c += strcspn(c, "0123456789+-e");
    }
}

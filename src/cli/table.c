/* table.c - numbers for people. */
#include "cli/table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* ---- tables --------------------------------------------------------------------------------- */

void table_text(text_table *table, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(table->cells[table->n_cells++], TABLE_CELL, format, arguments);
    va_end(arguments);
}

void table_number(text_table *table, int64_t number)
{
    char text[TABLE_CELL];
    table_text(table, "%s", number ? number_group(number, text) : "-");
}

void table_share(text_table *table, double part, double whole, int decimals)
{
    if (part == 0)
        table_text(table, "-");
    else
        table_text(table, "%.*f %%", decimals, 100 * part / whole);
}

void table_print(const text_table *table)
{
    int widths[TABLE_MAX_COLUMNS] = {0};
    for (int i = 0; i < table->n_cells; i++) {
        int width = (int)strlen(table->cells[i]), *widest = &widths[i % table->n_columns];
        if (width > *widest) *widest = width;
    }
    bool colour = cli_wants_colour(stdout);
    for (int i = 0; i < table->n_cells; i++) {
        int column = i % table->n_columns;
        bool bold = colour && i / table->n_columns < table->n_headers;
        bool last = column == table->n_columns - 1;
        if (column == 0)
            printf("%s%-*s", bold ? "\033[1m" : "", widths[0], table->cells[i]);
        else if (!last || table->cells[i][0]) /* no blanks at the end of a line */
            printf("  %*s", widths[column], table->cells[i]);
        if (last) puts(bold ? "\033[0m" : "");
    }
}

/* ---- numbers -------------------------------------------------------------------------------- */

const char *number_group(int64_t number, char out[TABLE_CELL])
{
    char digits[TABLE_CELL / 2];
    snprintf(digits, sizeof digits, "%" PRId64, number);
    cli_group_digits(digits, out);
    return out;
}

const char *number_shorten(int64_t number, char out[TABLE_CELL])
{
    static const char units[] = "\0KMBT";
    double rounded = (double)number;
    int unit = 0;
    for (; rounded >= 999.95 && unit < 4; unit++) rounded /= 1000;
    if (unit)
        snprintf(out, TABLE_CELL, "%.1f%c", rounded, units[unit]);
    else
        snprintf(out, TABLE_CELL, "%" PRId64, number);
    return out;
}

bool count_is_short(const char *digits) { return strlen(digits) <= 16; }

const char *count_shorten(const char *digits, char out[TABLE_CELL])
{
    if (count_is_short(digits)) {
        cli_group_digits(digits, out);
        return out;
    }
    char leading[24];
    snprintf(leading, sizeof leading, "%c.%.17s", digits[0], digits + 1);
    double mantissa = strtod(leading, NULL);
    size_t exponent = strlen(digits) - 1;
    if (mantissa >= 9.99995) { /* would be printed as 10.0000 */
        mantissa /= 10;
        exponent++;
    }
    snprintf(out, TABLE_CELL, "%.4fe%zu", mantissa, exponent);
    return out;
}

void count_print(int64_t n, int64_t k, const char *digits)
{
    enum { GROUPS_PER_LINE = 24 }; /* 2 + 24 * 4 columns */
    size_t left = strlen(digits);
    printf("C(%" PRId64 ", %" PRId64 ") in full, %zu digits:", n, k, left);
    for (size_t group = 0; left > 0; group++) {
        size_t size = left % 3 ? left % 3 : 3;
        if (group % GROUPS_PER_LINE == 0) fputs("\n  ", stdout);
        printf("%.*s%s", (int)size, digits, left > size ? "," : "\n");
        digits += size;
        left -= size;
    }
}

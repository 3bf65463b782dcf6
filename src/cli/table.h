/* table.h - numbers for people: tables with aligned columns, grouped digits, huge counts. */
#ifndef DSMOE_CLI_TABLE_H
#define DSMOE_CLI_TABLE_H

#include <stdbool.h>
#include <stdint.h>

enum { TABLE_MAX_ROWS = 16, TABLE_MAX_COLUMNS = 8, TABLE_CELL = 48 };

/* Cells are appended row by row. The first column is aligned left, the others right. */
typedef struct text_table {
    int n_columns, n_headers, n_cells;
    char cells[TABLE_MAX_ROWS * TABLE_MAX_COLUMNS][TABLE_CELL];
} text_table;

void table_text(text_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A number with grouped digits; "-" for 0. */
void table_number(text_table *table, int64_t number);
/* In per cent; "-" if the part is 0. */
void table_share(text_table *table, double part, double whole, int decimals);
/* Prints to stdout; the header rows are bold if colour is wanted. */
void table_print(const text_table *table);

/* 16375728128 as "16,375,728,128"; returns `out`. */
const char *number_group(int64_t number, char out[TABLE_CELL]);
/* 16375728128 as "16.4B". */
const char *number_shorten(int64_t number, char out[TABLE_CELL]);

/* For a count of any size: whether a column can hold it exactly; the column's text, exact or like
 * "2.7029e299"; and all of its digits, printed on lines of their own after "C(n, k)". */
bool count_is_short(const char *digits);
const char *count_shorten(const char *digits, char out[TABLE_CELL]);
void count_print(int64_t n, int64_t k, const char *digits);

#endif

/* heatmap.c - a table of loads over the mean, as colours.
 *
 * Each colour is one path of horizontal strokes as thick as a row, which takes a few bytes for equal
 * neighbouring cells. Transparent rectangles above it have the text for hovering. */
#include "report/heatmap.h"

#include <math.h>
#include <string.h>

#include "report/digits.h"
#include "report/page.h"

enum { WIDTH = 2000 };   /* of the stretched SVG; a row is 1 high */
enum { MIN_COLUMN = 4 }; /* pixels that a cell needs to be pointed at */

static int edge(const heatmap *map, size_t column)
{
    double place = map->x && column > 0 ? axis_place(map->x, map->edges[column - 1])
                   : map->x             ? 0
                                        : (double)column / (double)map->n_columns;
    return (int)lrint(WIDTH * (place < 0 ? 0 : place > 1 ? 1 : place));
}

static int shade(const heatmap *map, size_t row, size_t column)
{
    return page_shade(map->value(map->context, row, column));
}

/* Draws the cells of one colour. */
static void put_shade(FILE *html, const heatmap *map, int which)
{
    bool begun = false;
    for (size_t row = 0; row < map->n_rows; row++)
        for (size_t from = 0, to; from < map->n_columns; from = to) {
            int here = shade(map, row, from);
            for (to = from + 1; to < map->n_columns && shade(map, row, to) == here;) to++;
            if (here != which) continue;
            if (!begun) fprintf(html, "<path class=\"s%d\" d=\"", which);
            begun = true;
            fprintf(html, "M%d %zuh%d", edge(map, from), row, edge(map, to) - edge(map, from));
        }
    if (begun) fputs("\"/>\n", html);
}

static void put_titles(FILE *html, const heatmap *map)
{
    for (size_t row = 0; row < map->n_rows; row++) {
        size_t n = map->title_cells ? map->n_columns : 1;
        for (size_t column = 0; column < n; column++) {
            int from = map->title_cells ? edge(map, column) : 0;
            int to = map->title_cells ? edge(map, column + 1) : WIDTH;
            fprintf(html,
                    "<rect class=\"hit\" x=\"%d\" y=\"%zu\" width=\"%d\" height=\"1\"><title>",
                    from, row, to - from);
            map->title(html, map->context, row, map->title_cells ? column : map->n_columns);
            fputs("</title></rect>\n", html);
        }
    }
}

/* How many rows or columns apart numbers must be to have room. */
static size_t label_every(size_t n, double size, double room)
{
    size_t every = 1;
    while ((double)every * size < room && every < n) every *= 2;
    return every;
}

/* Whether rows have names, which need more room than numbers. */
static bool has_names(const heatmap *map)
{
    bool found = false;
    for (size_t row = 0; map->row_names && row < map->n_rows; row++)
        found |= strlen(map->row_names[row]) > 3;
    return found;
}

static void put_row_names(FILE *html, const heatmap *map)
{
    size_t every = map->row_names ? 1 : label_every(map->n_rows, map->row_height, 15);
    for (size_t row = 0; row < map->n_rows; row += every) {
        fprintf(html, "<text class=\"end\" x=\"-6\" y=\"%.1f\" dy=\".35em\">",
                ((double)row + 0.5) * map->row_height);
        if (map->row_names)
            page_text_cut(html, map->row_names[row], 14);
        else
            fprintf(html, "%zu", row);
        fputs("</text>\n", html);
    }
}

/* At the right edge a label ends below its tick, where it is not cut off. */
static void put_x_label(FILE *html, double percent, const char *text)
{
    fprintf(html, "<text class=\"%s\" x=\"%.2f%%\" y=\"100%%\" dy=\"15\">%s</text>\n",
            percent > 98 ? "end" : "mid", percent, text);
}

static void put_x_names(FILE *html, const heatmap *map)
{
    char digits[DIGITS];
    if (map->x) {
        for (int i = 0; i < map->x->n_ticks; i++)
            put_x_label(html, 100 * axis_place(map->x, map->x->ticks[i]),
                        digits_tick(map->x->ticks[i], digits));
    } else {
        size_t every = label_every(map->n_columns, 260.0 / (double)map->n_columns, 24);
        for (size_t i = 0; i < map->n_columns; i += every)
            put_x_label(html, 100 * ((double)i + 0.5) / (double)map->n_columns,
                        digits_group((double)(map->numbers ? map->numbers[i] : i), digits));
    }
    fputs("<text class=\"name mid\" x=\"50%\" y=\"100%\" dy=\"29\">", html);
    page_text(html, map->x_name);
    fprintf(html, "</text><text class=\"name\" x=\"%d\" y=\"-8\">", has_names(map) ? -90 : -24);
    page_text(html, map->y_name);
    fputs("</text>\n", html);
}

void heatmap_put(FILE *html, const heatmap *map)
{
    fprintf(html, "<div class=\"wide\"><svg class=\"plot map%s%s\" style=\"height:%zupx",
            has_names(map) ? " named" : "", map->rows_lead ? " rows-lead" : "",
            map->n_rows * (size_t)map->row_height);
    if (map->title_cells) fprintf(html, ";min-width:%zupx", MIN_COLUMN * map->n_columns);
    fputs("\" role=\"img\" aria-label=\"", html);
    page_text(html, map->name);
    fprintf(html,
            "\">\n<svg width=\"100%%\" height=\"100%%\" viewBox=\"0 0 %d %zu\""
            " preserveAspectRatio=\"none\">\n<g transform=\"translate(0 .5)\">\n",
            WIDTH, map->n_rows);
    for (int i = 0; i < PAGE_SHADES; i++) put_shade(html, map, i);
    fputs("</g>\n", html);
    put_titles(html, map);
    fputs("</svg>\n", html);
    put_row_names(html, map);
    put_x_names(html, map);
    fputs("</svg></div>\n", html);
}

void heatmap_legend(FILE *html, const char *name, const char *empty)
{
    static const char *const marks[] = {"≤ ¼", "½", "1", "2", "≥ 4"};
    fprintf(html, "<div class=\"shades\"><span>%s</span><ol>", name);
    for (int i = 0; i < PAGE_SHADES; i++) {
        fprintf(html, "<li class=\"s%d\">", i);
        if (i % PAGE_SHADES_OF_TWO == 0) fprintf(html, "<b>%s</b>", marks[i / PAGE_SHADES_OF_TWO]);
        fputs("</li>", html);
    }
    if (empty) fprintf(html, "<li class=\"never\"><b>%s</b></li>", empty);
    fputs("</ol></div>\n", html);
}

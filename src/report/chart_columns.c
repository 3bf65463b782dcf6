/* chart_columns.c - a column for each number, on one axis that begins at 0. */
#include "report/chart.h"

#include <math.h>

#include "report/axis.h"
#include "report/digits.h"
#include "report/page.h"

static axis make_axis(const chart_columns *c)
{
    double high = c->level;
    for (size_t i = 0; i < c->n; i++) high = fmax(high, c->value(c->context, i));
    return axis_linear(0, high, 4, true, false);
}

/* The place of a value in per cent from the top. */
static double place(const axis *y, double value) { return 100 * (1 - axis_place(y, value)); }

static void put_y_axis(FILE *html, const chart_columns *c, const axis *y)
{
    char digits[DIGITS];
    for (int i = 0; i < y->n_ticks; i++)
        fprintf(html,
                "<line class=\"grid\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>"
                "<text class=\"end\" x=\"-8\" y=\"%.2f%%\" dy=\".35em\">%s %%</text>\n",
                place(y, y->ticks[i]), place(y, y->ticks[i]), place(y, y->ticks[i]),
                digits_plain(100 * y->ticks[i], 4, digits));
    fputs("<text class=\"name\" x=\"-44\" y=\"-14\">", html);
    page_text(html, c->y_name);
    fputs("</text>\n", html);
}

/* Puts about as many numbers as a phone has room for. */
static void put_x_axis(FILE *html, const chart_columns *c)
{
    size_t every = 1;
    while (c->n / every > 12) every *= 2;
    for (size_t i = 0; i < c->n; i += every)
        fprintf(html, "<text class=\"mid\" x=\"%.2f%%\" y=\"100%%\" dy=\"17\">%zu</text>\n",
                100 * ((double)i + 0.5) / (double)c->n, i);
    fputs("<line class=\"axis\" x2=\"100%\" y1=\"100%\" y2=\"100%\"/>\n"
          "<text class=\"name mid\" x=\"50%\" y=\"100%\" dy=\"34\">",
          html);
    page_text(html, c->x_name);
    fputs("</text>\n", html);
}

static void put_column(FILE *html, const chart_columns *c, const axis *y, size_t i)
{
    double wide = 100 / (double)c->n, value = c->value(c->context, i);
    fprintf(html,
            "<rect class=\"column s%d\" x=\"%.3f%%\" y=\"%.2f%%\" width=\"%.3f%%\""
            " height=\"%.2f%%\"/><rect class=\"hit\" x=\"%.3f%%\" width=\"%.3f%%\""
            " height=\"100%%\"><title>",
            page_shade(value / c->level), ((double)i + 0.1) * wide, place(y, value), 0.8 * wide,
            100 - place(y, value), (double)i * wide, wide);
    c->title(html, c->context, i);
    fputs("</title></rect>\n", html);
}

void chart_columns_put(FILE *html, const chart_columns *c)
{
    axis y = make_axis(c);
    chart_legend(html, NULL, 0, c->level_name);
    fputs("<svg class=\"plot\" role=\"img\" aria-label=\"", html);
    page_text(html, c->name);
    fputs("\">\n", html);
    put_y_axis(html, c, &y);
    put_x_axis(html, c);
    for (size_t i = 0; i < c->n; i++) put_column(html, c, &y, i);
    fprintf(html, "<line class=\"level\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>\n</svg>\n",
            place(&y, c->level), place(&y, c->level));
}

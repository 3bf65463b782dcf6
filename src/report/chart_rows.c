/* chart_rows.c - single values in rows, with mean and standard deviation, on one axis. */
#include "report/chart.h"

#include <math.h>
#include <string.h>

#include "report/axis.h"
#include "report/digits.h"
#include "report/page.h"

/* Labels are cut after LONGEST characters. If one has more than SHORT, all get more room. */
enum { ROW_HEIGHT = 42, SHORT = 17, LONGEST = 24 };

static bool make_axis(const chart_row *rows, size_t n, axis *a)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        spread s = spread_of(rows[i].values, rows[i].n);
        low = fmin(low, s.mean - s.deviation);
        high = fmax(high, s.mean + s.deviation);
        for (size_t j = 0; j < rows[i].n; j++) {
            low = fmin(low, rows[i].values[j]);
            high = fmax(high, rows[i].values[j]);
        }
    }
    if (!(low <= high)) return false;
    *a = axis_linear(low, high, 3, true, false); /* a phone has room for no more */
    return true;
}

static bool has_long_label(const chart_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(rows[i].label) > SHORT) return true;
    return false;
}

static void put_value(FILE *html, spread s, int decimals)
{
    char digits[DIGITS];
    fputs(digits_fixed(s.mean, decimals, digits), html);
    if (s.n > 1) fprintf(html, " ± %s", digits_fixed(s.deviation, decimals, digits));
}

static void put_row(FILE *html, const axis *a, const chart_row *row, double middle, int decimals)
{
    spread s = spread_of(row->values, row->n);
    char digits[DIGITS];
    fprintf(html, "<text class=\"label end\" x=\"-12\" y=\"%.0f\">", middle - 3);
    page_text_cut(html, row->label, LONGEST);
    fprintf(html, "</text><text class=\"end\" x=\"-12\" y=\"%.0f\">", middle + 13);
    put_value(html, s, decimals);
    fputs("</text>", html);
    if (s.n == 0) return;
    fprintf(html, "<rect class=\"hit\" y=\"%.0f\" width=\"100%%\" height=\"%d\"><title>",
            middle - ROW_HEIGHT / 2.0, ROW_HEIGHT);
    page_text(html, row->label);
    fputs(" ", html);
    put_value(html, s, decimals);
    for (size_t i = 0; i < row->n; i++)
        if (s.n > 1 && isfinite(row->values[i]))
            fprintf(html, "\n%s", digits_fixed(row->values[i], decimals + 1, digits));
    fputs("</title></rect>", html);
    if (s.deviation > 0)
        fprintf(html,
                "<line class=\"bar %s\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%.0f\" y2=\"%.0f\"/>",
                row->tone, 100 * axis_place(a, s.mean - s.deviation),
                100 * axis_place(a, s.mean + s.deviation), middle, middle);
    double mean = 100 * axis_place(a, s.mean);
    for (size_t i = 0; s.n > 1 && i < row->n; i++)
        if (isfinite(row->values[i]))
            fprintf(html, "<circle class=\"single %s\" cx=\"%.2f%%\" cy=\"%.0f\" r=\"3.5\"/>",
                    row->tone, 100 * axis_place(a, row->values[i]), middle);
    if (s.n == 1)
        fprintf(html, "<circle class=\"dot %s\" cx=\"%.2f%%\" cy=\"%.0f\" r=\"5\"/>", row->tone,
                mean, middle);
    else
        fprintf(html,
                "<line class=\"mean %s\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%.0f\" y2=\"%.0f\"/>",
                row->tone, mean, mean, middle - 9, middle + 9);
    fputc('\n', html);
}

void chart_rows(FILE *html, const char *name, const char *x_name, const chart_row *rows, size_t n,
                int decimals)
{
    axis a;
    char digits[DIGITS];
    if (n == 0 || !make_axis(rows, n, &a)) return;
    fprintf(html, "<svg class=\"plot rows%s\" style=\"height:%zupx\" role=\"img\" aria-label=\"",
            has_long_label(rows, n) ? " long" : "", n * ROW_HEIGHT);
    page_text(html, name);
    fputs("\">\n", html);
    for (int i = 0; i < a.n_ticks; i++) {
        double x = 100 * axis_place(&a, a.ticks[i]);
        fprintf(html,
                "<line class=\"grid\" y2=\"100%%\" x1=\"%.2f%%\" x2=\"%.2f%%\"/>"
                "<text class=\"mid\" x=\"%.2f%%\" y=\"100%%\" dy=\"17\">%s</text>\n",
                x, x, x, digits_fixed(a.ticks[i], a.decimals, digits));
    }
    fputs("<text class=\"name mid\" x=\"50%\" y=\"100%\" dy=\"34\">", html);
    page_text(html, x_name);
    fputs("</text>\n", html);
    for (size_t i = 0; i < n; i++)
        put_row(html, &a, &rows[i], ((double)i + 0.5) * ROW_HEIGHT, decimals);
    fputs("</svg>\n", html);
}

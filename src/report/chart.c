/* chart.c - line charts.
 *
 * Axes and dots are in an SVG without a viewBox, at places in per cent of its size. Lines are in an SVG
 * inside it that is stretched to the same size. So a chart fits every screen, with text of one size. */
#include "report/chart.h"

#include <math.h>
#include <string.h>

#include "report/axis.h"
#include "report/digits.h"
#include "report/page.h"

/* The stretched SVG. Whole numbers are fine enough for its coordinates. */
enum { WIDTH = 4000, HEIGHT = 2000 };
enum { MAX_HITS = 120, MAX_DOTS = 64 };

typedef struct frame {
    axis x, y;
} frame;

chart chart_make(const char *name, const char *x_name, const char *y_name)
{
    return (chart){.name = name,
                   .x_name = x_name,
                   .y_name = y_name,
                   .x_low = NAN,
                   .x_high = NAN,
                   .y_low = NAN,
                   .y_high = NAN,
                   .y_top = NAN};
}

/* ---- the frame ------------------------------------------------------------------------------ */

typedef struct range {
    double low, high;
} range;

static void cover(range *r, double value)
{
    r->low = fmin(r->low, value); /* fmin and fmax ignore NAN */
    r->high = fmax(r->high, value);
}

/* Makes both ranges cover a line, but not the extremes of a faint line, which may be far out. */
static void cover_line(range *x, range *y, const chart *c, const chart_line *line)
{
    bool extremes = line->form & (CHART_BAND | CHART_BARS) && !(line->form & CHART_FAINT);
    for (size_t i = 0; i < line->n; i++) {
        const series_point *point = &line->points[i];
        if (point->x < c->x_low || point->x > c->x_high) continue; /* false for NAN */
        cover(x, point->x);
        if (point->y > c->y_top || (c->log_y && !(point->y > 0))) continue;
        cover(y, point->y);
        if (!extremes || (c->log_y && !(point->low > 0))) continue;
        cover(y, point->low);
        cover(y, point->high);
    }
}

/* Makes the range cover the band of a faint line as well, but not more than half of itself further out, as
 * that would flatten the rest. */
static void cover_faint_band(range *y, const chart *c, const chart_line *line)
{
    double room = (y->high - y->low) / 2, low = y->low - room, high = y->high + room;
    if (!(line->form & CHART_FAINT) || !(line->form & CHART_BAND) || c->log_y) return;
    for (size_t i = 0; i < line->n; i++) {
        const series_point *point = &line->points[i];
        if (point->x < c->x_low || point->x > c->x_high || point->y > c->y_top) continue;
        if (point->low > low) cover(y, point->low);
        if (point->high < high && !(point->high > c->y_top)) cover(y, point->high);
    }
}

/* False if there is nothing to draw. */
static bool make_frame(const chart *c, frame *f)
{
    range x = {INFINITY, -INFINITY}, y = {INFINITY, -INFINITY};
    for (size_t i = 0; i < c->n_lines; i++) cover_line(&x, &y, c, &c->lines[i]);
    if (!(x.low <= x.high) || !(y.low <= y.high)) return false;
    for (size_t i = 0; i < c->n_lines; i++) cover_faint_band(&y, c, &c->lines[i]);
    cover(&x, c->x_low);
    cover(&x, c->x_high);
    cover(&y, c->y_low);
    cover(&y, c->y_high);
    if (c->level_name) cover(&y, c->level);
    f->x = axis_linear(x.low, x.high, 5, false, !c->x_percent);
    f->y = c->log_y && y.low > 0 ? axis_log(y.low, y.high)
                                 : axis_linear(y.low, y.high, c->tall ? 6 : 4, true, false);
    return true;
}

/* Places in per cent from the left and from the top. A place far outside is moved to just outside. */
static double percent(double place)
{
    return 100 * (place < -0.05 ? -0.05 : place > 1.05 ? 1.05 : place);
}

static double x_percent(const frame *f, double x) { return percent(axis_place(&f->x, x)); }
static double y_percent(const frame *f, double y) { return 100 - percent(axis_place(&f->y, y)); }

/* The same places in the stretched SVG. */
static int x_unit(const frame *f, double x) { return (int)lrint(x_percent(f, x) / 100 * WIDTH); }
static int y_unit(const frame *f, double y) { return (int)lrint(y_percent(f, y) / 100 * HEIGHT); }

static bool is_visible(const frame *f, const series_point *point)
{
    return point->x >= f->x.low && point->x <= f->x.high;
}

/* ---- axes ----------------------------------------------------------------------------------- */

static const char *x_label(const chart *c, double x, char out[DIGITS])
{
    if (c->x_percent) {
        char share[DIGITS];
        snprintf(out, DIGITS, "%.20s %%", digits_plain(100 * x, 4, share));
        return out;
    }
    return digits_tick(x, out);
}

/* If all numbers are small, all have a power of ten, though some could be written out. */
static const char *y_label(const axis *y, double tick, char out[DIGITS])
{
    double largest = fmax(fabs(y->low), fabs(y->high));
    if (largest >= 1e4 && fabs(tick) >= 1e3) return digits_short(tick, out);
    if (y->is_log || tick == 0 || largest >= 1e6) return digits_plain(tick, 6, out);
    return largest < 0.01 ? digits_power(tick, out) : digits_fixed(tick, y->decimals, out);
}

static void put_grid(FILE *html, const chart *c, const frame *f)
{
    char digits[DIGITS];
    for (int i = 0; i < f->y.n_ticks; i++) {
        double y = y_percent(f, f->y.ticks[i]);
        fprintf(html,
                "<line class=\"grid\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>"
                "<text class=\"end\" x=\"-8\" y=\"%.2f%%\" dy=\".35em\">%s</text>\n",
                y, y, y, y_label(&f->y, f->y.ticks[i], digits));
    }
    for (int i = 0; i < f->x.n_ticks; i++) {
        double x = x_percent(f, f->x.ticks[i]);
        fprintf(html, "<text class=\"mid\" x=\"%.2f%%\" y=\"100%%\" dy=\"17\">%s</text>\n", x,
                x_label(c, f->x.ticks[i], digits));
    }
    fputs("<line class=\"axis\" x2=\"100%\" y1=\"100%\" y2=\"100%\"/>\n", html);
    fputs("<text class=\"name mid\" x=\"50%\" y=\"100%\" dy=\"34\">", html);
    page_text(html, c->x_name);
    fputs("</text><text class=\"name\" x=\"-44\" y=\"-14\">", html);
    page_text(html, c->y_name);
    fprintf(html, "%s</text>\n", f->y.is_log ? ", log scale" : "");
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Whether a line has a band that is not flat everywhere. */
static bool has_band(const chart_line *line)
{
    if (!(line->form & CHART_BAND)) return false;
    for (size_t i = 0; i < line->n; i++)
        if (line->points[i].high > line->points[i].low) return true;
    return false;
}

/* Draws the band along its upper edge and back along its lower edge. */
static void put_band(FILE *html, const frame *f, const chart_line *line)
{
    fprintf(html, "<polygon class=\"band %s\" points=\"", line->tone);
    for (size_t i = 0; i < line->n; i++)
        if (is_visible(f, &line->points[i]))
            fprintf(html, "%d,%d ", x_unit(f, line->points[i].x), y_unit(f, line->points[i].high));
    for (size_t i = line->n; i-- > 0;)
        if (is_visible(f, &line->points[i]))
            fprintf(html, "%d,%d ", x_unit(f, line->points[i].x), y_unit(f, line->points[i].low));
    fputs("\"/>\n", html);
}

/* The CSS class of a line that is not plain. */
static const char *line_look(const chart_line *line)
{
    if (line->form & CHART_FAINT) return " faint";
    return line->form & CHART_DASHED ? " dashed" : "";
}

static void put_line(FILE *html, const frame *f, const chart_line *line)
{
    fprintf(html, "<polyline class=\"line%s %s\" points=\"", line_look(line), line->tone);
    for (size_t i = 0; i < line->n; i++) {
        const series_point *p = &line->points[i];
        if (!is_visible(f, p)) continue;
        if (line->form & CHART_STEPS && i > 0 && is_visible(f, p - 1) && p->y < p[-1].y)
            fprintf(html, "%d,%d ", x_unit(f, p->x), y_unit(f, p[-1].y));
        fprintf(html, "%d,%d ", x_unit(f, p->x), y_unit(f, p->y));
    }
    fputs("\"/>\n", html);
}

/* The bars of several lines at the same x are side by side, this many pixels apart. */
enum { BAR_APART = 6 };

static void put_dots(FILE *html, const chart *c, const frame *f, size_t index)
{
    const chart_line *line = &c->lines[index];
    double aside = BAR_APART * ((double)index - ((double)c->n_lines - 1) / 2);
    for (size_t i = 0; i < line->n; i++) {
        const series_point *p = &line->points[i];
        if (!is_visible(f, p) || y_percent(f, p->y) < 0) continue;
        double x = x_percent(f, p->x);
        if (line->form & CHART_BARS && p->high > p->low)
            fprintf(html,
                    "<line class=\"bar thin %s\" style=\"transform:translate(%.0fpx)\""
                    " x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>",
                    line->tone, aside, x, x, y_percent(f, p->low), y_percent(f, p->high));
        if (line->n <= MAX_DOTS)
            fprintf(html, "<circle class=\"dot %s\" cx=\"%.2f%%\" cy=\"%.2f%%\" r=\"3\"/>\n",
                    line->tone, x, y_percent(f, p->y));
    }
}

static void put_level(FILE *html, const chart *c, const frame *f)
{
    double y = y_percent(f, c->level);
    fprintf(html, "<line class=\"level\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>\n", y, y);
}

static void put_marks(FILE *html, const chart *c, const frame *f)
{
    for (size_t i = 0; i < c->n_marks; i++) {
        fprintf(html, "<circle class=\"hit mark\" cx=\"%.2f%%\" cy=\"100%%\" r=\"4\"><title>",
                x_percent(f, c->marks[i].x));
        page_text(html, c->marks[i].title);
        fputs("</title></circle>\n", html);
    }
}

/* ---- values --------------------------------------------------------------------------------- */

/* Writes " 2.31 (2.2 to 2.42)"; the range only if the chart draws one. */
static void put_point(FILE *html, const chart_line *line, double x)
{
    char digits[DIGITS];
    const series_point *p = series_near(line->points, line->n, x);
    fprintf(html, " %s", digits_plain(p->y, 4, digits));
    if (!(line->form & (CHART_BAND | CHART_BARS)) || !(p->high > p->low)) return;
    fprintf(html, " (%s", digits_plain(p->low, 4, digits));
    fprintf(html, " to %s)", digits_plain(p->high, 4, digits));
}

static void put_hit_title(FILE *html, const chart *c, double x)
{
    char digits[DIGITS];
    fputs("<title>", html);
    if (!c->x_percent) {
        page_text(html, c->x_name);
        fputc(' ', html);
    }
    fputs(c->x_percent ? x_label(c, x, digits) : digits_group(x, digits), html);
    for (size_t i = 0; i < c->n_lines; i++) {
        const chart_line *line = &c->lines[i];
        if (!line->name || line->n == 0) continue;
        if (x < line->points[0].x || x > line->points[line->n - 1].x) continue;
        fputc('\n', html);
        page_text(html, line->name);
        put_point(html, line, x);
    }
    if (c->level_name) {
        fputc('\n', html);
        page_text(html, c->level_name);
        fprintf(html, " %s", digits_plain(c->level, 4, digits));
    }
    fputs("</title>", html);
}

/* Puts strips for hovering side by side, each around some points of the line that has the most points. */
static void put_hits(FILE *html, const chart *c, const frame *f)
{
    const chart_line *line = &c->lines[0];
    for (size_t i = 1; i < c->n_lines; i++)
        if (c->lines[i].n > line->n) line = &c->lines[i];
    size_t every = (line->n + MAX_HITS - 1) / MAX_HITS;
    int from = 0;
    for (size_t i = every / 2; i < line->n; i += every) {
        double x = line->points[i].x;
        if (!is_visible(f, &line->points[i])) continue;
        int to = WIDTH;
        if (i + every < line->n) to = x_unit(f, (x + line->points[i + every].x) / 2);
        if (to > WIDTH) to = WIDTH;
        if (to <= from) continue;
        fprintf(html, "<rect class=\"hit\" x=\"%d\" width=\"%d\" height=\"%d\">", from, to - from,
                HEIGHT);
        put_hit_title(html, c, x);
        fputs("</rect>\n", html);
        from = to;
    }
}

/* ---- chart ---------------------------------------------------------------------------------- */

static void put_legend_item(FILE *html, const char *look, const char *more, const char *name)
{
    fprintf(html, "<li><i class=\"%s%s\"></i>", look, more);
    page_text(html, name);
    fputs("</li>", html);
}

void chart_legend(FILE *html, const chart_line *lines, size_t n, const char *level_name)
{
    fputs("<ul class=\"legend\">", html);
    for (size_t i = 0; i < n; i++)
        if (lines[i].name && lines[i].n > 0)
            put_legend_item(html, lines[i].tone, line_look(&lines[i]), lines[i].name);
    if (level_name) put_legend_item(html, "level", "", level_name);
    fputs("</ul>\n", html);
}

static void put_data(FILE *html, const chart *c, const frame *f)
{
    fprintf(html,
            "<svg width=\"100%%\" height=\"100%%\" viewBox=\"0 0 %d %d\""
            " preserveAspectRatio=\"none\">\n",
            WIDTH, HEIGHT);
    for (size_t i = 0; i < c->n_lines; i++)
        if (has_band(&c->lines[i])) put_band(html, f, &c->lines[i]);
    for (size_t i = 0; i < c->n_lines; i++) put_line(html, f, &c->lines[i]);
    put_hits(html, c, f);
    fputs("</svg>\n", html);
}

double chart_top(const chart *c)
{
    frame f;
    return make_frame(c, &f) ? f.y.high : (double)NAN;
}

void chart_put(FILE *html, const chart *c)
{
    frame f;
    if (!make_frame(c, &f)) return;
    size_t n_named = 0;
    for (size_t i = 0; i < c->n_lines; i++) n_named += c->lines[i].name && c->lines[i].n > 0;
    if (!c->no_legend && (n_named > 1 || c->level_name))
        chart_legend(html, c->lines, c->n_lines, c->level_name);
    fputs("<div class=\"spring\"></div>", html); /* charts side by side have the same bottom line */
    fprintf(html, "<svg class=\"plot%s\" role=\"img\" aria-label=\"", c->tall ? " tall" : "");
    page_text(html, c->name);
    fputs("\">\n", html);
    put_grid(html, c, &f);
    if (c->level_name) put_level(html, c, &f);
    put_data(html, c, &f);
    for (size_t i = 0; i < c->n_lines; i++) /* a line of a single point would be invisible */
        if (c->lines[i].form & (CHART_DOTS | CHART_BARS) || c->lines[i].n == 1)
            put_dots(html, c, &f, i);
    put_marks(html, c, &f);
    fputs("</svg>\n", html);
}

/* test_charts.c - the parts of charts: thinned series, axes, numbers for people, shades, an order for
 * matrices; and charts that only the command draws. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/statistics.h"
#include "report/axis.h"
#include "report/chart.h"
#include "report/digits.h"
#include "report/heatmap.h"
#include "report/page.h"
#include "report/seriation.h"
#include "report/series.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void test_series(void **state)
{
    (void)state;
    series s;
    assert_true(series_init(&s, 8));
    for (int i = 0; i < 1000; i++) series_add(&s, i, i == 777 ? 100 : i % 2 ? 1 : 3);
    assert_in_range(s.count, 4, 8);
    double n = 0, sum = 0, high = 0, low = 100;
    for (size_t i = 0; i < s.count; i++) {
        n += s.points[i].n;
        sum += s.points[i].n * s.points[i].y;
        high = fmax(high, s.points[i].high);
        low = fmin(low, s.points[i].low);
        if (i > 0) assert_true(s.points[i].x > s.points[i - 1].x);
    }
    assert_true(n == 1000 && high == 100 && low == 1);
    assert_true(fabs(sum - (2000 + 99)) < 1e-6);
    series_add(&s, 999, 5); /* not after the last one */
    series_add(&s, NAN, 5);
    series_add(&s, 2000, INFINITY);
    double after = 0;
    for (size_t i = 0; i < s.count; i++) after += s.points[i].n;
    assert_true(after == 1000);
    series_free(&s);

    assert_true(series_init(&s, 256));
    for (int i = 0; i < 200; i++) series_add(&s, i, 5 + (i % 2 ? 1 : -1));
    series_point *smooth = series_smooth(&s);
    assert_non_null(smooth);
    for (size_t i = 20; i < 180; i++) assert_true(fabs(smooth[i].y - 5) < 0.3);
    assert_true(smooth[0].y == 4); /* the start is not smoothed */
    assert_true(series_near(s.points, s.count, 41.4)->y == 6 && !series_near(s.points, 0, 1));
    free(smooth);
    series_free(&s);

    const double values[] = {1, NAN, 2, 3};
    spread all = spread_of(values, 4);
    assert_true(all.n == 3 && all.mean == 2 && fabs(all.deviation - 1) < 1e-12);
    assert_true(isnan(spread_of(values, 0).mean));
    assert_true(spread_of(values, 1).deviation == 0);
}

static void check_axis(const axis *a, double low, double high)
{
    double slack = 1e-5 * (high - low); /* a tiny excess needs no further tick */
    assert_true(a->low <= low + slack && a->high >= high - slack && a->low < a->high);
    assert_in_range(a->n_ticks, 2, AXIS_MAX_TICKS);
    for (int i = 0; i < a->n_ticks; i++) {
        assert_true(axis_place(a, a->ticks[i]) > -1e-6 && axis_place(a, a->ticks[i]) < 1 + 1e-6);
        if (i > 0) assert_true(a->ticks[i] > a->ticks[i - 1]);
    }
}

static void test_axis(void **state)
{
    (void)state;
    static const double ranges[][2] = {{0, 1},       {1.31, 2.9},   {0, 0},         {5, 5},
                                       {-3, 4},      {1e-30, 1e30}, {1e29, 1e30},   {-1e30, 1e30},
                                       {0.99, 1.01}, {2e-4, 1e-3},  {1, 1 + 1e-15}, {1e-30, 2e-30}};
    for (size_t i = 0; i < COUNT(ranges); i++) {
        double low = ranges[i][0], high = ranges[i][1];
        for (int n = 2; n < 7; n++) {
            axis a = axis_linear(low, high, n, true, false);
            check_axis(&a, low, high);
        }
        if (low <= 0) continue;
        axis a = axis_log(low, high);
        check_axis(&a, low, high);
        assert_true(fabs(axis_place(&a, sqrt(a.low * a.high)) - 0.5) < 1e-9);
    }
    axis a = axis_linear(0, 2000, 5, false, true);
    assert_true(a.low == 0 && a.high == 2000 && a.n_ticks == 5 && a.ticks[1] == 500);
    a = axis_log(0.15, 9);
    assert_true(a.low == 0.1 && a.high == 10);
    a = axis_linear(1.23, 3.3, 4, true, false);
    assert_true(a.low == 1 && a.decimals == 1 && a.ticks[1] == 1.5);
}

static void test_digits(void **state)
{
    (void)state;
    char out[DIGITS];
    assert_string_equal(digits_group(1234567, out), "1,234,567");
    assert_string_equal(digits_group(-999.6, out), "-1,000");
    assert_string_equal(digits_group(0, out), "0");
    assert_string_equal(digits_group(NAN, out), "–");
    assert_string_equal(digits_group(1e30, out), "1e30");
    assert_string_equal(digits_short(950, out), "950");
    assert_string_equal(digits_short(999.7, out), "1K");
    assert_string_equal(digits_short(12345, out), "12.3K");
    assert_string_equal(digits_short(16375728128, out), "16.4B");
    assert_string_equal(digits_short(-2e6, out), "-2M");
    assert_string_equal(digits_plain(0.0316, 4, out), "0.0316");
    assert_string_equal(digits_plain(2.5e-5, 4, out), "2.5e-5");
    assert_string_equal(digits_plain(1e-30, 4, out), "1e-30");
    assert_string_equal(digits_plain(12000, 4, out), "12,000");
    assert_string_equal(digits_plain(12335.4, 4, out), "12,335");
    assert_string_equal(digits_plain(INFINITY, 4, out), "–");
    assert_string_equal(digits_tick(1000, out), "1000");
    assert_string_equal(digits_tick(50000, out), "50K");
    assert_string_equal(digits_tick(0.5, out), "0.5");
    assert_string_equal(digits_power(0.001, out), "1e-3");
    assert_string_equal(digits_fixed(1.23456, 3, out), "1.235");
    assert_string_equal(digits_fixed(-1e30, 3, out), "-1e30");
    assert_string_equal(digits_time(43.4, out), "43 s");
    assert_string_equal(digits_time(725, out), "12 min 05 s");
    assert_string_equal(digits_time(12000, out), "3 h 20 min");
    assert_string_equal(digits_time(200000, out), "2 d 07 h");
    assert_string_equal(digits_time(-1, out), "–");
}

static void test_shades(void **state)
{
    (void)state;
    assert_int_equal(page_shade(1), PAGE_SHADES / 2);
    assert_int_equal(page_shade(0), 0);
    assert_int_equal(page_shade(0.25), 0);
    assert_int_equal(page_shade(0.5), 3);
    assert_int_equal(page_shade(4), PAGE_SHADES - 1);
    assert_int_equal(page_shade(1e30), PAGE_SHADES - 1);
    assert_int_equal(page_shade(NAN), -1);
    assert_string_equal(page_depth(0, 27), "d0");
    assert_string_equal(page_depth(26, 27), "d8");
    assert_string_equal(page_depth(0, 1), "d4");
    char cut[6];
    assert_string_equal(page_shorten("abcdef", cut, sizeof cut), "abcde");
    assert_string_equal(page_shorten("abcd\xc3\xa9", cut, sizeof cut), "abcd");
    assert_string_equal(page_shorten("", cut, sizeof cut), "");
}

/* ---- ordering ------------------------------------------------------------------------------- */

enum { THINGS = 24 };

/* Shuffles: the true place of thing i in the tests below. */
static int place(int i) { return i * 7 % THINGS; }

/* Three groups: the order must keep each one together, whatever the indices of its members. */
static void test_order_of_groups(void **state)
{
    (void)state;
    double affinity[THINGS * THINGS];
    int32_t order[THINGS];
    for (int a = 0; a < THINGS; a++)
        for (int b = 0; b < THINGS; b++)
            affinity[a * THINGS + b] = a % 3 == b % 3 ? 2 : -1 - 0.01 * ((a + b) % 5);
    assert_true(seriation_order(affinity, THINGS, order));
    bool seen[THINGS] = {false};
    for (int i = 0; i < THINGS; i++) {
        assert_in_range(order[i], 0, THINGS - 1);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
        assert_int_equal(order[i] % 3, order[i / 8 * 8] % 3);
    }
}

/* Things along a line, with an affinity that falls with their distance, must come out in that order from
 * one end or the other. */
static void test_order_of_a_line(void **state)
{
    (void)state;
    double affinity[THINGS * THINGS];
    int32_t order[THINGS];
    for (int a = 0; a < THINGS; a++)
        for (int b = 0; b < THINGS; b++) affinity[a * THINGS + b] = -abs(place(a) - place(b));
    assert_true(seriation_order(affinity, THINGS, order));
    int way = place(order[1]) - place(order[0]);
    assert_int_equal(abs(way), 1);
    for (int i = 1; i < THINGS; i++) assert_int_equal(place(order[i]) - place(order[i - 1]), way);
}

static void test_order_of_few(void **state)
{
    (void)state;
    const double same[9] = {0};
    int32_t order[3] = {7, 7, 7};
    assert_true(seriation_order(same, 0, order));
    assert_int_equal(order[0], 7);
    assert_true(seriation_order(same, 1, order));
    assert_int_equal(order[0], 0);
    assert_true(seriation_order(same, 3, order)); /* equal things keep their order */
    for (int i = 0; i < 3; i++) assert_int_equal(order[i], i);
}

/* ---- charts --------------------------------------------------------------------------------- */

static double square(const void *context, size_t column)
{
    (void)context;
    return 0.01 * (double)(column * column);
}

static void put_title(FILE *html, const void *context, size_t column)
{
    (void)context;
    fprintf(html, "column %zu", column);
}

static double by_column(const void *context, size_t row, size_t column)
{
    (void)context;
    return row ? (double)NAN : (double)column;
}

static void put_cell(FILE *html, const void *context, size_t row, size_t column)
{
    (void)context;
    fprintf(html, "row %zu, column %zu", row, column);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

static void shows(const char *html, const char *text)
{
    if (!strstr(html, text)) fail_msg("no %s in %s", text, html);
}

/* Both axes have names, the level is in the legend, and every column has a tooltip. */
static void test_columns(void **state)
{
    (void)state;
    char *html = NULL;
    size_t size;
    FILE *file = open_memstream(&html, &size);
    assert_non_null(file);
    const chart_columns c = {.name = "squares & more",
                             .x_name = "column",
                             .y_name = "share",
                             .level_name = "mean",
                             .level = 0.04,
                             .n = 4,
                             .value = square,
                             .title = put_title};
    chart_columns_put(file, &c);
    assert_int_equal(fclose(file), 0);
    shows(html, "aria-label=\"squares &amp; more\"");
    shows(html, ">column</text>");
    shows(html, ">share</text>");
    shows(html, "<i class=\"level\"></i>mean</li>");
    shows(html, ">4 %</text>");
    shows(html, "column s6\" x=\"52.500%\" y=\"60.00%\" width=\"20.000%\" height=\"40.00%\"");
    shows(html, "width=\"25.000%\" height=\"100%\"><title>column 3</title>");
    assert_int_equal(count(html, "class=\"hit\""), 4);
    free(html);
}

/* The band of a faint line is not cut off at the edge of the chart, unless it would flatten the lines. */
static void test_faint_band(void **state)
{
    (void)state;
    static const series_point points[] = {{1, 2, 1.6, 2.3, 4}, {2, 3, 2.9, 3.4, 4}},
                              far_out[] = {{1, 2, -90, 2, 4}, {2, 3, 3, 90, 4}};
    chart_line line = {"raw", "t0", points, 2, CHART_FAINT | CHART_BAND};
    chart c = chart_make("loss", "step", "nats");
    c.lines = &line;
    c.n_lines = 1;
    assert_true(chart_top(&c) >= 3.4 && chart_top(&c) < 4);
    c.y_top = 3.1;
    assert_true(chart_top(&c) < 3.4);
    c.y_top = NAN;
    line.points = far_out;
    assert_true(chart_top(&c) < 4);
    line.n = 0;
    assert_true(isnan(chart_top(&c)));
}

static void test_heatmap(void **state)
{
    (void)state;
    char *html = NULL;
    size_t size;
    FILE *file = open_memstream(&html, &size);
    assert_non_null(file);
    heatmap map = {.name = "cells",
                   .n_rows = 2,
                   .n_columns = 100,
                   .row_height = 10,
                   .value = by_column,
                   .x_name = "expert",
                   .y_name = "layer",
                   .title = put_cell,
                   .title_cells = true};
    heatmap_put(file, &map);
    heatmap_legend(file, "load", "never");
    assert_int_equal(fclose(file), 0);
    shows(html, ">expert</text>");
    shows(html, ">layer</text>");
    shows(html, "<div class=\"wide\">");
    shows(html, "min-width:400px"); /* narrower cells would be hard to point at */
    shows(html, "<li class=\"never\"><b>never</b></li>");
    shows(html, "<title>row 1, column 99</title>");
    assert_int_equal(count(html, "class=\"hit\""), 200);
    assert_null(strstr(strstr(html, "<path"), " 1h")); /* an empty row is not coloured */
    free(html);
}

/* Bytes that are no character become a mark, and texts are cut between characters. */
static void test_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *html;
        size_t most;
    } cases[] = {{"a<b>&\"'", "a&lt;b&gt;&amp;&quot;&#39;", 99},
                 {"\x01\xc2\x85\xff\xc3", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 99},
                 {"\xc3\xa9\xe2\x82\xac\n", "\xc3\xa9\xe2\x82\xac\n", 3},
                 {"\xc3\xa9\xe2\x82\xac!", "\xc3\xa9\xe2\x82\xac…", 2}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *html = NULL;
        size_t size;
        FILE *file = open_memstream(&html, &size);
        assert_non_null(file);
        page_text_cut(file, cases[i].text, cases[i].most);
        assert_int_equal(fclose(file), 0);
        assert_string_equal(html, cases[i].html);
        free(html);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_series),
        cmocka_unit_test(test_axis),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_shades),
        cmocka_unit_test(test_order_of_groups),
        cmocka_unit_test(test_order_of_a_line),
        cmocka_unit_test(test_order_of_few),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_faint_band),
        cmocka_unit_test(test_heatmap),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

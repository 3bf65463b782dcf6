/* series.c - numbers over steps in a bounded number of points. */
#include "report/series.h"

#include <math.h>
#include <stdlib.h>

bool series_init(series *s, size_t capacity)
{
    *s = (series){.points = calloc(capacity, sizeof(series_point)),
                  .capacity = capacity,
                  .per_point = 1,
                  .last_x = -INFINITY};
    return s->points != NULL;
}

void series_free(series *s)
{
    free(s->points);
    *s = (series){0};
}

static void merge(series_point *into, const series_point *other)
{
    double n = into->n + other->n, share = other->n / n;
    into->x += (other->x - into->x) * share;
    into->y += (other->y - into->y) * share;
    into->low = fmin(into->low, other->low);
    into->high = fmax(into->high, other->high);
    into->n = n;
}

static void halve(series *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i += 2) {
        series_point point = s->points[i];
        if (i + 1 < s->count) merge(&point, &s->points[i + 1]);
        s->points[kept++] = point;
    }
    s->count = kept;
    s->per_point *= 2;
}

void series_add(series *s, double x, double y)
{
    if (!isfinite(x) || !isfinite(y) || !(x > s->last_x)) return;
    s->last_x = x;
    series_point point = {x, y, y, y, 1};
    series_point *last = s->count ? &s->points[s->count - 1] : NULL;
    if (last && last->n < s->per_point) {
        merge(last, &point);
        return;
    }
    if (s->count == s->capacity) {
        halve(s);
        last = &s->points[s->count - 1];
        if (last->n < s->per_point) { /* an odd point that had no neighbour */
            merge(last, &point);
            return;
        }
    }
    s->points[s->count++] = point;
}

const series_point *series_near(const series_point *points, size_t n, double x)
{
    if (n == 0) return NULL;
    size_t low = 0, high = n; /* the first point not before x is within these */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (points[middle].x < x)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == n) return &points[n - 1];
    if (low > 0 && x - points[low - 1].x < points[low].x - x) low--;
    return &points[low];
}

series_point *series_smooth(const series *s)
{
    size_t n = s->count, widest = n / 50;
    series_point *smooth = calloc(n ? n : 1, sizeof *smooth);
    if (!smooth) return NULL;
    for (size_t i = 0; i < n; i++) {
        /* The window is no wider than the distance from the start, where the loss falls fast. */
        size_t before = i < widest ? i : widest;
        size_t after = n - 1 - i < before ? n - 1 - i : before;
        double sum = 0, weights = 0;
        for (size_t j = i - before; j <= i + after; j++) {
            double distance = ((double)j - (double)i) / ((double)widest + 1);
            double weight = s->points[j].n * (1 - distance * distance);
            sum += weight * s->points[j].y;
            weights += weight;
        }
        double y = sum / weights;
        smooth[i] = (series_point){s->points[i].x, y, y, y, s->points[i].n};
    }
    return smooth;
}

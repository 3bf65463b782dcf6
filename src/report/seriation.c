/* seriation.c - an order in which things that belong together are side by side.
 *
 * Each thing begins as a chain of its own. Until one chain is left, the two chains with the highest mean
 * affinity over all their pairs (average linkage) are joined, turned so that the two ends that meet have the
 * highest affinity. So groups stay whole, and neighbours fit within and between groups. This takes n³/6
 * comparisons. */
#include "report/seriation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct chain {
    int32_t *things; /* [length], with room for all things */
    size_t length;
} chain;

typedef struct chains {
    const double *affinity;
    size_t n_things, n;
    double *mean; /* [n_things, n_things] mean affinity of two chains */
    chain *chains;
} chains;

static double at(const chains *c, int32_t a, int32_t b)
{
    return c->affinity[(size_t)a * c->n_things + (size_t)b];
}

static void turn(chain *c)
{
    for (size_t i = 0, j = c->length; i + 1 < j; i++) {
        int32_t thing = c->things[--j];
        c->things[j] = c->things[i];
        c->things[i] = thing;
    }
}

/* Appends the second chain to the first. Both may be turned before, but not if that gains nothing. */
static void join(const chains *c, chain *first, chain *second)
{
    int32_t a_ends[] = {first->things[first->length - 1], first->things[0]};
    int32_t b_ends[] = {second->things[0], second->things[second->length - 1]};
    int best = 0;
    for (int way = 1; way < 4; way++)
        if (at(c, a_ends[way / 2], b_ends[way % 2]) > at(c, a_ends[best / 2], b_ends[best % 2]))
            best = way;
    if (best / 2) turn(first);
    if (best % 2) turn(second);
    memcpy(first->things + first->length, second->things, second->length * sizeof *second->things);
    first->length += second->length;
}

/* Joins two chains. The last chain takes the place of the second. */
static void merge(chains *c, size_t one, size_t other)
{
    size_t n = c->n_things, last = --c->n;
    double weight =
        (double)c->chains[other].length / (double)(c->chains[one].length + c->chains[other].length);
    for (size_t i = 0; i <= last; i++) {
        double *mean = &c->mean[one * n + i];
        *mean += weight * (c->mean[other * n + i] - *mean);
        c->mean[i * n + one] = *mean;
    }
    join(c, &c->chains[one], &c->chains[other]);
    chain gone = c->chains[other];
    c->chains[other] = c->chains[last];
    c->chains[last] = gone;
    for (size_t i = 0; i < last; i++) c->mean[other * n + i] = c->mean[last * n + i];
    for (size_t i = 0; i < last; i++) c->mean[i * n + other] = c->mean[i * n + last];
}

static void merge_best(chains *c)
{
    size_t one = 0, other = 1;
    for (size_t i = 0; i < c->n; i++)
        for (size_t j = i + 1; j < c->n; j++)
            if (c->mean[i * c->n_things + j] > c->mean[one * c->n_things + other])
                one = i, other = j;
    merge(c, one, other);
}

bool seriation_order(const double *affinity, size_t n, int32_t *order)
{
    chains c = {.affinity = affinity, .n_things = n, .n = n};
    c.mean = malloc((n * n + 1) * sizeof *c.mean);
    c.chains = malloc((n + 1) * sizeof *c.chains);
    int32_t *things = malloc((n * n + 1) * sizeof *things);
    bool ok = c.mean && c.chains && things;
    if (ok && n > 0) {
        memcpy(c.mean, affinity, n * n * sizeof *c.mean);
        for (size_t i = 0; i < n; i++) {
            things[i * n] = (int32_t)i;
            c.chains[i] = (chain){things + i * n, 1};
        }
        while (c.n > 1) merge_best(&c);
        memcpy(order, c.chains[0].things, n * sizeof *order);
    }
    free(things);
    free(c.chains);
    free(c.mean);
    return ok;
}

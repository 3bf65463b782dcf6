/* metrics.h - the server's counters, for /metrics. Any thread may count. */
#ifndef DSMOE_SERVE_METRICS_H
#define DSMOE_SERVE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

enum { METRICS_BUCKETS = 14, METRICS_ENDPOINTS = 32, METRICS_STATUSES = 16 };

typedef struct metrics_histogram {
    const double *bounds; /* [METRICS_BUCKETS] */
    _Atomic uint64_t counts[METRICS_BUCKETS + 1];
    _Atomic uint64_t sum; /* in millionths */
} metrics_histogram;

typedef struct metrics {
    double started_at;
    _Atomic uint64_t prompt_tokens, cached_tokens, predicted_tokens, passes;
    _Atomic uint64_t prompt_micros, predicted_micros; /* of reading and writing, over all texts */
    metrics_histogram first_token, inter_token, queue, pass_tokens;
    _Atomic uint64_t requests[METRICS_ENDPOINTS][METRICS_STATUSES];
} metrics;

/* Values that are taken when /metrics is requested. */
typedef struct metrics_gauges {
    int64_t n_running, n_waiting, n_pages, n_pages_used, n_pages_kept, n_connections;
} metrics_gauges;

void metrics_init(metrics *m, double now);
void metrics_observe(metrics_histogram *h, double value);
/* Counts an answer with this status. `endpoint` is an index into the table of paths. */
void metrics_count_request(metrics *m, int endpoint, int status);
/* Prometheus' text format; `paths` names the endpoints. */
void metrics_write(const metrics *m, const metrics_gauges *g, const char *const *paths, int n_paths,
                   double now, FILE *out);

#endif
